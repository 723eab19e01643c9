// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/ranks.h"

namespace weft::tests {
namespace {

/// Reads checkpoints next to a run that saves them, and saves them to file systems of other kinds.
class Readers : public testing::Test {
 protected:
  void SetUp() override {
    text_ = scratch_.write("text.txt", repeating_text(400));
    scratch_.write("model/config.json", kSmallLlama);
  }
  std::string train(const std::string& more) const {
    return concat("train --data ", text_, " --model ", scratch_.path("model/config.json"),
                  " --batch 4 --seq 16 ", more);
  }

  Scratch scratch_;
  std::string text_;
};

/// A run that saves each step and keeps two, until the test ends.
class SavingRun {
 public:
  SavingRun(const std::string& arguments, const std::string& saved) {
    child_ = ::fork();
    if (child_ == 0) {
      const std::string command = concat("exec ", WEFT_PROGRAM, ' ', arguments,
                                         " --steps 1000000 --mesh dp=2 --threads 1 --save-every 1 "
                                         "--keep 1 --save ",
                                         saved, " >/dev/null 2>&1");
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    std::error_code ignored;
    for (int i = 0; i < 600; ++i) {
      if (fs::is_directory(saved, ignored) && !newest_complete_checkpoint(saved).empty()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  ~SavingRun() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_ = -1;
};

TEST_F(Readers, OutliveRetention) {
  const std::string saved = scratch_.path("saved");
  const SavingRun run(train(""), saved);
  for (int i = 0; i < 12; ++i) {
    expect(0, "ckpt ls " + saved, "step ");
    const Outcome verified = run_weft("ckpt verify " + saved);
    // One that is being saved is not complete.
    const bool is_saving = verified.text.find("INCOMPLETE") != std::string::npos;
    EXPECT_EQ(verified.code, is_saving ? 1 : 0) << verified.text;
    expect(0, concat("ckpt export ", saved, ' ', scratch_.path(concat("export", i))), "written");
    expect(0, concat("sample ", saved, " --prompt line --tokens 2"), "line");
    const Outcome compared = run_weft(concat("ckpt diff ", saved, ' ', saved));
    EXPECT_NE(compared.text.find("tensors compared"), std::string::npos) << compared.text;
    expect(0, concat("ckpt reshard ", saved, ' ', scratch_.path(concat("cut", i)), " --ranks 1"),
           "tensors");
    expect(0, train(concat("--steps 1 --init ", saved)), "step 1/1");
    expect(0, train(concat("--steps 1 --resume ", saved)), "resumed from");
  }
}

TEST_F(Readers, LoadTheNewestWhileOthersAreRemoved) {
  const std::string saved = scratch_.path("saved");
  const SavingRun run(train(""), saved);
  std::set<int64_t> steps;
  for (int i = 0; i < 100; ++i) {
    StateDict state{.tensors = {}, .numbers = {{"step/value", 0}}};
    (void)load_common_keys(saved, state);
    steps.insert(state.numbers.at("step/value"));
    const std::string newest = newest_complete_checkpoint(saved);
    ASSERT_FALSE(newest.empty());
    EXPECT_NO_THROW((void)inspect_existing(newest));
    EXPECT_NO_THROW((void)list_checkpoints(saved));
  }
  EXPECT_GT(steps.size(), 1u);
}

TEST_F(Readers, NameACheckpointThatIsGone) {
  const std::string saved = scratch_.path("saved");
  EXPECT_EQ(run_weft(train("--steps 1 --save " + saved)).code, 0);
  const std::string only = list_checkpoints(saved).at(0);
  EXPECT_TRUE(inspect_existing(only));
  const InspectOptions removing{.progress = [&](int64_t, int64_t) { fs::remove_all(only); }};
  // It was complete when its last block was read.
  EXPECT_EQ(inspect_checkpoint(only, removing).verdict, Verdict::complete);
  EXPECT_FALSE(inspect_existing(only));
  expect(2, "ckpt verify " + only, "is missing or a file, expected a directory");
}

TEST_F(Readers, WaitForTheFilesOfAllRanks) {
  run_ranks(3, [&](const Communicator& world) {
    CheckpointSaver saver(world, scratch_.path("saved"));
    EXPECT_THROW((void)saver.wait_all(), std::invalid_argument);
    const StateDict state{.tensors = {}, .numbers = {{"step", 1}}};
    const int64_t before = world.traffic().bytes;
    if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const std::string path = saver.save(1, state);
    if (world.rank() == 0) {
      EXPECT_EQ(inspect_checkpoint(path).verdict, Verdict::incomplete);
      try {
        (void)saver.wait_all(std::chrono::milliseconds(1));
        ADD_FAILURE() << "it returned before rank 2 had saved";
      } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("lacks 1 of 3 files: rank-00002-of-00003"),
                  std::string::npos)
            << error.what();
      }
      EXPECT_EQ(saver.wait_all(), path);
      EXPECT_EQ(inspect_checkpoint(path).verdict, Verdict::complete);
    }
    EXPECT_EQ(world.traffic().bytes, before);
  });
}

TEST_F(Readers, FindWhatOtherFileSystemsKeep) {
  const auto saved_to = [&](const std::string& kind) {
    return run_weft(
        train(concat("--steps 2 --save-every 1 --keep 1 --mesh dp=2 --save ", scratch_.path(kind))),
        concat("ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD=",
               WEFT_FILE_SYSTEM_SHIM, " WEFT_FILE_SYSTEM=", kind, ' '));
  };
  for (const char* kind : {"eexist", "estale", "enoent", "links", "neither"}) {
    const Outcome outcome = saved_to(kind);
    EXPECT_EQ(outcome.code, 0) << kind << outcome.text;
    expect(0, "ckpt verify " + scratch_.path(kind), "step 2");
    for (const auto& file : fs::recursive_directory_iterator(scratch_.path(kind))) {
      EXPECT_FALSE(file.path().string().ends_with(".tmp")) << file.path();
    }
  }
  const Outcome refused = saved_to("none");
  EXPECT_EQ(refused.code, 1) << refused.text;
  EXPECT_NE(refused.text.find("rename: checkpoint: "), std::string::npos) << refused.text;
  EXPECT_EQ(refused.text.find("step 1/"), std::string::npos) << refused.text;
}

}  // namespace
}  // namespace weft::tests
