// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "weft/communicator.h"
#include "weft/ranks.h"

namespace weft {

/// The thread sanitizer neither follows forks nor allows memory to be mapped at the addresses that
/// processes share.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kForks = false;
#else
inline constexpr bool kForks = true;
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Forks a process for each rank; environment variables give its rank.
inline std::vector<pid_t> fork_ranks(int ranks, const std::function<int()>& run) {
  static int jobs = 0;
  const std::string job = std::to_string(getpid()) + "-" + std::to_string(++jobs);
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("fork");
    if (child > 0) {
      children.push_back(child);
      continue;
    }
    const std::string own = std::to_string(rank), all = std::to_string(ranks);
    for (const char* name : {"WEFT_RANK", "WEFT_LOCAL_RANK"}) setenv(name, own.c_str(), 1);
    for (const char* name : {"WEFT_WORLD_SIZE", "WEFT_LOCAL_WORLD_SIZE"}) {
      setenv(name, all.c_str(), 1);
    }
    setenv("WEFT_JOB", job.c_str(), 1);
    const int code = run();
    std::fflush(nullptr);
    _exit(code);
  }
  return children;
}

/// Runs `body` on each rank, as a separate process. A failure there fails the calling test. The
/// deadline lets a rank touch gigabytes for the first time on a busy machine.
inline void run_processes(int ranks, const std::function<void(Communicator)>& body,
                          const RunOptions& options = {.deadline = std::chrono::seconds(60),
                                                       .threads_per_rank = 1}) {
  const std::vector<pid_t> children = fork_ranks(ranks, [&] {
    try {
      run_world(ranks, body, options);
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
      return 2;
    }
    return testing::Test::HasFailure() ? 1 : 0;
  });
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "of process " << child;
  }
}

}  // namespace weft
