// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <numeric>
#include <utility>

#include "mesh/rows.h"
#include "mesh/steps.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/extend/parts.h"

namespace weft {

namespace {

/// The ranks of one exchange, and which of the rows each of them has.
struct RowRanks {
  RowRanks(const RowDim& rows, const Axes& axes) : grid(*rows.layout->grid) {
    members = grid.members(axes, grid.coordinates());
    for (const int rank : members) ranges.push_back(range_of(rows, rows.layout->box_of(rank)));
    self = std::ranges::find(members, grid.rank()) - members.begin();
    group = grid.group(axes);
  }

  MeshGrid& grid;
  std::vector<int> members;
  std::vector<KeyRange> ranges;
  int64_t self;
  Communicator group;
};

/// A run of ascending keys: positions begin to end.
struct KeyRun {
  size_t begin, end;
  int64_t count() const { return static_cast<int64_t>(end - begin); }
};

/// The block that a rank with a mistake shows to the others: it has no dims.
class Shown {
 public:
  Shown(const MemoryBlock& block, bool is_wrong) : dense_(DenseBlock::of(block)) {
    shown = dense_;
    if (!is_wrong) return;
    memory_ = Storage::allocate(size_of(block.dtype), block.device);
    shown = dense_block(memory_->data(), block.dtype, {}, block.device);
    fill(shown, 0);
  }
  static bool is_mistake(const void* block) {
    return block && static_cast<const MemoryBlock*>(block)->shape.ndim() == 0;
  }

  MemoryBlock shown;

 private:
  DenseBlock dense_;
  Ref<Storage> memory_;
};

/// Keys that ranks have sent each other by all_to_all, and the run of each rank's keys among those
/// sent and received.
struct RowLetters {
  std::vector<KeyRun> runs, received_runs;
  std::vector<int64_t> received;
};

}  // namespace

static KeyRun run_of(std::span<const int64_t> keys, KeyRange range) {
  const auto first = std::ranges::lower_bound(keys, range.first);
  const auto last = std::lower_bound(first, keys.end(), std::max(range.first, range.last));
  return {static_cast<size_t>(first - keys.begin()), static_cast<size_t>(last - keys.begin())};
}

static std::span<const int64_t> part_of(std::span<const int64_t> keys, KeyRun run) {
  return keys.subspan(run.begin, run.end - run.begin);
}

/// The box of the rows of a block at the positions of the run.
static Box box_of(const RowDim& rows, const Shape& block, KeyRun run) {
  Box box{Dims::filled(block.ndim(), 0), block};
  const int dim = rows.elements ? 0 : rows.dim;
  box.offset[dim] = static_cast<int64_t>(run.begin);
  box.shape[dim] = run.count();
  return box;
}

static MemoryBlock rows_of(const RowDim& rows, const MemoryBlock& block, KeyRun run) {
  return block.part(box_of(rows, block.shape, run));
}

static PackedBoxes boxes_of(const RowDim& rows, const Shape& block, std::span<const KeyRun> runs) {
  PackedBoxes boxes;
  for (const KeyRun& run : runs) boxes.add(box_of(rows, block, run));
  boxes.close(block);
  return boxes;
}

/// Reads the rows of `keys` out of the dense block of the rank that has that range.
static void read_rows(const RowDim& rows, const MemoryBlock& block, KeyRange range,
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

/// A hash of an exchange: equal on its ranks.
static uint64_t content_of(const RowDim& rows, bool is_sent) {
  const uint64_t kind = (rows.elements ? 2 : 0) + (is_sent ? 1 : 0);
  return mixed(mixed(rows.layout->hash, static_cast<uint64_t>(rows.dim)), kind);
}

/// Sends the ranks' numbers of rows; a mistake of any of them fails on all.
static std::vector<int64_t> exchanged_counts(const RowRanks& ranks, std::vector<int64_t> counts,
                                             const std::string& mistake) {
  if (!mistake.empty()) std::ranges::fill(counts, -1);
  std::vector<int64_t> received = ranks.group.all_to_all_numbers(counts);
  if (std::ranges::find(received, -1) != received.end()) {
    fail_on_all_ranks(ranks.group, mistake);
  }
  return received;
}

/// Sends each rank its part of the keys. A mistake of any rank fails on all.
static RowLetters sent_keys(const RowRanks& ranks, std::span<const int64_t> keys,
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
  const Piece piece{.send = ordered.data(),
                    .recv = letters.received.data(),
                    .dtype = DType::i64,
                    .counts = counts};
  ranks.group.all_to_all(piece, come).wait();
  return letters;
}

static void fetch_by_letters(const RowDim& rows, const RowRanks& ranks, const MemoryBlock& in,
                             std::span<const int64_t> keys, const MemoryBlock& out,
                             const std::string& mistake) {
  const RowLetters letters = sent_keys(ranks, keys, mistake);
  const auto count = static_cast<int64_t>(letters.received.size());
  const DenseMemory named(rows.shape_of(count), in.dtype, in.device);
  read_rows(rows, DenseBlock::of(in), ranks.ranges[static_cast<size_t>(ranks.self)],
            letters.received, named.block);
  send_boxes({.group = ranks.group,
              .send = boxes_of(rows, named.block.shape, letters.received_runs),
              .recv = boxes_of(rows, out.shape, letters.runs)},
             named.block, out);
}

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
  bool is_wrong = false;
  const auto read = [&](int, std::span<const void* const> shown) {
    is_wrong = std::ranges::any_of(shown, Shown::is_mistake);
    int64_t bytes = 0;
    for (size_t i = 0; i < shown.size() && !is_wrong; ++i) {
      // Each rank begins with itself, so that they do not all read the same memory at once.
      const size_t m = (i + static_cast<size_t>(ranks.self)) % shown.size();
      const KeyRun run = run_of(keys, ranks.ranges[m]);
      if (i > 0) bytes += bytes_of_rows(rows, run.count(), out.dtype);
      if (!shown[m]) continue;
      read_rows(rows, *static_cast<const MemoryBlock*>(shown[m]), ranks.ranges[m],
                part_of(keys, run), rows_of(rows, out, run));
    }
    return bytes;
  };
  exchange(ranks.group,
           {.blocks = {&block.shown, 1}, .content = content_of(rows, false), .words = "fetch_rows"},
           read);
  if (is_wrong) fail_on_all_ranks(ranks.group, mistake);
}

/// Positions of the members, in the order of their parts of the dim.
static std::vector<size_t> senders_in_order(const RowDim& to, const Layout& from,
                                            const std::vector<int>& members) {
  std::vector<int64_t> offsets;
  for (const int rank : members) offsets.push_back(from.box_of(rank).offset[to.dim]);
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
  return order;
}

namespace {

/// Reads what the ranks send to this one.
struct SentRows {
  /// Phase 0 reads the keys of this rank's part of the dim, phase 1 their rows.
  int64_t read(int phase, std::span<const void* const> shown) {
    if (phase == 0) is_wrong = std::ranges::any_of(shown, Shown::is_mistake);
    if (is_wrong) return 0;
    return phase == 0 ? read_keys(shown) : read_values(shown);
  }
  int64_t read_keys(std::span<const void* const> shown) {
    int64_t bytes = 0;
    const KeyRange mine = ranks.ranges[static_cast<size_t>(ranks.self)];
    for (const size_t m : order) {
      if (!shown[m]) continue;
      const MemoryBlock& block = *static_cast<const MemoryBlock*>(shown[m]);
      std::vector<int64_t> here;
      if (block.device.kind == DeviceKind::cuda && block.numel() > 0) {
        here.resize(static_cast<size_t>(block.numel()));
        copy(dense_block(here.data(), DType::i64, block.shape), block);
      }
      const int64_t* keys = here.empty() ? block.as<int64_t>() : here.data();
      const std::span<const int64_t> all(keys, static_cast<size_t>(block.numel()));
      runs[m] = run_of(all, mine);
      const auto named = part_of(all, runs[m]);
      made.keys.insert(made.keys.end(), named.begin(), named.end());
      if (m != static_cast<size_t>(ranks.self)) {
        bytes += runs[m].count() * static_cast<int64_t>(sizeof(int64_t));
      }
    }
    return bytes;
  }

  int64_t read_values(std::span<const void* const> shown) {
    made.make_room(to, static_cast<int64_t>(made.keys.size()), rows.dtype, rows.device);
    size_t at = 0;
    int64_t bytes = 0;
    for (const size_t m : order) {
      if (!shown[m]) continue;
      const KeyRun& run = runs[m];
      const size_t begin = std::exchange(at, at + (run.end - run.begin));
      const MemoryBlock block = rows_of(to, static_cast<const MemoryBlock*>(shown[m])[1], run);
      if (block.numel() != 0) copy(rows_of(to, made.rows, {begin, at}), block);
      if (m != static_cast<size_t>(ranks.self)) {
        bytes += bytes_of_rows(to, run.count(), rows.dtype);
      }
    }
    return bytes;
  }

  const RowDim& to;
  const RowRanks& ranks;
  const std::vector<size_t>& order;
  const MemoryBlock& rows;
  std::vector<KeyRun> runs = std::vector<KeyRun>(order.size());
  KeyedRows made = {};
  bool is_wrong = false;
};

}  // namespace

static KeyedRows send_by_letters(const RowDim& to, const RowRanks& ranks,
                                 const std::vector<size_t>& order, std::span<const int64_t> keys,
                                 const MemoryBlock& rows, const std::string& mistake) {
  const RowLetters letters = sent_keys(ranks, keys, mistake);
  KeyedRows made;
  made.make_room(to, static_cast<int64_t>(letters.received.size()), rows.dtype, rows.device);
  std::vector<KeyRun> places(order.size());
  for (const size_t m : order) {
    const auto named = part_of(letters.received, letters.received_runs[m]);
    places[m] = {made.keys.size(), made.keys.size() + named.size()};
    made.keys.insert(made.keys.end(), named.begin(), named.end());
  }
  send_boxes({.group = ranks.group,
              .send = boxes_of(to, rows.shape, letters.runs),
              .recv = boxes_of(to, made.rows.shape, places)},
             rows, made.rows);
  return made;
}

/// Keeps the rows of this rank's part of the dim.
static KeyedRows keep_own(const RowDim& to, std::span<const int64_t> keys,
                          const MemoryBlock& rows) {
  const KeyRun run = run_of(keys, range_of(to, to.layout->box));
  const auto named = part_of(keys, run);
  KeyedRows made{{named.begin(), named.end()}, {}, {}};
  made.make_room(to, run.count(), rows.dtype, rows.device);
  const MemoryBlock own = rows_of(to, rows, run);
  if (own.numel() != 0) copy(made.rows, own);
  return made;
}

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
  SentRows sent{to, ranks, order, rows};
  exchange(ranks.group, {.blocks = blocks, .content = content_of(to, true), .words = "write_rows"},
           [&](int phase, std::span<const void* const> shown) { return sent.read(phase, shown); });
  if (sent.is_wrong) fail_on_all_ranks(ranks.group, mistake);
  return std::move(sent.made);
}

Parcels::Parcels(std::vector<int64_t> bytes) : bytes_(std::move(bytes)), offsets_(bytes_.size()) {
  std::exclusive_scan(bytes_.begin(), bytes_.end(), offsets_.begin(), int64_t{0});
  const int64_t total = std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0});
  memory_ = Storage::allocate(static_cast<size_t>(total));
}

Parts::Parts(Communicator group, std::vector<Chunk> chunks)
    : group_(std::move(group)),
      chunks_(std::move(chunks)),
      received_before_(group_.traffic().bytes) {}

int64_t Parts::received() const { return group_.traffic().bytes - received_before_; }

void Parts::sum(std::span<int64_t> numbers) const {
  if (!numbers.empty()) group_.all_reduce_numbers(numbers, ReduceOp::sum);
}

std::vector<int64_t> Parts::gather(std::span<const int64_t> numbers) const {
  return numbers.empty() ? std::vector<int64_t>() : group_.all_gather_numbers(numbers);
}

Parcels Parts::gather(const Parcels& own) const {
  const std::vector<int64_t> sizes = gather(own.all_bytes());
  Parcels all(sizes);
  const Piece piece{
      .send = own.data(), .recv = all.data(), .dtype = DType::u8, .counts = all.all_bytes()};
  group_.all_gather({&piece, 1}).wait();
  return all;
}

Parcels Parts::exchange(const Parcels& sent) const {
  const std::vector<int64_t> sizes = group_.all_to_all_numbers(sent.all_bytes());
  Parcels received(sizes);
  const Piece piece{
      .send = sent.data(), .recv = received.data(), .dtype = DType::u8, .counts = sent.all_bytes()};
  group_.all_to_all(piece, sizes).wait();
  return received;
}

}  // namespace weft
