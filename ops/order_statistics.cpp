// SPDX-License-Identifier: Apache-2.0
#include "ops/sorting.h"

#include <algorithm>
#include <cstring>
#include <ranges>

#include "ops/dims.h"
#include "ops/promotion.h"
#include "ops/take.h"
#include "src/base/numeric.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/iteration/iteration.h"
#include "src/kernels/rows/rows.h"
#include "src/kernels/sort/sort.h"
#include "src/kernels/take/take.h"

namespace weft {

/// Bits that keys of a dtype use.
static int key_bits(DType dtype) {
  if (compute_dtype(dtype) == DType::f32) return 32;
  const int bits = 8 * static_cast<int>(size_of(dtype));
  return is_floating(dtype) || bits == 64 ? 64 : bits + 1;
}

/// Returns the integer that has the order of the element; NaN is the greatest, first when
/// `descending`.
static uint64_t sort_key(DType dtype, const void* element, bool descending) {
  const int bits = key_bits(dtype);
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  uint64_t key = 0;
  if (bits == 32) {
    key = ordered(load_element<float>(element, dtype, 0));
  } else if (is_floating(dtype)) {
    key = ordered(load_element<double>(element, dtype, 0));
  } else {
    // Shorter integers become at least 0 in one more bit, whether signed or not.
    const auto x = static_cast<uint64_t>(load_element<int64_t>(element, dtype, 0));
    key = x + (uint64_t{1} << (8 * size_of(dtype) - 1));
  }
  return (descending ? ~key : key) & mask;
}

SortedPart::SortedPart(const MemoryBlock& in, bool descending, const Chunk& own, int64_t kept)
    : rows_(1),
      size_(std::min(kept, own.length)),
      element_(static_cast<int64_t>(size_of(in.dtype))),
      descending_(descending),
      values_(in.shape, in.dtype, cpu),
      indices_(in.shape, DType::i64, cpu) {
  const int last = in.shape.ndim() - 1;
  for (int d = 0; d < last; ++d) rows_ *= in.shape[d];
  const Shape shape = with_size(in.shape, last, size_);
  values_.block = dense_block(values_.block.data, in.dtype, shape);
  indices_.block = dense_block(indices_.block.data, DType::i64, shape);
  if (values_.block.numel() == 0) return;
  sort_rows(&values_.block, indices_.block, in, descending, own.offset);
}

uint64_t SortedPart::key(int64_t row, int64_t i) const {
  return sort_key(dtype(), value(row, i), descending_);
}

int64_t SortedPart::count_before(int64_t row, uint64_t bound) const {
  return *std::ranges::partition_point(std::views::iota(int64_t{0}, size_),
                                       [&](int64_t i) { return key(row, i) < bound; });
}

/// Returns the keys of the elements at the positions: the greatest keys that no more elements than
/// the position come before. Each round finds up to 4 more bits.
std::vector<uint64_t> SortedPart::keys_at(const Parts& parts, int64_t first,
                                          std::span<const int64_t> positions,
                                          int64_t per_row) const {
  std::vector<uint64_t> keys(positions.size(), 0);
  std::vector<int64_t> counts;
  const bool fits = rows_together(parts, rows_, 15 * per_row) >=
                    static_cast<int64_t>(positions.size()) / std::max<int64_t>(1, per_row);
  for (int left = key_bits(dtype()); left > 0;) {
    const int step = std::min(left, fits ? 4 : 1);
    left -= step;
    const size_t candidates = (size_t{1} << step) - 1;
    counts.resize(positions.size() * candidates);
    for (size_t i = 0; i < counts.size(); ++i) {
      const size_t place = i / candidates;
      const uint64_t candidate = keys[place] + ((i % candidates + 1) << left);
      counts[i] = count_before(first + static_cast<int64_t>(place) / per_row, candidate);
    }
    parts.sum(counts);
    for (size_t place = 0; place < positions.size(); ++place) {
      uint64_t digit = 0;
      while (digit < candidates && counts[place * candidates + digit] <= positions[place]) ++digit;
      keys[place] += digit << left;
    }
  }
  return keys;
}

std::vector<SortedPart::Place> SortedPart::locate(const Parts& parts, int64_t first,
                                                  std::span<const int64_t> positions,
                                                  int64_t per_row) const {
  const std::vector<uint64_t> keys = keys_at(parts, first, positions, per_row);
  // Indexed by position: elements before the key, and elements with it.
  std::vector<int64_t> own(2 * positions.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    const int64_t row = first + static_cast<int64_t>(i) / per_row;
    own[2 * i] = count_before(row, keys[i]);
    const bool is_greatest = keys[i] == ~uint64_t{0};
    own[2 * i + 1] = (is_greatest ? size_ : count_before(row, keys[i] + 1)) - own[2 * i];
  }
  const std::vector<int64_t> all = parts.gather(own);
  std::vector<Place> places;
  for (size_t i = 0; i < positions.size(); ++i) {
    int64_t before_key = 0, equal_before = 0;
    for (int p = 0; p < parts.count(); ++p) {
      const size_t at = static_cast<size_t>(p) * own.size() + 2 * i;
      before_key += all[at];
      if (p < parts.index()) equal_before += all[at + 1];
    }
    // Equal elements are in the order of the parts.
    const int64_t equal = own[2 * i + 1], rank = positions[i] - before_key - equal_before;
    places.push_back({own[2 * i] + std::clamp<int64_t>(rank, 0, equal), rank >= 0 && rank < equal});
  }
  return places;
}

int64_t SortedRuns::bytes_for(int64_t rows, int64_t elements, DType dtype) {
  const int64_t bytes = 8 * (rows + elements) + elements * static_cast<int64_t>(size_of(dtype));
  return (bytes + 7) / 8 * 8;
}

void SortedRuns::write(std::byte* memory, const SortedPart& part, int64_t first,
                       std::span<const int64_t> from, std::span<const int64_t> to) {
  auto* counts = reinterpret_cast<int64_t*>(memory);
  int64_t* indices = counts + from.size();
  for (size_t r = 0; r < from.size(); ++r) {
    *counts++ = to[r] - from[r];
    const int64_t row = first + static_cast<int64_t>(r);
    for (int64_t i = from[r]; i < to[r]; ++i) *indices++ = part.index(row, i);
  }
  auto* values = reinterpret_cast<std::byte*>(indices);
  for (size_t r = 0; r < from.size(); ++r) {
    const size_t bytes = static_cast<size_t>(to[r] - from[r]) * size_of(part.dtype());
    if (bytes == 0) continue;
    std::memcpy(values, part.value(first + static_cast<int64_t>(r), from[r]), bytes);
    values += bytes;
  }
}

SortedRuns::SortedRuns(const Parcels& parcels, int parts, int64_t rows, DType dtype,
                       bool descending)
    : dtype_(dtype), descending_(descending) {
  for (int p = 0; p < parts; ++p) {
    const auto* counts = reinterpret_cast<const int64_t*>(parcels.at(p));
    int64_t elements = 0;
    for (int64_t r = 0; r < rows; ++r) elements += counts[r];
    const int64_t* indices = counts + rows;
    runs_.push_back({counts, indices, reinterpret_cast<const std::byte*>(indices + elements)});
  }
}

std::span<const SortedRuns::Element> SortedRuns::next() {
  merged_.clear();
  starts_.assign(1, 0);
  for (Run& run : runs_) {
    const int64_t count = run.counts[row_];
    for (int64_t i = 0; i < count; ++i) {
      merged_.push_back({sort_key(dtype_, run.values, descending_), *run.indices++, run.values});
      run.values += size_of(dtype_);
    }
    starts_.push_back(merged_.size());
  }
  ++row_;
  const auto earlier = [](const Element& a, const Element& b) { return a.key < b.key; };
  const auto at = [&](size_t run) {
    return merged_.begin() + static_cast<int64_t>(starts_[std::min(run, runs_.size())]);
  };
  for (size_t width = 1; width < runs_.size(); width *= 2) {
    for (size_t run = 0; run + width < runs_.size(); run += 2 * width) {
      std::inplace_merge(at(run), at(run + width), at(run + 2 * width), earlier);
    }
  }
  return merged_;
}

int64_t rows_together(const Parts& parts, int64_t rows, int64_t numbers) {
  const int64_t least = 4096, elements = rows * parts.size() / parts.count();
  return std::max<int64_t>(1, std::max(least, elements) / std::max<int64_t>(1, numbers));
}

static MemoryBlock rows_of(const MemoryBlock& block, const Call& c) {
  return with_last_dim(block, along_dim(c));
}

void store_elements(const Rows& values, const Rows& indices, int64_t row,
                    std::span<const SortedRuns::Element> elements) {
  const Line numbers = indices.line(row);
  auto* number = static_cast<int64_t*>(numbers.data);
  for (size_t i = 0; i < elements.size(); ++i, number += numbers.stride)
    *number = elements[i].index;
  const Line to = values.line(row);
  const size_t size = size_of(to.dtype);
  auto* value = static_cast<std::byte*>(to.data);
  for (size_t i = 0; i < elements.size(); ++i, value += to.stride * static_cast<int64_t>(size)) {
    std::memcpy(value, elements[i].value, size);
  }
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
    store_elements(values, indices, r, runs.next().first(static_cast<size_t>(k)));
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
    std::vector<SortedRuns::Element> elements;
    for (size_t i = 0; i < places.size(); ++i) {
      elements.push_back({0, found[2 * i + 1], reinterpret_cast<const std::byte*>(&found[2 * i])});
    }
    for (int64_t r = 0; r < rows; ++r) {
      store_elements(
          values, indices, first + r,
          std::span(elements).subspan(static_cast<size_t>(r * n), static_cast<size_t>(n)));
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
