// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/processes.h"
#include "weft/error.h"
#include "weft/launch.h"

namespace weft {

/// Counts what this process's jobs could leave behind: files in /dev/shm and rendezvous sockets.
/// Other tests have theirs at the same time.
static int leftovers() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename().string();
    count += name.starts_with("weft") && name.find(concat('-', getpid(), '-')) != std::string::npos;
  }
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);)
    count += line.find(concat("@weft-", getuid(), '-', getuid(), '-', getpid(), '-')) !=
             std::string::npos;
  return count;
}

static int starts() { return kSanitized ? 30 : 1000; }

TEST(Teardown, AThousandStartsEndWell) {
  if (!kForks) GTEST_SKIP() << "the thread sanitizer does not let processes share memory";
  const int before = leftovers();
  for (int i = 0; i < starts(); ++i) {
    const LaunchReport report = launch({WEFT_TWO_RANKS}, {.ranks = 2});
    ASSERT_EQ(report.code, 0) << report.cause << " at start " << i;
  }
  EXPECT_EQ(leftovers(), before);
}

}  // namespace weft
