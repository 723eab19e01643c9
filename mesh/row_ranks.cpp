// SPDX-License-Identifier: Apache-2.0
#include "mesh/row_ranks.h"

#include <array>
#include <utility>

#include "src/kernels/take/take.h"
#include "weft/extend/hash.h"

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

KeyRun run_of(std::span<const int64_t> keys, KeyRange range) {
  const auto first = std::lower_bound(keys.begin(), keys.end(), range.first);
  const auto last = std::lower_bound(first, keys.end(), std::max(range.first, range.last));
  return {static_cast<size_t>(first - keys.begin()), static_cast<size_t>(last - keys.begin())};
}

MemoryBlock rows_of(const RowDim& rows, const MemoryBlock& block, KeyRun run) {
  Box box{Dims::filled(block.shape.ndim(), 0), block.shape};
  const int dim = rows.elements ? 0 : rows.dim;
  box.offset[dim] = static_cast<int64_t>(run.begin);
  box.shape[dim] = run.count();
  return block.part(box);
}

void read_rows(const RowDim& rows, const MemoryBlock& block, KeyRange range,
               std::span<const int64_t> keys, const MemoryBlock& out) {
  if (out.numel() == 0) return;
  const IndexBlock places(places_of(rows, range, keys), out.device);
  const int dim = rows.elements ? 0 : rows.dim;
  const MemoryBlock from = flat_if(rows.elements, block);
  if (out.is_dense()) {
    take_along(out, from, places, dim);
    return;
  }
  const DenseMemory dense(out.shape, out.dtype, out.device);
  take_along(dense.block, from, places, dim);
  copy(out, dense.block);
}

int64_t bytes_of_rows(const RowDim& rows, int64_t count, DType dtype) {
  return rows.shape_of(count).product() * static_cast<int64_t>(size_of(dtype));
}

uint64_t content_of(const RowDim& rows, bool is_sent) {
  const uint64_t kind = (rows.elements ? 2 : 0) + (is_sent ? 1 : 0);
  return mixed(mixed(rows.layout->hash, static_cast<uint64_t>(rows.dim)), kind);
}

void send_all(const Communicator& group, const void* send, std::span<const int64_t> counts,
              void* recv, std::span<const int64_t> recv_counts, DType dtype, Device device) {
  const Piece piece{.send = send, .recv = recv, .dtype = dtype, .counts = counts, .device = device};
  group.all_to_all(piece, recv_counts).wait();
}

/// Sends the ranks' numbers of rows; a mistake of any of them fails on all.
static std::vector<int64_t> exchanged_counts(const RowRanks& ranks, std::vector<int64_t> counts,
                                             const std::string& mistake) {
  if (!mistake.empty()) std::fill(counts.begin(), counts.end(), -1);
  const std::vector<int64_t> ones(counts.size(), 1);
  std::vector<int64_t> received(counts.size());
  send_all(ranks.group, counts.data(), ones, received.data(), ones, DType::i64);
  if (std::find(received.begin(), received.end(), -1) != received.end()) {
    fail_on_all_ranks(ranks.group, mistake);
  }
  return received;
}

RowLetters sent_keys(const RowRanks& ranks, std::span<const int64_t> keys,
                     const std::string& mistake) {
  RowLetters letters;
  std::vector<int64_t> ordered, counts;
  for (const KeyRange& range : ranks.ranges) {
    letters.runs.push_back(run_of(keys, range));
    counts.push_back(letters.runs.back().count());
    const auto mine = part_of(keys, letters.runs.back());
    ordered.insert(ordered.end(), mine.begin(), mine.end());
  }
  const std::vector<int64_t> come = exchanged_counts(ranks, counts, mistake);
  size_t end = 0;
  for (const int64_t count : come) {
    const size_t begin = std::exchange(end, end + static_cast<size_t>(count));
    letters.received_runs.push_back({begin, end});
  }
  letters.received.resize(end);
  send_all(ranks.group, ordered.data(), counts, letters.received.data(), come, DType::i64);
  return letters;
}

RowBuffer::RowBuffer(const RowDim& rows, std::span<const KeyRun> runs, const MemoryBlock& like)
    : rows_(rows), dtype_(like.dtype), device_(like.device) {
  for (const KeyRun& run : runs) elements_.push_back(rows.shape_of(run.count()).product());
  memory_ = Storage::allocate(static_cast<size_t>(sum_of(elements_)) * size_of(dtype_), device_);
  next_ = static_cast<char*>(memory_->data());
}

void RowBuffer::send(const Communicator& group, const RowBuffer& to) const {
  send_all(group, memory_->data(), elements_, to.memory_->data(), to.elements_, dtype_, device_);
}

MemoryBlock RowBuffer::next(int64_t count) {
  const MemoryBlock block = dense_block(next_, dtype_, rows_.shape_of(count), device_);
  next_ += bytes_of_rows(rows_, count, dtype_);
  return block;
}

}  // namespace weft
