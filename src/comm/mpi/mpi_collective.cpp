// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/mpi_collective.h"

#include <algorithm>
#include <cstring>

#include "src/comm/mpi/engine.h"
#include "src/comm/reduce.h"
#include "weft/error.h"

namespace weft {

MpiCollective::MpiCollective(MpiTransport& transport, const Collective& call, uint64_t sequence)
    : MpiWork(transport, sequence),
      stored_(call),
      parts_(stored_.call(), transport.rank(), transport.size()),
      peers_(static_cast<size_t>(transport.size())) {
  sign(stored_.call(), transport.take_claim(), signature_);
  if (parts_.reduces()) own_ranges_ = parts_.ranges(transport.rank());
  record(signature_, transport.counters());
}

void MpiCollective::post() {
  tag_ = engine().new_tags();
  MpiHeader header{.topic = MpiTopic::call,
                   .from = rank(),
                   .group = group().id,
                   .sequence = number(),
                   .tag = tag_};
  const Collective& call = stored_.call();
  // Each rank starts with a different peer.
  for (int step = 1; step < size(); ++step) {
    const int r = (rank() + step) % size();
    if (call.kind == CollectiveKind::all_to_all) {
      header.elements = call.pieces[0].counts[static_cast<size_t>(r)];
    }
    const MpiSegments data = parts_.to(r);
    engine().send(group().world_rank(r), header, std::as_bytes(std::span(&signature_, 1)),
                  is_short(data) ? data : MpiSegments{});
  }
  // Comes last: if all others have called already, the exchange starts here.
  join({MpiAddress::Kind::collective, group().id, number(), 0});
}

void MpiCollective::take(const MpiHeader& header, MpiPayload payload) {
  Peer& from = peer(header.from);
  if (header.topic == MpiTopic::results) {
    from.results.assign(payload.begin(), payload.end());
    if (begun_) take_results(header.from);
    return finish_if_over();
  }
  from.came = true;
  from.tag = header.tag;
  from.elements = header.elements;
  std::memcpy(&from.signature, payload.data(), sizeof from.signature);
  payload = payload.subspan(sizeof from.signature);
  from.data.assign(payload.begin(), payload.end());
  if (++came_ == size()) begin();
}

void MpiCollective::begin() {
  compare_signatures();
  if (stored_.call().kind == CollectiveKind::all_to_all) compare_counts();
  begun_ = true;
  flight().started();
  add_received(received_bytes(stored_.call(), rank(), size()));
  if (!parts_.reduces()) copy_own_parts();
  for (int step = 1; step < size(); ++step) move_parts((rank() + step) % size());
  if (parts_.reduces()) begin_reduction();
  finish_if_over();
}

void MpiCollective::compare_signatures() {
  peer(rank()).signature = signature_;
  // All ranks compare with the first rank, so that all report the same error.
  const Signature& first = peer(0).signature;
  for (int r = 1; r < size(); ++r) {
    if (peer(r).signature.hash != first.hash) fail_unequal(first, r, peer(r).signature);
  }
}

void MpiCollective::compare_counts() {
  for (int step = 1; step <= size(); ++step) {
    const int r = (rank() + step) % size();
    const int64_t sent =
        is_other(r) ? peer(r).elements : stored_.call().pieces[0].counts[static_cast<size_t>(r)];
    const int64_t expected = stored_.call().recv_counts[static_cast<size_t>(r)];
    if (sent == expected) continue;
    fail_with(concat(title(), ": ", group().in_words(r), counts_in_words(sent, rank(), expected)),
              r);
  }
}

/// Does what the call would do if this were the only rank.
void MpiCollective::copy_own_parts() {
  std::vector<const void*> shown(static_cast<size_t>(size()));
  run_with_absent_peers(stored_.call(), rank(), shown);
}

void MpiCollective::add_stream(bool sends, int r, int tag, MpiSegments segments, size_t allowed) {
  streams_.add(engine(), *this,
               {.sends = sends,
                .peer = group().world_rank(r),
                .tag = tag,
                .segments = std::move(segments),
                .allowed = allowed});
}

/// Copies small data to memory, segment by segment.
static void copy_to_segments(const std::vector<std::byte>& data, const MpiSegments& segments) {
  const std::byte* at = data.data();
  for (const MpiSegment& segment : segments) {
    if (segment.bytes > 0) std::memcpy(segment.data, at, static_cast<size_t>(segment.bytes));
    at += padded(segment.bytes);
  }
}

void MpiCollective::move_parts(int r) {
  MpiSegments to = parts_.to(r);
  if (!is_short(to)) add_stream(true, r, peer(r).tag, std::move(to));
  MpiSegments from = parts_.from(r);
  if (is_short(from)) {
    copy_to_segments(peer(r).data, from);
  } else {
    add_stream(false, r, tag_, std::move(from));
  }
}

void MpiCollective::moved(uint64_t token) {
  const MpiStreams::Ended ended = streams_.ended(engine(), *this, token);
  const size_t block_stream = ended.stream - block_streams_;
  if (ended.stream >= block_streams_ && block_stream < block_stream_count_) {
    ++arrived_[ended.segment];
    reduce_what_is_there();
  }
  finish_if_over();
}

void MpiCollective::finish_if_over() {
  if (begun_ && streams_.all_done() && reduced_ == own_ranges_.size() && results_to_come_ == 0) {
    mark_over();
  }
}

std::vector<int> MpiCollective::awaited_ranks() const {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (!is_other(r)) continue;
    const bool is_done = begun_
                             ? !peer(r).owes_results && streams_.is_done_with(group().world_rank(r))
                             : peer(r).came;
    if (!is_done) ranks.push_back(r);
  }
  return ranks;
}

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

/// Reduces the next block of this rank; `data_of(r)` is where the other rank r's lies.
template <class DataOf> void MpiCollective::reduce_block(DataOf data_of) {
  const PieceRange& range = own_ranges_[reduced_];
  sources_.clear();
  for (int r = 0; r < size(); ++r) {
    sources_.push_back(is_other(r) ? data_of(r) : parts_.source(range).data);
  }
  const Collective& call = stored_.call();
  const Piece& piece = call.pieces[range.piece];
  reduce_n(call.op, piece.dtype, sources_,
           {parts_.result(range).data, piece.recv_dtype, piece.accumulate}, range.count);
  ++reduced_;
}

void MpiCollective::reduce_what_is_there() {
  const size_t before = reduced_;
  while (reduced_ < own_ranges_.size() && arrived_[reduced_] == size() - 1) {
    reduce_block([&, block = reduced_](int r) { return scratch_of(block, r); });
  }
  if (reduced_ == before) return;
  for (size_t s = 0; s < block_stream_count_; ++s) {
    streams_.allow(engine(), *this, block_streams_ + s, reduced_ + kMpiBlocksInFlight);
  }
  send_reduced();
}

/// Reduces small blocks, which arrived with the other ranks' calls.
void MpiCollective::reduce_blocks_in_payloads() {
  int64_t offset = 0;
  for (const PieceRange& range : own_ranges_) {
    reduce_block([&](int r) { return peer(r).data.data() + offset; });
    offset += padded(parts_.source(range).bytes);
  }
  send_reduced();
}

/// Lets the blocks be sent that this rank has reduced, and sends small results after the last.
void MpiCollective::send_reduced() {
  for (size_t s = 0; s < result_stream_count_; ++s) {
    streams_.allow(engine(), *this, result_streams_ + s, reduced_);
  }
  if (reduced_ == own_ranges_.size()) send_results();
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
