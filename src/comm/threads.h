// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/threads_group.h"
#include "src/comm/transport.h"

namespace weft {

/// One rank's end of a group whose ranks are threads of this process: they read each other's
/// memory.
class ThreadsTransport final : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<ThreadsGroup> group, int rank);

  int host_of(int) const override { return 0; }
  bool in_memory() const override { return true; }
  Work start(const Collective& call) override;
  void run(const Collective& call) override;
  void exchange(const Exchange& call, ExchangeReader& reader) override;
  Work start_exchange(const Exchange& call, std::unique_ptr<ExchangeReader> reader) override;
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) override;
  void abort(const std::string& reason) override;

  const ThreadsGroup& group() const { return *group_; }
  /// The number of a new collective; waits until its slot is free.
  uint64_t next_collective();
  uint64_t next_message() { return ++messages_; }
  void add_received(int64_t bytes) { traffic_.bytes += bytes; }
  /// Room for what `ExchangeReader::read` is given.
  std::vector<const void*>& published() { return published_; }

 private:
  std::shared_ptr<ThreadsGroup> group_;
  uint64_t collectives_ = 0;
  uint64_t messages_ = 0;
  std::vector<const void*> published_;
  /// How often this rank made each subgroup.
  std::map<std::vector<int64_t>, int64_t> subgroups_;
};

/// The ends of a new world, one for each rank.
std::vector<std::shared_ptr<Transport>> threads_world(const std::shared_ptr<World>& world);

}  // namespace weft
