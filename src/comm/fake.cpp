// SPDX-License-Identifier: Apache-2.0
#include "src/comm/fake.h"

#include "src/comm/read_collective.h"
#include "weft/communicator.h"
#include "weft/error.h"

namespace weft {

static int64_t read_alone(ExchangeReader& reader, const void* own, int phases, int rank,
                          std::vector<const void*>& shown) {
  shown[static_cast<size_t>(rank)] = own;
  int64_t bytes = 0;
  for (int phase = 0; phase < phases; ++phase) bytes += reader.read(phase, shown);
  return bytes;
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

FakeTransport::FakeTransport(int rank, std::vector<int> hosts, bool in_memory, std::string name)
    : Transport(rank, static_cast<int>(hosts.size()), std::move(name)),
      hosts_(std::move(hosts)),
      in_memory_(in_memory),
      shown_(hosts_.size()) {}

Work FakeTransport::start(const Collective& call) {
  ++traffic_.collectives;
  traffic_.bytes += run_with_absent_peers(call, rank_, shown_);
  return {};
}

void FakeTransport::exchange(const Exchange& call, ExchangeReader& reader) {
  ++traffic_.collectives;
  traffic_.bytes += read_alone(reader, call.blocks.data(), call.phases(), rank_, shown_);
}

std::shared_ptr<Transport> FakeTransport::split(int, int, std::string) {
  fail("split: the colors of other ranks of ", name_,
       " are unknown, expected ranks that exist; use subgroup");
}

std::shared_ptr<Transport> FakeTransport::subgroup(std::span<const int> ranks, std::string name) {
  std::vector<int> hosts;
  for (const int rank : ranks) hosts.push_back(host_of(rank));
  return std::make_shared<FakeTransport>(index_among(ranks), std::move(hosts), in_memory_,
                                         std::move(name));
}

void FakeTransport::abort(const std::string& reason) {
  throw CommError(concat(name_, ": rank ", rank_, " gave up: ", reason), rank_, "abort", 0);
}

Communicator fake_world(int rank, int size, int ranks_per_host, bool in_memory) {
  constexpr int most = 1 << 20;
  if (size < 1 || size > most) fail("fake_world: size is ", size, ", expected 1 to ", most);
  if (rank < 0 || rank >= size) fail("fake_world: rank is ", rank, ", expected 0 to ", size - 1);
  if (ranks_per_host < 1)
    fail("fake_world: ranks_per_host must be at least 1, got ", ranks_per_host);
  std::vector<int> hosts(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) hosts[static_cast<size_t>(r)] = r / ranks_per_host;
  return Communicator(std::make_shared<FakeTransport>(rank, std::move(hosts), in_memory, "world"));
}

}  // namespace weft
