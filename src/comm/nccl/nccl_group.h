// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/comm/nccl/agreement.h"
#include "src/comm/nccl/lane.h"
#include "src/comm/nccl/recorded_calls.h"
#include "src/comm/transport.h"

namespace weft {

class Graph;

/// One rank's end of a group of ranks as to memory of GPUs: communicators of NCCL, one for each
/// role of the current stream, made at the first call on it. Calls are queued on the current
/// stream; the host waits for the others at the first call of a role, and every 64th. Those that a
/// graph records are made each time that it is played.
class NcclGroup : public std::enable_shared_from_this<NcclGroup> {
 public:
  /// `host` is the group's end for memory of the host, with a world.
  explicit NcclGroup(std::shared_ptr<Transport> host);

  /// All pieces are on one GPU. Messages of a pair of ranks are received in the order in which they
  /// were sent, whatever their tags.
  Work start(const Collective& call);

  /// Bytes received so far.
  int64_t received() const;
  /// Made so far.
  int64_t calls() const;

 private:
  /// Two ranks that send each other messages.
  NcclGroup& pair_with(int other);
  Work start_here(const Collective& call);
  Work record(const Collective& call, Graph& graph);
  std::shared_ptr<RecordedCalls> recorded_by(Graph& graph);
  void begin_again(RecordedCalls& recorded);
  NcclCallName named(const Collective& call, uint64_t number) const;
  std::shared_ptr<NcclLane> lane_for(const Stream& stream, int role, const NcclCallName& call);
  void compare_counts(const Collective& call, const NcclCallName& name);
  void queue(const Collective& call, const NcclCallName& name, NcclLane& lane,
             const Stream& stream);

  const std::shared_ptr<Transport> host_;
  /// The same ranks, for what they say to each other about their GPUs.
  std::shared_ptr<Transport> control_;
  std::optional<NcclAgreement> agreement_;
  uint64_t calls_ = 0;
  int64_t received_ = 0;
  /// By device and role.
  std::map<std::pair<int, int>, std::shared_ptr<NcclLane>> lanes_;
  std::map<int, std::shared_ptr<NcclGroup>> pairs_;
  /// What is being recorded, or was last.
  std::weak_ptr<RecordedCalls> recorded_;
};

}  // namespace weft
