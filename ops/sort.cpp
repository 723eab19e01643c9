// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort/sort.h"

#include <cstring>

#include "ops/along_dim.h"
#include "ops/promotion.h"
#include "ops/sorted_part.h"
#include "ops/sorting.h"
#include "src/kernels/rows/rows.h"
#include "weft/ops/along_dim.h"

namespace weft {

// If the dim is sharded, ranks sort their parts, find the chunk boundaries of the whole sorted
// rows in them (`SortedPart::locate`), send each part the elements of its chunk, and merge what
// they receive. Traffic: for each element that changes part its bytes and 8 for its index; for each
// row, and boundary between parts, at most 17 rounds of up to 15 counts. Memory: a few times the
// part.

// structure: DimAndFlag.

namespace {

/// Sorts rows of which this rank holds a part.
class SortAcross {
 public:
  /// Results are rows; `values` may have no data.
  SortAcross(const Parts& parts, const SortedPart& part, bool descending, const Rows& values,
             const Rows& indices)
      : parts_(parts), part_(part), descending_(descending), values_(values), indices_(indices) {}

  void run() {
    const int64_t boundaries = parts_.count() - 1;
    const int64_t together = rows_together(parts_, part_.rows(), 2 * parts_.count() * boundaries);
    for (int64_t first = 0; first < part_.rows(); first += together) {
      sort_from(first, std::min(together, part_.rows() - first));
    }
  }

 private:
  void sort_from(int64_t first, int64_t rows) {
    const int parts = parts_.count();
    const std::vector<std::vector<int64_t>> cuts = cuts_of(first, rows);
    std::vector<int64_t> bytes;
    for (size_t p = 0; p + 1 < cuts.size(); ++p) {
      int64_t elements = 0;
      for (size_t r = 0; r < cuts[p].size(); ++r) elements += cuts[p + 1][r] - cuts[p][r];
      bytes.push_back(SortedRuns::bytes_for(rows, elements, part_.dtype()));
    }
    const Parcels sent(bytes);
    for (int p = 0; p < parts; ++p) {
      const auto at = static_cast<size_t>(p);
      SortedRuns::write(sent.at(p), part_, first, cuts[at], cuts[at + 1]);
    }
    const Parcels received = parts_.exchange(sent);
    SortedRuns runs(received, parts, rows, part_.dtype(), descending_);
    for (int64_t r = first; r < first + rows; ++r) store(r, runs.next());
  }

  /// The beginnings of the chunk of each part in this rank's sorted rows, and the end.
  std::vector<std::vector<int64_t>> cuts_of(int64_t first, int64_t rows) const {
    const auto boundaries = static_cast<size_t>(parts_.count() - 1);
    std::vector<int64_t> positions;
    for (int64_t r = 0; r < rows; ++r) {
      for (int p = 1; p < parts_.count(); ++p) positions.push_back(parts_.chunk(p).offset);
    }
    const auto places = part_.locate(parts_, first, positions, static_cast<int64_t>(boundaries));
    const auto count = static_cast<size_t>(rows);
    std::vector<std::vector<int64_t>> cuts(boundaries + 2, std::vector<int64_t>(count, 0));
    cuts.back().assign(count, part_.size());
    for (size_t i = 0; i < places.size(); ++i) {
      cuts[i % boundaries + 1][i / boundaries] = places[i].before;
    }
    return cuts;
  }

  void store(int64_t row, std::span<const SortedRuns::Element> elements) const {
    const Line indices = indices_.line(row);
    for (size_t i = 0; i < elements.size(); ++i) {
      static_cast<int64_t*>(indices.data)[static_cast<int64_t>(i) * indices.stride] =
          elements[i].index;
    }
    if (!values_.data()) return;
    const Line values = values_.line(row);
    const size_t size = size_of(part_.dtype());
    for (size_t i = 0; i < elements.size(); ++i) {
      std::memcpy(static_cast<char*>(values.data) + static_cast<int64_t>(i * size) * values.stride,
                  elements[i].value, size);
    }
  }

  const Parts& parts_;
  const SortedPart& part_;
  bool descending_;
  Rows values_, indices_;
};

}  // namespace

static void sort_across(const Call& c, const Parts& parts, const MemoryBlock* values,
                        const MemoryBlock& indices) {
  const auto [dim, descending] = unpack<DimAndFlag>(c.attributes().structure);
  const int last = indices.shape.ndim() - 1;
  const SortedPart part(with_last_dim(c.in(0), dim), descending, parts.own(), parts.own().length);
  SortAcross(parts, part, descending, values ? Rows(with_last_dim(*values, dim), last) : Rows(),
             Rows(with_last_dim(indices, dim), last))
      .run();
}

/// Results: the sorted elements and their indices, which the gradient needs.
static const Op sort_op = register_op({
    .name = "sort",
    .rule_of = scan_rule<1, 2>,
    .structure = dim_and_flag("dim, whether descending"),
    .dtype = value_and_index,
    .forward =
        [](const Call& c) {
          const auto [dim, descending] = unpack<DimAndFlag>(c.attributes().structure);
          const MemoryBlock values = with_last_dim(c.out(0), dim);
          sort_rows(&values, with_last_dim(c.out(1), dim), with_last_dim(c.in(0), dim), descending);
        },
    .backward =
        [](const Grad& g) {
          const int dim = unpack<DimAndFlag>(g.attributes().structure).dim;
          g.give(0, place_along_dim(g.grad(), g.out(1), dim));
        },
    .staged_over = {"n"},
    .across = [](const Call& c, Parts& parts) { sort_across(c, parts, &c.out(0), c.out(1)); },
    .saves_in = std::vector<int>{},
    .saves_out = {1},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1, 0}}},
                {.shapes = {{5, 3, 2}}, .attributes = {.structure = {0, 1}}},
                {.shapes = {{5, 7}}, .attributes = {.structure = {0, 1}}, .dtypes = {i64}}},
});

static const Op argsort_op = register_op({
    .name = "argsort",
    .rule_of = scan_rule<1>,
    .structure = dim_and_flag("dim, whether descending"),
    .dtype = [](const Attributes&, std::span<const DType>, int) { return i64; },
    .forward =
        [](const Call& c) {
          const auto [dim, descending] = unpack<DimAndFlag>(c.attributes().structure);
          sort_rows(nullptr, with_last_dim(c.out(), dim), with_last_dim(c.in(0), dim), descending);
        },
    .staged_over = {"n"},
    .across = [](const Call& c, Parts& parts) { sort_across(c, parts, nullptr, c.out()); },
    .differentiable = false,
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1, 0}}},
                {.shapes = {{5, 3}}, .attributes = {.structure = {0, 1}}, .dtypes = {i32}}},
});

static Attributes sort_attributes(const char* what, const Tensor& a, int dim, bool descending) {
  return {.structure = pack_structure(DimAndFlag{checked_dim(what, a, dim), descending})};
}

Tensor sort(const Tensor& a, int dim, bool descending) {
  return ordered_back(sort_op({ordered_as_i64(a)}, sort_attributes("sort", a, dim, descending)),
                      a.dtype());
}

Tensors sort_with_indices(const Tensor& a, int dim, bool descending) {
  const Tensor ordered = ordered_as_i64(a);
  Tensors found = sort_op.call(std::span(&ordered, 1), sort_attributes("sort", a, dim, descending));
  found[0] = ordered_back(found[0], a.dtype());
  return found;
}

Tensor argsort(const Tensor& a, int dim, bool descending) {
  return argsort_op({ordered_as_i64(a)}, sort_attributes("argsort", a, dim, descending));
}

}  // namespace weft
