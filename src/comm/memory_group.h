// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/comm/letters.h"
#include "src/comm/signature.h"
#include "src/comm/world.h"
#include "src/cuda/streams.h"
#include "weft/device.h"

namespace weft {

class SharedHeap;

/// Where one rank shows one collective to the others.
struct alignas(64) Slot {
  /// sequence * kStages + how far the rank is: 0 while it writes, then kPosted, then one a phase.
  std::atomic<uint64_t> stage{0};
  std::atomic<uint64_t> hash{0};
  const void* published = nullptr;
  /// What is shown lies in the slot's room, whatever becomes of its rank.
  bool is_eager = false;
  /// The call whose peers' memory the rank reads now; 0: none. Others look only when they give up.
  /// On lines of its own, as what follows: the others poll the first one.
  alignas(64) std::atomic<uint64_t> reading{0};
  /// Read only when hashes differ; the call then ends on no rank, and so the slot stays as it is.
  Signature signature;
};

inline constexpr uint64_t kStages = 65536;
inline constexpr uint64_t kPosted = 1;
constexpr uint64_t finished_stage(int phase) { return 2 + static_cast<uint64_t>(phase); }
/// Of calls on GPUs, which have one round.
inline constexpr int kMaxPhases = 6;

/// Points in the streams of GPUs that belong to a slot. Written before the stage that tells of
/// them; the next call of the slot begins when all ranks are done with this one.
struct SlotEvents {
  Device device = cpu;
  /// What the rank shows is there; its reads of each phase are done.
  std::array<void*, kMaxPhases + 1> points{};
  /// Of other devices, which somebody may still be about to wait for.
  std::vector<void*> former;
};

/// What the members of a group that see each other's memory share. Collective `s` of each rank uses
/// its slot s % kSlots.
class MemoryGroup {
 public:
  /// Collectives of one group that a rank can have under way.
  static constexpr uint64_t kSlots = 32;
  /// Room of a slot for what it shows, small data included.
  static constexpr size_t kRoom = 8192;

  /// Bytes of the memory of a group.
  static size_t bytes_for(int ranks) {
    const auto n = static_cast<size_t>(ranks);
    return n * kSlots * (sizeof(Slot) + kRoom) + n * n * kLetters * sizeof(Letter);
  }
  /// `memory`: zeros when the first member comes, aligned to 64 bytes. `heap`: what this process
  /// shows the others; null where ranks are threads, which see everything.
  MemoryGroup(std::shared_ptr<World> world_, int64_t id_, std::vector<int> members,
              std::string name_, std::shared_ptr<std::byte> memory, SharedHeap* heap_ = nullptr)
      : world(std::move(world_)),
        id(id_),
        world_ranks(std::move(members)),
        name(std::move(name_)),
        heap(heap_),
        memory_(std::move(memory)),
        events_(cuda::kWithCuda && !heap_ ? world_ranks.size() * kSlots : 0) {}
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  ~MemoryGroup();

  int size() const { return static_cast<int>(world_ranks.size()); }
  Slot& slot(int rank, uint64_t sequence) const {
    return reinterpret_cast<Slot*>(memory_.get())[place(rank, sequence)];
  }
  /// Where ranks are threads.
  SlotEvents& events(int rank, uint64_t sequence) const { return events_[place(rank, sequence)]; }
  std::byte* room(int rank, uint64_t sequence) const {
    return memory_.get() + slots_bytes() + letters_bytes() + place(rank, sequence) * kRoom;
  }
  /// From one rank to another.
  std::span<Letter> letters(int from, int to) const {
    auto* first = reinterpret_cast<Letter*>(memory_.get() + slots_bytes());
    return {first + (from * size() + to) * kLetters, kLetters};
  }
  /// True when all ranks are that far in that call, or in a later one.
  bool all_reached(uint64_t sequence, uint64_t stage) const {
    for (int r = 0; r < size(); ++r) {
      if (slot(r, sequence).stage.load(std::memory_order_acquire) < stage) return false;
    }
    return true;
  }
  /// The ranks that are not.
  std::vector<int> behind(uint64_t sequence, uint64_t stage) const {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) {
      if (slot(r, sequence).stage.load(std::memory_order_acquire) < stage) ranks.push_back(r);
    }
    return ranks;
  }
  int world_rank(int rank) const { return world_ranks[static_cast<size_t>(rank)]; }
  /// "rank 1", in a group that is not the world "rank 1 (rank 5 of the world)".
  std::string rank_in_words(int rank) const;

  const std::shared_ptr<World> world;
  const int64_t id;
  const std::vector<int> world_ranks;
  const std::string name;
  SharedHeap* const heap;

 private:
  static size_t place(int rank, uint64_t sequence) {
    return static_cast<size_t>(rank) * kSlots + sequence % kSlots;
  }
  size_t slots_bytes() const { return world_ranks.size() * kSlots * sizeof(Slot); }
  size_t letters_bytes() const {
    return world_ranks.size() * world_ranks.size() * kLetters * sizeof(Letter);
  }

  const std::shared_ptr<std::byte> memory_;
  mutable std::vector<SlotEvents> events_;
};

}  // namespace weft
