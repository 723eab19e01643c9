// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/search/search.h"

#include <algorithm>

#include "ops/dims.h"
#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "ops/sorting.h"
#include "src/kernels/copy/dense.h"
#include "weft/ops.h"

namespace weft {

/// structure: whether behind equal elements. Where the sorted dim is sharded, the result is a sum
/// over its parts, of the elements of each part before the value: the op moves nothing.
static const Op searchsorted_op = register_op({
    .name = "searchsorted",
    .rule_of =
        [](const Attributes&, std::span<const Shape> shapes) {
          return Rule{shapes[0].ndim() == 1 ? "n, ... -> ..." : "... n, ... m -> ... m"};
        },
    .structure = one_flag("whether behind equal elements"),
    .dtype = [](const Attributes&, std::span<const DType>, int) { return i64; },
    .forward = [](const Call& c) { search_sorted(c.out(), c.in(0), c.in(1), c.attribute(0) != 0); },
    .differentiable = false,
    .samples = {sample_with({{1}, {5, 3}}, {0}), sample_with({{0}, {5}}, {1}, {i32, i32}),
                sample_with({{3, 1}, {3, 5}}, {1})},
});

Tensor searchsorted(const Tensor& sorted, const Tensor& a, bool right, const Tensor& sorter) {
  check_tensor("searchsorted", sorted, a);
  if (sorted.ndim() == 0) {
    fail("searchsorted: the sorted tensor is ", sorted.shape(), ", expected at least one dim");
  }
  Shape rows = sorted.shape(), of_values = a.shape();
  if (sorted.ndim() > 1) {
    if (a.ndim() > 0) of_values[a.ndim() - 1] = sorted.size(-1);
    if (!(rows == of_values)) {
      fail("searchsorted: the values are ", a.shape(), ", expected the dims of the sorted tensor ",
           sorted.shape(), " but the last");
    }
  }
  DType dtype = sorted.dtype();
  if (dtype != a.dtype()) {
    const DType both = promote(dtype, a.dtype());
    dtype = is_floating(both) ? DType::f64 : both == DType::u64 ? both : DType::i64;
  }
  const Tensor from = sorter ? take_along_dim(sorted, sorter, -1) : sorted;
  return searchsorted_op({ordered_as_i64(cast(from, dtype)), ordered_as_i64(cast(a, dtype))},
                         {.structure = {right}});
}

Tensor bucketize(const Tensor& a, const Tensor& boundaries, bool right) {
  check_tensor("bucketize", boundaries);
  if (boundaries.ndim() != 1) {
    fail("bucketize: boundaries are ", boundaries.shape(), ", expected one dim");
  }
  return searchsorted(boundaries, a, right);
}

/// The indices of the elements of a mask [n] that hold. structure: how many those are.
static const Op true_places_op = register_op({
    .name = "true_places",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape>) {
          return Rule{"[n] -> [+k]", {{"k", attributes.structure[0]}}};
        },
    .structure = {"k",
                  [](const Dims& s, std::span<const Shape> shapes) {
                    return s.ndim() == 1 && s[0] >= 0 && s[0] <= shapes[0].product();
                  }},
    .dtype = [](const Attributes&, std::span<const DType>, int) { return i64; },
    .forward = [](const Call& c) { true_places(c.out(), DenseBlock::of(c.in(0))); },
    .differentiable = false,
    .samples = {sample_with({{5}}, {5}, {boolean}, 1)},
});

/// One number [1] that combines with `a`.
static Tensor one_number(const Tensor& a, int64_t number) {
  return full({1}, number, options_next_to(a, DType::i64));
}

namespace {

/// The elements of a tensor [n] at which a mask [n] holds, in order. Each rank keeps those of its
/// part: where the mask is sharded, the result's parts have explicit sizes.
class Kept {
 public:
  explicit Kept(const Tensor& mask) : mask_(mask) {
    // from_local cuts in mesh order.
    const Axes order = mask.sharding().axes_cutting(0);
    if (!std::is_sorted(order.begin(), order.end())) mask_ = mask.redistribute(chunks(mask));
    const Tensor own = mask_.is_sharded() ? mask_.local() : mask_;
    count_ = static_cast<int64_t>(sum(own).item());
    places_ = true_places_op({own}, {.structure = {count_}});
    if (!mask_.is_sharded()) return;
    const DeviceMesh mesh = mask_.sharding().mesh();
    const Tensor kept = from_local(take(own, places_, 0), mesh, chunks(mask_));
    sharding_ = kept.sharding();
    count_ = kept.numel();
  }

  int64_t count() const { return count_; }
  /// For each element, how many are kept up to it, less 1.
  Tensor rank() const { return sub(cumulative_sum(mask_, 0), 1); }
  /// The indices of the elements that are kept.
  Tensor indices() const {
    if (!mask_.is_sharded()) return places_;
    return of(
        arange(mask_.numel(),
               {.dtype = DType::i64, .device = mask_.device(), .sharding = mask_.sharding()}));
  }
  /// `a` has no gradient.
  Tensor of(const Tensor& a) const {
    if (!mask_.is_sharded()) return take(a, places_, 0);
    const Tensor own = take(redistributed(a, mask_.sharding()).local(), places_, 0);
    return relabeled(own, layout_of(sharding_, {count_}, a.dtype()));
  }

 private:
  /// The placements without the sizes of parts.
  static Placements chunks(const Tensor& a) {
    std::vector<Placement> placements;
    for (const Placement& placement : a.sharding().placements()) {
      placements.push_back(placement.is_shard() ? Placement(Shard{placement.dim()}) : placement);
    }
    return Placements(std::span<const Placement>(placements));
  }

  /// `places_` are those of this rank's part.
  Tensor mask_, places_;
  int64_t count_;
  Sharding sharding_;
};

}  // namespace

Tensors nonzero(const Tensor& a) {
  check_tensor("nonzero", a);
  if (a.ndim() == 0) fail("nonzero: number of dims is 0, expected at least 1");
  const Tensor flat = reshape(a.detach(), {a.numel()});
  const Tensor mask = not_equal(flat, 0);
  Tensor rest = Kept(mask).indices();
  Tensors indices(static_cast<size_t>(a.ndim()));
  for (int d = a.ndim() - 1; d > 0; --d) {
    const Tensor size = one_number(rest, std::max<int64_t>(1, a.size(d)));
    indices[static_cast<size_t>(d)] = remainder(rest, size);
    rest = floor_divide(rest, size);
  }
  indices[0] = rest;
  return indices;
}

/// Whether each element of a sorted tensor [n] differs from the one before it.
static Tensor differs_from_last(const Tensor& sorted) {
  const int64_t n = sorted.numel();
  const Tensor differs = not_equal(slice(sorted, 0, 1, n), slice(sorted, 0, 0, n - 1));
  const Tensor first = slice(sorted, 0, 0, 1);
  return cat({logical_or(equal(first, first), not_equal(first, first)), differs}, 0);
}

Tensor unique_values(const Tensor& a) {
  check_tensor("unique", a);
  const Tensor sorted = sort(reshape(a.detach(), {a.numel()}));
  return a.numel() == 0 ? sorted : Kept(differs_from_last(sorted)).of(sorted);
}

Unique unique(const Tensor& a) {
  check_tensor("unique", a);
  const int64_t n = a.numel();
  const Tensor flat = reshape(a.detach(), {n});
  const Tensors sorted = sort_with_indices(flat, 0, false);
  if (n == 0) return {sorted[0], sorted[1], reshape(sorted[1], a.shape()), sorted[1]};
  const Kept kept(differs_from_last(sorted[0]));
  const Tensor starts = kept.indices();
  const Tensor ends = cat({slice(starts, 0, 1, kept.count()), one_number(starts, n)}, 0);
  return {kept.of(sorted[0]), kept.of(sorted[1]),
          reshape(place_along_dim(kept.rank(), sorted[1], 0), a.shape()), sub(ends, starts)};
}

}  // namespace weft
