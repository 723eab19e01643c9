// SPDX-License-Identifier: Apache-2.0
#include "mesh/key_order.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "src/kernels/copy/copy.h"

namespace weft {

KeyRange range_of(const RowDim& rows, const Box& box) {
  const int64_t each = rows.keys_per_index(), first = box.offset[rows.dim];
  return {first * each, (first + box.shape[rows.dim]) * each};
}

std::vector<int64_t> places_of(const RowDim& rows, KeyRange range, std::span<const int64_t> keys) {
  std::vector<int64_t> places(keys.size());
  const Shape& local = rows.layout->box.shape;
  int64_t inner = 1;
  for (int d = rows.dim + 1; d < local.ndim(); ++d) inner *= local[d];
  const int64_t each = rows.keys_per_index(),
                along = (range.last - range.first) / std::max<int64_t>(1, each);
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t key = keys[i] - range.first;
    places[i] =
        rows.elements ? (key % each / inner * along + key / each) * inner + key % inner : key;
  }
  return places;
}

/// Bits of a key that one pass sorts by.
static constexpr int kDigitBits = 11;

/// Sorts positions stably by one digit of their keys.
static void sort_by_digit(std::span<const int64_t> keys, int shift, std::span<const int64_t> from,
                          std::span<int64_t> to) {
  constexpr size_t digits = size_t{1} << kDigitBits;
  std::array<int64_t, digits> next{};
  const auto digit = [&](int64_t at) {
    return (static_cast<uint64_t>(keys[static_cast<size_t>(at)]) >> shift) & (digits - 1);
  };
  for (const int64_t at : from) ++next[digit(at)];
  int64_t sum = 0;
  for (int64_t& count : next) sum += std::exchange(count, sum);
  for (const int64_t at : from) to[static_cast<size_t>(next[digit(at)]++)] = at;
}

std::vector<int64_t> order_of_keys(std::span<const int64_t> keys) {
  std::vector<int64_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  if (std::is_sorted(keys.begin(), keys.end())) return order;
  const auto most = static_cast<uint64_t>(*std::max_element(keys.begin(), keys.end()));
  std::vector<int64_t> next(keys.size());
  for (int shift = 0; shift < 63 && most >> shift != 0; shift += kDigitBits) {
    sort_by_digit(keys, shift, order, next);
    std::swap(order, next);
  }
  return order;
}

IndexBlock::IndexBlock(std::vector<int64_t> values, Device device)
    : values_(std::move(values)),
      block_(dense_block(values_.data(), DType::i64, {static_cast<int64_t>(values_.size())})) {
  if (device.kind != DeviceKind::cuda) return;
  memory_ = Storage::allocate(values_.size() * sizeof(int64_t), device);
  const MemoryBlock there = dense_block(memory_->data(), DType::i64, block_.shape, device);
  if (!values_.empty()) copy(there, block_);
  block_ = there;
}

}  // namespace weft
