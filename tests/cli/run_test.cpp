// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "tests/support/command.h"
#include "tests/support/scratch.h"
#include "weft/error.h"

namespace weft::tests {
namespace {

Outcome run(const std::string& command) { return run_command(concat("exec 2>&1; ", command)); }

/// `weft run` with those arguments.
Outcome weft_run(const std::string& arguments, const std::string& before = "") {
  return run(concat(before, WEFT_PROGRAM, " run ", arguments));
}

class Run : public testing::Test {
 protected:
  Scratch scratch_;
};

TEST_F(Run, TellsHowItIsUsed) {
  const Outcome help = weft_run("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* part : {"-n", "--timeout", "--no-prefix", "124", "weft run -n N"}) {
    EXPECT_NE(help.text.find(part), std::string::npos) << part << help.text;
  }
}

TEST_F(Run, RefusesWrongFlags) {
  const auto expect_usage_error = [](const std::string& arguments, const std::string& sentence) {
    expect(weft_run(arguments), 2, sentence);
  };
  expect_usage_error("-n 0 -- true", "-n is 0, expected a whole number from 1 to 1024");
  expect_usage_error("-n 2 --frob true", "flag \"--frob\" does not exist");
  expect_usage_error("-n x -- true", "-n");
  expect_usage_error("-- true", "-n");
  expect_usage_error("-n 2", "the program is missing, expected weft run -n N -- program");
  expect_usage_error("-n 2 --", "the program is missing");
  expect_usage_error("-n 2 --timeout -1 -- true", "--timeout is -1");
  expect_usage_error("-n 2 --restarts -1 -- true", "--restarts is -1");
  expect_usage_error("-n 2 --timeout nan -- true", "--timeout");
  expect_usage_error("-n 2 --hosts 2 -- true",
                     "run: --host-rank is missing, expected with --hosts");
  const std::string hosts = "-n 2 --hosts 2 --host-rank ";
  expect_usage_error(hosts + "1 -- true", "run: --rendezvous is missing, expected with --hosts");
  expect_usage_error(hosts + "2 --rendezvous a:1 -- true",
                     "launch: host rank is 2, expected 0 to 1");
  expect_usage_error(hosts + "1 --rendezvous a -- true",
                     "rendezvous: the address is \"a\", expected HOST:PORT, as in 10.0.0.1:29500");
  EXPECT_EQ(weft_run("-n x -- true").text,
            "weft: -n is x, expected a whole number from 1 to 1024\n");
}

TEST_F(Run, TakesTheProgramsFlagsForItsOwn) {
  for (const char* arguments :
       {"-n 1 -- printf %s, -n 5 -- --help", "-n 1 printf %s, -n 5 -- --help"}) {
    const Outcome outcome = weft_run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_EQ(outcome.text, "[0] -n,5,--,--help,\n");
  }
  EXPECT_EQ(weft_run("--no-prefix -n 1 -- printf a").text, "a");
}

TEST_F(Run, NumbersTheRanksOfHosts) {
  const Outcome second = weft_run(
      "--hosts 2 --host-rank 1 --rendezvous a:1/x -n 2 -- sh -c "
      "'echo $WEFT_RANK/$WEFT_WORLD_SIZE $WEFT_LOCAL_RANK/$WEFT_LOCAL_WORLD_SIZE $WEFT_HOST_RANK "
      "$WEFT_RENDEZVOUS; [ $WEFT_RANK = 2 ]'");
  expect(second, 1, "[2] 2/4 0/2 1 a:1/x\n");
  EXPECT_TRUE(has(second.text, "[3] 3/4 1/2 1 a:1/x\n")) << second.text;
  EXPECT_TRUE(has(second.text, "weft run: rank 3 exited with code 1")) << second.text;
}

TEST_F(Run, TakesMpirunsFlag) {
  for (const char* arguments : {"-np 1 printf %s, -np 5", "--timeout 9 -np 1 -- printf %s, -np 5",
                                "--no-prefix --np 1 printf '[0] %s,' -np,5"}) {
    const Outcome outcome = weft_run(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << outcome.text;
    EXPECT_TRUE(outcome.text.starts_with("[0] -np,5,")) << arguments << outcome.text;
  }
}

TEST_F(Run, RunsItselfAsRanks) {
  expect(weft_run(concat("-n 2 -- ", WEFT_PROGRAM, " --version")), 0, "[1] weft ");
}

TEST_F(Run, SaysWhatHappenedFirst) {
  Outcome outcome = weft_run("-n 2 -- sh -c 'test $WEFT_RANK = 1 && exit 3; sleep 0.3'");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_TRUE(outcome.text.starts_with("weft run: rank 1 exited with code 3 after 0."))
      << outcome.text;
  outcome = weft_run("-n 2 -- sh -c 'kill -ABRT $$'");
  expect(outcome, 128 + SIGABRT, "was killed by SIGABRT");
  outcome = weft_run("-n 2 --timeout 0.2 -- sleep 1000");
  EXPECT_EQ(outcome.code, 124);
  EXPECT_EQ(outcome.text, "weft run: ended all ranks: the timeout of 0.2 s passed\n");
  outcome = weft_run("-n 2 -- no-such-program");
  EXPECT_EQ(outcome.code, 127);
  EXPECT_EQ(outcome.text,
            "weft run: launch: cannot start \"no-such-program\": No such file or directory\n");
  outcome = weft_run("-n 3 -- true");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.text, "");
}

TEST_F(Run, GivesStdinToRankZero) {
  EXPECT_EQ(weft_run("-n 2 -- sh -c 'test $WEFT_RANK = 0 || sleep 0.2; cat; echo end'",
                     "printf 'a\\nb' | ")
                .text,
            "[0] a\n[0] bend\n[1] end\n");
  // All three are closed.
  const std::string file = scratch_.path("alone");
  EXPECT_EQ(run(concat(WEFT_PROGRAM, " run -n 2 -- sh -c 'cat; echo $WEFT_RANK >>", file,
                       "' <&- >&- 2>&-"))
                .code,
            0);
  EXPECT_TRUE(std::filesystem::exists(file));
}

/// A terminal in which `weft run` is the foreground program.
class Terminal {
 public:
  explicit Terminal(const std::vector<const char*>& arguments) {
    std::vector<char*> all{const_cast<char*>(WEFT_PROGRAM)};
    for (const char* word : arguments) all.push_back(const_cast<char*>(word));
    all.push_back(nullptr);
    pid_ = ::forkpty(&master_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      ::execv(WEFT_PROGRAM, all.data());
      ::_exit(99);
    }
  }
  ~Terminal() { ::close(master_); }

  void type(const std::string& keys) {
    ASSERT_EQ(::write(master_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  /// Reads until the screen shows that.
  bool shows(const std::string& text) {
    const auto began = std::chrono::steady_clock::now();
    while (screen_.find(text) == screen_.npos) {
      if (std::chrono::steady_clock::now() - began > std::chrono::seconds(10)) return false;
      if (!read_some()) break;
    }
    return screen_.find(text) != screen_.npos;
  }
  int code() {
    while (read_some()) {
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::string& screen() const { return screen_; }
  pid_t pid() const { return pid_; }

 private:
  bool read_some() {
    pollfd ready{master_, POLLIN, 0};
    if (::poll(&ready, 1, 10'000) <= 0) return false;
    char bytes[4096];
    const ssize_t n = ::read(master_, bytes, sizeof bytes);
    if (n > 0) screen_.append(bytes, static_cast<size_t>(n));
    return n > 0;
  }

  int master_ = -1;
  pid_t pid_ = -1;
  std::string screen_;
};

size_t times(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
  return count;
}

TEST_F(Run, PassesAKeyOnOnce) {
  Terminal terminal({"run", "-n", "2", "--", "sh", "-c",
                     "trap 'echo interrupted' INT; trap 'exit 7' QUIT; echo ready; "
                     "while test ! -e \"$0\"; do sleep 0.02; done; echo over",
                     scratch_.path("end").c_str()});
  ASSERT_TRUE(terminal.shows("[0] ready") && terminal.shows("[1] ready")) << terminal.screen();
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("[0] interrupted") && terminal.shows("[1] interrupted"))
      << terminal.screen();
  scratch_.write("end", "");
  EXPECT_EQ(terminal.code(), 0);
  EXPECT_EQ(times(terminal.screen(), "interrupted"), 2u) << terminal.screen();
  EXPECT_EQ(times(terminal.screen(), "over"), 2u);
}

TEST_F(Run, EndsByCtrlC) {
  Terminal terminal({"run", "-n", "3", "--", "sh", "-c", "echo ready; exec sleep 1000"});
  for (const char* line : {"[0] ready", "[1] ready", "[2] ready"}) {
    ASSERT_TRUE(terminal.shows(line)) << terminal.screen();
  }
  terminal.type("\x03");
  EXPECT_EQ(terminal.code(), 128 + SIGINT);
  EXPECT_TRUE(has(terminal.screen(), "weft run: ended by SIGINT after "));
}

TEST_F(Run, StopsAndGoesOn) {
  const std::string ticks = scratch_.path("ticks");
  const auto size = [&] { return std::filesystem::file_size(ticks); };
  Terminal terminal({"run", "-n", "2", "--", "sh", "-c",
                     "echo ready; while :; do echo tick >>$0; sleep 0.01; done", ticks.c_str()});
  ASSERT_TRUE(terminal.shows("[0] ready") && terminal.shows("[1] ready")) << terminal.screen();
  terminal.type("\x1a");
  int status = 0;
  ASSERT_EQ(::waitpid(terminal.pid(), &status, WUNTRACED), terminal.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  ::usleep(100'000);
  const auto before = size();
  ::usleep(200'000);
  EXPECT_EQ(size(), before);
  ::kill(terminal.pid(), SIGCONT);
  for (int i = 0; i < 500 && size() < before + 20; ++i) ::usleep(10'000);
  EXPECT_GE(size(), before + 20);
  terminal.type("\x03");
  EXPECT_EQ(terminal.code(), 128 + SIGINT);
}

TEST_F(Run, PassesOnWhatIsTyped) {
  Terminal terminal({"run", "-n", "2", "--", "sh", "-c",
                     "while read line; do echo \"rank $WEFT_RANK got $line\"; done; echo end"});
  terminal.type("first\n");
  EXPECT_TRUE(terminal.shows("[0] rank 0 got first")) << terminal.screen();
  terminal.type("second\n\x04");
  EXPECT_EQ(terminal.code(), 0);
  EXPECT_NE(terminal.screen().find("[0] rank 0 got second"), std::string::npos);
  EXPECT_EQ(times(terminal.screen(), "end"), 2u) << terminal.screen();
}

TEST_F(Run, StartsAgainAfterFailures) {
  const std::string starts = scratch_.path("starts");
  const Outcome outcome =
      weft_run(concat("-n 2 --restarts 3 -- sh -c 'echo \"start $WEFT_RESTART.\" >>", starts,
                      "; test $WEFT_RANK = 0 || test \"$WEFT_RESTART\" = 2 || exit 3'"));
  expect(outcome, 0, "weft run: restart 1 of 3 in 1 s\n");
  EXPECT_TRUE(has(outcome.text, "weft run: restart 2 of 3 in 2 s\n"));
  EXPECT_FALSE(has(outcome.text, "restart 3"));
  EXPECT_EQ(times(run("cat " + starts).text, "start"), 6u);
  expect(weft_run("-n 1 --restarts 1 -- sh -c 'exit 3'"), 3, "restart 1 of 1");
}

TEST_F(Run, DoesNotRepeatWhatIsFinal) {
  for (const char* end : {"exit 2", "exit 143", "exit 130"}) {
    const Outcome outcome = weft_run(concat("-n 1 --restarts 5 -- sh -c '", end, "'"));
    EXPECT_EQ(concat("exit ", outcome.code), end);
    EXPECT_FALSE(has(outcome.text, "restart")) << outcome.text;
  }
  expect(weft_run("-n 1 --restarts 5 -- /no/such/program"), 127, "/no/such/program");
  expect(weft_run("-n 1 --restarts 5 --timeout 0.3 -- sleep 1000"), 124, "timeout");
  // The timeout is of all starts together.
  expect(weft_run("-n 1 --restarts 9 --timeout 1.2 -- sh -c 'exit 3'"), 124, "for restart 2");
  expect(weft_run("-n 1 --restarts 5 -- sh -c 'sleep 0.2; kill -TERM $PPID; exec sleep 1000'"),
         128 + SIGTERM, "ended by SIGTERM");
}

TEST_F(Run, LetsTrainGoOnFromItsCheckpoints) {
  const std::string weft = scratch_.write("weft", "#!/bin/sh\necho args \"$@\"; exit 1\n");
  std::filesystem::permissions(weft, std::filesystem::perms::owner_all);
  const auto train = [&](const std::string& flags) {
    return weft_run(concat("-n 1 --no-prefix --restarts 1 -- ", weft, " train ", flags));
  };
  Outcome both = train("--save run --steps 3");
  EXPECT_TRUE(has(both.text, "args train --save run --steps 3\n")) << both.text;
  EXPECT_TRUE(has(both.text, "args train --save run --steps 3 --resume run\n")) << both.text;
  both = train("--resume other --save=run");
  EXPECT_TRUE(has(both.text, "args train --resume other --save=run\n")) << both.text;
  // The run has no checkpoint yet.
  EXPECT_EQ(times(both.text, "args train --resume other --save=run\n"), 2u) << both.text;
  expect(train("--steps 3"), 2,
         "run: --save of weft train is missing, expected a directory for --restarts to go on from");
}

TEST_F(Run, ARestartedTrainingEndsAsAnUninterruptedOne) {
  const std::string text = scratch_.write("text", std::string(4000, 'a') + "bcd");
  const auto train = [&](const std::string& save) {
    return concat(WEFT_PROGRAM, " train --data ", text,
                  " --model tiny --seq 16 --batch 4 --threads 1 --steps 40 --save-every 2 --keep 0"
                  " --save ",
                  save);
  };
  const std::string whole = scratch_.path("whole"), killed = scratch_.path("killed");
  expect(weft_run(concat("-n 2 -- ", train(whole))), 0, "saved");
  // Rank 1 is killed once.
  const Outcome outcome = weft_run(concat(
      "-n 2 --restarts 1 -- sh -c 'if test $WEFT_RANK = 1 && test -z \"$WEFT_RESTART\"; then"
      " (while ! ls ",
      killed, "/step-*4-* >&- 2>&-; do sleep 0.01; done; kill -KILL $$) & fi; exec \"$0\" \"$@\"' ",
      train(killed), " --resume ", killed));
  expect(outcome, 0, "weft run: rank 1 was killed by SIGKILL");
  EXPECT_TRUE(has(outcome.text, "restart 1 of 1 in 1 s"));
  expect(run(concat(WEFT_PROGRAM, " ckpt diff ", whole, "/step-*40-* ", killed, "/step-*40-*")), 0,
         " 0 differences");
}

TEST_F(Run, TellsWhereTheFlightRecordIs) {
  const std::string own = concat("TMPDIR=", scratch_.root(), ' ');
  const std::string record =
      "-n 2 -- sh -c 'mkdir -p $WEFT_FLIGHT; echo {} >$WEFT_FLIGHT/rank-$WEFT_RANK.json; exit ";
  EXPECT_EQ(weft_run(record + "0'", concat("unset WEFT_FLIGHT; ", own)).text, "");
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.root()));
  const Outcome outcome = weft_run(record + "1'", concat("unset WEFT_FLIGHT; ", own));
  EXPECT_EQ(outcome.code, 1);
  const std::string folder = concat(scratch_.root(), "/weft-flight-");
  EXPECT_TRUE(has(outcome.text, "operations of the ranks are in " + folder));
  EXPECT_FALSE(std::filesystem::is_empty(scratch_.root()));
  const std::string given = scratch_.path("given");
  EXPECT_EQ(weft_run(record + "0'", concat("WEFT_FLIGHT=", given, ' ')).code, 0);
  EXPECT_TRUE(std::filesystem::exists(given + "/rank-1.json"));
}

TEST_F(Run, KeepsTheNewestFlightRecords) {
  const std::string mine = concat("weft-flight-", ::getuid(), "-999999999-");
  for (int i = 0; i < 20; ++i) {
    const std::string file = concat(mine, 10 + i, "/rank-0.json");
    scratch_.write(file, "{}");
    const auto age = std::chrono::hours(100 - i);
    std::filesystem::last_write_time(scratch_.path(concat(mine, 10 + i)),
                                     std::filesystem::file_time_type::clock::now() - age);
  }
  // Neither the record of a job that runs, nor what a link names.
  const std::string running = concat("weft-flight-", ::getuid(), '-', ::getpid(), "-1");
  const std::string kept = scratch_.write("elsewhere/file", "kept");
  scratch_.write(running + "/rank-0.json", "{}");
  std::filesystem::create_directory_symlink(scratch_.path("elsewhere"), scratch_.path(mine + "00"));
  const Outcome outcome = weft_run("-n 2 -- sh -c 'mkdir -p $WEFT_FLIGHT; exit 1'",
                                   concat("unset WEFT_FLIGHT; TMPDIR=", scratch_.root(), ' '));
  EXPECT_EQ(outcome.code, 1);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(std::filesystem::exists(scratch_.path(concat(mine, 10 + i))), i >= 5) << i;
  }
  EXPECT_TRUE(std::filesystem::exists(scratch_.path(running + "/rank-0.json")));
  EXPECT_TRUE(std::filesystem::exists(kept));
}

}  // namespace
}  // namespace weft::tests
