// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/dtype.h"

namespace weft {

/// What a short message between two processes is about.
enum class MpiTopic : int32_t {
  /// A string of `MpiEngine::all_gather`.
  bootstrap,
  /// A rank calls a collective: its Signature, then its small data.
  call,
  /// What a rank has reduced, small.
  results,
  /// The begin of a send, with its small data.
  letter,
  /// The receiver awaits the data of a letter.
  grant,
  /// The receiver has the data of a letter.
  taken,
  /// The world is aborted: the failure's text.
  failure,
  /// The rank has ended.
  end
};

/// Begins each short message. Which numbers mean something depends on the topic.
struct MpiHeader {
  MpiTopic topic = MpiTopic::call;
  /// The sender's rank in the group; of a failure, the rank at fault.
  int32_t from = -1;
  uint64_t group = 0;
  /// Of the collective, of the bootstrap, or the sender's number of a letter.
  uint64_t sequence = 0;
  /// call: that are sent to the receiver of the message; letter: that are sent; bootstrap: bytes.
  int64_t elements = 0;
  /// call and grant: MPI's tag under which data is awaited; letter: the user's tag.
  int32_t tag = 0;
  DType dtype = DType::f32;
  /// failure: a whole deadline has passed already.
  uint8_t was_late = 0;
  uint8_t unused[2] = {};
};
static_assert(sizeof(MpiHeader) % 8 == 0);

/// Bytes one after the other in memory.
struct MpiSegment {
  std::byte* data;
  int64_t bytes;
};
using MpiSegments = std::vector<MpiSegment>;

/// Data of up to so many bytes goes along with a short message.
inline constexpr int64_t kMpiShortBytes = 8192;
/// Room of a short message.
inline constexpr int64_t kMpiMailBytes = kMpiShortBytes + 512;

/// In a short message each segment begins at a multiple of 8 bytes.
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
