// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/dtype.h"

namespace weft {

/// Kinds of short messages between two processes.
enum class MpiTopic : int32_t {
  /// A string of `MpiEngine::all_gather`.
  bootstrap,
  /// A rank calls a collective: its Signature, then its small data.
  call,
  /// Small results that a rank has reduced.
  results,
  /// The start of a send, with its data if small.
  message,
  /// The receiver is ready for the data of a send.
  grant,
  /// The receiver has the data of a send.
  taken,
  /// The world is aborted: the failure's text.
  failure,
  /// The rank has ended.
  end
};

/// Header of each short message. The topic determines which fields are used.
struct MpiHeader {
  MpiTopic topic = MpiTopic::call;
  /// The sender's rank in the group; for a failure, the rank at fault.
  int32_t from = -1;
  uint64_t group = 0;
  /// Number of the collective or bootstrap, or the sender's number of a send.
  uint64_t sequence = 0;
  /// call: elements sent to this receiver; message: elements sent; bootstrap: bytes.
  int64_t elements = 0;
  /// call and grant: MPI tag under which data is expected; message: the user's tag.
  int32_t tag = 0;
  DType dtype = DType::f32;
  /// failure: a whole deadline has passed already.
  uint8_t was_late = 0;
  uint8_t unused[2] = {};
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
inline int64_t padded_bytes(const MpiSegments& segments) {
  int64_t bytes = 0;
  for (const MpiSegment& segment : segments) bytes += padded(segment.bytes);
  return bytes;
}
inline bool is_short(const MpiSegments& segments) {
  return padded_bytes(segments) <= kMpiShortBytes;
}

using MpiPayload = std::span<const std::byte>;

}  // namespace weft
