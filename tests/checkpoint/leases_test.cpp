// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <vector>

#include "tests/support/collected_warnings.h"
#include "tests/support/processes.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/ranks.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// Machines may be busy: a holder that lives renews every second, and nothing waits for kLong.
constexpr milliseconds kShort(600), kAlive(4'000), kLong(120'000);
constexpr int64_t kAtOnce = 60'000;

/// A child process that runs `body` until the test ends it.
class Process {
 public:
  explicit Process(const std::function<int(const Process&)>& body) {
    if (::pipe(to_) != 0 || ::pipe(from_) != 0) throw std::runtime_error("pipe");
    child_ = ::fork();
    if (child_ != 0) return;
    int code = 9;
    try {
      code = body(*this);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    ::_exit(code);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    for (const int end : {to_[0], to_[1], from_[0], from_[1]}) ::close(end);
  }

  /// The child calls this: it reports a byte, and waits for one.
  void report() const { ASSERT_EQ(::write(from_[1], "x", 1), 1); }
  void wait() const {
    char byte;
    ASSERT_EQ(::read(to_[0], &byte, 1), 1);
  }
  /// The parent calls this: it waits for the child's byte, and sends one.
  void await() const {
    char byte;
    ASSERT_EQ(::read(from_[0], &byte, 1), 1);
  }
  void go_on() const { ASSERT_EQ(::write(to_[1], "x", 1), 1); }
  pid_t id() const { return child_; }
  void kill(int signal) const { ::kill(child_, signal); }
  /// The exit code, or minus the signal.
  int end() const {
    int status = 0;
    ::waitpid(child_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  int to_[2], from_[2];
  pid_t child_;
};

class Leases : public testing::Test {
 protected:
  void SetUp() override {
    if (!kForks) GTEST_SKIP() << "needs fork";
    forget_job();
    directory_ = scratch_.path("saved");
    fs::create_directory(directory_);
  }
  void TearDown() override { forget_job(); }

  static void forget_job() {
    for (const char* name :
         {"SLURM_JOB_ID", "SLURM_RESTART_COUNT", "WEFT_JOB", "SLURM_CLUSTER_NAME"}) {
      ::unsetenv(name);
    }
  }

  std::unique_ptr<Lease> taken(milliseconds lifetime) const {
    auto lease = std::make_unique<Lease>(directory_, lifetime);
    while (!lease->take()) {
    }
    return lease;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  std::string write(int number, const std::string& text) const {
    return scratch_.write(concat("saved/.lease-0000000", number), text);
  }
  /// Milliseconds that taking took.
  template <class Call> static int64_t time_of(const Call& call) {
    const auto began = Clock::now();
    call();
    return std::chrono::duration_cast<milliseconds>(Clock::now() - began).count();
  }
  /// A child that takes the lease, reports, and checks it when told to: 0 when it still holds it.
  std::function<int(const Process&)> holder(milliseconds lifetime) const {
    return [this, lifetime](const Process& process) {
      const auto lease = taken(lifetime);
      process.report();
      process.wait();
      const std::string error = error_of<std::runtime_error>([&] { lease->check(); });
      return error == "nothing"                                       ? 0
             : error.find("was taken over by process ") != error.npos ? 1
                                                                      : 2;
    };
  }

  Scratch scratch_;
  std::string directory_;
  CollectedWarnings warnings_;
};

TEST_F(Leases, IsReleasedAndTakenAgain) {
  for (int i = 1; i <= 3; ++i) {
    const auto lease = taken(kLong);
    lease->check();
    EXPECT_EQ(names(), std::vector<std::string>{concat(".lease-0000000", i)});
  }
  EXPECT_EQ(warnings_.size(), 0u);
  // A lease that states "free" is free, whichever machine wrote it.
  write(7, R"({"state":"free","host":"elsewhere","pid":1,"lifetime_ms":1000000})");
  EXPECT_LT(time_of([&] { taken(kLong)->check(); }), kAtOnce);
}

TEST_F(Leases, IsRefusedWhileTheHolderLives) {
  const Process other(holder(kAlive));
  other.await();
  std::string error;
  EXPECT_LT(time_of([&] { error = error_of([&] { taken(kLong); }); }), kAtOnce);
  EXPECT_TRUE(has(error, concat("checkpoint: ", directory_, " is being saved to by process ",
                                other.id(), " of host \"")));
  EXPECT_NE(error.find("save to another directory"), std::string::npos) << error;
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_.first().find("; waiting at most 4 s for a sign of life"), std::string::npos);
  other.go_on();
  EXPECT_EQ(other.end(), 0);
  taken(kLong)->check();
}

TEST_F(Leases, OfADeadProcessIsTakenAtOnce) {
  const Process other(holder(kLong));
  other.await();
  other.kill(SIGKILL);
  EXPECT_EQ(other.end(), -SIGKILL);
  EXPECT_LT(time_of([&] { taken(kLong)->check(); }), kAtOnce);
  EXPECT_EQ(warnings_.size(), 0u);
}

TEST_F(Leases, OfAnEarlierStartOfTheSlurmJobIsTakenAtOnce) {
  ::setenv("SLURM_JOB_ID", "4711", 1);
  const Process other(holder(kLong));
  other.await();
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  const auto lease = taken(kLong);
  lease->check();
  other.go_on();
  EXPECT_EQ(other.end(), 1);
  lease->check();
}

TEST_F(Leases, OfAStepOfTheSameSlurmJobIsRefusedWhileItLives) {
  ::setenv("SLURM_JOB_ID", "4711", 1);
  for (const char* restarts : {"", "2"}) {
    restarts[0] ? ::setenv("SLURM_RESTART_COUNT", restarts, 1) : 0;
    const Process other(holder(kAlive));
    other.await();
    // An earlier start has no right to it either.
    if (restarts[0]) ::setenv("SLURM_RESTART_COUNT", "1", 1);
    const std::string error = error_of([&] { taken(kLong); });
    EXPECT_NE(error.find(", job \"4711\", which renews its lease"), std::string::npos) << error;
    other.go_on();
    EXPECT_EQ(other.end(), 0);
  }
}

TEST_F(Leases, IsLeftAsItIsByAChildOfFork) {
  auto lease = taken(kLong);
  // The test sleeps until the thread that renews waits.
  std::this_thread::sleep_for(milliseconds(200));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    lease.reset();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  lease->check();
}

TEST_F(Leases, KeepsTheNoteOfTheLastSave) {
  EXPECT_EQ(noted_generation(directory_), "");
  for (const char* generation : {"0123456789abcdef", "fedcba9876543210"}) {
    taken(kLong)->note_saved(generation);
    EXPECT_EQ(noted_generation(directory_), generation);
    taken(kLong)->check();
    EXPECT_EQ(noted_generation(directory_), generation);
  }
}

/// The others would give up, were they not told of each look.
TEST_F(Leases, IsWaitedForLongerThanTheDeadlineOfRanks) {
  write(1, R"({"state":"held","host":"elsewhere","pid":1,"lifetime_ms":3000})");
  const int64_t took = time_of([&] {
    run_ranks(2, [&](Communicator world) { CheckpointSaver(world, directory_); },
              {.deadline = milliseconds(1500)});
  });
  EXPECT_GE(took, 3000);
  EXPECT_EQ(warnings_.size(), 1u);
}

/// A checkpoint that appears during the wait is older than the run.
TEST_F(Leases, TheDirectoryIsLookedAtUnderTheLease) {
  write(1, R"({"state":"held","host":"elsewhere","pid":1,"lifetime_ms":600})");
  StateDict state{{{"w", zeros({4})}}, {}};
  run_ranks(1, [&](Communicator world) {
    const std::string path = CheckpointSaver(world, scratch_.path("elsewhere")).save(5, state);
    const std::string to = directory_ + "/" + fs::path(path).filename().string();
    const CollectedWarnings warnings([&](const std::string&) { fs::rename(path, to); });
    CheckpointSaver saver(world, directory_, {.keep = 1, .continues = true});
    EXPECT_TRUE(fs::exists(to));
    saver.set_resumed_step(5);
    saver.save(5, state);
    saver.save(6, state);
    saver.save(7, state);
    // It counts as one of this run's.
    EXPECT_FALSE(fs::exists(to));
  });
}

TEST_F(Leases, OfAStoppedProcessIsLostWhichItNoticesBeforeItSaves) {
  const Process other(holder(kShort));
  other.await();
  other.kill(SIGSTOP);
  std::unique_ptr<Lease> lease;
  const int64_t took = time_of([&] { lease = taken(kShort); });
  EXPECT_GE(took, kShort.count());
  EXPECT_EQ(warnings_.size(), 1u);
  other.kill(SIGCONT);
  // Its thread renews a lost lease, which has no effect.
  std::this_thread::sleep_for(kShort);
  lease->check();
  other.go_on();
  EXPECT_EQ(other.end(), 1);
  // Nor does its release.
  lease->check();
  EXPECT_EQ(names(), std::vector<std::string>{".lease-00000002"});
}

TEST_F(Leases, IsTakenByOneOfManyAtOnce) {
  // The holder is on another machine, and dead: all wait for the lease to expire.
  write(1, R"({"state":"held","host":"elsewhere","pid":1,"lifetime_ms":600})");
  std::vector<std::unique_ptr<Process>> takers;
  for (int i = 0; i < 6; ++i) {
    takers.push_back(std::make_unique<Process>([this](const Process& process) {
      try {
        const auto lease = taken(kAlive);
        process.report();
        process.wait();
        lease->check();
        return 0;
      } catch (const std::invalid_argument&) {
        process.report();
        return 3;
      }
    }));
  }
  for (const auto& taker : takers) taker->await();
  int holders = 0;
  for (const auto& taker : takers) {
    taker->go_on();
    const int code = taker->end();
    EXPECT_TRUE(code == 0 || code == 3) << code;
    holders += code == 0;
  }
  EXPECT_EQ(holders, 1);
}

/// A wrong clock or the times of a file must not shorten or stop the wait.
TEST_F(Leases, WaitsByItsOwnClock) {
  for (const auto& [text, least] : std::vector<std::pair<std::string, int64_t>>{
           // A claim whose process died before it wrote, and what no weft wrote: one's own
           // lifetime.
           {"", 600},
           {"not a lease", 600},
           {R"({"state":3,"pid":"x","lifetime_ms":-5})", 600},
           {R"({"state":"held","host":"elsewhere","pid":1,"lifetime_ms":300})", 300}}) {
    fs::remove_all(directory_);
    fs::create_directory(directory_);
    const std::string path = write(5, text);
    fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(48));
    const int64_t took = time_of([&] { taken(kShort)->check(); });
    EXPECT_GE(took, least) << text;
    EXPECT_LT(took, kAtOnce) << text;
    EXPECT_EQ(names(), std::vector<std::string>{".lease-00000006"});
  }
}

TEST_F(Leases, SaysThatItWasRemoved) {
  const auto lease = taken(kShort);
  fs::remove(directory_ + "/.lease-00000001");
  std::this_thread::sleep_for(kShort);
  EXPECT_EQ(error_of<std::runtime_error>([&] { lease->check(); }),
            concat("save: the lease ", directory_,
                   "/.lease-00000001 was removed; this run stops, "
                   "because another may save to the directory"));
}

TEST_F(Leases, OfASaverIsToldToAllRanks) {
  const Process other(holder(kAlive));
  other.await();
  StateDict state{{{"w", zeros({4})}}, {}};
  std::atomic<int> refused = 0;
  run_ranks(3, [&](Communicator world) {
    const std::string error = error_of([&] { CheckpointSaver(world, directory_); });
    refused += error.find("is being saved to by process ") != error.npos;
    world.barrier();
    EXPECT_EQ(error_of([&] { CheckpointSaver(world, directory_, {.lease_seconds = 0}); }),
              "checkpoint: lease_seconds is 0, expected 0.001 to 86400");
  });
  EXPECT_EQ(refused, 3);
  EXPECT_EQ(warnings_.size(), 1u);
  other.go_on();
  EXPECT_EQ(other.end(), 0);
  run_ranks(3, [&](Communicator world) {
    CheckpointSaver saver(world, directory_);
    saver.save(1, state);
    world.barrier();
    // The newest saver of a process has the directory.
    CheckpointSaver next(world, directory_);
    const std::string error = error_of<std::runtime_error>([&] { saver.save(2, state); });
    EXPECT_EQ(error.find("save: the lease of ") == 0, world.rank() == 0) << error;
    next.save(3, state);
    EXPECT_EQ(error_of([&] { next.check_may_save(); }), "nothing");
  });
}

/// A program of before leases, or a file system that shows them late.
TEST_F(Leases, NewerWorkOfAnotherRunStopsTheNextSave) {
  const std::string elsewhere = scratch_.path("elsewhere");
  StateDict state{{{"w", zeros({4})}}, {}};
  run_ranks(1, [&](Communicator world) {
    std::map<int64_t, std::string> foreign;
    CheckpointSaver other(world, elsewhere);
    for (const int64_t step : {5, 7}) foreign[step] = other.save(step, state);
    const auto move_in = [&](int64_t step) {
      const std::string to = directory_ + "/" + fs::path(foreign[step]).filename().string();
      fs::rename(foreign[step], to);
      return to;
    };
    CheckpointSaver saver(world, directory_);
    saver.save(6, state);
    move_in(5);
    saver.save(6 + 1, state);
    const std::string newer = move_in(7);
    EXPECT_EQ(error_of<std::runtime_error>([&] { saver.save(8, state); }),
              concat("save: ", newer,
                     " was saved by another run since this one started, expected "
                     "none of step 7 or above; this run stops, so that the two do not mix"));
    // A run continues from checkpoints that existed before.
    CheckpointSaver next(world, directory_, {.continues = true});
    next.save(8, state);
  });
}

}  // namespace
}  // namespace weft
