// SPDX-License-Identifier: Apache-2.0
#include "ops/dims.h"
#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "src/kernels/copy/copy.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/tape.h"
#include "weft/ops/complex.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

namespace weft {

/// Adds to `spec` what all conversions have. structure: the number of the dtype.
static OpSpec conversion(OpSpec spec) {
  spec.rule = "... -> ...";
  spec.structure = {"number of a dtype", [](const Dims& s, std::span<const Shape>) {
                      return s.ndim() == 1 && s[0] >= 0 && s[0] < kDTypes;
                    }};
  spec.dtype = [](const Attributes& attributes, std::span<const DType>, int) {
    return static_cast<DType>(attributes.structure[0]);
  };
  spec.forward = [](const Call& c) { copy(c.out(), c.in(0)); };
  return spec;
}

/// The gradient of a real operand that became complex has no imaginary part.
static void give_in_own_dtype(const Grad& g) {
  const DType own = g.in_dtype(0);
  g.give(0, as_dtype(is_complex(own) ? g.grad() : real(g.grad()), own));
}

/// A cast between floating dtypes, but from f64 to narrower ones, counts as linear: a Partial
/// passes, rounded on each rank.
static const Op cast_op = register_op(conversion({
    .name = "cast",
    .complex = true,
    .linear = {{0}},
    .backward = give_in_own_dtype,
    .samples = {sample_with({{5, 7}}, {int64_t(f64)}), sample_with({{5, 7}}, {int64_t(bf16)})},
}));

/// A Partial in f64 is reduced before it is cast to a narrower dtype: its addends may be large and
/// cancel. One in f32 is not, so that a cast to bf16 halves what ranks send. Not among all_ops():
/// with numbers that f32 holds, the Partial would pass.
static const Op cast_double_op(conversion({
    .name = "cast_double",
    .takes = {anything()},
    .complex = true,
    .backward = give_in_own_dtype,
    .saves_in = std::vector<int>{},
}));

/// A Partial is reduced before it is cast to f8. Not among all_ops(), whose gradients are checked
/// by differences.
static const Op cast_float8_op(conversion({
    .name = "cast_float8",
    .takes = {anything()},
    .moves = true,
    .backward = give_in_own_dtype,
    .saves_in = std::vector<int>{},
}));

/// A cast to or from integers and bool rounds or compares: a Partial is reduced first.
static const Op convert_op = register_op(conversion({
    .name = "convert",
    .moves = true,
    .differentiable = false,
    .samples = {sample_with({{5, 7}}, {int64_t(i64)}), sample_with({{5, 7}}, {int64_t(boolean)}),
                sample_with({{5, 7}}, {int64_t(f32)}, {i32})},
}));

Tensor cast(const Tensor& a, DType dtype) {
  if (!a) fail("cast: no tensor is given, expected one");
  if (a.dtype() == dtype) return a;
  if (is_complex(a.dtype()) && !is_complex(dtype)) {
    if (dtype == DType::boolean) return not_equal(a, 0);
    fail("cast: dtype of the tensor ", a.shape(), " is ", a.dtype(), ", expected a real one for ",
         dtype, "; take its real() first");
  }
  const bool is_gradual = is_floating(a.dtype()) && is_floating(dtype);
  const bool has_float8 = is_float8(a.dtype()) || is_float8(dtype);
  const bool narrows = real_dtype(a.dtype()) == DType::f64 && real_dtype(dtype) != DType::f64;
  const Op& op = !is_gradual  ? convert_op
                 : has_float8 ? cast_float8_op
                 : narrows    ? cast_double_op
                              : cast_op;
  return op({a}, {.structure = {static_cast<int64_t>(dtype)}});
}

Tensor clone(const Tensor& a) {
  check_tensor("clone", a);
  const Op& op = is_float8(a.dtype()) ? cast_float8_op : cast_op;
  return op({a}, {.structure = {static_cast<int64_t>(a.dtype())}});
}

Tensor contiguous(const Tensor& a) {
  check_tensor("contiguous", a);
  MemoryBlock whole = a.block();
  const bool is_dense = whole.is_dense();
  if (const Ref<Form>& form = a.body()->form) {
    whole.shape = a.shape();
    whole.strides = form->strides;
  }
  return is_dense && whole.is_dense() ? a : clone(a);
}

Tensor masked_fill(const Tensor& a, const Tensor& mask, const Operand& value) {
  check_tensor("masked_fill", a);
  return where(mask, cast(next_to(a, value), a.dtype()), a);
}

Tensor Tensor::to(DType dtype) const { return cast(*this, dtype); }

Tensor Tensor::to(Device device) const {
  check_tensor("to", *this);
  if (this->device() == device) return *this;
  if (this->device().kind == DeviceKind::meta) {
    fail("to: the tensor ", shape(), " is on meta, expected one with values to copy to ", device);
  }
  Tensor result = new_tensor(layout_of(*this), device);
  if (device.kind != DeviceKind::meta) copy(result.block(), block());
  if (!is_recorded(*this)) return result;
  return record("to", {*this}, {result}, [from = this->device()](const Tensors& gradients) {
    return Tensors{gradients[0].to(from)};
  })[0];
}

DiskPlace disk_place(const Tensor& tensor) {
  const Ref<Storage>& storage = tensor.storage();
  if (storage->is_bound() || tensor.device().kind == DeviceKind::meta) return {};
  const auto element = static_cast<int64_t>(size_of(tensor.dtype()));
  return {storage->on_disk(), tensor.body()->offset * element,
          layout_of(tensor)->box.shape.product() * element};
}

bool rests_on_disk(const Tensor& tensor) { return disk_place(tensor).memory != nullptr; }

Tensor memory_like(const Tensor& on_disk) {
  return empty(on_disk.shape(), {.dtype = on_disk.dtype(), .sharding = on_disk.sharding()});
}

Tensor in_memory(const Tensor& tensor) {
  const DiskPlace place = disk_place(tensor);
  if (!place.memory) return tensor;
  Tensor copy = memory_like(tensor);
  place.memory->read(place.offset, place.bytes, copy.block().data).wait();
  return copy;
}

void write_to_disk(const Tensor& on_disk, const Tensor& values) {
  const DiskPlace place = disk_place(on_disk);
  if (!place.memory) fail("offload: the tensor ", on_disk.shape(), " is in memory, expected disk");
  const NoGrad no_grad;
  Tensor dense = values;
  if (!values.block().is_dense() || values.device().kind != DeviceKind::cpu) {
    dense = memory_like(on_disk);
    copy_(dense.local(), values.local());
  }
  place.memory->write(place.offset, place.bytes, dense.block().data).wait();
  changed(on_disk);
}

}  // namespace weft
