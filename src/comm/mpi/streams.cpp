// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/streams.h"

#include <algorithm>

#include "src/comm/mpi/engine.h"

namespace weft {

/// Segments of a stream in transit at a time.
static constexpr size_t kInFlight = 4;

size_t MpiStreams::add(MpiEngine& engine, MpiWork& owner, MpiStream stream) {
  if (!stream.is_done()) ++unfinished_;
  streams_.push_back(std::move(stream));
  pump(engine, owner, streams_.size() - 1);
  return streams_.size() - 1;
}

void MpiStreams::pump(MpiEngine& engine, MpiWork& owner, size_t number) {
  MpiStream& stream = streams_[number];
  const size_t end = std::min({stream.allowed, stream.segments.size(), stream.done + kInFlight});
  for (; stream.posted < end; ++stream.posted) {
    engine.transfer({stream.sends, stream.segments[stream.posted], stream.peer, stream.tag}, owner,
                    number << 40 | stream.posted);
  }
}

MpiStreams::Ended MpiStreams::ended(MpiEngine& engine, MpiWork& owner, uint64_t token) {
  const Ended ended{token >> 40, token & ((uint64_t{1} << 40) - 1)};
  MpiStream& stream = streams_[ended.stream];
  ++stream.done;
  if (stream.is_done()) --unfinished_;
  pump(engine, owner, ended.stream);
  return ended;
}

void MpiStreams::allow(MpiEngine& engine, MpiWork& owner, size_t number, size_t segments) {
  streams_[number].allowed = segments;
  pump(engine, owner, number);
}

bool MpiStreams::is_done_with(int peer) const {
  return std::all_of(streams_.begin(), streams_.end(), [&](const MpiStream& stream) {
    return stream.peer != peer || stream.is_done();
  });
}

}  // namespace weft
