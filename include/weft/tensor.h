// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/block.h"
#include "weft/export.h"
#include "weft/ref.h"
#include "weft/sharding.h"
#include "weft/storage.h"

namespace weft {

class Layout;
struct TensorBody;
class GradientSink;
class Tensor;
using Tensors = std::vector<Tensor>;

WEFT_API void retain_handle(TensorBody* body);
WEFT_API void release_handle(TensorBody* body);

/// An n-dimensional array, on one device or laid out over a mesh of them. A handle: copies share
/// the elements. Reading from several threads is safe, changing needs exclusion.
class WEFT_API Tensor {
 public:
  /// No tensor.
  Tensor() = default;
  explicit Tensor(Ref<TensorBody> body) : body_(std::move(body)) {}
  explicit operator bool() const { return static_cast<bool>(body_); }

  /// Of the whole tensor.
  const Shape& shape() const;
  int ndim() const { return shape().ndim(); }
  int64_t size(int dim) const;
  int64_t numel() const { return shape().product(); }
  DType dtype() const;
  Device device() const;

  /// How it lies over its mesh; empty for a tensor of one device.
  Sharding sharding() const;
  bool is_sharded() const { return static_cast<bool>(sharding()); }
  /// This rank's part as a tensor without a sharding, sharing memory; not recorded for backward.
  Tensor local() const;
  /// Which elements this rank's part holds.
  Box box() const;
  /// This rank's elements in memory.
  Block block() const;
  const Ref<Storage>& storage() const;

  /// The one element of a tensor of one element, whole on this rank; std::invalid_argument
  /// otherwise.
  double item() const;
  /// This rank's part as a dense vector in row-major order, converted to T (float, double,
  /// int64_t).
  template <class T>
  std::vector<T> to_vector() const;

  /// The same values in another layout; runs the plan that `explain` prints. Whatever the layout of
  /// the gradient, one plan brings it back to this one, also where the tensor lies so already.
  Tensor redistribute(const Placements& placements) const;
  /// The whole on each rank, as a tensor without a sharding.
  Tensor full_tensor() const;
  /// This rank's part, recorded for backward; `gradient` says what the parts of the gradient are on
  /// the axes where this tensor is Replicate or Partial (there it must be given).
  Tensor to_local(const Placements& gradient) const;
  Tensor to_local() const;

  /// Dims reversed for a matrix; a view.
  Tensor t() const;
  Tensor transpose(int dim0, int dim1) const;
  Tensor reshape(const Shape& shape) const;
  Tensor to(DType dtype) const;
  /// The same layout with this rank's part on `device`; itself when it is there.
  Tensor to(Device device) const;

  bool requires_grad() const;
  /// Marks a leaf whose gradient backward computes; std::invalid_argument for a result of an op.
  Tensor& set_requires_grad(bool requires_grad = true);
  bool is_leaf() const;
  /// The gradient of a leaf after backward; no tensor before.
  Tensor grad() const;
  void set_grad(Tensor grad) const;
  /// Where the gradient of a leaf goes instead of `grad()`.
  void set_gradient_sink(std::shared_ptr<GradientSink> sink) const;
  /// The same elements, not recorded.
  Tensor detach() const;
  /// Gradients of all leaves this one-element tensor depends on.
  void backward() const;

  const Ref<TensorBody>& body() const { return body_; }

 private:
  Ref<TensorBody> body_;
};

/// Slices locally what each rank already holds whole.
WEFT_API Tensor distribute(const Tensor& whole, const DeviceMesh& mesh,
                           const Placements& placements);
/// Sends root's `whole` to the ranks of the mesh; other ranks give no tensor, or any. Not recorded:
/// a leaf on all ranks where root's requires a gradient.
WEFT_API Tensor scatter(const Tensor& whole, const DeviceMesh& mesh, const Placements& placements,
                        int root = 0);
/// A sharded tensor whose parts are `local`; the ranks exchange their sizes, which must be those of
/// a cut of their sum.
WEFT_API Tensor from_local(const Tensor& local, const DeviceMesh& mesh,
                           const Placements& placements);
/// The same without an exchange: `shape` is the whole's.
WEFT_API Tensor from_local(const Tensor& local, const DeviceMesh& mesh,
                           const Placements& placements, const Shape& shape);
/// The same over memory that the caller keeps: a tensor in `storage` from element `offset` on,
/// dense.
WEFT_API Tensor tensor_in(Ref<Storage> storage, int64_t offset, const Shape& shape, DType dtype,
                          const Sharding& sharding = {});

/// What `redistribute` would do: steps, bytes, predicted time, peak memory.
WEFT_API std::string explain(const Tensor& tensor, const Placements& placements);

/// "Tensor([4, 8], f32, cpu, mesh(dp=2, tp=2)[S(0), R])" and this rank's values.
WEFT_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace weft
