// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/flight/record.h"
#include "src/comm/nccl/agreement.h"
#include "src/comm/nccl/lane.h"
#include "src/comm/transport.h"

namespace weft {

class Graph;
class NcclGroup;

/// A call recorded in a graph.
struct RecordedCall {
  NcclCallName call;
  /// How it is carried out, for NcclAgreement.
  uint64_t variant = 0;
  std::shared_ptr<NcclLane> lane;
  /// Bytes received from other ranks per replay.
  int64_t bytes = 0;
};

/// The calls of a group in one graph, in order. Each replay starts them anew: they are numbered,
/// compared between ranks, counted and watched.
struct RecordedCalls {
  /// Must outlive its lanes.
  std::shared_ptr<NcclGroup> group;
  uint64_t capture = 0;
  std::vector<RecordedCall> calls;
  /// Flight records of the calls in progress.
  std::vector<FlightOperation> flights;
};

/// One rank's end of a group for GPU memory: NCCL communicators, one per role of the current
/// stream, created at the first call on it. Calls are queued on the current stream; the host waits
/// for the other ranks at the first call of a role, at every 64th and at each all_to_all. Calls
/// recorded in a graph are repeated by each replay.
class NcclGroup : public std::enable_shared_from_this<NcclGroup> {
 public:
  /// `host` is the group's end for host memory; it must have a world.
  explicit NcclGroup(std::shared_ptr<Transport> host);

  /// All pieces must be on one GPU. Messages between two ranks are received in the order in which
  /// they were sent; tags are ignored.
  Work start(const Collective& call);

  /// Bytes received so far.
  int64_t received() const;
  /// Calls made so far.
  int64_t calls() const;

 private:
  /// Returns the group of this rank and `other`, for messages.
  NcclGroup& pair_with(int other);
  Work start_here(const Collective& call);
  Work record(const Collective& call, Graph& graph);
  std::shared_ptr<RecordedCalls> recorded_by(Graph& graph);
  void begin_again(RecordedCalls& graph);
  /// Counts a call in which this rank receives `bytes`, and adds it to the rank's flight record, if
  /// it keeps one.
  FlightOperation observed(const NcclCallName& call, int64_t bytes);
  NcclCallName named(const Collective& call, uint64_t number) const;
  std::shared_ptr<NcclLane> lane_for(const Stream& stream, int role, const NcclCallName& call);
  void compare_counts(const Collective& call, const NcclCallName& name);
  void queue(const Collective& call, const NcclCallName& name, NcclLane& lane,
             const Stream& stream);

  const std::shared_ptr<Transport> host_transport_;
  /// A group of the same ranks, for host messages about their GPUs.
  std::shared_ptr<Transport> control_;
  std::optional<NcclAgreement> agreement_;
  uint64_t calls_ = 0;
  int64_t received_ = 0;
  /// Keyed by device and role.
  std::map<std::pair<int, int>, std::shared_ptr<NcclLane>> lanes_;
  std::map<int, std::shared_ptr<NcclGroup>> pairs_;
  /// The calls of the current or last recording.
  std::weak_ptr<RecordedCalls> recorded_;
};

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
