// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/comm/transport.h"

namespace weft {

/// Runs one rank's part of a collective whose other ranks do not exist (a fake world): copies the
/// rank's own part and returns the bytes that the others would have sent. `shown` is a buffer of
/// one pointer a rank.
int64_t run_with_absent_peers(const Collective& call, int rank, std::vector<const void*>& shown);

/// One rank of a simulated world: collectives count the bytes that other ranks would send, and copy
/// the rank's own part.
class FakeTransport final : public Transport {
 public:
  /// `hosts[r]` is the host of rank r.
  FakeTransport(int rank, std::vector<int> hosts, bool in_memory, std::string name);

  int host_of(int rank) const override { return hosts_[static_cast<size_t>(rank)]; }
  bool in_memory(DeviceKind) const override { return in_memory_; }
  Work start(const Collective& call) override;
  void exchange(const Exchange& call, ExchangeReader& reader) override;
  std::shared_ptr<Transport> split(int color, int key, std::string name) override;
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) override;
  void abort(const std::string& reason) override;

 private:
  std::vector<int> hosts_;
  bool in_memory_;
  /// Null except for this rank.
  std::vector<const void*> shown_;
};

}  // namespace weft
