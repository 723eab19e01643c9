// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "src/comm/nccl/nccl_group.h"
#include "src/comm/transport.h"

namespace weft {

/// One rank's end of a group whose ranks cannot access each other's GPUs: GPU memory is exchanged
/// by NCCL, all else by another transport of the same ranks.
class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(std::shared_ptr<Transport> host);

  int host_of(int rank) const override { return host_transport_->host_of(rank); }
  void claim(uint64_t hash, std::string_view words) override {
    host_transport_->claim(hash, words);
  }
  Claim take_claim() override { return host_transport_->take_claim(); }
  bool in_memory(DeviceKind kind) const override {
    return kind != DeviceKind::cuda && host_transport_->in_memory(kind);
  }
  Work start(const Collective& call) override;
  void run(const Collective& call) override;
  void exchange(const Exchange& call, ExchangeReader& reader) override;
  Work start_exchange(const Exchange& call, std::unique_ptr<ExchangeReader> reader) override;
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) override;
  void abort(const std::string& reason) override { host_transport_->abort(reason); }
  World* world() const override { return host_transport_->world(); }
  std::span<const int> world_ranks() const override { return host_transport_->world_ranks(); }
  const CommunicatorTraffic& traffic() const override;

 private:
  std::shared_ptr<Transport> host_transport_;
  std::shared_ptr<NcclGroup> group_;
  mutable CommunicatorTraffic sum_;
};

/// Returns the transport, or one that also exchanges GPU memory when this build has NCCL.
std::shared_ptr<Transport> with_nccl(std::shared_ptr<Transport> host);

}  // namespace weft
