// SPDX-License-Identifier: Apache-2.0
#include "weft/tensor.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "ops/engine/copied_view.h"
#include "ops/engine/tensor_body.h"
#include "src/base/numeric.h"
#include "src/kernels/copy/copy.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/tape.h"
#include "weft/ops/factories.h"

namespace weft {

void retain_handle(TensorBody* body) { body->retain(); }
void release_handle(TensorBody* body) {
  if (body->release()) TensorBody::destroy(body);
}

void retain_handle(CopiedView* view) { view->retain(); }
void release_handle(CopiedView* view) {
  if (view->release()) CopiedView::destroy(view);
}

MemoryBlock TensorBody::block() const {
  if (copied) [[unlikely]]
    copied->read();
  auto* start = static_cast<char*>(storage->data());
  if (start) start += offset * static_cast<int64_t>(size_of(layout->dtype));
  return {start, layout->dtype, storage->device(), layout->box.shape, strides};
}

void check_tensor(const char* what, const Tensor& tensor) {
  if (!tensor) fail(what, ": no tensor is given, expected one");
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  const int more = to.ndim() - from.ndim();
  if (more < 0) return false;
  for (int d = 0; d < from.ndim(); ++d) {
    if (from[d] != 1 && from[d] != to[d + more]) return false;
  }
  return true;
}

bool repeats_elements(const Shape& shape, const Strides& strides) {
  if (shape.product() == 0) return false;
  int64_t extent = 1;
  int inner = shape.ndim();
  while (inner > 0 && (shape[inner - 1] == 1 || strides[inner - 1] >= extent)) {
    --inner;
    if (shape[inner] != 1) extent = strides[inner] * shape[inner];
  }
  if (inner == 0) return false;
  std::array<std::pair<int64_t, int64_t>, kMaxDims> dims;
  size_t count = 0;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] > 1) dims[count++] = {std::abs(strides[d]), shape[d]};
  }
  std::sort(dims.begin(), dims.begin() + static_cast<ptrdiff_t>(count));
  int64_t last = 0;
  for (size_t i = 0; i < count; ++i) {
    if (dims[i].first <= last) return true;
    last += dims[i].first * (dims[i].second - 1);
  }
  return false;
}

void check_changeable(const char* what, const Tensor& tensor) {
  const TensorBody& body = *tensor.body();
  const Strides* strides = body.layout->sharding ? nullptr : &body.strides;
  if (body.form) strides = &body.form->strides;
  if (strides && repeats_elements(body.layout->shape, *strides)) {
    fail(what, ": the tensor ", tensor.shape(), " repeats elements (expand), expected one that ",
         "holds each once; copy it first");
  }
  if (body.copied) {
    body.copied->check_changeable(what, tensor);
    refresh(tensor);
  }
  if (body.storage->is_copy()) {
    fail(what, ": the tensor ", tensor.shape(), " is a parameter gathered for forward, expected ",
         "its value(), which the next forward gathers again");
  }
}

void fail_outdated(const Tensor& tensor) {
  fail("autograd: a tensor ", tensor.shape(), " is used after a recorded op changed it in place ",
       "through another tensor over its memory, expected that tensor; or take the view again");
}

Tensor make_tensor(Ref<Layout> layout, Ref<Storage> storage, int64_t offset,
                   const Strides& strides) {
  auto* body = new TensorBody;
  body->layout = std::move(layout);
  body->storage = std::move(storage);
  body->offset = offset;
  body->strides = strides;
  body->recorded_changes = body->storage->recorded_changes();
  return Tensor(Ref<TensorBody>::first(body));
}

Tensor new_tensor(Ref<Layout> layout, Device device) {
  auto bytes = static_cast<size_t>(layout->box.shape.product()) * size_of(layout->dtype);
  Ref<Storage> storage = Storage::allocate(bytes, device);
  const Strides strides = layout->local_strides;
  return make_tensor(std::move(layout), std::move(storage), 0, strides);
}

Tensor relabeled(const Tensor& tensor, Ref<Layout> layout) {
  const TensorBody& body = *tensor.body();
  const bool is_same =
      layout == body.layout || (layout->sharding && layout->shape == body.layout->shape);
  Tensor made = make_tensor(std::move(layout), body.storage, body.offset, body.strides);
  if (is_same) made.body()->form = body.form;
  // Over a mesh no form means dense.
  if (is_same && !body.form && made.is_sharded() && !tensor.is_sharded() &&
      !(body.strides == body.layout->local_strides)) {
    made.body()->form = Ref<Form>(new Form(body.strides, 0));
  }
  made.body()->copied = body.copied;
  return made;
}

Tensor apart(const Tensor& tensor) {
  if (!tensor.body()->copied) return tensor;
  const TensorBody& from = *tensor.body();
  Tensor made = relabeled(tensor, from.layout);
  TensorBody& body = *made.body();
  body.copied = {};
  body.node = from.node;
  body.result = from.result;
  body.recorded_changes = from.recorded_changes;
  return made;
}

static const TensorBody& checked(const char* what, const Tensor& tensor) {
  check_tensor(what, tensor);
  return *tensor.body();
}

const Shape& Tensor::shape() const { return checked("shape", *this).layout->shape; }
int64_t Tensor::size(int dim) const { return shape()[normalized_dim("size", dim, ndim())]; }
DType Tensor::dtype() const { return checked("dtype", *this).layout->dtype; }
Device Tensor::device() const { return checked("device", *this).storage->device(); }
Sharding Tensor::sharding() const { return checked("sharding", *this).layout->sharding; }
bool Tensor::is_sharded() const {
  return static_cast<bool>(checked("sharding", *this).layout->sharding);
}
Box Tensor::box() const {
  const Layout& layout = *checked("box", *this).layout;
  if (layout.sharding.has_inner()) {
    fail(
        "box: the tensor ", layout.shape, " is laid out as ", layout.sharding,
        ", expected cuts of whole dims; a part of an inner factor is a box of the reshaped tensor");
  }
  return layout.box;
}
MemoryBlock Tensor::block() const { return checked("block", *this).block(); }
const Ref<Storage>& Tensor::storage() const { return checked("storage", *this).storage; }

Tensor Tensor::local() const {
  const Layout& layout = *checked("local", *this).layout;
  return relabeled(*this, layout_of(Sharding(), layout.box.shape, layout.dtype));
}

Tensor Tensor::detach() const { return relabeled(*this, checked("detach", *this).layout); }

double Tensor::item() const {
  check_tensor("item", *this);
  if (numel() != 1) fail("item: number of elements is ", numel(), ", expected 1");
  if (is_sharded() && !sharding().is_replicated()) {
    fail("item: the tensor is laid out as ", sharding(),
         ", expected a replicated one; call full_tensor() first");
  }
  if (is_complex(dtype())) {
    fail("item: dtype is ", dtype(), ", expected a real one; complex_item() returns both parts");
  }
  return to_vector<double>()[0];
}

template <class T> std::vector<T> Tensor::to_vector() const {
  check_tensor("to_vector", *this);
  if (device().kind == DeviceKind::meta) {
    fail("to_vector: the tensor ", shape(),
         " is on meta, expected one with values; materialize() allocates those of a module");
  }
  const Shape& local = body_->layout->box.shape;
  std::vector<T> values(static_cast<size_t>(local.product()));
  copy(dense_block(values.data(), dtype_of<T>, local), block());
  return values;
}
template WEFT_API std::vector<float> Tensor::to_vector() const;
template WEFT_API std::vector<double> Tensor::to_vector() const;
template WEFT_API std::vector<int64_t> Tensor::to_vector() const;
template WEFT_API std::vector<uint64_t> Tensor::to_vector() const;

bool Tensor::requires_grad() const {
  return static_cast<bool>(checked("requires_grad", *this).node);
}

bool Tensor::is_leaf() const {
  return !checked("is_leaf", *this).node || dynamic_cast<LeafNode*>(body_->node.get()) != nullptr;
}

Tensor& Tensor::set_requires_grad(bool requires_grad) {
  check_tensor("set_requires_grad", *this);
  if (!is_leaf())
    fail("set_requires_grad: the tensor ", shape(),
         " is the result of an op, expected a leaf; detach() it");
  if (requires_grad && !is_floating(dtype())) {
    fail("set_requires_grad: dtype is ", dtype(), ", expected a floating one");
  }
  if (requires_grad == this->requires_grad()) return *this;
  body_->node = requires_grad ? Ref<Node>(new LeafNode(body_->layout)) : Ref<Node>();
  return *this;
}

static LeafNode& leaf_of(const char* what, const Tensor& tensor) {
  auto* leaf = dynamic_cast<LeafNode*>(checked(what, tensor).node.get());
  if (!leaf)
    fail(what, ": the tensor ", tensor.shape(),
         " is a result or requires no gradient, expected a leaf that requires one");
  return *leaf;
}

Tensor Tensor::grad() const {
  const TensorBody& body = checked("grad", *this);
  if (!body.node) return {};
  if (body.node->is_leaf) return static_cast<LeafNode*>(body.node.get())->current_gradient();
  if (!body.node->hooks) return {};
  for (const auto& [result, gradient] : body.node->hooks->retained) {
    if (result == body.result) return gradient;
  }
  return {};
}

void Tensor::set_grad(Tensor grad) const {
  const Node* node = checked("set_grad", *this).node.get();
  if (node && !node->is_leaf && node->hooks) {
    for (auto& [result, kept] : node->hooks->retained) {
      if (result == body_->result) return std::swap(kept, grad);
    }
  }
  leaf_of("set_grad", *this).set_gradient(std::move(grad));
}

void set_gradient_sink(const Tensor& leaf, std::shared_ptr<GradientSink> sink) {
  leaf_of("set_gradient_sink", leaf).sink = std::move(sink);
}

void Tensor::backward() const {
  check_tensor("backward", *this);
  weft::backward({*this}, {});
}

Tensor tensor_in(Ref<Storage> storage, int64_t offset, const Shape& shape, DType dtype,
                 const Sharding& sharding) {
  Ref<Layout> layout = layout_of(sharding, shape, dtype);
  auto end = static_cast<size_t>(offset + layout->box.shape.product()) * size_of(dtype);
  if (offset < 0 || end > storage->bytes()) {
    fail("tensor_in: memory has ", storage->bytes(), " bytes, expected room for ",
         layout->box.shape, " elements of ", dtype, " from element ", offset, " on");
  }
  const Strides strides = layout->local_strides;
  return make_tensor(std::move(layout), std::move(storage), offset, strides);
}

static bool is_same_place(const MemoryBlock& a, const MemoryBlock& b) {
  if (a.data != b.data || a.dtype != b.dtype || !(a.shape == b.shape)) return false;
  for (int d = 0; d < a.shape.ndim(); ++d) {
    if (a.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

static int64_t bytes_of_step(const MemoryBlock& block, int dim) {
  return block.strides[dim] * static_cast<int64_t>(size_of(block.dtype));
}

/// The address of the first element, and the end of the last one.
static std::pair<uintptr_t, uintptr_t> extent_of(const MemoryBlock& block) {
  const auto begin = reinterpret_cast<uintptr_t>(block.data);
  uintptr_t end = begin + size_of(block.dtype);
  for (int d = 0; d < block.shape.ndim(); ++d) {
    end += static_cast<size_t>((block.shape[d] - 1) * bytes_of_step(block, d));
  }
  return {begin, end};
}

/// True if the elements lie between each other, as two columns of a matrix do: all steps are
/// multiples of a distance within which the elements of both have separate places.
static bool are_interleaved(const MemoryBlock& a, const MemoryBlock& b) {
  int64_t distance = 0;
  for (const MemoryBlock* block : {&a, &b}) {
    for (int d = 0; d < block->shape.ndim(); ++d) {
      if (block->shape[d] != 1) distance = std::gcd(distance, bytes_of_step(*block, d));
    }
  }
  if (distance == 0) return false;
  const auto between = static_cast<int64_t>(reinterpret_cast<uintptr_t>(b.data) -
                                            reinterpret_cast<uintptr_t>(a.data));
  const int64_t place = (between % distance + distance) % distance;
  return place >= static_cast<int64_t>(size_of(a.dtype)) &&
         place + static_cast<int64_t>(size_of(b.dtype)) <= distance;
}

bool is_disturbed(const MemoryBlock& read, const MemoryBlock& written) {
  if (!read.data || !written.data || read.numel() == 0 || written.numel() == 0) return false;
  const auto a = extent_of(read), b = extent_of(written);
  return a.first < b.second && b.first < a.second && !is_same_place(read, written) &&
         !are_interleaved(read, written);
}

Tensor snapshot_of(const MemoryBlock& block) {
  Tensor made = empty(block.shape, {.dtype = block.dtype, .device = block.device});
  copy(made.block(), block);
  return made;
}

Sharding reduced_sharding(const Sharding& sharding) {
  return keeping(sharding, [&](int axis) { return !sharding[axis].is_partial(); });
}

bool counts_here(const Sharding& sharding) {
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    const Placement& placement = sharding[axis];
    const bool sums = placement.is_partial() && placement.op() == ReduceOp::sum;
    if (sums && sharding.mesh().coordinate(axis) != 0) return false;
  }
  return true;
}

void check_sizes(const char* what, const Placements& placements, const Shape& shape) {
  const auto check = [&](const Placement& placement) {
    if (!placement.has_sizes()) return;
    const int dim = placement.counted(shape.ndim()).dim();
    const std::span<const int64_t> sizes = placement.sizes();
    const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    if (dim >= shape.ndim() || sum * placement.outer() == shape[dim]) return;
    fail(what, ": sum of the sizes of ", placement, " is ", sum, ", expected ",
         shape[dim] / placement.outer(), ", the size of dim ", dim, " of ", shape,
         placement.outer() > 1 ? " over its outer factors" : "");
  };
  for (const Placement& placement : placements.by_position()) check(placement);
  for (const NamedPlacement& named : placements.by_name()) check(named.placement);
}

}  // namespace weft
