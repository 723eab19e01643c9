// SPDX-License-Identifier: Apache-2.0
#include "ops/sorted_part.h"

#include <algorithm>
#include <cstring>
#include <ranges>

#include "src/base/numeric.h"
#include "src/kernels/iteration/lines.h"
#include "src/kernels/sort/sort.h"

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
    key = ordered(load_element<float>(dtype, element));
  } else if (is_floating(dtype)) {
    key = ordered(load_element<double>(dtype, element));
  } else {
    // Shorter integers become at least 0 in one more bit, whether signed or not.
    const auto x = static_cast<uint64_t>(load_element<int64_t>(dtype, element));
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
  Shape shape = in.shape;
  shape[last] = size_;
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
  // By position: elements before the key, and elements with it.
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

}  // namespace weft
