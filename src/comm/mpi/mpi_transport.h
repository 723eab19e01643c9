// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/transport.h"
#include "src/comm/world.h"

namespace weft {

class MpiEngine;

/// One rank's end of a group whose ranks are processes on any hosts; they communicate by MPI.
class MpiTransport final : public Transport {
 public:
  /// `hosts[r]` is the host of rank r of the group. The engine must have a world.
  MpiTransport(std::shared_ptr<MpiEngine> engine, Members group, int rank, std::vector<int> hosts);

  int host_of(int rank) const override { return hosts_[static_cast<size_t>(rank)]; }
  bool in_memory(DeviceKind) const override { return false; }
  Work start(const Collective& call) override;
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) override;
  void abort(const std::string& reason) override;
  World* world() const override;
  std::span<const int> world_ranks() const override { return group_.world_ranks; }

  MpiEngine& engine() const { return *engine_; }
  const Members& group() const { return group_; }

 private:
  std::shared_ptr<MpiEngine> engine_;
  const Members group_;
  std::vector<int> hosts_;
  uint64_t collectives_ = 0;
  uint64_t messages_ = 0;
  /// How often this rank created each subgroup.
  std::map<std::vector<int>, int64_t> subgroups_;
};

/// Returns this process's end of the group of all processes; `hosts[r]` is the host of rank r. A
/// different `number` creates a separate group.
std::shared_ptr<Transport> mpi_world(const std::shared_ptr<MpiEngine>& engine,
                                     std::vector<int> hosts, uint64_t number = 0);

}  // namespace weft
