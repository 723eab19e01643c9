// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/transport.h"
#include "tests/support/scratch.h"
#include "tests/support/short_calls.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/extend/subject.h"
#include "weft/ranks.h"

namespace weft {

using Body = std::function<void(Communicator)>;

static const std::vector<int64_t> kFour{4, 4, 4};

static void all_gather(const Communicator& group) {
  std::vector<float> part(4);
  std::vector<float> whole(12);
  const Piece piece{.send = part.data(), .recv = whole.data(), .counts = kFour};
  group.all_gather({&piece, 1}).wait();
}

/// The errors that each of three ranks saw, and the one that run_ranks threw.
struct Outcome {
  std::string thrown;
  std::string seen[3];
  int at_fault = -2;
  std::string operation;
  uint64_t sequence = 0;
};

static Outcome outcome_of(const Body& body, int deadline_ms = 5000) {
  Outcome outcome;
  const auto noted = [&](Communicator world) {
    const auto rank = static_cast<size_t>(world.rank());
    try {
      body(world);
    } catch (const std::exception& error) {
      outcome.seen[rank] = error.what();
      throw;
    }
  };
  try {
    run_ranks(3, noted,
              {.deadline = std::chrono::milliseconds(deadline_ms), .threads_per_rank = 1});
  } catch (const CommError& error) {
    outcome.thrown = error.what();
    outcome.at_fault = error.rank();
    outcome.operation = error.operation();
    outcome.sequence = error.sequence();
  } catch (const std::exception& error) {
    outcome.thrown = error.what();
  }
  return outcome;
}

TEST(Failures, TheFirstCauseIsThrownAndTheOthersNameIt) {
  const Outcome outcome = outcome_of([](Communicator world) {
    world.barrier();
    if (world.rank() == 1) throw std::out_of_range("boom");
    all_reduce(world, 16);
  });
  EXPECT_EQ(outcome.thrown, "boom");
  const std::string echo =
      "world: collective 2: all_reduce(sum, f32, [16]): given up: rank 1 threw: boom";
  EXPECT_EQ(outcome.seen[0], echo);
  EXPECT_EQ(outcome.seen[2], echo);
}

TEST(Failures, AnExceptionThatIsNoStdException) {
  std::string thrown;
  try {
    run_ranks(2, [](Communicator world) {
      if (world.rank() == 0) throw 7;
      world.barrier();
    });
  } catch (int number) {
    thrown = std::to_string(number);
  }
  EXPECT_EQ(thrown, "7");
}

TEST(Failures, ARankThatEndsEarlyIsNamedAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = outcome_of(
      [](Communicator world) {
        if (world.rank() == 2) return;
        all_gather(world);
      },
      60000);
  EXPECT_EQ(outcome.thrown,
            "world: collective 1: all_gather(f32, [4, 4, 4]): rank 2 ended and did not call it");
  EXPECT_EQ(outcome.at_fault, 2);
  EXPECT_EQ(outcome.operation, "all_gather(f32, [4, 4, 4])");
  EXPECT_EQ(outcome.sequence, 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

/// The outcome when `missing` calls nothing until the body of the others has ended.
static Outcome outcome_without(int missing, const Body& body, int deadline_ms) {
  std::atomic<bool> over{false};
  return outcome_of(
      [&](Communicator world) {
        if (world.rank() == missing) {
          while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return;
        }
        try {
          body(world);
        } catch (...) {
          over = true;
          throw;
        }
        over = true;
      },
      deadline_ms);
}

TEST(Failures, AMissingRankIsNamedAtTheDeadline) {
  const Outcome outcome = outcome_without(
      1, [](const Communicator& world) { all_reduce(world, 2, bf16, ReduceOp::max); }, 300);
  EXPECT_EQ(
      outcome.thrown,
      "world: collective 1: all_reduce(max, bf16, [2]): rank 1 did not call it within 300 ms; "
      "arrived: rank 0, rank 2");
  EXPECT_EQ(outcome.at_fault, 1);
}

TEST(Failures, TestGivesUpAtTheDeadlineToo) {
  const Outcome outcome = outcome_without(
      0,
      [](const Communicator& world) {
        float value = 0;
        const int64_t one = 1;
        const Piece piece{.send = &value, .recv = &value, .counts = {&one, 1}};
        Work work = world.all_reduce({&piece, 1}, ReduceOp::sum);
        while (!work.test()) std::this_thread::yield();
        work.wait();
      },
      200);
  EXPECT_TRUE(has(outcome.thrown, "rank 0 did not call it within 200 ms"));
}

TEST(Failures, TheTimeBetweenTestsIsNotWaitedFor) {
  // Takes longer than the deadline, and rank 1 is late for the second phase.
  run_ranks(2,
            [](Communicator world) {
              std::vector<float> values(100'000, 1);
              const int64_t count = 100'000;
              const Piece piece{values.data(), values.data(), DType::f32, {&count, 1}};
              Work work = world.all_reduce({&piece, 1}, ReduceOp::sum);
              work.test();
              std::this_thread::sleep_for(std::chrono::milliseconds(1800 + 100 * world.rank()));
              while (!work.test()) std::this_thread::yield();
              EXPECT_EQ(values[0], 2);
            },
            {.deadline = std::chrono::milliseconds(1500)});
}

TEST(Failures, AMemberOfASubgroupIsNamedInBothGroups) {
  const Outcome outcome = outcome_of([](Communicator world) {
    if (world.rank() == 0) return;
    const std::vector<int> ranks{1, 2};
    const Communicator pair = world.subgroup(ranks, "world/pair");
    if (world.rank() == 2) return;
    pair.barrier();
  });
  EXPECT_EQ(outcome.thrown,
            "world/pair: collective 1: barrier(): rank 1 (rank 2 of the world) ended and did not "
            "call it");
  EXPECT_EQ(outcome.at_fault, 2);
}

/// A call of rank 2 that differs from that of ranks 0 and 1.
struct Divergence {
  const char* name;
  Body others;
  Body rank2;
  std::string message;
};

static std::vector<Divergence> divergences() {
  const auto called = [](const std::string& first, const std::string& second) {
    return "world: collective 1: rank 0 called " + first + " but rank 2 called " + second;
  };
  const Body sum4 = [](const Communicator& world) { all_reduce(world, 4); };
  return {
      {"Operation", sum4, all_gather,
       called("all_reduce(sum, f32, [4])", "all_gather(f32, [4, 4, 4])")},
      {"DTypeOfEqualSize", sum4, [](const Communicator& world) { all_reduce(world, 4, i32); },
       called("all_reduce(sum, f32, [4])", "all_reduce(sum, i32, [4])")},
      {"Count", sum4, [](const Communicator& world) { all_reduce(world, 5); },
       called("all_reduce(sum, f32, [4])", "all_reduce(sum, f32, [5])")},
      {"ReduceOp", sum4,
       [](const Communicator& world) { all_reduce(world, 4, f32, ReduceOp::max); },
       called("all_reduce(sum, f32, [4])", "all_reduce(max, f32, [4])")},
      {"Root", [](const Communicator& world) { broadcast(world, 0); },
       [](const Communicator& world) { broadcast(world, 1); },
       called("broadcast(root 0, f32, [1])", "broadcast(root 1, f32, [1])")},
      {"Order",
       [](const Communicator& world) {
         world.barrier();
         broadcast(world, 1);
       },
       [](const Communicator& world) {
         broadcast(world, 1);
         world.barrier();
       },
       called("barrier()", "broadcast(root 1, f32, [1])")},
      {"CountsThatAreNotShown",
       [](const Communicator& world) {
         float values[2] = {};
         const int64_t one = 1;
         const Piece pieces[] = {{.send = values, .recv = values, .counts = {&one, 1}},
                                 {.send = values + 1, .recv = values + 1, .counts = {&one, 1}}};
         world.all_reduce(pieces, ReduceOp::sum).wait();
       },
       [](const Communicator& world) {
         int32_t values[2] = {};
         const int64_t one = 1;
         const Piece pieces[] = {
             {.send = values, .recv = values, .counts = {&one, 1}},
             {.send = values + 1, .recv = values + 1, .dtype = i32, .counts = {&one, 1}}};
         world.all_reduce(pieces, ReduceOp::sum).wait();
       },
       called("all_reduce(sum, f32, [1]; 2 pieces, 2 elements)",
              "all_reduce(sum, f32, [1]; 2 pieces, 2 elements) with other contents")},
      {"Subject",
       [](const Communicator& world) {
         const SubjectScope outer = SubjectScope::of_module(7, "whole");
         const SubjectScope subject = SubjectScope::of_module(8, "layers");
         all_reduce(world, 4);
       },
       [](const Communicator& world) {
         const SubjectScope subject(9, "the norm");
         all_reduce(world, 4);
       },
       called(
           "all_reduce(sum, f32, [4]) of module \"layers\"",
           "all_reduce(sum, f32, [4]) of the norm; call modules in the same order on all ranks")},
  };
}

TEST(Failures, DivergentCallsAreToldInWordsOnAllRanks) {
  for (const Divergence& divergence : divergences()) {
    SCOPED_TRACE(divergence.name);
    const Outcome outcome = outcome_of([&](Communicator world) {
      (world.rank() == 2 ? divergence.rank2 : divergence.others)(world);
    });
    EXPECT_EQ(outcome.thrown, divergence.message);
    for (const std::string& seen : outcome.seen) {
      EXPECT_NE(seen.find(divergence.message), std::string::npos) << seen;
    }
  }
}

TEST(Failures, AllToAllCountsAreComparedPairByPair) {
  const Outcome outcome = outcome_of([](Communicator world) {
    std::vector<float> memory(20);
    std::vector<float> got(20);
    const std::vector<int64_t> ones{1, 1, 1};
    const std::vector<int64_t> sent{1, world.rank() == 1 ? 2 : 1, 1};
    std::vector<int64_t> wrong{1, 1, world.rank() == 0 ? 4 : 1};
    const Piece piece{.send = memory.data(), .recv = got.data(), .counts = ones};
    world.all_to_all(piece, wrong).wait();
  });
  EXPECT_EQ(
      outcome.thrown,
      "world: collective 1: all_to_all(f32): rank 2 sends 1 elements to rank 0, which expects "
      "4");
}

TEST(Failures, AMessageOfAnotherSizeOrDType) {
  const Outcome outcome = outcome_of([](Communicator world) {
    float values[4] = {};
    if (world.rank() == 0) world.send(values, 4, f32, 1, 3).wait();
    if (world.rank() == 1) world.recv(values, 4, i32, 0, 3).wait();
  });
  EXPECT_EQ(outcome.thrown,
            "world: message 1: recv(i32, [4], from rank 0, tag 3): rank 0 sent (f32, [4])");
}

TEST(Failures, AMessageThatNobodySendsOrReceives) {
  const auto error_of_rank_1 = [](const std::function<Work(const Communicator&, float&)>& call) {
    return outcome_of([&](Communicator world) {
             float value = 0;
             if (world.rank() == 1) call(world, value).wait();
           })
        .thrown;
  };
  EXPECT_EQ(
      error_of_rank_1([](const auto& world, float& to) { return world.recv(&to, 1, f32, 0); }),
      "world: message 1: recv(f32, [1], from rank 0, tag 0): rank 0 ended and did not send it");
  EXPECT_EQ(
      error_of_rank_1([](const auto& world, float& from) { return world.send(&from, 1, f32, 2); }),
      "world: message 1: send(f32, [1], to rank 2, tag 0): rank 2 ended and did not receive it");
}

TEST(Failures, AnUnmatchedMessageIsNamedAtTheDeadline) {
  // Rank 0 sends, and works on; rank 1 waits for another message from it.
  const Outcome outcome = outcome_without(
      2,
      [](Communicator world) {
        float sent = 1, got = 0;
        if (world.rank() == 0) {
          Work work = world.send(&sent, 1, f32, 1, 4);
          while (!work.test()) std::this_thread::yield();
        }
        if (world.rank() == 1) world.recv(&got, 1, f32, 0, 5).wait();
      },
      300);
  EXPECT_NE(outcome.thrown.find("message 1: "), std::string::npos) << outcome.thrown;
  EXPECT_NE(outcome.thrown.find("tag "), std::string::npos) << outcome.thrown;
}

/// Ranks pass messages along a line, as stages of a pipeline do; the last one throws.
TEST(Failures, ADeadStageIsNamedByAll) {
  const Outcome outcome = outcome_of([](Communicator world) {
    const int rank = world.rank();
    std::vector<float> values(20000);
    std::vector<float> backs(values.size());
    const auto count = static_cast<int64_t>(values.size());
    for (int round = 0;; ++round) {
      if (round == 3 && rank == 2) throw std::out_of_range("stage 2 failed");
      Work received, sent;
      if (rank > 0) world.recv(values.data(), count, f32, rank - 1, 1).wait();
      if (rank < 2) sent = world.send(values.data(), count, f32, rank + 1, 1);
      if (rank < 2) received = world.recv(backs.data(), count, f32, rank + 1, 2);
      if (rank == 2) sent = world.send(backs.data(), count, f32, 1, 2);
      received.wait(), sent.wait();
      if (rank == 1) world.send(backs.data(), count, f32, 0, 2).wait();
    }
  });
  EXPECT_EQ(outcome.thrown, "stage 2 failed");
  for (const int rank : {0, 1}) {
    EXPECT_NE(outcome.seen[rank].find("given up: rank 2 threw: stage 2 failed"), std::string::npos)
        << outcome.seen[rank];
  }
}

TEST(Failures, MemoryIsLeftAloneWhenItsOwnerThrows) {
  // A sanitizer would detect a late reader: rank 0 frees memory that the others read.
  for (int round = 0; round < 30; ++round) {
    const Outcome outcome = outcome_of([&](Communicator world) {
      const int64_t size = 50000;
      const std::vector<int64_t> counts(3, size);
      auto part = std::make_unique<std::vector<float>>(size);
      std::vector<float> whole(static_cast<size_t>(3 * size));
      const Piece piece{.send = part->data(), .recv = whole.data(), .counts = counts};
      Work work = world.all_gather({&piece, 1});
      if (world.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
        throw std::runtime_error("owner");
      }
      work.wait();
    });
    EXPECT_EQ(outcome.thrown, "owner");
  }
}

TEST(Failures, ATransportIsAborted) {
  const Outcome outcome = outcome_of([](Communicator world) {
    if (world.rank() == 1) return world.transport()->abort("no data left");
    world.barrier();
  });
  EXPECT_EQ(outcome.thrown, "rank 1 gave up: no data left");
  EXPECT_EQ(outcome.at_fault, 1);
  EXPECT_EQ(outcome.seen[2],
            "world: collective 1: barrier(): given up: rank 1 gave up: no data left");
}

/// The errors of one rank's calls in a world that has failed.
static std::vector<std::string> errors_of_later_calls(const Communicator& world, int calls) {
  std::vector<std::string> errors;
  for (int call = 0; call < calls; ++call) {
    errors.push_back(error_of<CommError>([&] { all_reduce(world, call + 1); }));
  }
  return errors;
}

TEST(Failures, AllLaterCollectivesThrowTheSame) {
  // The slots of a group are used in turn: these calls would use each twice, while a slow rank
  // still reads what the failed call left in its own.
  constexpr int calls = 80;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::string> later[3];
    const Outcome outcome = outcome_of([&](Communicator world) {
      try {
        if (world.rank() == 2) world.barrier();
        all_reduce(world, 16);
      } catch (const CommError&) {
        later[world.rank()] = errors_of_later_calls(world, calls);
        throw;
      }
    });
    for (const std::vector<std::string>& errors : later) {
      ASSERT_EQ(errors.size(), size_t{calls});
      for (int call = 0; call < calls; ++call) {
        EXPECT_EQ(errors[static_cast<size_t>(call)],
                  concat("world: collective ", call + 2, ": all_reduce(sum, f32, [", call + 1,
                         "]): given up: ", outcome.thrown));
      }
    }
  }
}

TEST(Failures, LaterMessagesThrowTheSame) {
  const Outcome outcome = outcome_of([](Communicator world) {
    if (world.rank() == 2) throw std::runtime_error("boom");
    EXPECT_THROW(world.barrier(), CommError);
    float value = 0;
    if (world.rank() == 0) world.send(&value, 1, f32, 1).wait();
    if (world.rank() == 1) world.recv(&value, 1, f32, 0).wait();
  });
  EXPECT_EQ(outcome.seen[0],
            "world: message 1: send(f32, [1], to rank 1, tag 0): given up: rank 2 threw: boom");
  EXPECT_EQ(outcome.seen[1],
            "world: message 1: recv(f32, [1], from rank 0, tag 0): given up: rank 2 threw: boom");
}

TEST(Failures, AUsersOwnCommErrorIsACauseLikeAnyOther) {
  const Outcome outcome = outcome_of([](Communicator world) {
    if (world.rank() == 1) throw CommError("lost the cable", 1, "mine", 5);
    world.barrier();
  });
  EXPECT_EQ(outcome.thrown, "lost the cable");
  EXPECT_EQ(outcome.sequence, 5u);
  EXPECT_EQ(outcome.seen[0],
            "world: collective 1: barrier(): given up: rank 1 threw: lost the cable");
}

TEST(Failures, AnEchoThatIsCaughtDoesNotHideTheCause) {
  const Outcome outcome = outcome_of([](Communicator world) {
    if (world.rank() == 0) throw std::runtime_error("first");
    try {
      world.barrier();
    } catch (const CommError&) {
      throw std::runtime_error("second");
    }
  });
  EXPECT_EQ(outcome.thrown, "first");
}

}  // namespace weft
