// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/comm/mpi/engine.h"
#include "src/comm/mpi/mpi_collective.h"
#include "src/comm/reduce.h"

namespace weft {

void MpiCollective::begin_reduction() {
  MpiSegments own;
  for (const PieceRange& range : own_ranges_) own.push_back(parts_.source(range));
  if (parts_.shares_results()) exchange_results();
  if (is_short(own)) {
    reduce_blocks_in_payloads();
  } else {
    await_blocks();
  }
}

/// Receives blocks of all other ranks into scratch memory, a few block numbers at a time.
void MpiCollective::await_blocks() {
  arrived_.assign(own_ranges_.size(), 0);
  const auto in_flight = std::min<size_t>(own_ranges_.size(), kMpiBlocksInFlight);
  scratch_ = Storage::allocate(in_flight * static_cast<size_t>(size() - 1) *
                               static_cast<size_t>(parts_.block_bytes()));
  block_streams_ = streams_.count();
  block_stream_count_ = static_cast<size_t>(size() - 1);
  for (int step = 1; step < size(); ++step) {
    const int r = (rank() + step) % size();
    MpiSegments segments;
    for (size_t i = 0; i < own_ranges_.size(); ++i) {
      segments.push_back({scratch_of(i, r), parts_.source(own_ranges_[i]).bytes});
    }
    add_stream(false, r, tag_, std::move(segments), in_flight);
  }
}

std::byte* MpiCollective::scratch_of(size_t block, int r) const {
  const size_t slot = block % kMpiBlocksInFlight;
  const auto others = static_cast<size_t>(size() - 1);
  const auto place = static_cast<size_t>(r > rank() ? r - 1 : r);
  return static_cast<std::byte*>(scratch_->data()) +
         (slot * others + place) * static_cast<size_t>(parts_.block_bytes());
}

void MpiCollective::reduce_what_is_there() {
  std::vector<const void*> sources(static_cast<size_t>(size()));
  const size_t before = reduced_;
  while (reduced_ < own_ranges_.size() && arrived_[reduced_] == size() - 1) {
    const PieceRange& range = own_ranges_[reduced_];
    for (int r = 0; r < size(); ++r) {
      sources[static_cast<size_t>(r)] =
          is_other(r) ? scratch_of(reduced_, r) : parts_.source(range).data;
    }
    reduce(range, sources);
    ++reduced_;
  }
  if (reduced_ == before) return;
  for (size_t s = 0; s < block_stream_count_; ++s) {
    streams_.allow(engine(), *this, block_streams_ + s, reduced_ + kMpiBlocksInFlight);
  }
  for (size_t s = 0; s < result_stream_count_; ++s) {
    streams_.allow(engine(), *this, result_streams_ + s, reduced_);
  }
  if (reduced_ == own_ranges_.size()) send_results();
}

/// Reduces small blocks, which arrived with the other ranks' calls.
void MpiCollective::reduce_blocks_in_payloads() {
  std::vector<const void*> sources(static_cast<size_t>(size()));
  int64_t offset = 0;
  for (const PieceRange& range : own_ranges_) {
    const MpiSegment own = parts_.source(range);
    for (int r = 0; r < size(); ++r) {
      sources[static_cast<size_t>(r)] = is_other(r) ? peer(r).data.data() + offset : own.data;
    }
    offset += padded(own.bytes);
    reduce(range, sources);
    ++reduced_;
  }
  for (size_t s = 0; s < result_stream_count_; ++s) {
    streams_.allow(engine(), *this, result_streams_ + s, reduced_);
  }
  send_results();
}

void MpiCollective::reduce(const PieceRange& range, const std::vector<const void*>& sources) {
  const Collective& call = stored_.call();
  const Piece& piece = call.pieces[range.piece];
  reduce_n(call.op, piece.dtype, sources,
           {parts_.result(range).data, piece.recv_dtype, piece.accumulate}, range.count);
}

/// Large results are sent block by block as they complete, a rank's small results in one message.
void MpiCollective::exchange_results() {
  const MpiSegments own = parts_.results(rank());
  result_streams_ = streams_.count();
  if (!is_short(own)) {
    result_stream_count_ = static_cast<size_t>(size() - 1);
    for (int step = 1; step < size(); ++step) {
      const int r = (rank() + step) % size();
      add_stream(true, r, peer(r).tag + 1, own, 0);
    }
  }
  for (int r = 0; r < size(); ++r) {
    if (!is_other(r)) continue;
    MpiSegments segments = parts_.results(r);
    if (!is_short(segments)) {
      add_stream(false, r, tag_ + 1, std::move(segments));
    } else if (!segments.empty()) {
      peer(r).owes_results = true;
      ++results_to_come_;
      if (!peer(r).results.empty()) take_results(r);
    }
  }
}

/// Sends small results; called when all blocks of this rank are reduced.
void MpiCollective::send_results() {
  if (!parts_.shares_results()) return;
  const MpiSegments own = parts_.results(rank());
  if (own.empty() || !is_short(own)) return;
  const MpiHeader header{
      .topic = MpiTopic::results, .from = rank(), .group = group().id, .sequence = number()};
  for (int step = 1; step < size(); ++step) {
    engine().send(group().world_rank((rank() + step) % size()), header, {}, own);
  }
}

void MpiCollective::take_results(int r) {
  copy_to_segments(peer(r).results, parts_.results(r));
  peer(r).owes_results = false;
  --results_to_come_;
}

}  // namespace weft
