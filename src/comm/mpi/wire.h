// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/comm/transport.h"
#include "weft/dtype.h"

namespace weft {

/// Kinds of short messages between two processes.
enum class MpiTopic : int32_t {
  /// A rank calls a collective: its Signature, then its small data.
  call,
  /// The start of a send, with its data if small.
  message,
  /// The answer to a send: the receiver has the data or is ready for it.
  reply,
  /// The world is aborted: the failure's text.
  failure,
  /// The rank has ended.
  end
};

/// The destination of a short message: the calls that it is for.
struct MpiAddress {
  MpiTopic topic = MpiTopic::call;
  /// message: the sending rank.
  int32_t from = -1;
  uint64_t group = 0;
  /// The collective's sequence number, a send's tag, or the number of the send replied to.
  uint64_t number = 0;
  auto operator<=>(const MpiAddress&) const = default;
};

/// Header of each short message. The topic determines which fields are used.
struct MpiHeader {
  MpiAddress to = {};
  /// message: the sender's number of the send, to which the reply goes; failure: who found it.
  uint64_t sequence = 0;
  /// Elements sent: of a call, to this receiver.
  int64_t elements = 0;
  /// The sender's rank in the group; for a failure, the rank at fault.
  int32_t from = -1;
  /// call and reply: MPI tag under which data is expected; 0: the receiver has the data.
  int32_t tag = 0;
  DType dtype = DType::f32;
  /// failure: a whole deadline has passed already.
  uint8_t was_late = 0;
  uint8_t unused[6] = {};
};
static_assert(sizeof(MpiHeader) % 8 == 0);

/// Contiguous bytes in memory.
struct MpiSegment {
  std::byte* data;
  int64_t bytes;
};
using MpiSegments = std::vector<MpiSegment>;

/// One message of user memory to or from `peer`, a rank of the world.
struct MpiTransfer {
  bool sends;
  MpiSegment segment;
  int peer;
  int tag;
};

/// Data of up to this many bytes is sent along with a short message.
inline constexpr int64_t kMpiShortBytes = 8192;
/// Capacity of a short message.
inline constexpr int64_t kMpiMessageBytes = kMpiShortBytes + 512;

/// Rounds up to 8 bytes, at multiples of which segments start in a short message.
constexpr int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }
/// The bytes that segments take in a short message.
inline int64_t bytes_along(const MpiSegments& segments) {
  int64_t bytes = 0;
  for (const MpiSegment& segment : segments) bytes += padded(segment.bytes);
  return bytes;
}
inline bool is_short(const MpiSegments& segments) {
  return bytes_along(segments) <= kMpiShortBytes;
}

using MpiPayload = std::span<const std::byte>;

/// Throws std::runtime_error for a message that no process of this version of weft sends.
[[noreturn]] void fail_malformed(int from);

/// Splits memory into segments that each fit into one MPI message.
MpiSegments segments_of(const void* data, int64_t bytes);

/// Blocks of one rank's data that may wait for reduction at a time.
inline constexpr int64_t kMpiBlocksInFlight = 4;

/// Elements [begin, begin + count) of a piece, which one rank reduces.
struct PieceRange {
  size_t piece;
  int64_t begin;
  int64_t count;
};

/// The data that one rank of a collective sends to and receives from each other rank. Sender and
/// receiver compute it independently.
class MpiParts {
 public:
  /// `call` must outlive this.
  MpiParts(const Collective& call, int rank, int size);

  bool reduces() const { return is_reduction(call_.kind); }
  /// True when ranks send each other their results.
  bool shares_results() const { return call_.kind == CollectiveKind::all_reduce && !direct_; }

  /// Returns the data for rank r once all have called; for a reduction, r's ranges.
  MpiSegments to(int r) const;
  /// Returns where rank r's data is received; empty for a reduction.
  MpiSegments from(int r) const;
  /// Returns the elements that rank r reduces, split into blocks.
  std::vector<PieceRange> ranges(int r) const;
  /// Maximum bytes of a block; a multiple of 64.
  int64_t block_bytes() const { return block_bytes_; }
  /// Returns this rank's input to a reduction for a range.
  MpiSegment source(const PieceRange& range) const;
  /// Returns the memory of the result for a range.
  MpiSegment result(const PieceRange& range) const;
  /// Returns the memory of the results that rank r computes.
  MpiSegments results(int r) const;

 private:
  const Collective& call_;
  const int rank_;
  const int size_;
  const int64_t block_bytes_;
  /// True for a small all_reduce of two ranks, both of which reduce all of it.
  bool direct_ = false;
};

}  // namespace weft
