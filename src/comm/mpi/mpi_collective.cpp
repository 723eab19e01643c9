// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/mpi_collective.h"

#include <cstring>

#include "src/comm/check.h"
#include "src/comm/mpi/engine.h"
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
  engine().routing().join({MpiAddress::Kind::collective, group().id, number(), 0}, *this);
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
  if (stored_.call().kind == CollectiveKind::barrier) return;
  std::vector<const void*> published(static_cast<size_t>(size()));
  published[static_cast<size_t>(rank())] = &stored_.call();
  read_collective({stored_.call(), rank(), 0, published});
}

void MpiCollective::add_stream(bool sends, int r, int tag, MpiSegments segments, size_t allowed) {
  streams_.add(engine(), *this,
               {.sends = sends,
                .peer = group().world_rank(r),
                .tag = tag,
                .segments = std::move(segments),
                .allowed = allowed});
}

void copy_to_segments(const std::vector<std::byte>& data, const MpiSegments& segments) {
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

void MpiCollective::stop_routing() noexcept {
  engine().routing().leave({MpiAddress::Kind::collective, group().id, number(), 0}, *this);
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

}  // namespace weft
