// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "mesh/plan.h"
#include "ops/engine/node.h"
#include "src/device/memory_blocks.h"
#include "weft/context.h"
#include "weft/tensor.h"

namespace weft {

/// The strides of a whole tensor, and its first element in the tensor that it is a view of, if one
/// device holds both: known to all ranks, as the layout is.
struct Form final : public RefCounted {
  Form(const Strides& given, int64_t first) : strides(given), offset(first) {}
  const Strides strides;
  const int64_t offset;
  static void destroy(Form* form) { delete form; }
};

inline bool same_form(const Ref<Form>& a, const Ref<Form>& b) {
  if (a == b) return true;
  return a && b && a->strides == b->strides && a->offset == b->offset;
}

struct CopiedView;
void retain_handle(CopiedView* view);
void release_handle(CopiedView* view);

/// The data behind a Tensor: its memory and its place on the tape.
struct TensorBody final : public RefCounted, public Pooled<TensorBody> {
  Ref<Layout> layout;
  Ref<Storage> storage;
  /// Elements from the storage's start to this rank's first one.
  int64_t offset = 0;
  /// Strides of this rank's part.
  Strides strides;
  /// The node that computed it, or the leaf's own node; null if no gradient is needed.
  Ref<Node> node;
  /// Its index among the node's results.
  int result = 0;
  /// The storage's, when `node` was known to say how all its elements were computed.
  uint32_t recorded_changes = 0;
  /// Null over a mesh if the whole is dense and starts at offset 0; on one device, if it has the
  /// strides of this part.
  Ref<Form> form;
  /// For a view that is held as a copy, and views of that; otherwise null.
  Ref<CopiedView> copied;

  MemoryBlock block() const;

  static void destroy(TensorBody* body) { delete body; }
};

/// Makes a tensor in existing memory.
Tensor make_tensor(Ref<Layout> layout, Ref<Storage> storage, int64_t offset,
                   const Strides& strides);
/// Makes a tensor with new, dense memory that is not initialised.
Tensor new_tensor(Ref<Layout> layout, Device device);
/// Returns a tensor with the same memory and another layout of the same local shape.
Tensor relabeled(const Tensor& tensor, Ref<Layout> layout);
/// Returns the tensor; for a copied view, the same elements as a tensor that is none.
Tensor apart(const Tensor& tensor);

inline const Ref<Layout>& layout_of(const Tensor& tensor) { return tensor.body()->layout; }

/// Throws std::invalid_argument "<what>: no tensor" for an empty handle.
void check_tensor(const char* what, const Tensor& tensor);
template <class... Others>
void check_tensor(const char* what, const Tensor& a, const Tensor& b, const Others&... others) {
  check_tensor(what, a);
  check_tensor(what, b, others...);
}

/// Checks the tensor; returns its dim `dim` counted from the front.
inline int checked_dim(const char* what, const Tensor& tensor, int dim) {
  check_tensor(what, tensor);
  return normalized_dim(what, dim, tensor.ndim());
}

/// Returns `sharding` replicated on all axes but those for which keep(axis) is true.
template <class Keep> Sharding keeping(const Sharding& sharding, const Keep& keep) {
  Pattern pattern = sharding.pattern();
  for (int axis = 0; axis < pattern.axes(); ++axis) {
    if (!keep(axis)) pattern.set(axis, Replicate());
  }
  return Sharding::of(sharding.mesh(), pattern);
}

/// Returns `sharding` with every Partial made Replicate.
Sharding reduced_sharding(const Sharding& sharding);

/// Returns the tensor, redistributed to cuts of whole dims in place of those of inner factors.
Tensor with_whole_cuts(const Tensor& tensor);

/// True if this rank's part contributes to the whole. False on all but the first ranks of a
/// Partial(sum) if each rank knows the whole: their addends are 0.
bool counts_here(const Sharding& sharding);

/// Checks that explicit sizes of parts add up to the dims of `shape`; std::invalid_argument
/// "what: ..." otherwise.
void check_sizes(const char* what, const Placements& placements, const Shape& shape);

/// Gives the axes that cut `dim` these sizes of parts, the innermost one first: those of an outer
/// axis are sums.
void set_parts(Pattern& pattern, const MeshGrid& grid, int dim, std::vector<int64_t> parts);

/// Checks the shape of a new tensor: std::invalid_argument "what: ..." for a negative size.
void check_shape(const char* what, const Shape& shape);

/// Whether `from`, broadcast from the right, is `to`.
bool broadcasts_to(const Shape& from, const Shape& to);

/// Returns whether two elements of a tensor with such strides may share memory.
bool repeats_elements(const Shape& shape, const Strides& strides);
/// Throws std::invalid_argument when a change in place of the tensor would be lost, or would change
/// an element more than once. Equal on all ranks.
void check_changeable(const char* what, const Tensor& tensor);
void put_back(const TensorBody& body, bool recorded);
/// States that the elements of the tensor have changed; a copied view puts them back.
inline void changed(const Tensor& tensor, bool recorded = false) {
  const TensorBody& body = *tensor.body();
  recorded ? body.storage->mark_recorded() : body.storage->mark_changed();
  if (body.layout->sharding) body.storage->mark_shared_change();
  if (body.copied) [[unlikely]]
    put_back(body, recorded);
}
/// States that a recorded op has changed elements of the tensor.
void mark_recorded(const Tensor& tensor);
/// Returns whether both are the same view of the same elements.
bool shows_same(const Tensor& a, const Tensor& b);

/// Returns whether no recorded op has changed what the view shows since it was made.
bool shows_recorded(const CopiedView& view);
/// Brings a copied view up to date; a collective of the mesh that it is over.
void refresh(CopiedView& view);
inline void refresh(const Tensor& tensor) {
  if (tensor.body()->copied) [[unlikely]]
    refresh(*tensor.body()->copied);
}

[[noreturn]] void fail_outdated(const Tensor& tensor);
/// std::invalid_argument when a recorded op has changed the elements in place through another
/// tensor since: what computed them is not known here.
inline void check_current(const Tensor& tensor) {
  const TensorBody& body = *tensor.body();
  if (body.recorded_changes != body.storage->recorded_changes()) [[unlikely]]
    fail_outdated(tensor);
  if (body.copied && !shows_recorded(*body.copied)) [[unlikely]]
    fail_outdated(tensor);
}
/// Returns whether an op on the tensor goes on the tape.
inline bool is_recorded(const Tensor& tensor) {
  if (!Context::current().grad_enabled) return false;
  check_current(tensor);
  return static_cast<bool>(tensor.body()->node);
}

/// True when writing `written` element by element may change elements of `read` that are not read
/// yet: they share memory, but their elements are not the same ones in the same order.
bool is_disturbed(const MemoryBlock& read, const MemoryBlock& written);

/// Returns a copy of the current elements in separate memory.
Tensor snapshot_of(const MemoryBlock& block);

}  // namespace weft
