// SPDX-License-Identifier: Apache-2.0
#include "ops/sorting.h"

#include <algorithm>

#include "ops/dims.h"
#include "ops/promotion.h"
#include "ops/take.h"
#include "src/kernels/sort/sort.h"
#include "weft/ops.h"

namespace weft {

// If the dim is sharded, ranks sort their parts, find the chunk boundaries of the whole sorted
// rows in them (`SortedPart::locate`), send each part the elements of its chunk, and merge what
// they receive. Traffic: for each element that changes part its bytes and 8 for its index; for each
// row, and boundary between parts, at most 17 rounds of up to 15 counts. Memory: a few times the
// part.

// structure: DimAndFlag.

/// The beginnings of the chunk of each part in this rank's sorted rows, and the end.
static std::vector<std::vector<int64_t>> cuts_of(const Parts& parts, const SortedPart& part,
                                                 int64_t first, int64_t rows) {
  const auto boundaries = static_cast<size_t>(parts.count() - 1);
  std::vector<int64_t> positions;
  for (int64_t r = 0; r < rows; ++r) {
    for (int p = 1; p < parts.count(); ++p) positions.push_back(parts.chunk(p).offset);
  }
  const auto places = part.locate(parts, first, positions, static_cast<int64_t>(boundaries));
  const auto count = static_cast<size_t>(rows);
  std::vector<std::vector<int64_t>> cuts(boundaries + 2, std::vector<int64_t>(count, 0));
  cuts.back().assign(count, part.size());
  for (size_t i = 0; i < places.size(); ++i) {
    cuts[i % boundaries + 1][i / boundaries] = places[i].before;
  }
  return cuts;
}

/// Sends each part the elements of its chunk of `rows` rows from row `first` on; returns those of
/// this rank's chunk.
static Parcels exchanged_chunks(const Parts& parts, const SortedPart& part, int64_t first,
                                int64_t rows) {
  const std::vector<std::vector<int64_t>> cuts = cuts_of(parts, part, first, rows);
  std::vector<int64_t> bytes;
  for (size_t p = 0; p + 1 < cuts.size(); ++p) {
    int64_t elements = 0;
    for (size_t r = 0; r < cuts[p].size(); ++r) elements += cuts[p + 1][r] - cuts[p][r];
    bytes.push_back(SortedRuns::bytes_for(rows, elements, part.dtype()));
  }
  const Parcels sent(bytes);
  for (int p = 0; p < parts.count(); ++p) {
    const auto at = static_cast<size_t>(p);
    SortedRuns::write(sent.at(p), part, first, cuts[at], cuts[at + 1]);
  }
  return parts.exchange(sent);
}

/// Sorts rows of which this rank holds a part.
static void sort_across(const Call& c, const Parts& parts) {
  const auto [dim, descending] = unpack<DimAndFlag>(c.attributes().structure);
  const int last = c.in(0).shape.ndim() - 1;
  const SortedPart part(with_last_dim(c.in(0), dim), descending, parts.own(), parts.own().length);
  const Rows sorted(with_last_dim(c.out(0), dim), last);
  const Rows numbers(with_last_dim(c.out(1), dim), last);
  const int64_t numbers_in_row = 2 * parts.count() * (parts.count() - 1);
  const int64_t together = rows_together(parts, part.rows(), numbers_in_row);
  for (int64_t first = 0; first < part.rows(); first += together) {
    const int64_t rows = std::min(together, part.rows() - first);
    const Parcels received = exchanged_chunks(parts, part, first, rows);
    SortedRuns runs(received, parts.count(), rows, part.dtype(), descending);
    for (int64_t r = first; r < first + rows; ++r) store_elements(sorted, numbers, r, runs.next());
  }
}

/// Results: the sorted elements and their indices, which the gradient needs.
static const Op sort_op = register_with_indices({
    .name = "sort",
    .rule_of = scan_rule<1, 2>,
    .structure = dim_and_flag("dim, whether descending"),
    .forward =
        [](const Call& c) {
          const auto [dim, descending] = unpack<DimAndFlag>(c.attributes().structure);
          const MemoryBlock values = with_last_dim(c.out(0), dim);
          sort_rows(&values, with_last_dim(c.out(1), dim), with_last_dim(c.in(0), dim), descending);
        },
    .across = sort_across,
    .samples = {sample_with({{5, 7}}, {1, 0}), sample_with({{5, 3, 2}}, {0, 1}),
                sample_with({{5, 7}}, {0, 1}, {i64})},
});

static Attributes sort_attributes(const char* what, const Tensor& a, int dim, bool descending) {
  return {.structure = pack_structure(DimAndFlag{checked_dim(what, a, dim), descending})};
}

Tensor sort(const Tensor& a, int dim, bool descending) {
  return sort_with_indices(a, dim, descending)[0];
}

Tensors sort_with_indices(const Tensor& a, int dim, bool descending) {
  const Attributes attributes = sort_attributes("sort", a, dim, descending);
  return call_ordered(sort_op, {a}, attributes);
}

Tensor argsort(const Tensor& a, int dim, bool descending) {
  const Attributes attributes = sort_attributes("argsort", a, dim, descending);
  return sort_op.call({ordered_as_i64(a.detach())}, attributes)[1];
}

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
  if (sorted.ndim() > 1 &&
      (a.ndim() != sorted.ndim() ||
       with_size(a.shape(), a.ndim() - 1, sorted.size(-1)) != sorted.shape())) {
    fail("searchsorted: the values are ", a.shape(), ", expected the dims of the sorted tensor ",
         sorted.shape(), " but the last");
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

namespace {

/// The elements of a tensor [n] at which a mask [n] holds, in order. Each rank keeps those of its
/// part: where the mask is sharded, the result's parts have explicit sizes.
class Kept {
 public:
  explicit Kept(const Tensor& mask) : mask_(with_whole_cuts(mask)) {
    // from_local cuts in mesh order.
    const Axes order = mask_.sharding().axes_cutting(0);
    if (!std::is_sorted(order.begin(), order.end())) mask_ = mask_.redistribute(chunks(mask_));
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
  /// The number of elements that are kept up to each one, less 1.
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
    const int64_t own = std::max<int64_t>(1, a.size(d));
    const Tensor size = numbers_next_to(rest, own, own + 1);
    indices[static_cast<size_t>(d)] = remainder(rest, size);
    rest = floor_divide(rest, size);
  }
  indices[0] = rest;
  return indices;
}

/// True where a slice of dim 0, which has elements, differs from the one before: [n].
static Tensor starts_of_runs(const Tensor& a) {
  const int64_t n = a.size(0);
  const Tensor first = slice(a, 0, 0, 1);
  const Tensor differs = cat({logical_or(equal(first, first), not_equal(first, first)),
                              not_equal(slice(a, 0, 1, n), slice(a, 0, 0, n - 1))},
                             0);
  return a.ndim() > 1 ? any(reshape(differs, {n, a.numel() / n}), {1}) : differs;
}

/// The number of elements, of `n`, that belong to each run, from where the runs start.
static Tensor lengths_of_runs(const Tensor& starts, int64_t n) {
  return sub(cat({slice(starts, 0, 1, starts.numel()), numbers_next_to(starts, n, n + 1)}, 0),
             starts);
}

Tensor unique_values(const Tensor& a) {
  check_tensor("unique", a);
  const Tensor sorted = sort(reshape(a.detach(), {a.numel()}));
  return a.numel() == 0 ? sorted : Kept(starts_of_runs(sorted)).of(sorted);
}

Unique unique(const Tensor& a) {
  check_tensor("unique", a);
  const int64_t n = a.numel();
  const Tensor flat = reshape(a.detach(), {n});
  const Tensors sorted = sort_with_indices(flat, 0, false);
  if (n == 0) return {sorted[0], sorted[1], reshape(sorted[1], a.shape()), sorted[1]};
  const Kept kept(starts_of_runs(sorted[0]));
  const Tensor starts = kept.indices();
  const Tensor places = places_along({n}, 0, flat.sharding(), flat.device());
  return {kept.of(sorted[0]), kept.of(sorted[1]),
          reshape(add_along_dim(kept.rank(), sorted[1], 0, places), a.shape()),
          lengths_of_runs(starts, n)};
}

UniqueConsecutive unique_consecutive(const Tensor& a, std::optional<int> dim) {
  check_tensor("unique_consecutive", a);
  const int at = dim ? normalized_dim("unique_consecutive", *dim, a.ndim()) : 0;
  const Tensor rows = dim ? moveaxis(a, {at}, {0}) : reshape(a, {a.numel()});
  const int64_t n = rows.size(0);
  if (rows.numel() == 0) {
    const Tensor none = slice(zeros({1}, options_next_to(a, DType::i64)), 0, 0, 0);
    return {a, dim ? none : reshape(none, a.shape()), none};
  }
  const Tensor starts = starts_of_runs(rows);
  const Tensor inverse = sub(cumulative_sum(starts, 0), 1);
  const Tensor places = nonzero(starts)[0];
  const Tensor values = take(rows, places, 0);
  return {dim ? moveaxis(values, {0}, {at}) : values, dim ? inverse : reshape(inverse, a.shape()),
          lengths_of_runs(places, n)};
}

}  // namespace weft
