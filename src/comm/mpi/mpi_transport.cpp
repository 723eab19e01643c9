// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/mpi_transport.h"

#include <numeric>

#include "src/comm/memory/memory_transport.h"
#include "src/comm/mpi/engine.h"
#include "src/comm/mpi/message.h"
#include "src/comm/mpi/mpi_collective.h"
#include "weft/extend/hash.h"

namespace weft {

MpiTransport::MpiTransport(std::shared_ptr<MpiEngine> engine, Members group, int rank,
                           std::vector<int> hosts)
    : Transport(rank, static_cast<int>(group.world_ranks.size()), group.name),
      engine_(std::move(engine)),
      group_(std::move(group)),
      hosts_(std::move(hosts)) {}

Work MpiTransport::start(const Collective& call) {
  if (!call.pieces.empty() && call.pieces[0].device.kind == DeviceKind::cuda) {
    refuse_device_memory(name(), call.pieces[0].device);
  }
  std::unique_ptr<MpiWork> work;
  if (is_message(call.kind)) {
    work = std::make_unique<MpiMessage>(*this, call, ++messages_);
  } else {
    work = std::make_unique<MpiCollective>(*this, call, ++collectives_);
  }
  const MpiEngine::Lock lock = engine_->lock();
  work->start();
  return Work(std::move(work));
}

/// Marks the keys of in-memory groups that are parts of groups across hosts.
static constexpr int64_t kMadeByMpi = -2;

std::shared_ptr<Transport> MpiTransport::subgroup(std::span<const int> ranks, std::string name) {
  Members group{.id = mixed(~group_.id, ranks.size()), .name = std::move(name)};
  std::vector<int> hosts;
  const int own = index_among(ranks);
  for (const int rank : ranks) {
    group.world_ranks.push_back(group_.world_rank(rank));
    group.id = mixed(group.id, static_cast<uint64_t>(rank));
    hosts.push_back(host_of(rank));
  }
  const int64_t time = subgroups_[{ranks.begin(), ranks.end()}]++;
  group.id = mixed(group.id, static_cast<uint64_t>(time));
  World& world = engine_->world();
  if (world.shares_memory(group.world_ranks)) {
    const std::vector<int64_t> key{kMadeByMpi, static_cast<int64_t>(group.id)};
    return std::make_shared<MemoryTransport>(world.group(key, group.world_ranks, group.name), own);
  }
  return std::make_shared<MpiTransport>(engine_, std::move(group), own, std::move(hosts));
}

void MpiTransport::abort(const std::string& reason) {
  Transport::abort(reason);
  const MpiEngine::Lock lock = engine_->lock();
  engine_->poll();  // notifies the other processes
}

World* MpiTransport::world() const { return &engine_->world(); }

std::shared_ptr<Transport> mpi_world(const std::shared_ptr<MpiEngine>& engine,
                                     std::vector<int> hosts, uint64_t number) {
  Members group{.id = number, .world_ranks = std::vector<int>(hosts.size()), .name = "world"};
  std::iota(group.world_ranks.begin(), group.world_ranks.end(), 0);
  return std::make_shared<MpiTransport>(engine, std::move(group), engine->rank(), std::move(hosts));
}

}  // namespace weft
