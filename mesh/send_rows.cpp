// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <numeric>

#include "mesh/row_ranks.h"
#include "weft/error.h"

namespace weft {

namespace {

/// Positions of the members, in the order of their parts of the dim.
std::vector<size_t> senders_in_order(const RowDim& to, const Layout& from,
                                     const std::vector<int>& members) {
  std::vector<int64_t> offsets;
  for (const int rank : members) offsets.push_back(from.box_of(rank).offset[to.dim]);
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
  return order;
}

/// Makes memory for `count` rows.
void make_room(ReceivedRows& made, const RowDim& to, int64_t count, const MemoryBlock& like) {
  made.memory =
      Storage::allocate(static_cast<size_t>(bytes_of_rows(to, count, like.dtype)), like.device);
  made.rows = dense_block(made.memory->data(), like.dtype, to.shape_of(count), like.device);
}

void put_rows(const RowDim& to, const MemoryBlock& out, int64_t& at, const MemoryBlock& block,
              int64_t count) {
  if (block.numel() != 0) copy(rows_of(to, out, at, count), block);
  at += count;
}

/// Phase 0 reads the keys of this rank's part of the dim, phase 1 their rows.
class SentRows final : public ExchangeReader {
 public:
  SentRows(const RowDim& to, const RowRanks& ranks, std::vector<size_t> order,
           const MemoryBlock& rows)
      : to_(to), ranks_(ranks), order_(std::move(order)), rows_(rows), runs_(order_.size()) {}

  int64_t read(int phase, std::span<const void* const> shown) override {
    if (phase == 0) is_wrong = std::any_of(shown.begin(), shown.end(), Shown::is_mistake);
    if (is_wrong) return 0;
    return phase == 0 ? read_keys(shown) : read_values(shown);
  }

  ReceivedRows made;
  bool is_wrong = false;

 private:
  static const MemoryBlock* blocks_of(const void* shown) {
    return static_cast<const MemoryBlock*>(shown);
  }

  int64_t read_keys(std::span<const void* const> shown) {
    int64_t bytes = 0;
    const KeyRange mine = ranks_.ranges[static_cast<size_t>(ranks_.self)];
    for (const size_t m : order_) {
      if (!shown[m]) continue;
      const MemoryBlock& block = *blocks_of(shown[m]);
      std::vector<int64_t> here;
      if (block.device.kind == DeviceKind::cuda && block.numel() > 0) {
        here.resize(static_cast<size_t>(block.numel()));
        copy(dense_block(here.data(), DType::i64, block.shape), block);
      }
      const int64_t* keys = here.empty() ? block.as<int64_t>() : here.data();
      const std::span<const int64_t> all(keys, static_cast<size_t>(block.numel()));
      runs_[m] = run_of(all, mine);
      const auto named = part_of(all, runs_[m]);
      made.keys.insert(made.keys.end(), named.begin(), named.end());
      if (m != static_cast<size_t>(ranks_.self)) {
        bytes += runs_[m].count() * static_cast<int64_t>(sizeof(int64_t));
      }
    }
    return bytes;
  }

  int64_t read_values(std::span<const void* const> shown) {
    make_room(made, to_, static_cast<int64_t>(made.keys.size()), rows_);
    int64_t at = 0, bytes = 0;
    for (const size_t m : order_) {
      if (!shown[m]) continue;
      const KeyRun& run = runs_[m];
      put_rows(to_, made.rows, at,
               rows_of(to_, blocks_of(shown[m])[1], static_cast<int64_t>(run.begin), run.count()),
               run.count());
      if (m != static_cast<size_t>(ranks_.self)) {
        bytes += bytes_of_rows(to_, run.count(), rows_.dtype);
      }
    }
    return bytes;
  }

  const RowDim& to_;
  const RowRanks& ranks_;
  std::vector<size_t> order_;
  const MemoryBlock& rows_;
  std::vector<KeyRun> runs_;
};

ReceivedRows send_by_letters(const RowDim& to, const RowRanks& ranks,
                             const std::vector<size_t>& order, std::span<const int64_t> keys,
                             const MemoryBlock& rows, const std::string& mistake) {
  RowLetters letters(to, ranks);
  letters.send_keys(keys, mistake);
  RowBuffer send(to, letters.counts, rows.dtype, rows.device);
  RowBuffer come(to, letters.received_counts, rows.dtype, rows.device);
  for (const KeyRun& run : letters.runs) {
    const MemoryBlock block = send.next(run.count());
    if (block.numel() == 0) continue;
    copy(block, rows_of(to, rows, static_cast<int64_t>(run.begin), run.count()));
  }
  letters.send_rows(send.data(), letters.counts, come.data(), letters.received_counts, rows.dtype,
                    rows.device);
  std::vector<MemoryBlock> blocks;
  std::vector<KeyRun> runs;
  size_t next = 0;
  for (const int64_t count : letters.received_counts) {
    blocks.push_back(come.next(count));
    runs.push_back({next, next + static_cast<size_t>(count)});
    next = runs.back().end;
  }
  ReceivedRows made;
  make_room(made, to, sum_of(letters.received_counts), rows);
  int64_t at = 0;
  for (const size_t m : order) {
    const auto named = part_of(letters.received, runs[m]);
    made.keys.insert(made.keys.end(), named.begin(), named.end());
    put_rows(to, made.rows, at, blocks[m], runs[m].count());
  }
  return made;
}

/// Keeps the rows of this rank's part of the dim.
ReceivedRows keep_own(const RowDim& to, std::span<const int64_t> keys, const MemoryBlock& rows) {
  const KeyRun run = run_of(keys, range_of(to, to.layout->box));
  const auto named = part_of(keys, run);
  ReceivedRows made{{named.begin(), named.end()}, {}, {}};
  make_room(made, to, run.count(), rows);
  int64_t at = 0;
  put_rows(to, made.rows, at, rows_of(to, rows, static_cast<int64_t>(run.begin), run.count()),
           run.count());
  return made;
}

}  // namespace

ReceivedRows send_distinct_rows(const RowDim& to, const Layout& from, const Axes& over,
                                std::span<const int64_t> keys, const MemoryBlock& rows,
                                const std::string& mistake) {
  if (over.empty()) {
    if (!mistake.empty()) fail(mistake);
    return keep_own(to, keys, rows);
  }
  const RowRanks ranks(to, over);
  const std::vector<size_t> order = senders_in_order(to, from, ranks.members);
  if (!ranks.grid.in_memory(rows.device.kind)) {
    return send_by_letters(to, ranks, order, keys, rows, mistake);
  }
  const IndexBlock named({keys.begin(), keys.end()}, rows.device);
  const Shown shown_keys(named, !mistake.empty()), shown_rows(rows, false);
  const std::array<MemoryBlock, 2> blocks = {shown_keys.shown, shown_rows.shown};
  SentRows reader(to, ranks, order, rows);
  const Exchange call{.blocks = blocks, .content = content_of(to, true), .words = "write_rows"};
  ranks.group.transport()->exchange(call, reader);
  if (reader.is_wrong) fail_on_all_ranks(ranks.group, mistake);
  return std::move(reader.made);
}

}  // namespace weft
