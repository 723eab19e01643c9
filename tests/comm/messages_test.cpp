// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <thread>

#include "src/comm/memory/memory_transport.h"
#include "tests/comm/backends.h"

namespace weft {

class Messages : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(All, Messages, on_all_ranks(), case_name);

TEST_P(Messages, ARingOfAllDTypes) {
  run([&](Communicator world) {
    if (world.size() == 1) return;
    const int next = (world.rank() + 1) % world.size();
    const int previous = (world.rank() + world.size() - 1) % world.size();
    for (const DType dtype : kAllDTypes) {
      for (const int64_t size : {0, 1, 1000}) {
        Numbers sent = numbers_of(dtype, world.rank(), size);
        Numbers got(dtype, size);
        Work sending = world.send(sent.data(), size, dtype, next);
        world.recv(got.data(), size, dtype, previous).wait();
        sending.wait();
        ASSERT_EQ(got, numbers_of(dtype, previous, size));
      }
    }
    // f32 bf16 f16 f64, four signed and four unsigned integers, bool.
    EXPECT_EQ(world.traffic().bytes, 1001 * (4 + 2 + 2 + 8 + 15 + 15 + 1));
  });
}

/// Both neighbours have messages to each other under way while neither waits.
TEST_P(Messages, ManyAreUnderWayInBothDirections) {
  run([&](Communicator world) {
    if (world.size() == 1) return;
    const int next = (world.rank() + 1) % world.size();
    const int previous = (world.rank() + world.size() - 1) % world.size();
    constexpr int kRounds = 40;
    const int64_t size = 3000;
    std::vector<Numbers> sent, got;
    for (int i = 0; i < 2 * kRounds; ++i) {
      sent.push_back(numbers_of(f32, world.rank() + 10 * i, size));
      got.emplace_back(f32, size);
    }
    std::vector<Work> works;
    for (size_t i = 0; i < kRounds; ++i) {
      const int tag = static_cast<int>(i);
      works.push_back(world.send(sent[2 * i].data(), size, f32, next, 2 * tag));
      works.push_back(world.recv(got[2 * i].data(), size, f32, previous, 2 * tag));
      works.push_back(world.send(sent[2 * i + 1].data(), size, f32, previous, 2 * tag + 1));
      works.push_back(world.recv(got[2 * i + 1].data(), size, f32, next, 2 * tag + 1));
    }
    for (Work& work : works) work.wait();
    for (int i = 0; i < kRounds; ++i) {
      const auto at = static_cast<size_t>(2 * i);
      ASSERT_EQ(got[at], numbers_of(f32, previous + 20 * i, size));
      ASSERT_EQ(got[at + 1], numbers_of(f32, next + 10 * (2 * i + 1), size));
    }
  });
}

TEST_P(Messages, TagsChooseAndEqualTagsKeepTheirOrder) {
  run([&](Communicator world) {
    if (world.size() == 1 || world.rank() > 1) return;
    if (world.rank() == 0) {
      int32_t values[] = {10, 11, 12};
      Work first = world.send(&values[0], 1, i32, 1, 7);
      Work second = world.send(&values[1], 1, i32, 1, 8);
      Work third = world.send(&values[2], 1, i32, 1, 7);
      third.wait();
      first.wait();
      second.wait();
    } else {
      int32_t got[3] = {};
      world.recv(&got[0], 1, i32, 0, 8).wait();
      world.recv(&got[1], 1, i32, 0, 7).wait();
      world.recv(&got[2], 1, i32, 0, 7).wait();
      EXPECT_EQ(got[0], 11);
      EXPECT_EQ(got[1], 10);
      EXPECT_EQ(got[2], 12);
    }
  });
}

/// A place before the examined ones may be filled meanwhile, and one behind them after it.
TEST(Messages, NoMessageIsTakenBeforeAnEarlierOne) {
  constexpr uint64_t messages = 300'000;
  std::array<PostedMessage, kPostedMessages> places;
  std::thread sender([&] {
    for (uint64_t number = 1; number <= messages; ++number) {
      // The first place, then the last one.
      PostedMessage& place = number % 2 == 1 ? places.front() : places.back();
      while (place.state() != PostedMessage::kFree) std::this_thread::yield();
      place.stage.store(number * 4 + PostedMessage::kPosted, std::memory_order_release);
    }
  });
  uint64_t in_order = 0;
  for (uint64_t expected = 1; expected <= messages;) {
    PostedMessage* message = take_message(places, 0);
    if (!message) {
      std::this_thread::yield();
      continue;
    }
    in_order += message->stage.load(std::memory_order_relaxed) / 4 == expected++;
    message->stage.store(PostedMessage::kFree, std::memory_order_release);
  }
  sender.join();
  EXPECT_EQ(in_order, messages);
}

TEST_P(Messages, AMessageWaitsBehindACollectiveThatWaitsForIt) {
  run([&](Communicator world) {
    if (world.size() == 1) return;
    // Rank 0 waits for the collective first; rank 1 joins it only after the message.
    int64_t value = world.rank() == 0 ? 42 : 0;
    const int64_t one = 1;
    int64_t sum = 1;
    const Piece piece{.send = &sum, .recv = &sum, .dtype = i64, .counts = {&one, 1}};
    Work message;
    if (world.rank() == 0) message = world.send(&value, 1, i64, 1);
    if (world.rank() == 1) world.recv(&value, 1, i64, 0).wait();
    world.all_reduce({&piece, 1}, ReduceOp::sum).wait();
    message.wait();
    EXPECT_EQ(sum, world.size());
    EXPECT_EQ(value, world.rank() < 2 ? 42 : 0);
  });
}

}  // namespace weft
