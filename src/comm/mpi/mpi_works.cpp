// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "src/comm/collective_parts.h"
#include "src/comm/mpi/engine.h"
#include "src/comm/mpi/mpi_transport.h"
#include "src/comm/mpi/wire.h"
#include "src/comm/signature.h"
#include "weft/error.h"
#include "weft/storage.h"

namespace weft {

namespace {

static_assert(kMpiShortBytes + sizeof(MpiHeader) + sizeof(Signature) <= kMpiMessageBytes);

/// Copies small data to memory, segment by segment.
void copy_to_segments(const std::vector<std::byte>& data, const MpiSegments& segments) {
  const std::byte* at = data.data();
  for (const MpiSegment& segment : segments) {
    if (segment.bytes > 0) std::memcpy(segment.data, at, static_cast<size_t>(segment.bytes));
    at += padded(segment.bytes);
  }
}

/// Each rank sends all others a description of its call, with its small data. When all calls have
/// arrived and agree, large data goes directly to the ranks that need it.
class MpiCollective final : public MpiWork {
 public:
  MpiCollective(MpiTransport& transport, const Collective& call, uint64_t number)
      : MpiWork(transport, number),
        stored_(call),
        parts_(stored_.call(), transport.rank(), transport.size()),
        peers_(static_cast<size_t>(transport.size())) {
    // Each rank starts with a different peer.
    for (int step = 1; step < size(); ++step) others_.push_back((rank() + step) % size());
    sign(call_, transport.take_claim(), signature_);
    if (parts_.reduces()) own_ranges_ = parts_.ranges(rank());
    record(signature_, transport.counters());
  }

 private:
  /// The state of another rank.
  struct Peer {
    bool came = false;
    Signature signature;
    int tag = 0;
    /// all_to_all: the elements that it sends to this rank.
    int64_t elements = 0;
    std::vector<std::byte> data;
  };

  void post() override {
    tag_ = engine().new_tags();
    MpiHeader header{.to = {.group = group().id, .number = number()}, .from = rank(), .tag = tag_};
    for (const int r : others_) {
      if (call_.kind == CollectiveKind::all_to_all) header.elements = counted_for(r);
      const MpiSegments data = parts_.to(r);
      engine().send(group().world_rank(r), header, std::as_bytes(std::span(&signature_, 1)),
                    is_short(data) ? data : MpiSegments{});
    }
    // Comes last: if all others have called already, the exchange starts here.
    join(header.to);
  }

  /// all_to_all: the elements that this rank sends to rank r.
  int64_t counted_for(int r) const { return call_.pieces[0].counts[static_cast<size_t>(r)]; }

  void take(const MpiHeader& header, MpiPayload payload) override {
    if (header.from < 0 || header.from >= size() || header.from == rank() ||
        peer(header.from).came || payload.size() < sizeof(Signature)) {
      fail_malformed(header.from);
    }
    Peer& from = peer(header.from);
    from.came = true;
    from.tag = header.tag;
    from.elements = header.elements;
    std::memcpy(&from.signature, payload.data(), sizeof from.signature);
    if (!is_readable(from.signature)) fail_malformed(header.from);
    payload = payload.subspan(sizeof from.signature);
    from.data.assign(payload.begin(), payload.end());
    if (++came_ == size()) begin();
  }

  void begin() {
    compare_signatures();
    if (call_.kind == CollectiveKind::all_to_all) compare_counts();
    for (const int r : others_) check_data_of(r);
    begun_ = true;
    flight().started();
    add_received(received_bytes(call_, rank(), size()));
    if (!parts_.reduces()) {
      // Copies this rank's own parts, as if it were the only rank.
      std::vector<const void*> shown(static_cast<size_t>(size()));
      run_with_absent_peers(call_, rank(), shown);
    }
    for (const int r : others_) move_parts(r);
    if (parts_.reduces()) begin_reduction();
    finish_if_over();
  }

  void compare_signatures() {
    peer(rank()).signature = signature_;
    // All ranks compare with the first rank, so that all report the same error.
    const Signature& first = peer(0).signature;
    for (int r = 1; r < size(); ++r) {
      if (peer(r).signature.hash != first.hash) fail_unequal(first, r, peer(r).signature);
    }
  }

  void compare_counts() {
    peer(rank()).elements = counted_for(rank());
    for (int step = 1; step <= size(); ++step) {
      const int r = (rank() + step) % size();
      const int64_t sent = peer(r).elements;
      const int64_t expected = call_.recv_counts[static_cast<size_t>(r)];
      if (sent == expected) continue;
      fail_with(concat(title(), ": ", group().in_words(r), counts_in_words(sent, rank(), expected)),
                r);
    }
  }

  /// The data that came along with the rank's call is what this rank expects.
  void check_data_of(int r) {
    const MpiSegments expected = parts_.reduces() ? parts_.to(rank()) : parts_.from(r);
    const int64_t bytes = is_short(expected) ? bytes_along(expected) : 0;
    if (static_cast<int64_t>(peer(r).data.size()) != bytes) fail_malformed(r);
  }

  void move_parts(int r) {
    MpiSegments to = parts_.to(r);
    if (!is_short(to)) add_stream(true, r, peer(r).tag, std::move(to));
    MpiSegments from = parts_.from(r);
    if (is_short(from)) {
      copy_to_segments(peer(r).data, from);
    } else {
      add_stream(false, r, tag_, std::move(from));
    }
  }

  void moved(MpiStream stream, size_t segment) override {
    if (stream == MpiStream::blocks) {
      ++arrived_[segment];
      reduce_what_is_there();
    }
    finish_if_over();
  }

  void finish_if_over() {
    if (begun_ && all_moved() && reduced_ == own_ranges_.size()) mark_over();
  }

  std::vector<int> awaited_ranks() const override {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) {
      const bool is_done = begun_ ? has_moved(r) : peers_[static_cast<size_t>(r)].came;
      if (r != rank() && !is_done) ranks.push_back(r);
    }
    return ranks;
  }

  const char* uncalled() const override { return "call it"; }
  std::string words() const override { return weft::in_words(signature_); }

  void begin_reduction() {
    if (parts_.shares_results()) exchange_results();
    if (is_short(parts_.to(rank()))) {
      reduce_blocks_in_payloads();
    } else {
      await_blocks();
    }
  }

  /// Receives blocks of all other ranks into scratch memory, a few block numbers at a time.
  void await_blocks() {
    arrived_.assign(own_ranges_.size(), 0);
    const auto in_flight = std::min<size_t>(own_ranges_.size(), kMpiBlocksInFlight);
    scratch_ =
        Storage::allocate(in_flight * others_.size() * static_cast<size_t>(parts_.block_bytes()));
    for (const int r : others_) {
      MpiSegments segments;
      for (size_t i = 0; i < own_ranges_.size(); ++i) {
        segments.push_back({scratch_of(i, r), parts_.source(own_ranges_[i]).bytes});
      }
      add_stream(false, r, tag_, std::move(segments), MpiStream::blocks, in_flight);
    }
  }

  std::byte* scratch_of(size_t block, int r) const {
    const size_t slot = block % kMpiBlocksInFlight;
    const auto index = static_cast<size_t>(r > rank() ? r - 1 : r);
    return static_cast<std::byte*>(scratch_->data()) +
           (slot * others_.size() + index) * static_cast<size_t>(parts_.block_bytes());
  }

  /// Reduces the next block of this rank; `data_of(r)` is where the other rank r's lies.
  template <class DataOf> void reduce_block(DataOf data_of) {
    const PieceRange& range = own_ranges_[reduced_];
    sources_.clear();
    for (int r = 0; r < size(); ++r) {
      sources_.push_back(r == rank() ? parts_.source(range).data : data_of(r));
    }
    const Piece& piece = call_.pieces[range.piece];
    reduce_n(call_.op, piece.dtype, sources_,
             {parts_.result(range).data, piece.recv_dtype, piece.accumulate}, range.count);
    ++reduced_;
  }

  void reduce_what_is_there() {
    const size_t before = reduced_;
    while (reduced_ < own_ranges_.size() && arrived_[reduced_] == size() - 1) {
      reduce_block([&, block = reduced_](int r) { return scratch_of(block, r); });
    }
    if (reduced_ == before) return;
    allow(MpiStream::blocks, reduced_ + kMpiBlocksInFlight);
    allow(MpiStream::results, reduced_);
  }

  /// Reduces small blocks, which arrived with the other ranks' calls.
  void reduce_blocks_in_payloads() {
    int64_t offset = 0;
    for (const PieceRange& range : own_ranges_) {
      reduce_block([&](int r) { return peer(r).data.data() + offset; });
      offset += padded(parts_.source(range).bytes);
    }
    allow(MpiStream::results, reduced_);
  }

  /// Results are sent block by block as they complete.
  void exchange_results() {
    for (const int r : others_) {
      add_stream(true, r, peer(r).tag + 1, parts_.results(rank()), MpiStream::results, 0);
    }
    for (const int r : others_) add_stream(false, r, tag_ + 1, parts_.results(r));
  }

  Peer& peer(int r) { return peers_[static_cast<size_t>(r)]; }

  const StoredCollective stored_;
  const Collective& call_ = stored_.call();
  const MpiParts parts_;
  Signature signature_;
  std::vector<Peer> peers_;
  /// The ranks but this one, beginning with the next.
  std::vector<int> others_;
  int came_ = 1;
  /// The first of two tags for data to this rank: parts, and results.
  int tag_ = 0;

  /// Reductions: the ranges that this rank reduces, and how many of its blocks are done.
  std::vector<PieceRange> own_ranges_;
  size_t reduced_ = 0;
  std::vector<const void*> sources_;
  /// Arrivals from other ranks by block number, for blocks that come by streams.
  std::vector<int> arrived_;
  Ref<Storage> scratch_;
};

/// One end of a point-to-point message.
class MpiMessage final : public MpiWork {
 public:
  MpiMessage(MpiTransport& transport, const Collective& call, uint64_t number)
      : MpiWork(transport, kMessage | number), stored_(call) {
    record(call_, transport.counters());
  }

 private:
  void post() override {
    const auto tag = static_cast<uint64_t>(call_.tag);
    const int sender = sends() ? rank() : other();
    const MpiAddress address{MpiTopic::message, sender, group().id, tag};
    if (!sends()) return join(address);
    const uint64_t message = engine().new_message();
    join({.topic = MpiTopic::reply, .number = message});
    const MpiHeader header{
        .to = address, .sequence = message, .elements = count_, .dtype = piece_.dtype};
    send_to_other(header, goes_along() ? segments_of(piece_.send, bytes()) : MpiSegments{});
  }

  void take(const MpiHeader& header, MpiPayload payload) override {
    begun_ = true;
    if (!sends()) return receive_data(header, payload);
    if (header.tag == 0) return mark_over();
    add_stream(true, other(), header.tag, segments_of(piece_.send, bytes()));
  }

  void receive_data(const MpiHeader& header, MpiPayload payload) {
    if (header.elements != count_ || header.dtype != piece_.dtype) {
      fail_message(other(), header.dtype, header.elements);
    }
    add_received(bytes());
    MpiHeader answer{.to = {.topic = MpiTopic::reply, .number = header.sequence}};
    if (!goes_along()) {
      answer.tag = engine().new_tags();
      add_stream(false, other(), answer.tag, segments_of(piece_.recv, bytes()));
      return send_to_other(answer);
    }
    if (static_cast<int64_t>(payload.size()) < bytes()) fail_malformed(other());
    if (bytes() > 0) std::memcpy(piece_.recv, payload.data(), static_cast<size_t>(bytes()));
    send_to_other(answer);
    mark_over();
  }

  void moved(MpiStream, size_t) override {
    if (all_moved()) mark_over();
  }

  void send_to_other(const MpiHeader& header, const MpiSegments& data = {}) {
    engine().send(group().world_rank(other()), header, {}, data);
  }

  std::vector<int> awaited_ranks() const override { return {other()}; }
  const char* uncalled() const override { return sends() ? "receive it" : "send it"; }
  std::string words() const override { return weft::in_words(signature_of(call_)); }

  bool sends() const { return call_.kind == CollectiveKind::send; }
  int other() const { return call_.root; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(size_of(piece_.dtype)); }
  bool goes_along() const { return padded(bytes()) <= kMpiShortBytes; }

  const StoredCollective stored_;
  const Collective& call_ = stored_.call();
  const Piece& piece_ = call_.pieces[0];
  const int64_t count_ = piece_.counts[0];
};

}  // namespace

std::unique_ptr<MpiWork> mpi_work(MpiTransport& transport, const Collective& call,
                                  uint64_t number) {
  if (is_message(call.kind)) return std::make_unique<MpiMessage>(transport, call, number);
  return std::make_unique<MpiCollective>(transport, call, number);
}

}  // namespace weft
