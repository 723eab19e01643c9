// SPDX-License-Identifier: Apache-2.0
#include "mesh/rows.h"

#include <array>
#include <numeric>
#include <utility>

#include "mesh/row_ranks.h"
#include "weft/error.h"

namespace weft {

int64_t RowDim::lanes() const {
  int64_t lanes = 1;
  for (int d = 0; d < layout->shape.ndim(); ++d) lanes *= d == dim ? 1 : layout->box.shape[d];
  return lanes;
}

Shape RowDim::shape_of(int64_t count) const {
  if (elements) return {count};
  Shape shape = layout->box.shape;
  shape[dim] = count;
  return shape;
}

Axes axes_cutting(const Layout& layout, std::optional<int> dim) {
  Axes axes;
  for (int axis = 0; layout.grid && axis < layout.sharding.axes(); ++axis) {
    const Placement& at = layout.sharding[axis];
    const bool cuts = dim ? at.is_shard(*dim) : at.is_shard();
    if (cuts && layout.grid->size(axis) > 1) axes.push_back(axis);
  }
  return axes;
}

DistinctKeys distinct(std::span<const int64_t> keys) {
  DistinctKeys made;
  made.places.resize(keys.size());
  const std::vector<int64_t> order = order_of_keys(keys);
  for (const int64_t at : order) {
    const int64_t key = keys[static_cast<size_t>(at)];
    if (made.keys.empty() || made.keys.back() != key) made.keys.push_back(key);
    made.places[static_cast<size_t>(at)] = static_cast<int64_t>(made.keys.size()) - 1;
  }
  return made;
}

std::vector<int64_t> keys_of(const RowDim& rows, const MemoryBlock& indices, std::string& mistake,
                             bool from_end) {
  const int64_t size = rows.layout->shape[rows.dim], count = indices.numel();
  std::vector<int64_t> keys(static_cast<size_t>(count));
  if (count > 0) copy(dense_block(keys.data(), DType::i64, indices.shape), indices);
  for (int64_t& key : keys) {
    if (key < (from_end ? -size : 0) || key >= size) {
      mistake =
          concat("index is ", key, ", expected one of the ", size, " elements of dim ", rows.dim);
      return {};
    }
    key += key < 0 ? size : 0;
  }
  if (!rows.elements) return keys;
  int64_t inner = 1;
  for (int d = rows.dim + 1; d < indices.shape.ndim(); ++d) inner *= indices.shape[d];
  const int64_t lanes = rows.lanes(), along = indices.shape[rows.dim];
  for (int64_t i = 0; i < count; ++i) {
    int64_t& key = keys[static_cast<size_t>(i)];
    key = key * lanes + i / (along * inner) * inner + i % inner;
  }
  return keys;
}

/// For each key, the position of the last row that is written to it.
static std::vector<int64_t> last_of(const DistinctKeys& named) {
  std::vector<int64_t> last(named.keys.size());
  for (size_t i = 0; i < named.places.size(); ++i) {
    last[static_cast<size_t>(named.places[i])] = static_cast<int64_t>(i);
  }
  return last;
}

void KeyedRows::make_room(const RowDim& to, int64_t count, DType dtype, Device device) {
  memory = Storage::allocate(static_cast<size_t>(bytes_of_rows(to, count, dtype)), device);
  rows = dense_block(memory->data(), dtype, to.shape_of(count), device);
}

KeyedRows combined_rows(const RowDim& to, std::span<const int64_t> keys, const MemoryBlock& values,
                        WriteMode mode) {
  DistinctKeys named = distinct(keys);
  const bool is_half = values.dtype == DType::bf16 || values.dtype == DType::f16;
  const DType dtype = mode == WriteMode::add && is_half ? DType::f32 : values.dtype;
  KeyedRows made;
  made.make_room(to, static_cast<int64_t>(named.keys.size()), dtype, values.device);
  const DenseBlock dense = DenseBlock::of(values);
  const MemoryBlock given = flat_if(to.elements, dense);
  const int dim = to.elements ? 0 : to.dim;
  const IndexBlock places(named.places, values.device);
  if (mode == WriteMode::multiply) {
    fill(made.rows, 1);
  } else if (mode != WriteMode::add) {
    take_along(made.rows, given, IndexBlock(last_of(named), values.device), dim);
  }
  if (mode != WriteMode::replace) write_along(made.rows, given, places, dim, mode);
  made.keys = std::move(named.keys);
  return made;
}

std::vector<int64_t> KeyedRows::places_in(const RowDim& to) const {
  return places_of(to, range_of(to, to.layout->box), keys);
}

namespace {

class FetchedRows final : public ExchangeReader {
 public:
  FetchedRows(const RowDim& rows, const RowRanks& ranks, std::span<const int64_t> keys,
              const MemoryBlock& out)
      : rows_(rows), ranks_(ranks), keys_(keys), out_(out) {}

  int64_t read(int, std::span<const void* const> shown) override {
    is_wrong = std::any_of(shown.begin(), shown.end(), Shown::is_mistake);
    int64_t bytes = 0;
    for (size_t i = 0; i < shown.size() && !is_wrong; ++i) {
      // Each rank begins with itself, so that they do not all read the same memory at once.
      const size_t m = (i + static_cast<size_t>(ranks_.self)) % shown.size();
      const KeyRun run = run_of(keys_, ranks_.ranges[m]);
      if (i > 0) bytes += bytes_of_rows(rows_, run.count(), out_.dtype);
      if (!shown[m]) continue;
      read_rows(rows_, *static_cast<const MemoryBlock*>(shown[m]), ranks_.ranges[m],
                part_of(keys_, run), rows_of(rows_, out_, run));
    }
    return bytes;
  }

  bool is_wrong = false;

 private:
  const RowDim& rows_;
  const RowRanks& ranks_;
  std::span<const int64_t> keys_;
  const MemoryBlock& out_;
};

void fetch_by_letters(const RowDim& rows, const RowRanks& ranks, const MemoryBlock& in,
                      std::span<const int64_t> keys, const MemoryBlock& out,
                      const std::string& mistake) {
  const RowLetters letters = sent_keys(ranks, keys, mistake);
  const DenseBlock own = DenseBlock::of(in);
  RowBuffer send(rows, letters.received_runs, in), come(rows, letters.runs, in);
  const KeyRange range = ranks.ranges[static_cast<size_t>(ranks.self)];
  for (const KeyRun& run : letters.received_runs) {
    read_rows(rows, own, range, part_of(letters.received, run), send.next(run.count()));
  }
  send.send(ranks.group, come);
  for (const KeyRun& run : letters.runs) {
    const MemoryBlock block = come.next(run.count());
    if (block.numel() == 0) continue;
    copy(rows_of(rows, out, run), block);
  }
}

}  // namespace

void fetch_distinct_rows(const RowDim& rows, const MemoryBlock& in, std::span<const int64_t> keys,
                         const MemoryBlock& out, const std::string& mistake) {
  const Axes axes = axes_cutting(*rows.layout, rows.dim);
  if (axes.empty()) {
    if (!mistake.empty()) fail(mistake);
    return read_rows(rows, DenseBlock::of(in), range_of(rows, rows.layout->box), keys, out);
  }
  const RowRanks ranks(rows, axes);
  if (!ranks.grid.in_memory(in.device.kind)) {
    return fetch_by_letters(rows, ranks, in, keys, out, mistake);
  }
  const Shown block(in, !mistake.empty());
  FetchedRows reader(rows, ranks, keys, out);
  const Exchange call{
      .blocks = {&block.shown, 1}, .content = content_of(rows, false), .words = "fetch_rows"};
  ranks.group.transport()->exchange(call, reader);
  if (reader.is_wrong) fail_on_all_ranks(ranks.group, mistake);
}

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

void put_rows(const RowDim& to, const MemoryBlock& out, size_t& at, const MemoryBlock& block,
              int64_t count) {
  const size_t begin = std::exchange(at, at + static_cast<size_t>(count));
  if (block.numel() != 0) copy(rows_of(to, out, {begin, at}), block);
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

  KeyedRows made;
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
    made.make_room(to_, static_cast<int64_t>(made.keys.size()), rows_.dtype, rows_.device);
    size_t at = 0;
    int64_t bytes = 0;
    for (const size_t m : order_) {
      if (!shown[m]) continue;
      const KeyRun& run = runs_[m];
      put_rows(to_, made.rows, at, rows_of(to_, blocks_of(shown[m])[1], run), run.count());
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

KeyedRows send_by_letters(const RowDim& to, const RowRanks& ranks, const std::vector<size_t>& order,
                          std::span<const int64_t> keys, const MemoryBlock& rows,
                          const std::string& mistake) {
  const RowLetters letters = sent_keys(ranks, keys, mistake);
  RowBuffer send(to, letters.runs, rows), come(to, letters.received_runs, rows);
  for (const KeyRun& run : letters.runs) {
    const MemoryBlock block = send.next(run.count());
    if (block.numel() == 0) continue;
    copy(block, rows_of(to, rows, run));
  }
  send.send(ranks.group, come);
  std::vector<MemoryBlock> blocks;
  for (const KeyRun& run : letters.received_runs) blocks.push_back(come.next(run.count()));
  KeyedRows made;
  made.make_room(to, static_cast<int64_t>(letters.received.size()), rows.dtype, rows.device);
  size_t at = 0;
  for (const size_t m : order) {
    const auto named = part_of(letters.received, letters.received_runs[m]);
    made.keys.insert(made.keys.end(), named.begin(), named.end());
    put_rows(to, made.rows, at, blocks[m], letters.received_runs[m].count());
  }
  return made;
}

/// Keeps the rows of this rank's part of the dim.
KeyedRows keep_own(const RowDim& to, std::span<const int64_t> keys, const MemoryBlock& rows) {
  const KeyRun run = run_of(keys, range_of(to, to.layout->box));
  const auto named = part_of(keys, run);
  KeyedRows made{{named.begin(), named.end()}, {}, {}};
  made.make_room(to, run.count(), rows.dtype, rows.device);
  const MemoryBlock own = rows_of(to, rows, run);
  if (own.numel() != 0) copy(made.rows, own);
  return made;
}

}  // namespace

KeyedRows send_distinct_rows(const RowDim& to, const Layout& from, const Axes& over,
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
