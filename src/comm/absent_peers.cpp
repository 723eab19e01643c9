// SPDX-License-Identifier: Apache-2.0
#include "src/comm/absent_peers.h"

#include "src/comm/read_collective.h"

namespace weft {

int64_t run_with_absent_peers(const Exchange& call, ExchangeReader& reader, int rank,
                              std::vector<const void*>& published) {
  published[static_cast<size_t>(rank)] = call.published;
  int64_t bytes = 0;
  for (int phase = 0; phase < call.phases; ++phase) bytes += reader.read(phase, published);
  return bytes;
}

int64_t run_with_absent_peers(const Collective& call, int rank,
                              std::vector<const void*>& published) {
  const auto bytes_of_message = [&] {
    const Piece& piece = call.pieces[0];
    return piece.counts[0] * static_cast<int64_t>(size_of(piece.dtype));
  };
  if (call.kind == CollectiveKind::send) return 0;
  if (call.kind == CollectiveKind::recv) return bytes_of_message();
  CollectiveReader reader(call, rank);
  const Exchange exchange{.published = &call, .phases = phases_of(call.kind)};
  return run_with_absent_peers(exchange, reader, rank, published);
}

}  // namespace weft
