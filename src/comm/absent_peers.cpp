// SPDX-License-Identifier: Apache-2.0
#include "src/comm/absent_peers.h"

#include "src/comm/read_collective.h"

namespace weft {

static int64_t read_alone(ExchangeReader& reader, const void* own, int phases, int rank,
                          std::vector<const void*>& shown) {
  shown[static_cast<size_t>(rank)] = own;
  int64_t bytes = 0;
  for (int phase = 0; phase < phases; ++phase) bytes += reader.read(phase, shown);
  return bytes;
}

int64_t run_with_absent_peers(const Exchange& call, ExchangeReader& reader, int rank,
                              std::vector<const void*>& shown) {
  return read_alone(reader, call.blocks.data(), call.phases(), rank, shown);
}

int64_t run_with_absent_peers(const Collective& call, int rank, std::vector<const void*>& shown) {
  if (call.kind == CollectiveKind::send) return 0;
  if (call.kind == CollectiveKind::recv) {
    const Piece& piece = call.pieces[0];
    return piece.counts[0] * static_cast<int64_t>(size_of(piece.dtype));
  }
  CollectiveReader reader(call, rank);
  return read_alone(reader, &call, phases_of(call.kind), rank, shown);
}

}  // namespace weft
