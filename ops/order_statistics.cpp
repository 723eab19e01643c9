// SPDX-License-Identifier: Apache-2.0
#include "ops/sorting.h"

#include <cstring>

#include "ops/along_dim.h"
#include "ops/promotion.h"
#include "ops/sorted_part.h"
#include "ops/take.h"
#include "src/kernels/copy/dense.h"
#include "src/kernels/rows/rows.h"
#include "src/kernels/sort/sort.h"
#include "src/kernels/take/take.h"

namespace weft {

static void give_at_indices(const Grad& g) {
  const int dim = static_cast<int>(g.attribute(0));
  g.give(0, add_along_dim(g.grad(), g.out(1), dim, g.in_shape(0)[dim]));
}

static MemoryBlock rows_of(const MemoryBlock& block, const Call& c) {
  return with_last_dim(block, along_dim(c));
}

static void store_element_of(const Rows& values, const Rows& indices, int64_t row, int64_t i,
                             const void* value, int64_t index) {
  const auto size = static_cast<int64_t>(size_of(values.dtype()));
  const Line to = values.line(row), number = indices.line(row);
  std::memcpy(static_cast<char*>(to.data) + i * to.stride * size, value, static_cast<size_t>(size));
  static_cast<int64_t*>(number.data)[i * number.stride] = index;
}

// The first elements of sorted rows. structure: dim, k, whether descending. Where the dim is
// sharded, every rank gets k elements of each row: those of its part that are among the first k
// (found by `locate` when the parts' first k would take more memory than a part). Traffic: for each
// row at most k times the element and 8 bytes from each other part.

static void first_across(const Call& c, const Parts& parts) {
  const int64_t k = c.attribute(1);
  const MemoryBlock in = rows_of(c.in(0), c);
  const bool descending = c.attribute(2) != 0;
  const SortedPart part(in, descending, parts.own(), k);
  const int last = in.shape.ndim() - 1;
  const Rows values(rows_of(c.out(0), c), last), indices(rows_of(c.out(1), c), last);
  const std::vector<int64_t> none(static_cast<size_t>(part.rows()), 0);
  std::vector<int64_t> to(none.size(), part.size());
  if (k * parts.count() * parts.count() > parts.size()) {
    const int64_t together = rows_together(parts, part.rows(), 2 * parts.count());
    for (int64_t first = 0; first < part.rows(); first += together) {
      const auto rows = static_cast<size_t>(std::min(together, part.rows() - first));
      const std::vector<int64_t> ends(rows, k);
      const auto places = part.locate(parts, first, ends, 1);
      for (size_t r = 0; r < rows; ++r) to[static_cast<size_t>(first) + r] = places[r].before;
    }
  }
  int64_t elements = 0;
  for (const int64_t count : to) elements += count;
  const Parcels own({SortedRuns::bytes_for(part.rows(), elements, part.dtype())});
  SortedRuns::write(own.data(), part, 0, none, to);
  const Parcels all = parts.gather(own);
  SortedRuns runs(all, parts.count(), part.rows(), part.dtype(), descending);
  for (int64_t r = 0; r < part.rows(); ++r) {
    const auto merged = runs.next();
    for (int64_t i = 0; i < k; ++i) {
      const SortedRuns::Element& element = merged[static_cast<size_t>(i)];
      store_element_of(values, indices, r, i, element.value, element.index);
    }
  }
}

static const Op sorted_first_op = register_with_indices({
    .name = "sorted_first",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape> shapes) {
          const int dim = static_cast<int>(attributes.structure[0]), ndim = shapes[0].ndim();
          const std::string first = dims_with(ndim, dim, "[+k]");
          return Rule{concat(dims_with(ndim, dim, "n"), "-> ", first, ", ", first),
                      {{"k", attributes.structure[1]}}};
        },
    .structure = {"dim, k, whether descending",
                  [](const Dims& s, std::span<const Shape> shapes) {
                    return s.ndim() == 3 && is_dim(s[0], shapes[0]) && is_flag(s[2]) && s[1] >= 0 &&
                           s[1] <= shapes[0][static_cast<int>(s[0])];
                  }},
    .forward =
        [](const Call& c) {
          const MemoryBlock values = rows_of(c.out(0), c);
          sort_rows(&values, rows_of(c.out(1), c), rows_of(c.in(0), c), c.attribute(2) != 0);
        },
    .backward = give_at_indices,
    .across = first_across,
    .samples = {sample_with({{5, 7}}, {1, 2, 0}), sample_with({{5, 3, 2}}, {0, 4, 1}),
                sample_with({{2, 3}}, {1, 3, 0}), sample_with({{5, 7}}, {0, 1, 1}, {i64})},
});

// Elements at positions of the sorted rows. structure: dim. Operand 1 are the positions (i64).
// If the dim is sharded, the ranks find them by `locate`, and the rank that has an element sends
// it to all. Traffic: for each position at most 17 rounds of up to 15 counts, and 16 bytes.

/// Returns the positions dense, after checking that they are in the row.
static DenseBlock checked_positions(const Call& c) {
  DenseBlock positions = DenseBlock::of(c.in(1));
  const int dim = along_dim(c);
  const int64_t size = c.in_shape(0)[dim];
  if (auto outside = find_index_outside(positions, size)) {
    fail("sorted_at: a position is ", *outside, ", expected one of the ", size, " elements of dim ",
         dim);
  }
  return positions;
}

static void at_forward(const Call& c) {
  const DenseBlock positions = checked_positions(c);
  const MemoryBlock& in = c.in(0);
  const DenseMemory values(in.shape, in.dtype, in.device), indices(in.shape, i64, in.device);
  const MemoryBlock sorted = rows_of(values.block, c);
  sort_rows(&sorted, rows_of(indices.block, c), rows_of(in, c));
  take_along(c.out(0), values.block, positions, along_dim(c));
  take_along(c.out(1), indices.block, positions, along_dim(c));
}

/// Reads the positions of `rows` rows from row `first` on.
static std::vector<int64_t> positions_of(const Rows& from, int64_t first, int64_t rows,
                                         int64_t size) {
  std::vector<int64_t> positions;
  for (int64_t r = first; r < first + rows; ++r) {
    const Line line = from.line(r);
    for (int64_t i = 0; i < from.size(); ++i) {
      const int64_t position = static_cast<const int64_t*>(line.data)[i * line.stride];
      positions.push_back(position < 0 ? position + size : position);
    }
  }
  return positions;
}

static void at_across(const Call& c, const Parts& parts) {
  checked_positions(c);
  const MemoryBlock in = rows_of(c.in(0), c);
  const int last = in.shape.ndim() - 1;
  const SortedPart part(in, false, parts.own(), parts.own().length);
  const Rows values(rows_of(c.out(0), c), last), indices(rows_of(c.out(1), c), last);
  const Rows from(rows_of(c.in(1), c), last);
  const int64_t n = from.size(),
                together = rows_together(parts, part.rows(), 2 * parts.count() * n);
  for (int64_t first = 0; n > 0 && first < part.rows(); first += together) {
    const int64_t rows = std::min(together, part.rows() - first);
    const auto places = part.locate(parts, first, positions_of(from, first, rows, parts.size()), n);
    // The bytes of each element as a number, and its index, from the part that has it.
    std::vector<int64_t> found(2 * places.size(), 0);
    for (size_t i = 0; i < places.size(); ++i) {
      if (!places[i].here) continue;
      const int64_t row = first + static_cast<int64_t>(i) / n;
      std::memcpy(&found[2 * i], part.value(row, places[i].before), size_of(part.dtype()));
      found[2 * i + 1] = part.index(row, places[i].before);
    }
    parts.sum(found);
    for (size_t i = 0; i < places.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      store_element_of(values, indices, first + at / n, at % n, &found[2 * i], found[2 * i + 1]);
    }
  }
}

static const Op sorted_at_op = register_with_indices({
    .name = "sorted_at",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape> shapes) {
          const int dim = static_cast<int>(attributes.structure[0]), ndim = shapes[0].ndim();
          const std::string at = dims_with(ndim, dim, "p");
          return Rule{concat(dims_with(ndim, dim, "n"), ", ", at, "-> ", at, ", ", at)};
        },
    .structure = one_dim(),
    .forward = at_forward,
    .backward = give_at_indices,
    .across = at_across,
    .samples = {sample_of_indices({{5, 7}, {5, 3}}, {.structure = {1}}, {f32, i64}, 7),
                sample_of_indices({{5, 3}, {2, 3}}, {.structure = {0}}, {i32, i64}, 5)},
});

Tensors sorted_first(const Tensor& a, int dim, int64_t k, bool descending) {
  return call_ordered(sorted_first_op, {a}, {.structure = {dim, k, descending}});
}

Tensors sorted_at(const Tensor& a, const Tensor& positions, int dim) {
  return call_ordered(sorted_at_op, {a, positions}, {.structure = {dim}});
}

}  // namespace weft
