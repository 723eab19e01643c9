// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "weft/export.h"

namespace weft {

/// The most hosts of a job.
inline constexpr int kMostHosts = 1024;

/// Options of starting a program as processes of this host, one a rank.
struct LaunchOptions {
  int ranks = 1;
  /// All are ended after so long; 0: never.
  std::chrono::milliseconds timeout{0};
  /// Write "[2] " before each line of rank 2.
  bool prefix = true;
  /// Environment variables that the ranks get in addition to the launcher's own.
  std::vector<std::pair<std::string, std::string>> environment = {};
  /// WEFT_JOB of the ranks; empty: a new one.
  std::string job = {};
  /// The hosts of the job, on each of which as many ranks are started, and the number of this one.
  int hosts = 1;
  int host_rank = 0;
  /// "HOST:PORT" of host 0, or "HOST:PORT/NAME" with a name for the job, the same on all hosts:
  /// rank 0 listens there until all ranks have come. The port and those that the ranks take must be
  /// reachable from the job's hosts only.
  std::string rendezvous = {};
  /// Asked several times a second, if given: true ends the ranks by SIGTERM, once, and those that
  /// are still there after `grace` by SIGKILL; 0: never.
  std::function<bool()> stops = {};
  std::chrono::milliseconds grace{0};
  /// Descriptors of the launcher that the ranks' stdout and stderr go to.
  int out = 1;
  int err = 2;
};

/// The outcome of a launch.
struct LaunchReport {
  /// 0: every rank exited with 0. Otherwise what the first that failed exited with (128 + signal
  /// for one that was killed), 124 after the timeout, 127 when the program could not be started,
  /// 147 when a rank was stopped by a signal and not continued, 1 when all went well but some of
  /// their output could not be written.
  int code = 0;
  /// The rank that failed first, or -1.
  int rank = -1;
  /// "rank 1 exited with code 3 after 1.2 s"; empty when all went well.
  std::string cause = {};
  /// The ranks ended because a signal asked them to: one passed on by the launcher, or one that a
  /// rank handled, which then exited with 128 + SIGTERM, SIGINT, SIGUSR2 or SIGHUP, as `weft train`
  /// does after it has saved.
  bool requested = false;
  /// The launcher itself got one of these signals.
  bool told = false;
  /// LaunchOptions::stops ended the ranks.
  bool stopped = false;
};

/// A key that no other launch has: "<user>-<process>-<random, hex>".
WEFT_API std::string new_job();

/// Starts `command` (program, searched for in PATH, and its arguments) once a rank and returns when
/// all processes have ended; none outlives the calling thread.
///
/// Each rank has WEFT_RANK, WEFT_WORLD_SIZE, WEFT_LOCAL_RANK, WEFT_LOCAL_WORLD_SIZE and WEFT_JOB in
/// its environment, with several hosts WEFT_RENDEZVOUS and WEFT_HOST_RANK too, and unless they are
/// set, OMP_WAIT_POLICY=passive and OMP_NUM_THREADS, its share of the cores. Rank 0 has the
/// launcher's stdin, the others none. Output is written in whole lines (those above 1 MiB are cut;
/// what ends with a carriage return is a line too). SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and
/// SIGTSTP of the process are passed on to the ranks meanwhile, each of which has a separate
/// process group, so that a terminal's Ctrl-C reaches them once.
///
/// When a rank exits with another code than 0 or is killed, the others have 2 s to end by
/// themselves; then they get SIGTERM, and SIGKILL 1 s later. What a rank leaves running ends with
/// it. std::invalid_argument without ranks or program, or while another launch of this process is
/// under way; std::runtime_error when the system has no pipes left.
WEFT_API LaunchReport launch(const std::vector<std::string>& command,
                             const LaunchOptions& options = {});

}  // namespace weft
