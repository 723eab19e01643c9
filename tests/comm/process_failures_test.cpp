// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "src/comm/memory/memory_worlds.h"
#include "src/comm/transport.h"
#include "tests/support/processes.h"
#include "tests/support/scratch.h"
#include "tests/support/short_calls.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ranks.h"
#include "weft/storage.h"

namespace weft {

using Clock = std::chrono::steady_clock;
using Body = std::function<void(Communicator)>;

static constexpr std::chrono::milliseconds kDeadline{800};

/// The end of a process, and its output.
struct Ended {
  int status = 0;
  double seconds = 0;
  std::string text;
  int code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
};

/// Runs the body on that many processes. Kills those that have not ended `last` after the others,
/// as a launcher does.
static std::vector<Ended> ends_of(int ranks, const Body& body, std::chrono::milliseconds deadline) {
  const Scratch scratch;
  const auto begin = Clock::now();
  const auto path_of = [&](const std::string& rank) { return scratch.path(rank); };
  const std::vector<pid_t> children = fork_ranks(ranks, [&] {
    const rlimit no_core{};
    setrlimit(RLIMIT_CORE, &no_core);
    std::freopen(path_of(std::getenv("WEFT_RANK")).c_str(), "w", stderr);
    try {
      run_world(ranks, body, {.deadline = deadline, .threads_per_rank = 1});
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    return 0;
  });
  std::vector<Ended> ends(children.size());
  size_t left = children.size();
  auto last_end = begin;
  std::vector<bool> over(children.size());
  while (left > 0) {
    for (size_t r = 0; r < children.size(); ++r) {
      if (over[r] || waitpid(children[r], &ends[r].status, WNOHANG) != children[r]) continue;
      over[r] = true;
      --left;
      last_end = Clock::now();
      ends[r].seconds = std::chrono::duration<double>(last_end - begin).count();
    }
    const bool waits_long = left < children.size() && Clock::now() - last_end > kDeadline * 2;
    for (size_t r = 0; waits_long && r < children.size(); ++r) {
      if (!over[r]) kill(children[r], SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (size_t r = 0; r < ends.size(); ++r) ends[r].text = bytes_in(path_of(std::to_string(r)));
  return ends;
}

/// An action of rank 1 at its third call, and the error of the others.
struct Misdeed {
  const char* name;
  Body act;
  /// The other ranks' error; "{}" stands for any process number.
  std::string says;
  /// The exit code of rank 1, unless it is killed for being late.
  int code = 1;
  bool is_late = false;
};

static std::vector<Misdeed> misdeeds() {
  const std::string gone =
      others_say("rank 1 is gone (process {} died or exited) and did not call it");
  const std::string late = others_say("rank 1 did not call it within 800 ms; arrived: rank 0");
  return {
      {"Throws", [](const Communicator&) { throw std::runtime_error("boom"); },
       others_say("given up: rank 1 threw: boom")},
      {"ReturnsEarly", [](const Communicator&) {}, others_say("rank 1 ended and did not call it"),
       0},
      {"Exits0", [](const Communicator&) { _exit(0); }, gone, 0},
      {"Exits3", [](const Communicator&) { _exit(3); }, gone, 3},
      {"ExitsInOrder", [](const Communicator&) { std::exit(3); },
       others_say("rank 1 ended and did not call it"), 3},
      {"IsKilled", [](const Communicator&) { raise(SIGKILL); }, gone, 128 + SIGKILL},
      {"Crashes",
       [](const Communicator&) {
         std::signal(SIGSEGV, SIG_DFL);
         raise(SIGSEGV);
       },
       gone, 128 + SIGSEGV},
      {"Stops", [](const Communicator&) { raise(SIGSTOP); }, late, 128 + SIGKILL, true},
      {"LoopsForEver",
       [](const Communicator&) {
         for (volatile bool on = true; on;) {
         }
       },
       late, 128 + SIGKILL, true},
      {"CallsAnotherOperation", [](const Communicator& world) { world.barrier(); },
       diverged("barrier()")},
      {"CallsWithAnotherDType", [](const Communicator& world) { all_reduce(world, 4, i32); },
       diverged("all_reduce(sum, i32, [4])")},
      {"CallsWithAnotherCount", [](const Communicator& world) { all_reduce(world, 5); },
       diverged("all_reduce(sum, f32, [5])")},
      {"CallsInAnotherOrder",
       [](const Communicator& world) {
         broadcast(world, 0);
         all_reduce(world, 4);
       },
       diverged("broadcast(root 0, f32, [1])")},
      {"CallsWithAnotherReduction",
       [](const Communicator& world) { all_reduce(world, 4, f32, ReduceOp::max); },
       diverged("all_reduce(max, f32, [4])")},
  };
}

/// The text with each process number replaced by "{}".
static std::string without_numbers(std::string text) {
  const std::string before = "(process ";
  for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1)) {
    const size_t begin = at + before.size();
    text.replace(begin, text.find(' ', begin) - begin, "{}");
  }
  return text;
}

static void misbehave(const Communicator& world, const Misdeed& misdeed) {
  all_reduce(world, 4);
  all_reduce(world, 4);
  if (world.rank() == 1) return misdeed.act(world);
  all_reduce(world, 4);
  broadcast(world, 0);
  all_reduce(world, 4);
}

class ProcessFailures : public testing::TestWithParam<std::tuple<Misdeed, int>> {
  void SetUp() override {
    if (!kForks) GTEST_SKIP() << "the thread sanitizer does not follow forks";
  }
};

TEST_P(ProcessFailures, AllRanksEndAndSayWhy) {
  const auto& [misdeed, ranks] = GetParam();
  const std::vector<Ended> ends = ends_of(
      ranks, [&](const Communicator& world) { misbehave(world, misdeed); }, kDeadline);
  for (size_t r = 0; r < ends.size(); ++r) {
    SCOPED_TRACE(concat("rank ", r));
    if (r == 1) {
      EXPECT_EQ(ends[r].code(), misdeed.code);
      continue;
    }
    EXPECT_EQ(ends[r].code(), 1);
    EXPECT_NE(without_numbers(ends[r].text).find(misdeed.says), std::string::npos) << ends[r].text;
    EXPECT_LT(ends[r].seconds, misdeed.is_late ? 0.8 + 2 : 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ProcessFailures,
                         testing::Combine(testing::ValuesIn(misdeeds()), testing::Values(2, 4)),
                         [](const auto& tested) {
                           return concat(std::get<0>(tested.param).name, "_",
                                         std::get<1>(tested.param));
                         });

TEST_F(ProcessFailures, AnotherRootIsTold) {
  const std::vector<Ended> ends = ends_of(
      2, [](const Communicator& world) { broadcast(world, world.rank()); }, kDeadline);
  for (const Ended& end : ends) {
    EXPECT_EQ(end.code(), 1);
    EXPECT_TRUE(has(end.text,
                    "world: collective 1: rank 0 called broadcast(root 0, f32, [1]) but "
                    "rank 1 called broadcast(root 1, f32, [1])"));
  }
}

TEST_F(ProcessFailures, AnUncaughtExceptionIsTold) {
  const std::vector<Ended> ends = ends_of(
      2,
      [](const Communicator& world) {
        if (world.rank() == 0) return all_reduce(world, 4);
        std::thread([] { throw std::runtime_error("in a thread"); }).join();
      },
      kDeadline);
  EXPECT_EQ(ends[1].code(), 128 + SIGABRT);
  EXPECT_NE(ends[0].text.find("rank 1 threw: in a thread"), std::string::npos) << ends[0].text;
}

/// Rank 1 stops in the middle of reading rank 0's memory.
class StopsWhileReading final : public ExchangeReader {
 public:
  explicit StopsWhileReading(int rank) : rank_(rank) {}
  int64_t read(int, std::span<const void* const>) override {
    if (rank_ == 1) raise(SIGSTOP);
    return 0;
  }

 private:
  const int rank_;
};

TEST_F(ProcessFailures, ARankThatStopsWhileItReadsIsNotWaitedForForEver) {
  const std::vector<Ended> ends = ends_of(
      2,
      [](const Communicator& world) {
        StopsWhileReading reader(world.rank());
        const std::array<MemoryBlock, 1> blocks{};
        world.transport()->exchange({.blocks = blocks}, reader);
      },
      kDeadline);
  EXPECT_EQ(ends[0].code(), 1);
  EXPECT_TRUE(has(ends[0].text, "rank 1 did not finish it within 800 ms"));
}

/// Rank 1 reads rank 0's memory for a long time, and the world is aborted meanwhile.
class ReadsForLong final : public ExchangeReader {
 public:
  explicit ReadsForLong(const Communicator& world) : world_(world) {}
  int64_t read(int, std::span<const void* const>) override {
    if (world_.rank() == 0) return 0;
    world_.abort("enough");
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return 0;
  }

 private:
  const Communicator& world_;
};

TEST_F(ProcessFailures, ALongReadIsWaitedFor) {
  const std::vector<Ended> ends = ends_of(
      2,
      [](const Communicator& world) {
        ReadsForLong reader(world);
        const std::array<MemoryBlock, 1> blocks{};
        world.transport()->exchange({.blocks = blocks}, reader);
      },
      std::chrono::seconds(20));
  EXPECT_EQ(ends[0].code(), 1);
  EXPECT_GT(ends[0].seconds, 1.5);
  EXPECT_EQ(ends[0].text.find("still reads"), std::string::npos) << ends[0].text;
  EXPECT_NE(ends[0].text.find("rank 1 gave up: enough"), std::string::npos) << ends[0].text;
}

TEST_F(ProcessFailures, AChildOfARankIsNoRank) {
  const std::vector<Ended> ends = ends_of(
      2,
      [](const Communicator& world) {
        const size_t bytes = size_t{8} << 20;
        // Cached for reuse, so that a forked child inherits it in its cache.
        Storage::allocate(bytes, cpu);
        Ref<Storage> held = Storage::allocate(2 * bytes, cpu), small = Storage::allocate(4096, cpu);
        const pid_t child = fork();
        if (child == 0) {
          held = small = {};
          std::exit(0);
        }
        const Ref<Storage> memory = Storage::allocate(bytes, cpu);
        std::memset(memory->data(), 7, bytes);
        int status = 0;
        waitpid(child, &status, 0);
        all_reduce(world, 4);
        const auto* at = static_cast<const unsigned char*>(memory->data());
        const auto intact = std::count(at, at + bytes, 7);
        if (status != 0 || intact != static_cast<int64_t>(bytes)) throw std::runtime_error("lost");
      },
      std::chrono::seconds(20));
  for (const Ended& end : ends) EXPECT_EQ(end.code(), 0) << end.text;
}

TEST_F(ProcessFailures, ACoreDumpLeavesOutSharedMemory) {
  const std::vector<Ended> ends = ends_of(
      2,
      [](const Communicator& world) {
        all_reduce(world, 4);
        std::ifstream maps("/proc/self/smaps");
        int shared = 0;
        bool is_shared = false;
        for (std::string line; std::getline(maps, line);) {
          if (line.find("/memfd:weft") != std::string::npos) is_shared = true;
          if (line.find("VmFlags:") != 0 || !std::exchange(is_shared, false)) continue;
          ++shared;
          if (line.find(" dd") == std::string::npos) throw std::runtime_error(line);
        }
        if (shared < 2) throw std::runtime_error("no shared memory");
      },
      std::chrono::seconds(20));
  for (const Ended& end : ends) EXPECT_EQ(end.code(), 0) << end.text;
}

TEST_F(ProcessFailures, OneRunAfterAnother) {
  const std::vector<Ended> ends = ends_of(
      2,
      [](const Communicator& world) {
        for (uint64_t run = 1; run <= 3; ++run) {
          run_world(2,
                    [&](const Communicator& again) {
                      if (Context::current().random.seed != run) throw std::runtime_error("seed");
                      // The other rank finishes its run long before.
                      if (world.rank() == 1)
                        std::this_thread::sleep_for(std::chrono::milliseconds(20));
                      all_reduce(again, 4);
                    },
                    {.seed = run});
        }
      },
      std::chrono::seconds(20));
  for (const Ended& end : ends) EXPECT_EQ(end.code(), 0) << end.text;
}

TEST_F(ProcessFailures, ARankThatNeverComesIsNamed) {
  const Scratch scratch;
  const std::vector<pid_t> children = fork_ranks(2, [&] {
    std::freopen(scratch.path(std::getenv("WEFT_RANK")).c_str(), "w", stderr);
    // Rank 2 of 3 is not started.
    for (const char* name : {"WEFT_WORLD_SIZE", "WEFT_LOCAL_WORLD_SIZE"}) setenv(name, "3", 1);
    try {
      connect({.deadline = std::chrono::milliseconds(300)});
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    return 0;
  });
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 1);
  }
  for (const char* rank : {"0", "1"}) {
    EXPECT_EQ(bytes_in(scratch.path(rank)),
              concat("connect: the processes 2 of 3 on this host did not come in time", kAllConnect,
                     '\n'));
  }
}

/// Runs `body` in processes that stand for the ranks of a job of `size`; returns what each printed.
static std::vector<std::string> texts_of_meeting(int processes, const char* size,
                                                 const std::function<void(int)>& body) {
  const Scratch scratch;
  int process = -1;
  const std::vector<pid_t> children = fork_ranks(processes, [&] {
    process = std::atoi(std::getenv("WEFT_RANK"));
    std::freopen(scratch.path(std::to_string(process)).c_str(), "w", stderr);
    for (const char* name : {"WEFT_WORLD_SIZE", "WEFT_LOCAL_WORLD_SIZE"}) setenv(name, size, 1);
    try {
      body(process);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    return 0;
  });
  std::vector<std::string> texts;
  for (size_t r = 0; r < children.size(); ++r) {
    waitpid(children[r], nullptr, 0);
    texts.push_back(bytes_in(scratch.path(std::to_string(r))));
  }
  return texts;
}

static HostMembers members_of_job(int index, int count) {
  return {std::getenv("WEFT_JOB"), index, count, build_in_words()};
}

TEST_F(ProcessFailures, TwoProcessesOfOneNumberAreRefused) {
  const auto texts = texts_of_meeting(3, "3", [](int process) {
    // Processes 1 and 2 both come as number 1.
    meet(members_of_job(std::min(process, 1), 3), 1 << 20, std::chrono::seconds(20));
  });
  for (const std::string& text : texts) {
    EXPECT_NE(text.find(" comes as number 1 of 3 of job "), std::string::npos) << text;
  }
}

TEST_F(ProcessFailures, AProcessThatDiesBetweenMeetingAndConnectingIsNoticed) {
  const auto texts = texts_of_meeting(2, "2", [](int process) {
    if (process == 1) {
      meet(members_of_job(1, 2), ProcessWorld::kSegmentBytes, std::chrono::seconds(20));
      _exit(0);
    }
    all_reduce(connect({.deadline = std::chrono::seconds(20)}), 4);
  });
  EXPECT_TRUE(has(texts[0],
                  "rank 1 is gone (its process died or exited while it connected) and did "
                  "not call it"));
}

/// A connection to the socket of this process's job, on which nothing is sent.
static int silent_connection() {
  const std::string job = concat("weft-", getuid(), '-', std::getenv("WEFT_JOB"), '-');
  for (std::string line, name;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    std::ifstream sockets("/proc/net/unix");
    while (name.empty() && std::getline(sockets, line)) {
      if (line.find(job) != std::string::npos) name = line.substr(line.find('@') + 1);
    }
    if (name.empty()) continue;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    const int made = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    ::connect(made, reinterpret_cast<const sockaddr*>(&address), length);
    return made;
  }
}

TEST_F(ProcessFailures, AProcessThatStopsWhileItConnectsKeepsNoOtherOut) {
  const auto texts = texts_of_meeting(3, "3", [](int process) {
    // Process 2 connects first, sends nothing and never comes.
    if (process == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    if (process == 2) {
      silent_connection();
      std::this_thread::sleep_for(std::chrono::seconds(4));
      return;
    }
    meet(members_of_job(process, 3), 1 << 20, std::chrono::seconds(3));
  });
  for (const int process : {0, 1}) {
    EXPECT_EQ(texts[static_cast<size_t>(process)],
              concat("connect: the processes 2 of 3 on this host did not come in time", kAllConnect,
                     '\n'));
  }
}

TEST_F(ProcessFailures, VariablesThatMakeNoSenseAreNamed) {
  const std::vector<pid_t> children = fork_ranks(1, [] {
    setenv("WEFT_WORLD_SIZE", "2", 1);
    setenv("WEFT_RANK", "x", 1);
    const std::string said = error_of([] { connect(); });
    return said == "connect: the environment variable WEFT_RANK is \"x\", expected a number of at "
                   "least 0"
               ? 0
               : 1;
  });
  int status = 0;
  waitpid(children[0], &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace weft
