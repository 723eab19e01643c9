// SPDX-License-Identifier: Apache-2.0
#include "src/comm/transport.h"

#include <algorithm>
#include <utility>

#include "src/comm/collective_parts.h"
#include "src/comm/world.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

std::string_view name_of(CollectiveKind kind) {
  static constexpr std::array<std::string_view, 11> names = {
      "barrier", "broadcast",  "all_gather", "reduce_scatter", "all_reduce", "gather",
      "scatter", "all_to_all", "send",       "recv",           "exchange"};
  return names[static_cast<size_t>(kind)];
}

std::shared_ptr<Transport> Transport::split(int color, int key, std::string name) {
  const std::array<int64_t, 2> own{color, key};
  const std::vector<int64_t> asked = Communicator(shared_from_this()).all_gather_numbers(own);
  if (color < 0) return nullptr;
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (asked[2 * static_cast<size_t>(r)] == color) ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return asked[2 * static_cast<size_t>(a) + 1] < asked[2 * static_cast<size_t>(b) + 1];
  });
  return subgroup(ranks, std::move(name));
}

void Transport::claim(uint64_t hash, std::string_view words) {
  if (!claim_) {
    claim_.emplace();
    std::copy_n(words.begin(), std::min(words.size(), claim_->words.size() - 1),
                claim_->words.begin());
  }
  claim_->hash = (claim_->hash ^ hash) * 0x9e3779b97f4a7c15u | 1;
}

std::optional<Claim> Transport::take_claim() {
  if (!claim_) return {};
  return std::exchange(claim_, std::nullopt);
}

uint64_t Transport::next_of_kind(uint64_t kind) {
  // Models may be ever new.
  if (kinds_.size() >= 4096) kinds_.clear();
  return kinds_[kind]++;
}

void Transport::exchange(const Exchange&, ExchangeReader&) {
  fail("exchange: the ranks of ", name(),
       " do not map each other's memory, expected ranks of one host");
}

std::string Members::in_words(int rank) const {
  if (!names.empty()) return names[static_cast<size_t>(rank)];
  if (id == 0) return concat("rank ", rank);
  return concat("rank ", rank, " (rank ", world_rank(rank), " of the world)");
}

Members Transport::subgroup_of(std::span<const int> ranks, std::string name) {
  Members made{.id = mixed(~members_->id, ranks.size()), .name = std::move(name)};
  made.world = members_->world;
  for (const int rank : ranks) {
    made.id = mixed(made.id, static_cast<uint64_t>(rank));
    made.world_ranks.push_back(members_->world_rank(rank));
    made.hosts.push_back(host_of(rank));
  }
  made.id = mixed(made.id, subgroups_[{ranks.begin(), ranks.end()}]++);
  return made;
}

int Transport::index_among(std::span<const int> ranks) const {
  return static_cast<int>(std::ranges::find(ranks, rank_) - ranks.begin());
}

void Transport::abort(const std::string& reason) {
  const int who = members_->world_rank(rank_);
  world()->abort({who, who, concat("rank ", who, " gave up: ", reason)});
}

void refuse_device_memory(const std::string& group, Device device) {
  fail(group, ": memory is on ", device,
       ", expected cpu: this build of weft has no NCCL, by which ranks ",
       "that are processes exchange it; make ranks threads of one process (run_ranks), or move ",
       "tensors by to(cpu)");
}

/// One rank of a simulated world: collectives count the bytes that other ranks would send, and copy
/// the rank's own part.
class FakeTransport final : public Transport {
 public:
  FakeTransport(int rank, Members members, bool in_memory)
      : Transport(rank, std::make_shared<Members>(std::move(members))),
        in_memory_(in_memory),
        shown_(members_->world_ranks.size()) {}

  bool in_memory(DeviceKind) const override { return in_memory_; }
  Work start(const Collective& call) override {
    ++counters().collectives;
    counters().bytes += received_bytes(call, rank_, size_);
    run_with_absent_peers(call, rank_, shown_);
    return {};
  }
  void exchange(const Exchange& call, ExchangeReader& reader) override {
    ++counters().collectives;
    shown_[static_cast<size_t>(rank_)] = call.blocks.data();
    for (int phase = 0; phase < call.phases(); ++phase) {
      counters().bytes += reader.read(phase, shown_);
    }
  }
  std::shared_ptr<Transport> split(int, int, std::string) override {
    fail("split: the colors of other ranks of ", name(),
         " are unknown, expected ranks that exist; use subgroup");
  }
  std::shared_ptr<Transport> subgroup(std::span<const int> ranks, std::string name) override {
    return std::make_shared<FakeTransport>(index_among(ranks), subgroup_of(ranks, std::move(name)),
                                           in_memory_);
  }
  void abort(const std::string& reason) override {
    throw CommError(concat(name(), ": rank ", rank_, " gave up: ", reason), rank_, "abort", 0);
  }

 private:
  bool in_memory_;
  /// Null except for this rank.
  std::vector<const void*> shown_;
};

Communicator fake_world(int rank, int size, int ranks_per_host, bool in_memory) {
  constexpr int most = 1 << 20;
  if (size < 1 || size > most) fail("fake_world: size is ", size, ", expected 1 to ", most);
  if (rank < 0 || rank >= size) fail("fake_world: rank is ", rank, ", expected 0 to ", size - 1);
  if (ranks_per_host < 1)
    fail("fake_world: ranks_per_host must be at least 1, got ", ranks_per_host);
  Members members{.name = "world"};
  for (int r = 0; r < size; ++r) {
    members.world_ranks.push_back(r);
    members.hosts.push_back(r / ranks_per_host);
  }
  return Communicator(std::make_shared<FakeTransport>(rank, std::move(members), in_memory));
}

}  // namespace weft
