// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/comm/nccl/calls.h"

namespace weft {

using nccl::Move;
using MoveKind = Move::Kind;

namespace {

bool all_equal(std::span<const int64_t> counts) {
  return std::all_of(counts.begin(), counts.end(), [&](int64_t n) { return n == counts[0]; });
}

/// Writes the program of one call.
class Writer {
 public:
  Writer(const Collective& call, int rank, int size, bool in_rank_order)
      : call_(call), rank_(rank), size_(size), in_rank_order_(in_rank_order) {}

  NcclProgram write() {
    for (const Piece& piece : call_.pieces) write(piece);
    return std::move(program_);
  }

 private:
  void write(const Piece& piece) {
    switch (call_.kind) {
      case CollectiveKind::broadcast: return broadcast(piece);
      case CollectiveKind::all_gather: return all_gather(piece);
      case CollectiveKind::reduce_scatter: return reduce_scatter(piece);
      case CollectiveKind::all_reduce: return all_reduce(piece);
      case CollectiveKind::gather:
      case CollectiveKind::scatter:
      case CollectiveKind::all_to_all: return exchange_parts(piece);
      case CollectiveKind::send:
        return send(0, 1 - rank_, piece.send, piece.counts[0], piece.dtype);
      case CollectiveKind::recv:
        return recv(0, 1 - rank_, piece.recv, piece.counts[0], piece.dtype);
      default: return;
    }
  }

  void message(size_t round, const Move& move) {
    if (move.count > 0) program_.rounds[round].moves.push_back(move);
  }
  void add(const Move& move) { message(0, move); }
  void send(size_t round, int to, const void* data, int64_t count, DType dtype) {
    message(round, {MoveKind::send, data, nullptr, count, dtype, ReduceOp::sum, to});
  }
  void recv(size_t round, int from, void* data, int64_t count, DType dtype) {
    message(round, {MoveKind::recv, nullptr, data, count, dtype, ReduceOp::sum, from});
  }
  void copy(const Piece& piece, void* to, const void* from, int64_t count) {
    if (count == 0 || to == from) return;
    program_.rounds[0].steps.push_back({.dtype = piece.dtype,
                                        .sources = {from},
                                        .into = {to, piece.dtype, false, piece.device},
                                        .count = count});
  }
  void* scratch(int64_t count, DType dtype, Device device) {
    program_.scratch.push_back(
        Storage::allocate(static_cast<size_t>(count) * size_of(dtype), device));
    return program_.scratch.back()->data();
  }

  void broadcast(const Piece& piece) {
    const bool is_root = rank_ == call_.root;
    void* to = is_root && !piece.recv ? const_cast<void*>(piece.send) : piece.recv;
    const void* from = is_root ? piece.send : piece.recv;
    add({MoveKind::broadcast, from, to, piece.counts[0], piece.dtype, ReduceOp::sum, call_.root});
  }

  /// Copies this rank's own part, and exchanges the others as messages.
  void exchange_parts(const Piece& piece) {
    for (int r = 0; r < size_; ++r) {
      const ElementRange sent = range_sent(call_, piece, size_, rank_, r);
      const ElementRange received = range_received(call_, piece, size_, r, rank_);
      const void* from = element_at(piece.send, sent.begin, piece.dtype);
      void* to = element_at(piece.recv, received.begin, piece.dtype);
      if (r == rank_) {
        copy(piece, to, from, received.count);
      } else {
        send(0, r, from, sent.count, piece.dtype);
        recv(0, r, to, received.count, piece.dtype);
      }
    }
  }

  void all_gather(const Piece& piece) {
    if (all_equal(piece.counts)) {
      return add({MoveKind::all_gather, piece.send, piece.recv, piece.counts[0], piece.dtype});
    }
    exchange_parts(piece);
  }

  /// Returns where NCCL writes a result: directly, or to scratch if it must be converted or added.
  void* target_of(const Piece& piece, int64_t count) {
    if (piece.recv_dtype == piece.dtype && !piece.accumulate) return piece.recv;
    if (count == 0) return piece.recv;
    void* made = scratch(count, piece.dtype, piece.device);
    program_.rounds[0].steps.push_back(
        {.dtype = piece.dtype,
         .sources = {made},
         .into = {piece.recv, piece.recv_dtype, piece.accumulate, piece.device},
         .count = count});
    return made;
  }

  ElementRange part(const Piece& piece, int r) const {
    return part_in_whole(call_, piece, size_, r);
  }

  void reduce_scatter(const Piece& piece) {
    const int64_t own = part(piece, rank_).count;
    if (!in_rank_order_ && all_equal(piece.counts)) {
      return add({MoveKind::reduce_scatter, piece.send, target_of(piece, own), own, piece.dtype,
                  call_.op});
    }
    reduce_parts(piece, piece.recv);
  }

  /// Each rank receives its part from all ranks and reduces the parts in a tree over the ranks.
  void reduce_parts(const Piece& piece, void* to) {
    const int64_t own = part(piece, rank_).count;
    const size_t bytes = static_cast<size_t>(own) * size_of(piece.dtype);
    auto* received = own > 0 ? scratch(own * (size_ - 1), piece.dtype, piece.device) : nullptr;
    NcclStep step{.op = call_.op, .dtype = piece.dtype, .count = own};
    step.into = {to, piece.recv_dtype, piece.accumulate, piece.device};
    for (int r = 0; r < size_; ++r) {
      const auto [begin, count] = part(piece, r);
      const void* sent = element_at(piece.send, begin, piece.dtype);
      if (r == rank_) {
        step.sources.push_back(sent);
        continue;
      }
      send(0, r, sent, count, piece.dtype);
      recv(0, r, received, own, piece.dtype);
      step.sources.push_back(received);
      if (received) received = static_cast<std::byte*>(received) + bytes;
    }
    if (own > 0) program_.rounds[0].steps.push_back(std::move(step));
  }

  void all_reduce(const Piece& piece) {
    const int64_t count = piece.counts[0];
    if (!in_rank_order_) {
      return add({MoveKind::all_reduce, piece.send, target_of(piece, count), count, piece.dtype,
                  call_.op});
    }
    const auto result = [&](int r) {
      return element_at(piece.recv, part(piece, r).begin, piece.recv_dtype);
    };
    reduce_parts(piece, result(rank_));
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      send(1, r, result(rank_), part(piece, rank_).count, piece.recv_dtype);
      recv(1, r, result(r), part(piece, r).count, piece.recv_dtype);
    }
  }

  const Collective& call_;
  int rank_;
  int size_;
  bool in_rank_order_;
  NcclProgram program_;
};

}  // namespace

NcclProgram program_of(const Collective& call, int rank, int size, bool in_rank_order) {
  return Writer(call, rank, size, in_rank_order).write();
}

void run_step(const NcclStep& step) {
  const bool is_copy = step.sources.size() == 1 && step.into.dtype == step.dtype &&
                       !step.into.accumulate && step.op == ReduceOp::sum;
  if (!is_copy) return reduce_n(step.op, step.dtype, step.sources, step.into, step.count);
  const Piece piece{.dtype = step.dtype, .counts = {}, .device = step.into.device};
  copy_elements(piece, step.into.data, step.sources[0], step.count);
}

}  // namespace weft
