// SPDX-License-Identifier: Apache-2.0
// Hostile users and systems: closed descriptors, full disks, readers that exit, data that shrinks.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/support/processes.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"

namespace weft::tests {
namespace {

/// Three ranks, as threads and as processes.
const std::string kThreads = "train --ranks 3 ";
const std::string kProcesses = concat("run -n 3 -- ", WEFT_PROGRAM, " train ");

/// Processes only where they can share memory.
std::vector<std::string> ways_to_train() {
  return kForks ? std::vector{kThreads, kProcesses} : std::vector{kThreads};
}

class HostileSystem : public testing::Test {
 protected:
  void SetUp() override {
    scratch_.write("text.txt", text_of(16'000));
    scratch_.write("model.json", kSmallLlama);
  }
  static std::string text_of(size_t bytes) {
    std::string text;
    for (int i = 0; text.size() < bytes; ++i) text += concat("line ", i, " of a text\n");
    return text;
  }
  /// `name`: that of the data.
  std::string small(const std::string& more, const char* name = "text.txt") const {
    return concat("--data ", scratch_.path(name), " --model ", scratch_.path("model.json"),
                  " --batch 3 --seq 16 --threads 1 ", more);
  }
  std::string text_in(const char* name) const { return bytes_in(scratch_.path(name)); }

  Scratch scratch_;
};

size_t times(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
  return count;
}

TEST_F(HostileSystem, ClosedDescriptorsAreOpened) {
  for (const std::string& how : ways_to_train()) {
    const std::string metrics = scratch_.path("metrics");
    const std::string command =
        concat(WEFT_PROGRAM, ' ', how, small("--steps 1000000 --metrics "), metrics,
               " <&- >&- 2>&- & pid=$!; until test -s ", metrics,
               "; do sleep 0.02; done; for d in 0 1 2; do readlink /proc/$pid/fd/$d; done; "
               "kill -TERM $pid; wait $pid");
    EXPECT_EQ(run_command(command).text, "/dev/null\n/dev/null\n/dev/null\n") << how;
    fs::remove(metrics);
  }
}

TEST_F(HostileSystem, ClosedDescriptorsLeaveFilesAlone) {
  int run = 0;
  for (const char* closed : {">&-", ">&- <&-", ">&- <&- 2>&-"}) {
    for (const std::string& how : ways_to_train()) {
      const std::string saved = scratch_.path(concat("saved-", ++run));
      const std::string metrics = scratch_.path(concat("metrics-", run));
      const Outcome outcome = run_command(
          concat(WEFT_PROGRAM, ' ', how, small("--steps 10 --save-every 1 --keep 0 --save "), saved,
                 " --metrics ", metrics, " --trace ", metrics, ".json ", closed));
      EXPECT_EQ(outcome.code, 0) << how << closed;
      EXPECT_EQ(list_checkpoints(saved).size(), 10u) << how << closed;
      for (const std::string& path : list_checkpoints(saved)) {
        EXPECT_EQ(inspect_checkpoint(path).verdict, Verdict::complete) << path << how << closed;
      }
      std::ifstream lines(metrics);
      int count = 0;
      for (std::string line; std::getline(lines, line); ++count) {
        EXPECT_TRUE(nlohmann::json::accept(line)) << line;
      }
      EXPECT_EQ(count, 10);
      EXPECT_TRUE(nlohmann::json::accept(text_in(concat("metrics-", run, ".json").c_str())));
    }
  }
}

TEST_F(HostileSystem, FullOutputIsAnErrorOfEveryCommand) {
  const std::string saved = scratch_.path("saved");
  EXPECT_EQ(run_weft(concat(kThreads, small("--steps 2 --save "), saved)).code, 0);
  scratch_.write("flight/rank-0.json", "{}");
  for (const std::string& arguments :
       {std::string("--help"), std::string("--version"), kThreads + small("--steps 2"),
        concat("run -n 2 -- ", WEFT_PROGRAM, " --version"),
        ways_to_train().back() + small("--steps 2"), concat("ckpt ls ", saved),
        concat("ckpt verify ", saved),
        concat("ckpt reshard --ranks 2 ", saved, ' ', scratch_.path("resharded")),
        concat("ckpt export ", saved, ' ', scratch_.path("exported")),
        concat("estimate --model ", scratch_.path("model.json"), " --mesh dp=2"),
        concat("sample --resume ", saved, " --prompt line --tokens 2")}) {
    const Outcome outcome = run_command(concat(WEFT_PROGRAM, ' ', arguments, " 2>&1 >/dev/full"));
    EXPECT_EQ(outcome.code, 1) << arguments << '\n' << outcome.text;
    EXPECT_TRUE(has(outcome.text, "stdout: the output")) << arguments;
    EXPECT_EQ(times(outcome.text, "stdout"), 1u) << arguments << '\n' << outcome.text;
  }
}

TEST_F(HostileSystem, AReaderThatGoesEndsNoTraining) {
  for (const std::string& how : ways_to_train()) {
    const std::string saved = scratch_.path(how == kThreads ? "threads" : "processes");
    const Outcome outcome = run_command(concat(
        "{ ", WEFT_PROGRAM, ' ', how, small("--steps 400 --save-every 200 --save "), saved, " 2>",
        scratch_.path("errors"), "; echo code $? >", scratch_.path("code"), "; } | head -1"));
    EXPECT_EQ(times(outcome.text, "\n"), 1u);
    EXPECT_EQ(text_in("code"), "code 1\n");
    EXPECT_EQ(list_checkpoints(saved).size(), 2u) << how << text_in("errors");
    EXPECT_NE(text_in("errors").find("stdout: the output is incomplete"), std::string::npos)
        << how << text_in("errors");
  }
}

/// Cuts a file while a run reads it; what the run says and its exit code.
Outcome cut_while_training(const Scratch& scratch, const std::string& command,
                           const std::string& cut) {
  const std::string metrics = scratch.path("metrics");
  fs::remove(metrics);
  return run_command(concat("exec 2>&1; ", WEFT_PROGRAM, ' ', command,
                            " --steps 1000000 --metrics ", metrics,
                            " >/dev/null & pid=$!; until test -s ", metrics,
                            "; do sleep 0.02; done; ", cut, "; wait $pid"));
}

TEST_F(HostileSystem, DataThatIsCutEndsTheRunWithASentence) {
  const std::string large = text_of(3 << 20);
  for (const std::string& how : ways_to_train()) {
    scratch_.write("large.txt", large);
    const std::string path = scratch_.path("large.txt");
    const Outcome outcome =
        cut_while_training(scratch_, how + small("--deadline 20", "large.txt"), ": >" + path);
    EXPECT_EQ(outcome.code, 1) << how << outcome.text;
    EXPECT_TRUE(has(outcome.text, concat("weft: pread: data: ", path, " ends at or before byte ")))
        << how;
    // Each process reports the error that it saw.
    EXPECT_EQ(times(outcome.text, "\n") == 1, how != kProcesses) << how << outcome.text;
  }
}

TEST_F(HostileSystem, DataThatIsReplacedWhileItIsClosedIsRefused) {
  // More files than are kept open.
  const std::string large = text_of(1 << 20);
  for (int i = 100; i < 180; ++i) scratch_.write(concat("many/", i), large);
  const std::string last = scratch_.path("many/179"), other = scratch_.path("other");
  const Outcome whole =
      run_weft(concat(kThreads, small("--steps 20", "many"), " --metrics ", scratch_.path("m")));
  EXPECT_EQ(whole.code, 0) << whole.text;
  const std::string replace = concat("for i in ", scratch_.path("many"), "/*; do cp $i ", other,
                                     "; mv ", other, " $i; done");
  expect(cut_while_training(scratch_, kThreads + small("", "many"), replace), 1,
         "is another file of");
}

TEST_F(HostileSystem, ADirectoryThatCannotBeWrittenIsAWrongFlag) {
  for (const std::string& how : ways_to_train()) {
    expect(2, how + small("--steps 1000000 --save /proc/x"),
           "/proc/x cannot be written: No such file or directory");
  }
}

TEST_F(HostileSystem, AWrongFlagIsOneLine) {
  for (const char* arguments : {"run -n x -- true", "train --frob", "train", "", "ckpt"}) {
    const Outcome outcome = run_weft(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(times(outcome.text, "\n"), 1u) << arguments << '\n' << outcome.text;
  }
}

}  // namespace
}  // namespace weft::tests
