// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/mpi/parts.h"
#include "src/comm/mpi/streams.h"
#include "src/comm/mpi/work.h"
#include "src/comm/read_collective.h"
#include "src/comm/signature.h"
#include "weft/storage.h"

namespace weft {

/// A collective of processes. Each tells all others what it calls, with its small data; when all
/// have and it is the same, large data goes straight to those who need it.
class MpiCollective final : public MpiWork {
 public:
  MpiCollective(MpiTransport& transport, const Collective& call, uint64_t sequence);

 private:
  /// What is known of another rank.
  struct Peer {
    bool came = false;
    Signature signature;
    int tag = 0;
    /// Of an all_to_all, that it sends here.
    int64_t elements = 0;
    std::vector<std::byte> data;
    /// Small results of this rank are awaited.
    bool owes_results = false;
    std::vector<std::byte> results;
  };

  void post() override;
  void take(const MpiHeader& header, MpiPayload payload) override;
  void moved(uint64_t token) override;
  void leave() noexcept override;
  std::vector<int> silent() const override;
  std::vector<int> slow() const override;
  const char* missed() const override { return "call it"; }
  std::string words() const override { return in_words(signature_); }
  std::string prefix() const override;

  void begin();
  void compare_signatures();
  void compare_counts();
  void copy_own_parts();
  void move_parts(int r);
  void add_stream(bool sends, int r, int tag, MpiSegments segments);

  void begin_reduction();
  void await_blocks();
  std::byte* scratch_of(size_t block, int r) const;
  void reduce_what_is_there();
  void reduce_blocks_in_payloads();
  void reduce(const PieceRange& range, const std::vector<const void*>& sources);
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
  /// The first of two under which data comes here: parts, and results.
  int tag_ = 0;
  MpiStreams streams_;

  /// Of a reduction: what this rank reduces, and how many blocks it has.
  std::vector<PieceRange> own_ranges_;
  size_t reduced_ = 0;
  /// Others' blocks by number, of those that come by streams.
  std::vector<int> arrived_;
  Ref<Storage> scratch_;
  /// Streams of blocks to this rank, and of results from it; the first and their number.
  size_t block_streams_ = 0, block_stream_count_ = 0;
  size_t result_streams_ = 0, result_stream_count_ = 0;
  int results_to_come_ = 0;
};

/// Small data to its places in memory, segment by segment.
void copy_to_segments(const std::vector<std::byte>& data, const MpiSegments& segments);

}  // namespace weft
