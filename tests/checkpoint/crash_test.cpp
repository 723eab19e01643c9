// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>

#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/ops/factories.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// Memory where there is some to write to: thousands of saves sync.
std::string fast_directory() {
  std::error_code ignored;
  const bool shared = fs::is_directory("/dev/shm", ignored) && ::access("/dev/shm", W_OK) == 0;
  return shared ? "/dev/shm" : fs::temp_directory_path().string();
}

/// A directory with the complete steps 0 and 1, and what is done to a save of step 2 there.
class Crash : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fast_directory() + "/weft-crash-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    ASSERT_EQ(save("base", 0, "sync", ""), 0);
    ASSERT_EQ(save("base", 1, "sync", ""), 0);
    before_ = bytes_in(newest("base"));
  }
  void TearDown() override { fs::remove_all(root_); }

  /// The exit code, or minus the signal. `crash` is "" or what WEFT_CRASH says.
  int save(const std::string& directory, int step, const std::string& how,
           const std::string& crash) const {
    const std::string path = (root_ / directory).string();
    const std::string environment =
        concat("ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD=", WEFT_CRASH_SHIM,
               " WEFT_CRASH_COUNT=", (root_ / "count").string(), " WEFT_CRASH_ROOT=", path,
               " WEFT_CRASH=", crash);
    const std::string command = concat(environment, " exec ", WEFT_CRASH_WRITER, ' ', path, ' ',
                                       step, ' ', how, " 2>", (root_ / "errors").string());
    const int status = std::system(command.c_str());
    if (WIFSIGNALED(status)) return -WTERMSIG(status);
    return WEXITSTATUS(status);
  }
  /// System calls that the ranks made in the last save.
  std::map<int, int> calls() const {
    std::map<int, int> calls;
    std::ifstream file(root_ / "count");
    for (int rank = 0, count = 0; file >> rank >> count;) calls[rank] = count;
    return calls;
  }
  std::string newest(const std::string& directory) const {
    return newest_complete_checkpoint((root_ / directory).string());
  }
  static std::map<std::string, std::string> bytes_in(const std::string& directory) {
    std::map<std::string, std::string> bytes;
    for (const auto& file : fs::directory_iterator(directory)) {
      bytes[file.path().filename().string()] = weft::bytes_in(file.path());
    }
    return bytes;
  }
  static int64_t step_of(const std::string& path) { return inspect_checkpoint(path).step; }

  /// One crash in a fresh copy: the old checkpoint is unchanged, or the new one is complete.
  void try_one(const std::string& crash, const std::string& how) const {
    fs::remove_all(root_ / "tried");
    fs::copy(root_ / "base", root_ / "tried", fs::copy_options::recursive);
    const int code = save("tried", 2, how, crash);
    const std::string path = newest("tried");
    ASSERT_NE(path, "") << crash << ' ' << how;
    const CheckpointReport report = inspect_checkpoint(path);
    EXPECT_EQ(report.verdict, Verdict::complete) << crash << ' ' << how << ": " << report.reason;
    if (code == 0) {
      EXPECT_EQ(report.step, 2) << crash << ' ' << how;
    }
    if (report.step == 1) {
      EXPECT_EQ(bytes_in(path), before_) << crash << ' ' << how;
    } else {
      EXPECT_EQ(report.step, 2) << crash << ' ' << how;
      StateDict state{{{"w", zeros({5, 3})}, {"whole", zeros({4})}}, {{"step", 0}}};
      load(path, state);
      EXPECT_EQ(state.numbers.at("step"), 2);
      EXPECT_EQ(state.tensors.at("w").to_vector<double>(), std::vector<double>(15, 2));
    }
    const bool may_fail = !crash.starts_with("eintr") && !crash.starts_with("short");
    if (!may_fail) {
      EXPECT_EQ(code, 0) << crash << ' ' << how << ": " << weft::bytes_in(root_ / "errors");
    }
  }

  /// Every k, in steps under sanitizers.
  int try_all(const std::vector<std::string>& kinds, const std::vector<int>& masks,
              const std::string& how) {
    const char* percent = std::getenv("WEFT_SWEEP_PERCENT");
    const int stride = percent && std::string(percent) == "2" ? 7 : 1;
    fs::copy(root_ / "base", root_ / "counted", fs::copy_options::recursive);
    EXPECT_EQ(save("counted", 2, how, ""), 0);
    const std::map<int, int> calls_of = calls();
    EXPECT_GE(calls_of.at(0), 12);
    int tried = 0;
    for (const std::string& kind : kinds) {
      for (const int mask : masks) {
        const int most = std::max(mask & 1 ? calls_of.at(0) : 0, mask & 2 ? calls_of.at(1) : 0);
        for (int k = tried % stride; k < most; k += stride, ++tried) {
          try_one(concat(kind, ':', k, ':', mask), how);
        }
      }
    }
    return tried;
  }

  fs::path root_;
  std::map<std::string, std::string> before_;
};

TEST_F(Crash, KilledAtEveryCall) { EXPECT_GT(try_all({"kill"}, {1, 2}, "sync"), 3); }

TEST_F(Crash, PowerLostAtEveryCall) {
  EXPECT_GT(try_all({"lose_writes", "lose_names", "lose_all"}, {1, 2}, "sync"), 10);
}

TEST_F(Crash, EveryCallFailsOnce) {
  EXPECT_GT(try_all({"eio", "enospc", "eintr", "short"}, {1, 2}, "sync"), 10);
}

TEST_F(Crash, ARankDiesAtEveryCallAloneOrWithTheOther) {
  EXPECT_GT(try_all({"dead"}, {1, 2, 3}, "sync"), 4);
}

TEST_F(Crash, AsynchronousSavesAreKilledAtEveryCall) {
  EXPECT_GT(try_all({"kill"}, {1, 2}, "async"), 3);
}

TEST_F(Crash, EveryCallOfAnAsynchronousSaveFailsOnce) {
  EXPECT_GT(try_all({"eio", "eintr"}, {1, 2}, "async"), 6);
}

}  // namespace
}  // namespace weft
