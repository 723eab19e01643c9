// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <string>
#include <vector>

#include "weft/block.h"
#include "weft/export.h"
#include "weft/extend/ref.h"
#include "weft/sharding.h"
#include "weft/storage.h"

namespace weft {

class Layout;
struct TensorBody;
struct NestedNumbers;
class Tensor;
using Tensors = std::vector<Tensor>;

WEFT_API void retain_handle(TensorBody* body);
WEFT_API void release_handle(TensorBody* body);

/// An n-dimensional array, on one device or laid out over a mesh. A handle: copies share the
/// elements. Several threads may read a tensor at a time; a change needs exclusive access.
class WEFT_API Tensor {
 public:
  /// An empty handle.
  Tensor() = default;
  explicit Tensor(Ref<TensorBody> body) : body_(std::move(body)) {}
  /// A tensor of the numbers in nested braces: `Tensor::of({{1, 2, 3}, {4, 5, 6}})` is [2, 3]. Its
  /// dtype is f32 if one number is floating, otherwise i64, or bool if all are bool.
  static Tensor of(const NestedNumbers& numbers);
  explicit operator bool() const { return static_cast<bool>(body_); }

  /// Shape of the whole tensor.
  const Shape& shape() const;
  int ndim() const { return shape().ndim(); }
  int64_t size(int dim) const;
  int64_t numel() const { return shape().product(); }
  DType dtype() const;
  Device device() const;

  /// Layout over the mesh; empty for a tensor of one device.
  Sharding sharding() const;
  bool is_sharded() const;
  /// This rank's part as a tensor without a sharding; shares memory, not recorded for backward.
  Tensor local() const;
  /// The elements of the whole tensor that this rank's part holds.
  Box box() const;
  /// The memory of this rank's part.
  MemoryBlock block() const;
  const Ref<Storage>& storage() const;

  /// The value of a tensor of one element that is whole on this rank; std::invalid_argument
  /// otherwise.
  double item() const;
  /// This rank's part as a dense vector in row-major order, converted to T (float, double,
  /// int64_t, uint64_t).
  template <class T> std::vector<T> to_vector() const;

  /// Returns the same values in another layout; runs the plan that `explain` prints. In backward
  /// one plan redistributes the gradient from any layout to the layout of this tensor, even when
  /// this tensor already has the requested layout.
  Tensor redistribute(const Placements& placements) const;
  /// The whole tensor on each rank, without a sharding.
  Tensor full_tensor() const;
  /// This rank's part, recorded for backward. `gradient` states the placements of the gradient's
  /// parts; it is required on axes where this tensor is Replicate or Partial.
  Tensor to_local(const Placements& gradient) const;
  Tensor to_local() const;

  /// The element, row or block at these indices of the first dims, which the result lacks; a
  /// negative index counts from the end. std::invalid_argument when an index is out of range.
  Tensor operator[](std::initializer_list<int64_t> indices) const;
  Tensor operator[](int64_t index) const { return (*this)[{index}]; }
  /// The transpose of a matrix; a view.
  Tensor t() const;
  Tensor transpose(int dim0, int dim1) const;
  Tensor reshape(const Shape& shape) const;
  Tensor to(DType dtype) const;
  /// The same layout with this rank's part on `device`; this tensor if it is on that device
  /// already.
  Tensor to(Device device) const;

  bool requires_grad() const;
  /// Marks a leaf, for which backward computes a gradient; std::invalid_argument for a result of an
  /// op.
  Tensor& set_requires_grad(bool requires_grad = true);
  bool is_leaf() const;
  /// The gradient of a leaf after backward; an empty tensor before.
  Tensor grad() const;
  void set_grad(Tensor grad) const;
  /// The same elements, not connected to the tape.
  Tensor detach() const;
  /// Computes the gradients of all leaves that this one-element tensor depends on.
  void backward() const;

  const Ref<TensorBody>& body() const { return body_; }

 private:
  Ref<TensorBody> body_;
};

/// Returns the same values laid out as `target`, a sharding over the tensor's mesh, such as that of
/// another tensor; otherwise as Tensor::redistribute.
WEFT_API Tensor redistributed(const Tensor& tensor, const Sharding& target);
/// Shards a tensor that each rank holds whole: each rank takes its slice locally.
WEFT_API Tensor distribute(const Tensor& whole, const DeviceMesh& mesh,
                           const Placements& placements);
/// Sends root's `whole` to the ranks of the mesh; other ranks' `whole` is ignored. Not recorded for
/// backward: the result is a leaf on all ranks if root's tensor requires a gradient.
WEFT_API Tensor scatter(const Tensor& whole, const DeviceMesh& mesh, const Placements& placements,
                        int root = 0);
/// Makes a sharded tensor from each rank's part. The ranks exchange the sizes of the parts: parts
/// that are not chunks get explicit sizes (Shard::sizes).
WEFT_API Tensor from_local(const Tensor& local, const DeviceMesh& mesh,
                           const Placements& placements);
/// The same without an exchange: `shape` is that of the whole tensor.
WEFT_API Tensor from_local(const Tensor& local, const DeviceMesh& mesh,
                           const Placements& placements, const Shape& shape);
/// Makes a dense tensor in memory that the caller provides: in `storage`, from element `offset` on.
WEFT_API Tensor tensor_in(Ref<Storage> storage, int64_t offset, const Shape& shape, DType dtype,
                          const Sharding& sharding = {});

/// Describes what `redistribute` would do: steps, bytes, predicted time, peak memory.
WEFT_API std::string explain(const Tensor& tensor, const Placements& placements);

/// Prints "Tensor([4, 8], f32, cpu, mesh(dp=2, tp=2)[S(0), R])" and this rank's elements in
/// PyTorch's format, summarised for a large tensor.
WEFT_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace weft
