// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/comm/mpi/parts.h"
#include "src/comm/mpi/work.h"
#include "src/comm/read_collective.h"
#include "src/comm/signature.h"
#include "weft/storage.h"

namespace weft {

static_assert(kMpiShortBytes + sizeof(MpiHeader) + sizeof(Signature) <= kMpiMessageBytes);

/// A collective of processes. Each rank sends all others a description of its call, with its small
/// data. When all calls have arrived and agree, large data goes directly to the ranks that need it.
class MpiCollective final : public MpiWork {
 public:
  MpiCollective(MpiTransport& transport, const Collective& call, uint64_t sequence);

 private:
  /// The state of another rank.
  struct Peer {
    bool came = false;
    Signature signature;
    int tag = 0;
    /// all_to_all: the elements that it sends to this rank.
    int64_t elements = 0;
    std::vector<std::byte> data;
    /// True when small results of this rank are still to come.
    bool owes_results = false;
    std::vector<std::byte> results;
  };

  void post() override;
  void take(const MpiHeader& header, MpiPayload payload) override;
  void moved(uint64_t token) override;
  bool has_begun() const override { return begun_; }
  std::vector<int> awaited_ranks() const override;
  const char* uncalled() const override { return "call it"; }
  std::string words() const override { return weft::in_words(signature_); }

  void begin();
  void compare_signatures();
  void compare_counts();
  void copy_own_parts();
  void move_parts(int r);
  /// Only the first `allowed` segments may be posted at first.
  void add_stream(bool sends, int r, int tag, MpiSegments segments, size_t allowed = SIZE_MAX);

  void begin_reduction();
  void await_blocks();
  std::byte* scratch_of(size_t block, int r) const;
  void reduce_what_is_there();
  void reduce_blocks_in_payloads();
  template <class DataOf> void reduce_block(DataOf data_of);
  void send_reduced();
  void exchange_results();
  void send_results();
  void take_results(int r);
  void finish_if_over();

  Peer& peer(int r) { return peers_[static_cast<size_t>(r)]; }
  const Peer& peer(int r) const { return peers_[static_cast<size_t>(r)]; }
  bool is_other(int r) const { return r != rank(); }

  const StoredCollective stored_;
  const MpiParts parts_;
  Signature signature_;
  std::vector<Peer> peers_;
  int came_ = 1;
  bool begun_ = false;
  /// The first of two tags for data to this rank: parts, and results.
  int tag_ = 0;
  MpiStreams streams_;

  /// Reductions: the ranges that this rank reduces, and how many of its blocks are done.
  std::vector<PieceRange> own_ranges_;
  size_t reduced_ = 0;
  std::vector<const void*> sources_;
  /// Arrivals from other ranks by block number, for blocks that come by streams.
  std::vector<int> arrived_;
  Ref<Storage> scratch_;
  /// Streams of blocks to this rank and of results from it: first index and count of each.
  size_t block_streams_ = 0, block_stream_count_ = 0;
  size_t result_streams_ = 0, result_stream_count_ = 0;
  int results_to_come_ = 0;
};

}  // namespace weft
