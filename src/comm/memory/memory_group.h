// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/comm/signature.h"
#include "src/comm/world.h"
#include "src/device/cuda/runtime.h"
#include "weft/device.h"
#include "weft/dtype.h"
#include "weft/export.h"
#include "weft/stream.h"

namespace weft {

class SharedHeap;

/// The slot in which one rank publishes one collective to the others.
struct alignas(64) Slot {
  /// sequence * kProgressRange + the rank's progress: 0 while it writes, kCallPosted, then one more
  /// a phase.
  std::atomic<uint64_t> progress{0};
  std::atomic<uint64_t> hash{0};
  const void* published = nullptr;
  /// All published data lies in the slot's buffer and stays valid if the rank exits.
  bool is_eager = false;
  /// The call whose memory of other ranks this rank is reading; 0: none. Other ranks look at it
  /// only when they give up. This field and those after it have cache lines apart from the first,
  /// which the others poll.
  alignas(64) std::atomic<uint64_t> reading{0};
  /// Read only when hashes differ: the call then completes on no rank, the world is aborted, and no
  /// later call reuses the slot.
  Signature signature;
};

inline constexpr uint64_t kProgressRange = 65536;
inline constexpr uint64_t kCallPosted = 1;
constexpr uint64_t progress_after(int phase) { return 2 + static_cast<uint64_t>(phase); }

/// Events on GPU streams that belong to a slot. Written before the progress that announces them;
/// the slot's next call begins when all ranks have finished this one.
struct SlotEvents {
  Device device = cpu;
  /// The published memory is ready; then, this rank's reads of each phase are done. Calls on GPUs
  /// have a single round.
  std::array<StreamEvent*, kMaxPhases + 1> points{};
  /// Events of devices used earlier, which another rank may still be about to wait for.
  std::vector<StreamEvent*> former;
};

/// An entry in shared memory for one message from one rank to another: the sender posts, the
/// receiver takes it, copies from the sender's memory and marks it as received, and the sender
/// frees the entry. All zeros: a free entry.
struct alignas(64) PostedMessage {
  enum State : uint64_t { kFree, kPosted, kTaken, kReceived };
  /// The number of the message between the two ranks, times 4, plus the state.
  std::atomic<uint64_t> stage{0};
  const void* data = nullptr;
  int64_t count = 0;
  int32_t tag = 0;
  DType dtype = DType::f32;

  State state() const { return static_cast<State>(stage.load(std::memory_order_acquire) % 4); }
};

/// The most messages that can be pending from one rank to another.
inline constexpr int kPostedMessages = 16;

/// The state shared by the members of a group that see each other's memory. Each rank's collective
/// `s` uses its slot s % kSlots.
class MemoryGroup : public Members, NotCopied {
 public:
  /// The most collectives of one group that a rank can have pending.
  static constexpr uint64_t kSlots = 32;
  /// Bytes of a slot's buffer for published data.
  static constexpr size_t kEagerBytes = 8192;

  /// Bytes of the memory that a group needs.
  static size_t bytes_for(int ranks) {
    const auto n = static_cast<size_t>(ranks);
    return n * kSlots * (sizeof(Slot) + kEagerBytes) +
           n * n * kPostedMessages * sizeof(PostedMessage);
  }
  /// `memory`: aligned to 64 bytes, zeros when the first member joins. `heap`: the memory of this
  /// process that the others have mapped; null where ranks are threads, which share all memory.
  MemoryGroup(Members members, std::shared_ptr<std::byte> memory, SharedHeap* heap_ = nullptr)
      : Members(std::move(members)),
        heap(heap_),
        memory_(std::move(memory)),
        events_(cuda::kWithCuda && !heap_ ? world_ranks.size() * kSlots : 0) {}
  ~MemoryGroup();

  Slot& slot(int rank, uint64_t sequence) const {
    return reinterpret_cast<Slot*>(memory_.get())[slot_index(rank, sequence)];
  }
  /// Only where ranks are threads.
  SlotEvents& events(int rank, uint64_t sequence) const {
    return events_[slot_index(rank, sequence)];
  }
  std::byte* eager_buffer(int rank, uint64_t sequence) const {
    return memory_.get() + slots() * sizeof(Slot) + slot_index(rank, sequence) * kEagerBytes;
  }
  /// The entries for messages from one rank to another.
  std::span<PostedMessage> posted_messages(int from, int to) const {
    auto* first =
        reinterpret_cast<PostedMessage*>(memory_.get() + slots() * (sizeof(Slot) + kEagerBytes));
    return {first + (from * size() + to) * kPostedMessages, kPostedMessages};
  }
  /// Returns the ranks that have not reached that progress in that call, and are in no later one.
  std::vector<int> behind(uint64_t sequence, uint64_t progress) const {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) {
      if (slot(r, sequence).progress.load(std::memory_order_acquire) < progress) ranks.push_back(r);
    }
    return ranks;
  }

  /// True when the ranks are processes, which see each other's shared memory only.
  bool ranks_are_processes() const { return heap != nullptr; }

  SharedHeap* const heap;

 private:
  static size_t slot_index(int rank, uint64_t sequence) {
    return static_cast<size_t>(rank) * kSlots + sequence % kSlots;
  }
  size_t slots() const { return world_ranks.size() * kSlots; }

  const std::shared_ptr<std::byte> memory_;
  mutable std::vector<SlotEvents> events_;
};

}  // namespace weft
