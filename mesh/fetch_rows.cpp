// SPDX-License-Identifier: Apache-2.0
#include "mesh/row_ranks.h"
#include "weft/error.h"

namespace weft {

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
                part_of(keys_, run),
                rows_of(rows_, out_, static_cast<int64_t>(run.begin), run.count()));
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
  RowLetters letters(rows, ranks);
  letters.send_keys(keys, mistake);
  const DenseBlock own = DenseBlock::of(in);
  RowBuffer send(rows, letters.received_counts, in.dtype, in.device);
  RowBuffer come(rows, letters.counts, in.dtype, in.device);
  const KeyRange range = ranks.ranges[static_cast<size_t>(ranks.self)];
  size_t at = 0;
  for (const int64_t count : letters.received_counts) {
    const KeyRun run{at, at + static_cast<size_t>(count)};
    read_rows(rows, own, range, part_of(letters.received, run), send.next(count));
    at = run.end;
  }
  letters.send_rows(send.data(), letters.received_counts, come.data(), letters.counts, in.dtype,
                    in.device);
  for (const KeyRun& run : letters.runs) {
    const MemoryBlock block = come.next(run.count());
    if (block.numel() == 0) continue;
    copy(rows_of(rows, out, static_cast<int64_t>(run.begin), run.count()), block);
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

}  // namespace weft
