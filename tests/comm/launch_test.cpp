// SPDX-License-Identifier: Apache-2.0
#include "weft/launch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "src/comm/memory/memory_worlds.h"
#include "src/comm/world.h"
#include "tests/support/processes.h"
#include "tests/support/scratch.h"
#include "weft/error.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Launches /bin/sh with scripts, whose output goes to files.
class Launch : public testing::Test {
 protected:
  LaunchReport sh(int ranks, const std::string& script, LaunchOptions options = {}) {
    options.ranks = ranks;
    options.out =
        ::open(scratch_.path("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    options.err =
        ::open(scratch_.path("err").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const auto began = Clock::now();
    const LaunchReport report = launch({"/bin/sh", "-c", script}, options);
    took_ = std::chrono::duration<double>(Clock::now() - began).count();
    ::close(options.out);
    ::close(options.err);
    return report;
  }
  std::string text(const std::string& name) const { return bytes_in(scratch_.path(name)); }
  std::string out() const { return text("out"); }
  std::string err() const { return text("err"); }
  std::multiset<std::string> lines(const std::string& name) const {
    std::istringstream in(text(name));
    std::multiset<std::string> all;
    for (std::string line; std::getline(in, line);) all.insert(line);
    return all;
  }
  void expect_end(int ranks, int code, const std::string& output, const std::string& script) {
    EXPECT_EQ(sh(ranks, script).code, code);
    EXPECT_EQ(out(), output);
  }
  void expect_took(double least, double most) const {
    EXPECT_GT(took_, least);
    EXPECT_LT(took_, most);
  }
  /// Waits until a file that ranks write has that many lines.
  void await_lines(const std::string& name, size_t count) const {
    for (int i = 0; i < 500 && lines(name).size() < count; ++i) ::usleep(10'000);
  }

  Scratch scratch_;
  double took_ = 0;
};

/// True when a process exists and is not a zombie.
bool is_alive(int pid) {
  std::ifstream file(concat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return false;
  return line[line.rfind(')') + 2] != 'Z';
}

/// Open descriptors of this process, or only those that child programs inherit.
size_t open_descriptors(bool inherited = false) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int flags = ::fcntl(std::stoi(entry.path().filename()), F_GETFD);
    count += !inherited || (flags >= 0 && (flags & FD_CLOEXEC) == 0);
  }
  return count;
}

/// Sets a variable of this process, or unsets it, for a scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* now = std::getenv(name)) before_ = now;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { before_.empty() ? ::unsetenv(name_) : ::setenv(name_, before_.c_str(), 1); }

 private:
  const char* name_;
  std::string before_;
};

TEST_F(Launch, GivesEachRankItsPlace) {
  const LaunchReport report = sh(3,
                                 "echo $WEFT_RANK/$WEFT_WORLD_SIZE "
                                 "$WEFT_LOCAL_RANK/$WEFT_LOCAL_WORLD_SIZE $MORE $WEFT_JOB",
                                 {.environment = {{"MORE", "a b"}}, .job = "7-8-9"});
  EXPECT_EQ(report.code, 0) << report.cause;
  EXPECT_EQ(report.rank, -1);
  EXPECT_EQ(report.cause, "");
  EXPECT_EQ(lines("out"),
            (std::multiset<std::string>{"[0] 0/3 0/3 a b 7-8-9", "[1] 1/3 1/3 a b 7-8-9",
                                        "[2] 2/3 2/3 a b 7-8-9"}));
  EXPECT_NE(new_job(), new_job());
  EXPECT_TRUE(new_job().starts_with(concat(::getuid(), '-', ::getpid(), '-')));
}

TEST_F(Launch, SharesTheCores) {
  const std::string show = "echo $OMP_WAIT_POLICY $OMP_NUM_THREADS";
  const Variable no_policy("OMP_WAIT_POLICY", nullptr), no_threads("OMP_NUM_THREADS", nullptr);
  sh(1, show);
  EXPECT_EQ(out(), concat("[0] passive ", available_cores(), '\n'));
  sh(available_cores() + 1, "test $WEFT_RANK = 0 && " + show + " || true");
  EXPECT_EQ(out(), "[0] passive 1\n");
  const Variable policy("OMP_WAIT_POLICY", "active"), threads("OMP_NUM_THREADS", "5");
  sh(1, show);
  EXPECT_EQ(out(), "[0] active 5\n");
}

TEST_F(Launch, PassesArgumentsAsTheyAre) {
  LaunchOptions options{.out = ::open(scratch_.path("out").c_str(), O_WRONLY | O_CREAT, 0600)};
  EXPECT_EQ(launch({"printf", "%s|", "a b", "", "$HOME *"}, options).code, 0);
  ::close(options.out);
  EXPECT_EQ(out(), "[0] a b||$HOME *|\n");
}

TEST_F(Launch, KeepsOutputAndErrorsApart) {
  sh(2, "echo to out; echo to err >&2; echo; printf 'no end'");
  EXPECT_EQ(lines("out"), (std::multiset<std::string>{"[0] to out", "[0] ", "[0] no end",
                                                      "[1] to out", "[1] ", "[1] no end"}));
  EXPECT_EQ(lines("err"), (std::multiset<std::string>{"[0] to err", "[1] to err"}));
  EXPECT_EQ(sh(1, "exit 0").code, 0);
  EXPECT_EQ(out(), "");
}

TEST_F(Launch, ShowsProgressLines) {
  sh(1, "printf '\\r10%%'; sleep 0.1; printf '\\r20%%\\r'; sleep 0.1; printf '\\n\\r30%%\\r\\r'");
  EXPECT_EQ(out(), "[0] 10%\n[0] 20%\r\n[0] 30%\n");
  sh(1, "printf '\\r10%%\\r20%%\\nno end'", {.prefix = false});
  EXPECT_EQ(out(), "\r10%\r20%\nno end");
}

TEST_F(Launch, MixesNoLinesOfMuchOutput) {
  // 2.9 MB from each of 4 ranks, in writes that end at arbitrary bytes.
  const std::string script = "seq -f \"rank $WEFT_RANK writes line %08.0f of many\" 1 80000";
  for (const bool prefix : {true, false}) {
    const LaunchReport report = sh(4, script, {.prefix = prefix});
    EXPECT_EQ(report.code, 0) << report.cause;
    std::istringstream in(out());
    std::array<int, 4> seen{};
    for (std::string line; std::getline(in, line);) {
      const size_t skipped = prefix ? 4 : 0;
      ASSERT_GT(line.size(), skipped + 6) << line;
      const int rank = line[skipped + 5] - '0';
      ASSERT_TRUE(rank >= 0 && rank < 4) << line;
      char expected[64];
      std::snprintf(expected, sizeof expected, "rank %d writes line %08d of many", rank,
                    ++seen[static_cast<size_t>(rank)]);
      ASSERT_EQ(line, concat(prefix ? concat('[', rank, "] ") : "", expected));
    }
    EXPECT_EQ(seen, (std::array<int, 4>{80000, 80000, 80000, 80000}));
  }
}

TEST_F(Launch, CutsEndlessLines) {
  sh(1, "head -c 3000000 /dev/zero | tr '\\0' x");
  std::istringstream in(out());
  size_t length = 0;
  for (std::string line; std::getline(in, line);) {
    EXPECT_LT(line.size(), size_t{1200000});
    length += line.size() - 4;
  }
  EXPECT_EQ(length, 3000000u);
}

TEST_F(Launch, ReturnsTheFirstFailure) {
  LaunchReport report = sh(3, "test $WEFT_RANK = 1 && exit 3; sleep 0.5; exit 4");
  EXPECT_EQ(report.code, 3);
  EXPECT_EQ(report.rank, 1);
  EXPECT_TRUE(report.cause.starts_with("rank 1 exited with code 3 after 0.")) << report.cause;
  report = sh(3, "test $WEFT_RANK = 2 && kill -SEGV $$; sleep 0.5");
  EXPECT_EQ(report.code, 128 + SIGSEGV);
  EXPECT_TRUE(report.cause.starts_with("rank 2 was killed by SIGSEGV")) << report.cause;
  report = sh(2, "kill -KILL $$");
  EXPECT_EQ(report.code, 128 + SIGKILL);
  EXPECT_NE(report.cause.find("was killed by SIGKILL after"), std::string::npos) << report.cause;
}

TEST_F(Launch, LetsTheOthersSayWhatTheyNoticed) {
  const LaunchReport report =
      sh(3, "test $WEFT_RANK = 0 && exit 5; sleep 0.4; echo rank 0 is gone >&2; exit 1");
  EXPECT_EQ(report.code, 5);
  EXPECT_EQ(lines("err"), (std::multiset<std::string>{"[1] rank 0 is gone", "[2] rank 0 is gone"}));
  EXPECT_LT(took_, 1.5);
}

TEST_F(Launch, EndsThoseThatGoOn) {
  expect_end(2, 5, "[1] told to end\n",
             "test $WEFT_RANK = 0 && exit 5; trap 'echo told to end; exit 0' TERM; "
             "while :; do sleep 0.05; done");
  expect_took(1.9, 2.9);
}

TEST_F(Launch, KillsThoseThatIgnoreIt) {
  expect_end(3, 5, "",
             "case $WEFT_RANK in 0) exit 5;; 1) trap '' TERM; exec sleep 1000;; "
             "2) kill -STOP $$; echo never;; esac");
  expect_took(2.9, 4.5);
}

/// Only the launcher waits for a rank that is stopped when the others are done.
TEST_F(Launch, EndsAStoppedRankAfterTheOthers) {
  const LaunchReport report = sh(3, "test $WEFT_RANK = 1 && kill -STOP $$; sleep 0.2");
  EXPECT_EQ(report.code, 128 + SIGSTOP);
  EXPECT_EQ(report.rank, 1);
  EXPECT_EQ(report.cause,
            "rank 1 was stopped by a signal and not continued within 5 s after the others exited");
  EXPECT_LT(took_, 9);
  // One that is continued ends as it likes.
  const LaunchReport good =
      sh(2, "test $WEFT_RANK = 1 && { (sleep 1; kill -CONT $$) & kill -STOP $$; }; exit 0");
  EXPECT_EQ(good.code, 0) << good.cause;
}

TEST_F(Launch, EndsAllAfterTheTimeout) {
  LaunchReport report =
      sh(3,
         "case $WEFT_RANK in 0) trap '' TERM; exec sleep 1000;; 1) kill -STOP $$;; "
         "2) exec sleep 1000;; esac",
         {.timeout = milliseconds(300)});
  EXPECT_EQ(report.code, 124);
  EXPECT_EQ(report.rank, -1);
  EXPECT_EQ(report.cause, "ended all ranks: the timeout of 0.3 s passed");
  expect_took(1.2, 3);
  // Exit code 0 after SIGTERM does not hide the timeout; a job that ends in time has none.
  report =
      sh(1, "trap 'exit 0' TERM; while :; do sleep 0.05; done", {.timeout = milliseconds(200)});
  EXPECT_EQ(report.code, 124);
  EXPECT_EQ(sh(2, "exit 0", {.timeout = milliseconds(60'000)}).code, 0);
}

TEST_F(Launch, EndsAChatterboxAfterTheTimeout) {
  const LaunchReport report =
      sh(1, "yes", {.timeout = std::chrono::milliseconds(300), .prefix = false});
  EXPECT_EQ(report.code, 124);
  EXPECT_LT(took_, 10);
}

TEST_F(Launch, NamesAProgramThatCannotBeStarted) {
  LaunchReport report = launch({"no-such-program-anywhere"}, {.ranks = 3});
  EXPECT_EQ(report.code, 127);
  EXPECT_EQ(report.cause,
            "launch: cannot start \"no-such-program-anywhere\": No such file or directory");
  const std::string file = scratch_.write("plain", "text");
  EXPECT_EQ(launch({file}, {}).cause,
            concat("launch: cannot start \"", file, "\": Permission denied"));
  EXPECT_EQ(launch({scratch_.root()}, {}).code, 127);
}

TEST_F(Launch, RefusesWhatMakesNoSense) {
  EXPECT_EQ(error_of([] { (void)launch({}); }), "launch: the command is empty, expected a program");
  EXPECT_EQ(error_of([] { (void)launch({"true"}, {.ranks = 0}); }),
            "launch: the number of ranks is 0, expected 1 to 1024");
  EXPECT_EQ(error_of([] { (void)launch({"true"}, {.timeout = milliseconds(-1)}); }),
            "launch: timeout must be at least 0 ms, got -1");
}

/// Makes a file the process's stdin for a scope.
class Stdin {
 public:
  explicit Stdin(int descriptor) : before_(::dup(STDIN_FILENO)) {
    ::dup2(descriptor, STDIN_FILENO);
    ::close(descriptor);
  }
  ~Stdin() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }

 private:
  int before_;
};

TEST_F(Launch, GivesStdinToRankZero) {
  const std::string given = scratch_.write("given", "one\ntwo\n");
  const Stdin in(::open(given.c_str(), O_RDONLY));
  EXPECT_EQ(sh(3, "cat; echo end").code, 0);
  EXPECT_EQ(lines("out"),
            (std::multiset<std::string>{"[0] one", "[0] two", "[0] end", "[1] end", "[2] end"}));
}

TEST_F(Launch, PassesSignalsOn) {
  const std::string script = "trap 'echo interrupted >>" + scratch_.path("got") +
                             "' INT HUP USR1 USR2; "
                             "trap 'echo ended; exit 0' TERM; echo ready >>" +
                             scratch_.path("ready") + "; while :; do sleep 0.02; done";
  std::thread sender([&] {
    await_lines("ready", 3);
    size_t expected = 0;
    for (const int signal : {SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
      ::kill(::getpid(), signal);
      await_lines("got", expected += 3);
      ::usleep(50'000);
      EXPECT_EQ(lines("got").size(), expected) << "signal " << signal;
    }
    ::kill(::getpid(), SIGTERM);
  });
  const LaunchReport report = sh(3, script);
  sender.join();
  EXPECT_EQ(report.code, 0) << report.cause;
  EXPECT_EQ(lines("out"), (std::multiset<std::string>{"[0] ended", "[1] ended", "[2] ended"}));
}

TEST_F(Launch, WaitsForThoseThatWereToldToEnd) {
  // Longer than other ranks get after a failure: the rank saves its state.
  std::thread sender([&] {
    await_lines("ready", 2);
    ::kill(::getpid(), SIGINT);
  });
  const LaunchReport report =
      sh(2, "trap 'test $WEFT_RANK = 0 || sleep 3.2; echo saved; exit 130' INT; echo ready >>" +
                scratch_.path("ready") + "; while :; do sleep 0.02; done");
  sender.join();
  EXPECT_EQ(report.code, 130);
  EXPECT_TRUE(report.cause.starts_with("ended by SIGINT after ")) << report.cause;
  EXPECT_EQ(lines("out"), (std::multiset<std::string>{"[0] saved", "[1] saved"}));
}

TEST_F(Launch, LeavesNothing) {
  const size_t before = open_descriptors();
  struct sigaction interrupt {};
  ::sigaction(SIGINT, nullptr, &interrupt);
  const LaunchReport report =
      sh(2, "sleep 1000 & echo $! >>" + scratch_.path("pids") +
                "; sh -c 'trap \"\" TERM; sleep 1000' >/dev/null 2>&1 & echo $! >>" +
                scratch_.path("pids") + "; echo done; ls -1 /proc/self/fd | wc -l");
  EXPECT_EQ(report.code, 0) << report.cause;
  EXPECT_LT(took_, 2);
  // Plus the directory that `ls` reads.
  const size_t own = open_descriptors(true) + 1;
  EXPECT_EQ(lines("out"), (std::multiset<std::string>{concat("[0] ", own), "[0] done",
                                                      concat("[1] ", own), "[1] done"}));
  EXPECT_EQ(lines("pids").size(), 4u);
  for (const std::string& pid : lines("pids")) {
    for (int i = 0; i < 100 && is_alive(std::stoi(pid)); ++i) ::usleep(10'000);
    EXPECT_FALSE(is_alive(std::stoi(pid)));
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(open_descriptors(), before);
  struct sigaction now {};
  ::sigaction(SIGINT, nullptr, &now);
  EXPECT_EQ(now.sa_handler, interrupt.sa_handler);
}

TEST_F(Launch, WaitsForTheLastWordsOfWhatARankStarted) {
  EXPECT_EQ(sh(2, "(sleep 0.2; echo last) & exit 0").code, 0);
  EXPECT_EQ(lines("out"), (std::multiset<std::string>{"[0] last", "[1] last"}));
}

TEST_F(Launch, OutlivesNoLauncher) {
  if (!kForks) GTEST_SKIP();
  const std::string pids = scratch_.path("pids");
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    (void)launch({"/bin/sh", "-c", "echo $$ >>" + pids + "; trap '' TERM HUP; exec sleep 1000"},
                 {.ranks = 3});
    ::_exit(0);
  }
  await_lines("pids", 3);
  ASSERT_EQ(lines("pids").size(), 3u);
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  const auto began = Clock::now();
  for (const std::string& pid : lines("pids")) {
    while (is_alive(std::stoi(pid)) && Clock::now() - began < std::chrono::seconds(2)) {
      ::usleep(5'000);
    }
    EXPECT_FALSE(is_alive(std::stoi(pid)));
  }
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(1));
}

TEST_F(Launch, TakesOneAtATime) {
  std::thread other([&] {
    await_lines("out", 1);
    EXPECT_EQ(error_of([] { (void)launch({"true"}); }),
              "launch: another launch of this process is under way, expected one at a time");
  });
  sh(1, "echo started; sleep 0.5");
  other.join();
  EXPECT_EQ(launch({"true"}).code, 0);
}

TEST_F(Launch, EndsWritersWhoseReaderIsGone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const LaunchReport report = launch({"yes"}, {.ranks = 2, .out = ends[1]});
  ::close(ends[1]);
  EXPECT_EQ(report.code, 128 + SIGPIPE) << report.cause;
}

TEST_F(Launch, WaitsForASlowReaderButNotBeyondTheTimeout) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto began = Clock::now();
  LaunchReport report = launch({"yes"}, {.ranks = 2, .timeout = milliseconds(300), .out = ends[1]});
  EXPECT_EQ(report.code, 124);
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(4));
  ::close(ends[0]);
  ::close(ends[1]);
  ASSERT_EQ(::pipe(ends), 0);
  size_t bytes = 0;
  std::thread reader([&] {
    ::usleep(900'000);  // longer than the grace period for a rank's last output
    char some[4096];
    for (ssize_t n; (n = ::read(ends[0], some, sizeof some)) > 0;) bytes += static_cast<size_t>(n);
  });
  report =
      launch({"head", "-c", "3000000", "/dev/zero"}, {.ranks = 1, .prefix = false, .out = ends[1]});
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  EXPECT_EQ(report.code, 0) << report.cause;
  EXPECT_GE(bytes, 3000000u);
}

/// Listens by that name and never accepts: processes that connect then wait.
bool squat(const std::string& name, int type = SOCK_SEQPACKET) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto* as = reinterpret_cast<const sockaddr*>(&address);
  const int made = socket(AF_UNIX, type, 0);
  if (bind(made, as, length) != 0 || listen(made, 0) != 0) return false;
  while (connect(socket(AF_UNIX, type | SOCK_NONBLOCK, 0), as, length) == 0) {
  }
  return errno == EAGAIN;
}

/// Processes of another user listen by the names that this user's job may meet under.
TEST_F(Launch, MeetsThoughAnotherUserHasTheName) {
  if (!kForks) GTEST_SKIP() << "the thread sanitizer has no room for memory that processes share";
  if (getuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t nobody = 65534;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const std::string key = concat("squatted.", getpid());
  const std::string name = concat("weft-", getuid(), '-', key);
  const pid_t squatter = fork();
  if (squatter == 0) {
    const bool squats = setuid(nobody) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
                        squat(name) && squat(name, SOCK_STREAM) &&
                        squat(name + "-0123456789abcdef") && squat(name + "-ffffffffffffffff");
    const char told = squats ? 'y' : 'n';
    _exit(write(ready[1], &told, 1) == 1 && pause() < 0 ? 0 : 1);
  }
  char told = 0;
  ASSERT_EQ(read(ready[0], &told, 1), 1);
  EXPECT_EQ(told, 'y');
  for (const int ranks : {2, 3}) {
    const LaunchReport report =
        launch({WEFT_TWO_RANKS}, {.ranks = ranks, .timeout = std::chrono::seconds(20), .job = key});
    EXPECT_EQ(report.code, 0) << report.cause;
  }
  // It is no host of theirs: this user's memory goes to no other user.
  const HostMembers second{key, 1, 2, "build"};
  EXPECT_EQ(error_of<std::runtime_error>([&] { meet(second, 1 << 20, milliseconds(100)); }),
            concat("connect: process 0 of job \"", key, "\" on this host did not come in time",
                   kAllConnect));
  kill(squatter, SIGKILL);
  waitpid(squatter, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST_F(Launch, RefusesASecondJobOfTheSameKey) {
  if (!kForks) GTEST_SKIP() << "the thread sanitizer has no room for memory that processes share";
  const HostMembers first{concat("twice.", getpid()), 0, 2, "build"};
  const pid_t other = fork();
  if (other == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      meet(first, 1 << 20, std::chrono::seconds(20));
    } catch (const std::exception&) {
    }
    _exit(0);
  }
  const auto listens = [&] {
    return bytes_in("/proc/net/unix").find(first.key) != std::string::npos;
  };
  for (int i = 0; i < 1000 && !listens(); ++i) ::usleep(10'000);
  const std::string error =
      error_of<std::runtime_error>([&] { meet(first, 1 << 20, milliseconds(500)); });
  EXPECT_EQ(error, concat("connect: another process of this host is the first of job \"", first.key,
                          "\" already"));
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

TEST_F(Launch, ReportsOutputThatFoundNoSpace) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  const std::string script = "echo a; sleep 0.1; echo b; echo $WEFT_RANK >>" + scratch_.path("end");
  LaunchReport report = launch({"/bin/sh", "-c", script}, {.ranks = 3, .out = full});
  EXPECT_EQ(report.code, 1);
  EXPECT_EQ(report.cause, "stdout: the output of the ranks is incomplete: No space left on device");
  EXPECT_EQ(lines("end").size(), 3u);  // no rank was ended by it
  report = launch({"/bin/sh", "-c", "echo a >&2; exit 3"}, {.ranks = 1, .err = full});
  EXPECT_EQ(report.code, 3) << report.cause;
  ::close(full);
}

}  // namespace
}  // namespace weft
