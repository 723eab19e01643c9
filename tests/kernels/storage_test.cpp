// SPDX-License-Identifier: Apache-2.0
#include "weft/storage.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "src/device/memory_blocks.h"
#include "tests/support/scratch.h"
#include "weft/error.h"

namespace weft {
namespace {

/// Runs f with the statistics of a new rank.
template <class F> void on_a_new_thread(F f) { std::thread(f).join(); }

TEST(Storage, IsAlignedAndWritable) {
  for (size_t bytes :
       {0ul, 1ul, 63ul, 64ul, 65ul, 1024ul, 1025ul, 100000ul, 3ul << 20, 33ul << 20}) {
    const Ref<Storage> storage = Storage::allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(storage->data()) % kMemoryAlignment, 0u);
    EXPECT_EQ(storage->bytes(), bytes);
    EXPECT_TRUE(storage->is_bound());
    std::memset(storage->data(), 1, bytes);
    if (kKeepsMemory && bytes >= kHugePage) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(storage->data()) % kHugePage, 0u);
    }
  }
}

TEST(Storage, SizeClassesHoldTheirSizes) {
  size_t last = 0;
  for (int i = 0; i < 200; ++i) {
    const size_t bytes = class_bytes(i);
    EXPECT_GT(bytes, last);
    EXPECT_EQ(size_class(bytes), i);
    EXPECT_EQ(size_class(last + 1), i);
    if (bytes > 1024) {
      EXPECT_LE(static_cast<double>(bytes) / static_cast<double>(last), 1.126);
    }
    last = bytes;
  }
}

TEST(Storage, SizesThatNoMachineHasAreRefused) {
  Storage::allocate(1 << 20);
  for (const int power : {47, 48, 49, 50, 56, 62}) {
    EXPECT_THROW(Storage::allocate((size_t{1} << power) + 1), std::runtime_error) << power;
  }
  EXPECT_GT(Storage::allocate(1 << 20)->bytes(), 0u);
}

TEST(Storage, CountsByPurpose) {
  on_a_new_thread([] {
    Ref<Storage> activation;
    {
      const PurposeScope scope(Purpose::activations);
      activation = Storage::allocate(1000);
      const PurposeScope inner(Purpose::gradients);
      const Ref<Storage> gradient = Storage::allocate(500);
      const auto now = memory_statistics();
      EXPECT_EQ(now.by_purpose[static_cast<size_t>(Purpose::gradients)].current, 500);
      EXPECT_EQ(now.total.current, 1500);
    }
    MemoryStatistics now = memory_statistics();
    EXPECT_EQ(now.by_purpose[static_cast<size_t>(Purpose::activations)].current, 1000);
    EXPECT_EQ(now.by_purpose[static_cast<size_t>(Purpose::gradients)].current, 0);
    EXPECT_EQ(now.by_purpose[static_cast<size_t>(Purpose::gradients)].peak, 500);
    EXPECT_EQ(now.total.peak, 1500);
    reset_peak_memory();
    EXPECT_EQ(memory_statistics().total.peak, 1000);
    activation = {};
    EXPECT_EQ(memory_statistics().total.current, 0);
  });
}

TEST(Storage, ReusesAndReleases) {
  if (!kKeepsMemory) GTEST_SKIP() << "sanitizers see memory freed at once";
  on_a_new_thread([] {
    for (int i = 0; i < 10; ++i) {
      const Ref<Storage> small = Storage::allocate(100), large = Storage::allocate(5 << 20);
    }
    EXPECT_EQ(memory_statistics().fresh_allocations, 2);
    EXPECT_EQ(memory_statistics().cached, 128 + (5 << 20));
    release_cached_memory();
    EXPECT_EQ(memory_statistics().cached, 0);
    const Ref<Storage> again = Storage::allocate(100);
    EXPECT_EQ(memory_statistics().fresh_allocations, 3);
  });
}

TEST(Storage, KeepsLittleMoreThanWasEverUsed) {
  on_a_new_thread([] {
    // Each size is used once: without a bound all of them, 3 GiB, would be kept.
    for (size_t size = 16 << 20; size < (1024u << 20); size += size / 8) Storage::allocate(size);
    const MemoryStatistics now = memory_statistics();
    EXPECT_LE(now.cached, now.total.peak * 3 / 2 + (64 << 20));
  });
}

TEST(Storage, MetaCountsAndHoldsNothing) {
  on_a_new_thread([] {
    const Ref<Storage> storage = Storage::allocate(size_t{1} << 45, meta);
    EXPECT_EQ(storage->data(), nullptr);
    EXPECT_EQ(memory_statistics(DeviceKind::meta).total.current, int64_t{1} << 45);
    EXPECT_EQ(memory_statistics().total.current, 0);
  });
}

TEST(Storage, MemoryFreedElsewhereIsCountedWhereItWasAllocated) {
  on_a_new_thread([] {
    std::vector<Ref<Storage>> blocks;
    for (int i = 0; i < 100; ++i) blocks.push_back(Storage::allocate(1000));
    std::thread([&] {
      blocks.clear();
      EXPECT_EQ(memory_statistics().total.current, 0);
      EXPECT_EQ(memory_statistics().cached, 0);
    }).join();
    EXPECT_EQ(memory_statistics().total.current, 0);
    EXPECT_EQ(memory_statistics().total.peak, 100000);
    if (kKeepsMemory) {
      EXPECT_EQ(memory_statistics().cached, 100 * 1024);
    }
  });
}

TEST(Storage, OutlivesItsThread) {
  std::vector<Ref<Storage>> blocks;
  on_a_new_thread([&] {
    for (int i = 0; i < 10; ++i) blocks.push_back(Storage::allocate(i < 5 ? 1000 : 3 << 20));
  });
  for (const auto& block : blocks) std::memset(block->data(), 7, block->bytes());
}

/// Frees and allocates a block after the other objects of its thread were destroyed.
struct AtThreadEnd {
  Ref<Storage> block;
  ~AtThreadEnd() { Storage::allocate(1000); }
};

TEST(Storage, ServesThreadsThatAreEnding) {
  on_a_new_thread([] {
    thread_local AtThreadEnd last;
    last.block = {};  // constructed before the heap, so destroyed after it
    last.block = Storage::allocate(2000);
  });
}

TEST(Storage, ManyThreadsShareBlocks) {
  std::vector<std::thread> threads;
  std::array<std::atomic<Storage*>, 8> slots{};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&slots, t] {
      for (unsigned i = 0; i < 3000; ++i) {
        Ref<Storage> mine = Storage::allocate(64 + i % 700);
        std::memset(mine->data(), static_cast<int>(t), mine->bytes());
        mine->retain();
        Storage* theirs = slots[(i + t) % slots.size()].exchange(mine.get());
        if (theirs && theirs->release()) Storage::destroy(theirs);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& slot : slots) {
    if (Storage* left = slot.load(); left && left->release()) Storage::destroy(left);
  }
}

TEST(Storage, AnUnboundBlockIsNamed) {
  const Ref<Storage> storage = Storage::unbound(16, cpu, "parameter 'layers.0.wq'");
  EXPECT_EQ(error_of<std::runtime_error>([&] { storage->data(); }),
            "parameter 'layers.0.wq': the block is not gathered; its 16 bytes have memory only "
            "while they are bound");
  std::array<std::byte, 16> memory;
  storage->bind(memory.data());
  EXPECT_EQ(storage->data(), memory.data());
  storage->unbind();
  EXPECT_FALSE(storage->is_bound());
  EXPECT_THROW(Storage::allocate(8)->bind(memory.data()), std::invalid_argument);
}

TEST(Storage, ADeviceThatIsNotThereIsOneSentence) {
  const Device absent{DeviceKind::cuda, static_cast<int8_t>(device_count(DeviceKind::cuda))};
  const std::string error = error_of([&] { Storage::allocate(8, absent); });
  EXPECT_TRUE(error.starts_with(concat("device: ", absent, " does not exist"))) << error;
}

TEST(Storage, AWrappedBlockIsReleasedOnce) {
  int released = 0;
  float memory[4];
  {
    const Ref<Storage> storage = Storage::wrap(memory, sizeof memory, cpu, [&] { ++released; });
    const Ref<Storage> other = storage;
    EXPECT_EQ(other->data(), memory);
    EXPECT_EQ(other->use_count(), 2u);
  }
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace weft
