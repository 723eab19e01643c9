// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/mailbox.h"
#include "src/comm/signature.h"
#include "src/comm/world.h"

namespace weft {

/// Where one rank shows one collective to the others.
struct alignas(64) Slot {
  /// sequence * kStages + how far the rank is: 0 while it writes, then kPosted, then two a phase.
  std::atomic<uint64_t> stage{0};
  std::atomic<uint64_t> hash{0};
  const void* published = nullptr;
  /// Read only when hashes differ; the call then ends on no rank, and so the slot stays as it is.
  /// On lines of its own: the others poll the first one.
  alignas(64) Signature signature;
};

inline constexpr uint64_t kStages = 16;
inline constexpr uint64_t kPosted = 1;
constexpr uint64_t reading_stage(int phase) { return 2 + 2 * static_cast<uint64_t>(phase); }
constexpr uint64_t finished_stage(int phase) { return 3 + 2 * static_cast<uint64_t>(phase); }
inline constexpr int kMaxPhases = 6;

/// What the members of a group of threads share. Collective `s` of each rank uses its slot s %
/// kSlots.
class ThreadsGroup {
 public:
  /// Collectives of one group that a rank can have under way.
  static constexpr uint64_t kSlots = 32;

  ThreadsGroup(std::shared_ptr<World> world_, int64_t id_, std::vector<int> members,
               std::string name_)
      : world(std::move(world_)),
        id(id_),
        world_ranks(std::move(members)),
        name(std::move(name_)),
        slots(world_ranks.size() * kSlots),
        mailboxes(world_ranks.size()) {}

  int size() const { return static_cast<int>(world_ranks.size()); }
  Slot& slot(int rank, uint64_t sequence) const {
    return slots[static_cast<size_t>(rank) * kSlots + sequence % kSlots];
  }
  int world_rank(int rank) const { return world_ranks[static_cast<size_t>(rank)]; }
  /// "rank 1", in a group that is not the world "rank 1 (rank 5 of the world)".
  std::string rank_in_words(int rank) const;

  const std::shared_ptr<World> world;
  const int64_t id;
  const std::vector<int> world_ranks;
  const std::string name;
  mutable std::vector<Slot> slots;
  mutable std::vector<Mailbox> mailboxes;
};

}  // namespace weft
