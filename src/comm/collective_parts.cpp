// SPDX-License-Identifier: Apache-2.0
#include "src/comm/collective_parts.h"

#include <algorithm>
#include <numeric>

#include "src/comm/signature.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"

namespace weft {

/// The approximate bytes that a rank copies in a round, which stay in the caches until they are
/// read.
static constexpr int64_t kRoundBytes = int64_t{512} << 10;
static constexpr int64_t kLineElements = 64;

static constexpr int64_t whole_lines(int64_t elements) {
  return (elements + kLineElements - 1) / kLineElements * kLineElements;
}

int64_t most_of(int64_t part, int rounds) {
  return rounds == 1 ? part : whole_lines((part + rounds - 1) / rounds);
}

ElementRange range_of(int64_t part, const Round& round) {
  const int64_t each = most_of(part, round.count);
  const int64_t begin = std::min(part, each * round.index);
  return {begin, std::min(each, part - begin)};
}

ElementRange share_of(int64_t elements, int ranks, int rank) {
  const int64_t each = whole_lines((elements + ranks - 1) / ranks);
  const int64_t begin = std::min(elements, each * rank);
  return {begin, std::min(each, elements - begin)};
}

static int64_t sum_of(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t part_offset(std::span<const int64_t> counts, int rank) {
  return sum_of(counts.first(static_cast<size_t>(rank)));
}

bool sends_all_parts(CollectiveKind kind) {
  return is_reduction(kind) || kind == CollectiveKind::scatter ||
         kind == CollectiveKind::all_to_all;
}

int64_t part_of(const Collective& call, const Piece& piece, int ranks, int rank) {
  if (call.kind == CollectiveKind::broadcast) return piece.counts[0];
  if (call.kind == CollectiveKind::all_reduce) return share_of(piece.counts[0], ranks, rank).count;
  return piece.counts[static_cast<size_t>(rank)];
}

ElementRange part_in_whole(const Collective& call, const Piece& piece, int ranks, int rank) {
  if (call.kind == CollectiveKind::all_reduce) return share_of(piece.counts[0], ranks, rank);
  return {part_offset(piece.counts, rank), piece.counts[static_cast<size_t>(rank)]};
}

/// Returns whether a collective that reduces nothing moves data from one rank to another.
static bool moves(const Collective& call, int from, int to) {
  switch (call.kind) {
    case CollectiveKind::broadcast:
    case CollectiveKind::scatter: return from == call.root;
    case CollectiveKind::gather: return to == call.root;
    default: return true;
  }
}

ElementRange range_sent(const Collective& call, const Piece& piece, int ranks, int from, int to) {
  if (!moves(call, from, to)) return {0, 0};
  if (!sends_all_parts(call.kind)) return {0, part_of(call, piece, ranks, from)};
  return part_in_whole(call, piece, ranks, to);
}

ElementRange range_received(const Collective& call, const Piece& piece, int ranks, int from,
                            int to) {
  if (!moves(call, from, to)) return {0, 0};
  const bool is_all_to_all = call.kind == CollectiveKind::all_to_all;
  const std::span<const int64_t> counts = is_all_to_all ? call.recv_counts : piece.counts;
  if (call.kind == CollectiveKind::broadcast || call.kind == CollectiveKind::scatter) {
    return {0, part_of(call, piece, ranks, to)};
  }
  return {part_offset(counts, from), counts[static_cast<size_t>(from)]};
}

PieceSizes sizes_of(const Collective& call, const Piece& piece, int rank) {
  const auto own = [&] { return piece.counts[static_cast<size_t>(rank)]; };
  const bool is_root = rank == call.root;
  switch (call.kind) {
    case CollectiveKind::broadcast:
      return {is_root ? piece.counts[0] : 0, is_root ? 0 : piece.counts[0], 0};
    case CollectiveKind::all_gather:
      return {own(), sum_of(piece.counts), part_offset(piece.counts, rank)};
    case CollectiveKind::reduce_scatter:
      return {sum_of(piece.counts), own(), part_offset(piece.counts, rank)};
    case CollectiveKind::gather:
      return {own(), is_root ? sum_of(piece.counts) : 0, part_offset(piece.counts, rank)};
    case CollectiveKind::scatter:
      return {is_root ? sum_of(piece.counts) : 0, own(), part_offset(piece.counts, rank)};
    case CollectiveKind::all_to_all: return {sum_of(piece.counts), sum_of(call.recv_counts), 0};
    case CollectiveKind::send: return {piece.counts[0], 0, 0};
    case CollectiveKind::recv: return {0, piece.counts[0], 0};
    default: return {piece.counts[0], piece.counts[0], 0};
  }
}

static int64_t elements_of_others(const Collective& call, const Piece& piece, int rank, int size) {
  const int64_t all = sizes_of(call, piece, rank).recv;
  if (call.kind == CollectiveKind::broadcast || is_message(call.kind)) return all;
  return all - range_received(call, piece, size, rank, rank).count;
}

int64_t received_bytes(const Collective& call, int rank, int size) {
  int64_t bytes = 0;
  for (const Piece& piece : call.pieces) {
    const auto sent = static_cast<int64_t>(size_of(piece.dtype));
    if (!is_reduction(call.kind)) {
      bytes += elements_of_others(call, piece, rank, size) * sent;
      continue;
    }
    const int64_t own = part_of(call, piece, size, rank);
    bytes += (size - 1) * own * sent;
    if (call.kind == CollectiveKind::all_reduce) {
      bytes += (piece.counts[0] - own) * static_cast<int64_t>(size_of(piece.recv_dtype));
    }
  }
  return bytes;
}

int rounds_of(const Collective& call, int ranks) {
  if (call.kind == CollectiveKind::all_to_all) return 1;
  int64_t all = 0, most = 0;
  for (int r = 0; r < ranks; ++r) {
    int64_t bytes = 0;
    for (const Piece& piece : call.pieces) {
      bytes += part_of(call, piece, ranks, r) * static_cast<int64_t>(size_of(piece.dtype));
    }
    all += bytes;
    most = std::max(most, bytes);
  }
  const int64_t shown = sends_all_parts(call.kind) ? all : most;
  return static_cast<int>(std::clamp<int64_t>(shown / kRoundBytes, 1, kMostRounds));
}

int phases_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::barrier: return 0;
    case CollectiveKind::all_reduce: return 2;
    default: return 1;
  }
}

/// The elements before rank r's part in the memory that a rank sends, be it the caller's or half a
/// staging buffer.
static int64_t sent_before(const Collective& call, const Piece& piece, int ranks, int r) {
  if (!sends_all_parts(call.kind)) return 0;
  if (call.kind == CollectiveKind::all_reduce && call.rounds == 1) {
    return share_of(piece.counts[0], ranks, r).begin;
  }
  int64_t before = 0;
  for (int part = 0; part < r; ++part) {
    before += most_of(part_of(call, piece, ranks, part), call.rounds);
  }
  return before;
}

/// One rank's view of a collective whose ranks read each other's memory, in one phase of a round.
struct CollectiveRead {
  const Collective& mine;
  int rank;
  int phase;
  /// Each rank's `Collective`; null for a rank that does not exist.
  std::span<const void* const> shown;
  Round round = {};

  int size() const { return static_cast<int>(shown.size()); }
  const Collective* of(int r) const {
    return static_cast<const Collective*>(shown[static_cast<size_t>(r)]);
  }
  /// The elements of rank r's part of a piece that belong to this round.
  ElementRange range(const Piece& piece, int r) const {
    return range_of(part_of(mine, piece, size(), r), round);
  }
  /// Returns the address of that range of rank r's part of piece i in rank `from`'s memory; null
  /// when `from` does not exist.
  const void* sent(int from, size_t i, int r) const {
    const Collective* call = from == rank ? &mine : of(from);
    if (!call) return nullptr;
    const Piece& piece = call->pieces[i];
    int64_t elements = sent_before(*call, piece, size(), r);
    if (call->rounds == 1) elements += range(mine.pieces[i], r).begin;
    const size_t half = call->rounds == 1 ? 0 : static_cast<size_t>(round.index % 2);
    return element_at(piece.send, elements, piece.dtype) + half * call->half_bytes;
  }
  /// Returns the address of that range of the share that rank `from` has reduced.
  const void* reduced(int from, size_t i) const {
    const Collective* call = of(from);
    if (!call) return nullptr;
    const Piece& piece = call->pieces[i];
    int64_t before = 0;
    if (call->rounds == 1) {
      before = share_of(piece.counts[0], size(), from).begin + range(piece, from).begin;
    }
    return element_at(piece.recv, before, piece.recv_dtype);
  }
};

void copy_elements(const Piece& piece, void* to, const void* from, int64_t count, int64_t of) {
  if (count == 0 || to == from) return;
  const size_t bytes = static_cast<size_t>(count) * size_of(piece.dtype);
  if (piece.device.kind == DeviceKind::cuda) {
    cuda::copy_on_devices(to, from, bytes, current_stream(piece.device));
  } else {
    copy_bytes(to, from, bytes, static_cast<size_t>(of) * size_of(piece.dtype));
  }
}

/// Throws PeerMismatch unless rank `from` sends rank `to` `expected` elements in its all_to_all.
static void check_sent(const Collective& call, int from, int to, int64_t expected) {
  const int64_t sent = call.pieces[0].counts[static_cast<size_t>(to)];
  if (sent != expected) throw PeerMismatch{from, counts_in_words(sent, to, expected)};
}

/// Copies this round's elements of what each rank sends here to their positions in recv; each rank
/// begins with a different source.
static void read_parts(const CollectiveRead& read) {
  const CollectiveKind kind = read.mine.kind;
  const bool has_one_source = kind == CollectiveKind::broadcast || kind == CollectiveKind::scatter;
  for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
    const Piece& piece = read.mine.pieces[i];
    // The root of a broadcast need not receive.
    if (kind == CollectiveKind::broadcast && !piece.recv) continue;
    const auto counts = kind == CollectiveKind::all_to_all ? read.mine.recv_counts : piece.counts;
    ElementRange into{0, part_of(read.mine, piece, read.size(), read.rank)};
    if (!has_one_source) into = {part_offset(counts, read.rank + 1), 0};
    for (int step = 1; step <= read.size(); ++step) {
      const int from = (read.rank + step) % read.size();
      if (!has_one_source) {
        into.begin = from == 0 ? 0 : into.begin + into.count;
        into.count = counts[static_cast<size_t>(from)];
      }
      const Collective* peer = read.of(from);
      if (!peer || !moves(read.mine, from, read.rank)) continue;
      if (kind == CollectiveKind::all_to_all) check_sent(*peer, from, read.rank, into.count);
      const int part = sends_all_parts(kind) ? read.rank : from;
      const ElementRange range = range_of(into.count, read.round);
      if (range.count == 0) continue;
      copy_elements(piece, element_at(piece.recv, into.begin + range.begin, piece.dtype),
                    read.sent(from, i, part), range.count, into.count);
    }
  }
}

/// Reduces this round's elements of this rank's part of each piece over all ranks. In an all-reduce
/// that is its share, which the others then read, so that all hold the same bits.
static void reduce_parts(const CollectiveRead& read) {
  std::vector<const void*> sources;
  for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
    const Piece& piece = read.mine.pieces[i];
    const ElementRange range = read.range(piece, read.rank);
    sources.clear();
    for (int r = 0; r < read.size(); ++r) {
      if (const void* sent = read.sent(r, i, read.rank)) sources.push_back(sent);
    }
    const bool shares = read.mine.kind == CollectiveKind::all_reduce;
    const int64_t before = shares ? share_of(piece.counts[0], read.size(), read.rank).begin : 0;
    void* to = element_at(piece.recv, before + range.begin, piece.recv_dtype);
    const ReduceInto into{to, piece.recv_dtype, piece.accumulate, piece.device};
    reduce_n(read.mine.op, piece.dtype, sources, into, range.count);
  }
}

static void read_shares(const CollectiveRead& read) {
  for (int step = 1; step < read.size(); ++step) {
    const int from = (read.rank + step) % read.size();
    for (size_t i = 0; i < read.mine.pieces.size(); ++i) {
      const Piece& piece = read.mine.pieces[i];
      const ElementRange range = read.range(piece, from);
      const int64_t before = share_of(piece.counts[0], read.size(), from).begin;
      void* to = element_at(piece.recv, before + range.begin, piece.recv_dtype);
      if (const void* reduced = read.reduced(from, i)) {
        Piece result = piece;
        result.dtype = piece.recv_dtype;
        copy_elements(result, to, reduced, range.count,
                      part_of(read.mine, piece, read.size(), from));
      } else {
        const void* own = read.sent(read.rank, i, from);
        const ReduceInto into{to, piece.recv_dtype, false, piece.device};
        reduce_n(ReduceOp::sum, piece.dtype, {&own, 1}, into, range.count);
      }
    }
  }
}

/// Does a rank's part of one phase.
static void read_collective(const CollectiveRead& read) {
  switch (read.mine.kind) {
    case CollectiveKind::broadcast:
    case CollectiveKind::scatter:
    case CollectiveKind::gather:
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all: return read_parts(read);
    case CollectiveKind::reduce_scatter: return reduce_parts(read);
    case CollectiveKind::all_reduce:
      return read.phase == 0 ? reduce_parts(read) : read_shares(read);
    default:
      fail("collective: kind is ", name_of(read.mine.kind),
           ", expected one that reads memory of other ranks");
  }
}

void run_with_absent_peers(const Collective& call, int rank, std::vector<const void*>& shown) {
  if (is_message(call.kind)) return;
  shown[static_cast<size_t>(rank)] = &call;
  for (int phase = 0; phase < phases_of(call.kind); ++phase) {
    read_collective({call, rank, phase, shown});
  }
}

int CollectiveReader::rounds(std::span<const void* const> shown) {
  for (const void* call : shown) {
    if (call) rounds_ = std::max(rounds_, static_cast<const Collective*>(call)->rounds);
  }
  return rounds_;
}

int64_t CollectiveReader::read(int phase, std::span<const void* const> shown) {
  const int phases = phases_of(call_.kind);
  read_collective({call_, rank_, phase % phases, shown, {phase / phases, rounds_}});
  return phase == 0 ? received_bytes(call_, rank_, static_cast<int>(shown.size())) : 0;
}

StoredCollective::StoredCollective(const Collective& call)
    : call_(call), pieces_(call.pieces.begin(), call.pieces.end()) {
  size_t numbers = call.recv_counts.size();
  for (const Piece& piece : pieces_) numbers += piece.counts.size();
  counts_.reserve(numbers);
  const auto stored = [&](std::span<const int64_t> counts) {
    const size_t begin = counts_.size();
    counts_.insert(counts_.end(), counts.begin(), counts.end());
    return std::span<const int64_t>(counts_).subspan(begin);
  };
  for (Piece& piece : pieces_) piece.counts = stored(piece.counts);
  call_.recv_counts = stored(call.recv_counts);
  call_.pieces = pieces_;
}

}  // namespace weft
