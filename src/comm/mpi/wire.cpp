// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/wire.h"

#include <algorithm>

#include "src/comm/collective_parts.h"
#include "weft/error.h"

namespace weft {

/// Bytes of the longest MPI message; MPI's counts are ints.
static constexpr int64_t kLongestSegment = int64_t{64} << 20;
/// Bytes of the memory for blocks of other ranks that are to be reduced.
static constexpr int64_t kMostScratch = int64_t{64} << 20, kLongestBlock = int64_t{1} << 20;

void fail_malformed(int from) {
  fail_call("receive", "a message of process ", from, " is not one of this version of weft");
}

static int64_t block_bytes_for(int size) {
  const int64_t each = kMostScratch / (kMpiBlocksInFlight * std::max(1, size - 1));
  return std::clamp(each / 64 * 64, int64_t{64} << 10, kLongestBlock);
}

static void add_segment(MpiSegments& segments, const void* data, ElementRange range, DType dtype) {
  std::byte* const at = element_at(data, range.begin, dtype);
  const int64_t bytes = range.count * static_cast<int64_t>(size_of(dtype));
  for (int64_t done = 0; done < bytes; done += kLongestSegment) {
    segments.push_back({at + done, std::min(kLongestSegment, bytes - done)});
  }
}

MpiSegments segments_of(const void* data, int64_t bytes) {
  MpiSegments segments;
  add_segment(segments, data, {0, bytes}, DType::u8);
  return segments;
}

MpiParts::MpiParts(const Collective& call, int rank, int size)
    : call_(call), rank_(rank), size_(size), block_bytes_(block_bytes_for(size)) {
  if (call.kind != CollectiveKind::all_reduce || size != 2) return;
  direct_ = true;
  direct_ = is_short(to(1 - rank));
}

std::vector<PieceRange> MpiParts::ranges(int r) const {
  std::vector<PieceRange> ranges;
  for (size_t i = 0; i < call_.pieces.size(); ++i) {
    const Piece& piece = call_.pieces[i];
    const auto widest = std::max(size_of(piece.dtype), size_of(piece.recv_dtype));
    const int64_t block = block_bytes_ / static_cast<int64_t>(widest);
    const ElementRange whole =
        direct_ ? ElementRange{0, piece.counts[0]} : part_in_whole(call_, piece, size_, r);
    for (int64_t done = 0; done < whole.count; done += block) {
      ranges.push_back({i, whole.begin + done, std::min(block, whole.count - done)});
    }
  }
  return ranges;
}

MpiSegment MpiParts::source(const PieceRange& range) const {
  const Piece& piece = call_.pieces[range.piece];
  return {element_at(piece.send, range.begin, piece.dtype),
          range.count * static_cast<int64_t>(size_of(piece.dtype))};
}

MpiSegment MpiParts::result(const PieceRange& range) const {
  const Piece& piece = call_.pieces[range.piece];
  const bool is_part = call_.kind == CollectiveKind::reduce_scatter;
  const int64_t before = is_part ? part_offset(piece.counts, rank_) : 0;
  return {element_at(piece.recv, range.begin - before, piece.recv_dtype),
          range.count * static_cast<int64_t>(size_of(piece.recv_dtype))};
}

MpiSegments MpiParts::results(int r) const {
  MpiSegments segments;
  for (const PieceRange& range : ranges(r)) segments.push_back(result(range));
  return segments;
}

MpiSegments MpiParts::to(int r) const {
  MpiSegments segments;
  if (reduces()) {
    for (const PieceRange& range : ranges(r)) segments.push_back(source(range));
    return segments;
  }
  for (const Piece& piece : call_.pieces) {
    add_segment(segments, piece.send, range_sent(call_, piece, size_, rank_, r), piece.dtype);
  }
  return segments;
}

MpiSegments MpiParts::from(int r) const {
  MpiSegments segments;
  if (reduces()) return segments;
  for (const Piece& piece : call_.pieces) {
    add_segment(segments, piece.recv, range_received(call_, piece, size_, r, rank_), piece.dtype);
  }
  return segments;
}

}  // namespace weft
