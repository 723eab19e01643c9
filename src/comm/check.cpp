// SPDX-License-Identifier: Apache-2.0
#include "src/comm/check.h"

#include <algorithm>
#include <numeric>

#include "src/comm/read_collective.h"
#include "src/comm/reduce.h"
#include "weft/error.h"

namespace weft {

static int64_t sum_of(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
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

static bool has_one_count(CollectiveKind kind) {
  return kind == CollectiveKind::broadcast || kind == CollectiveKind::all_reduce ||
         is_message(kind);
}

static void check_counts(const Collective& call, std::span<const int64_t> counts, size_t expected) {
  if (counts.size() != expected) {
    fail(name_of(call.kind), ": number of counts of a piece is ", counts.size(), ", expected ",
         expected);
  }
  for (const int64_t count : counts) {
    if (count < 0) fail(name_of(call.kind), ": count must be at least 0, got ", count);
  }
}

/// The elements that a piece receives; a broadcast's root, which need not receive, counts as
/// receiving when it has a `recv`.
static int64_t elements_received(const Collective& call, const Piece& piece,
                                 const PieceSizes& sizes, int rank) {
  const bool is_root = call.kind == CollectiveKind::broadcast && call.root == rank;
  return is_root && piece.recv ? sizes.send : sizes.recv;
}

/// The part and the whole may share memory only if the part lies at its own position in the whole.
static void check_overlap(const Collective& call, const Piece& piece, PieceSizes sizes, int rank) {
  sizes.recv = elements_received(call, piece, sizes, rank);
  if (sizes.send == 0 || sizes.recv == 0) return;
  const auto send = reinterpret_cast<uintptr_t>(piece.send);
  const auto recv = reinterpret_cast<uintptr_t>(piece.recv);
  const auto send_end = send + static_cast<uintptr_t>(sizes.send) * size_of(piece.dtype);
  const auto recv_end = recv + static_cast<uintptr_t>(sizes.recv) * size_of(piece.recv_dtype);
  if (send_end <= recv || recv_end <= send) return;
  const auto offset = static_cast<uintptr_t>(sizes.own_offset) * size_of(piece.dtype);
  const bool send_is_part = sizes.send <= sizes.recv;
  const bool own_place = send_is_part ? send == recv + offset : recv == send + offset;
  if (!own_place || piece.dtype != piece.recv_dtype || call.kind == CollectiveKind::all_to_all ||
      piece.accumulate) {
    fail(name_of(call.kind),
         ": send and recv overlap, expected separate memory, or the place of this rank in the "
         "result");
  }
}

static void check_piece(const Collective& call, const Piece& piece, int rank, int size) {
  const std::string_view name = name_of(call.kind);
  check_counts(call, piece.counts, has_one_count(call.kind) ? 1 : static_cast<size_t>(size));
  if (is_reduction(call.kind)) {
    check_reduction(name.data(), call.op, piece.dtype, piece.recv_dtype);
  } else if (piece.recv_dtype != piece.dtype) {
    fail(name, ": recv_dtype is ", piece.recv_dtype, ", expected ", piece.dtype,
         ", the dtype; only reductions convert");
  }
  if (piece.accumulate && call.kind != CollectiveKind::reduce_scatter) {
    fail(name, ": accumulate is true, expected false; only reduce_scatter accumulates");
  }
  const PieceSizes sizes = sizes_of(call, piece, rank);
  if (sizes.send > 0 && !piece.send)
    fail(name, ": send is null, expected memory of ", sizes.send, " elements");
  if (sizes.recv > 0 && !piece.recv)
    fail(name, ": recv is null, expected memory of ", sizes.recv, " elements");
  check_overlap(call, piece, sizes, rank);
}

void check_collective(const Collective& call, int rank, int size) {
  if (call.root < 0 || call.root >= size) {
    fail(name_of(call.kind), ": rank is ", call.root, ", expected 0 to ", size - 1);
  }
  if (call.kind == CollectiveKind::all_to_all) {
    check_counts(call, call.recv_counts, static_cast<size_t>(size));
  }
  for (const Piece& piece : call.pieces) check_piece(call, piece, rank, size);
  if (call.kind == CollectiveKind::all_to_all) {
    const auto own = static_cast<size_t>(rank);
    const int64_t sent = call.pieces[0].counts[own], expected = call.recv_counts[own];
    if (sent != expected) {
      fail("all_to_all: number of elements that rank ", rank, " sends to itself is ", sent,
           ", expected ", expected, ", the number that it receives from itself");
    }
  }
  if (is_message(call.kind) && call.root == rank) {
    fail(name_of(call.kind), ": the other rank is ", rank, ", expected another than this one");
  }
}

void check_subgroup(const Transport& parent, std::span<const int> ranks) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] < 0 || sorted[i] >= parent.size()) {
      fail("subgroup: rank is ", sorted[i], ", expected 0 to ", parent.size() - 1);
    }
    if (i > 0 && sorted[i] == sorted[i - 1])
      fail("subgroup: rank ", sorted[i], " is named twice, expected once");
  }
  if (!std::binary_search(sorted.begin(), sorted.end(), parent.rank())) {
    fail("subgroup: the ranks do not include rank ", parent.rank(),
         ", expected the calling rank among them");
  }
}

void refuse_device_memory(const std::string& group, Device device) {
  fail(group, ": memory is on ", device,
       ", expected cpu: this build of weft has no NCCL, by which ranks ",
       "that are processes exchange it; make ranks threads of one process (run_ranks), or move ",
       "tensors by to(cpu)");
}

static int64_t elements_of_others(const Collective& call, const Piece& piece, int rank) {
  const int64_t all = sizes_of(call, piece, rank).recv;
  const auto own = static_cast<size_t>(rank);
  switch (call.kind) {
    case CollectiveKind::all_to_all: return all - call.recv_counts[own];
    case CollectiveKind::all_gather: return all - piece.counts[own];
    case CollectiveKind::gather:
    case CollectiveKind::scatter: return rank == call.root ? all - piece.counts[own] : all;
    default: return all;
  }
}

static int64_t reduced_bytes(const Piece& piece, int64_t own, int64_t others, int size) {
  return (size - 1) * own * static_cast<int64_t>(size_of(piece.dtype)) +
         others * static_cast<int64_t>(size_of(piece.recv_dtype));
}

int64_t received_bytes(const Collective& call, int rank, int size) {
  int64_t bytes = 0;
  for (const Piece& piece : call.pieces) {
    if (call.kind == CollectiveKind::reduce_scatter) {
      bytes += reduced_bytes(piece, piece.counts[static_cast<size_t>(rank)], 0, size);
    } else if (call.kind == CollectiveKind::all_reduce) {
      const int64_t own = std::max<int64_t>(0, share_of(piece.counts[0], size, rank).count);
      bytes += reduced_bytes(piece, own, piece.counts[0] - own, size);
    } else {
      bytes += elements_of_others(call, piece, rank) * static_cast<int64_t>(size_of(piece.dtype));
    }
  }
  return bytes;
}

}  // namespace weft
