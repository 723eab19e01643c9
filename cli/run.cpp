// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "weft/checkpoint_report.h"
#include "weft/error.h"
#include "weft/extend/flight.h"
#include "weft/extend/run_folder.h"
#include "weft/launch.h"
#include "weft/ranks.h"

namespace weft::cli {

namespace fs = std::filesystem;

/// Names the folder that ranks write their flight records to.
static constexpr const char* kFlightVariable = "WEFT_FLIGHT";
static constexpr const char* kFlightPrefix = "weft-flight-";
static constexpr size_t kFlightsKept = 16;
static constexpr double kLongestTimeout = 1e9;
static constexpr int kMostRestarts = 1'000'000;

namespace {

/// Options of `weft run`.
struct LaunchedProgram {
  int ranks = 0;
  double timeout = 0;
  int restarts = 0;
  int hosts = 1;
  int host_rank = 0;
  std::string rendezvous;
  bool no_prefix = false;
  /// The program and its arguments.
  std::vector<std::string> command;
};

/// Options of `weft trace`.
struct TraceOptions {
  /// Flight records, or folders of them.
  std::vector<std::string> paths;
  std::string out;
};

}  // namespace

/// Cuts "-- program arguments" off `weft run ... -- program arguments` and returns the program and
/// its arguments; makes mpirun's -np, among the flags before the program, the -n that it stands
/// for.
static std::vector<std::string> cut_program(int& argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "run") return {};
  for (int i = 2; i < argc && argv[i][0] == '-';) {
    const std::string_view flag = argv[i];
    if (flag == "--") return {argv + i + 1, argv + std::exchange(argc, i)};
    const bool is_np = flag == "-np";
    constexpr std::string_view kWithValue[] = {
        "-n", "--np", "--timeout", "--restarts", "--hosts", "--host-rank", "--rendezvous"};
    const bool has_value_next =
        is_np || std::ranges::find(kWithValue, flag) != std::end(kWithValue);
    if (is_np) argv[i][2] = '\0';
    i += has_value_next ? 2 : 1;
  }
  return {};
}

/// The folder where the ranks of this job write the records of their last operations; they make it
/// when there is something to write. Without a folder for temporary files no records are kept.
static std::string flight_folder(const std::string& job) {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  return error ? "" : (folder / concat(kFlightPrefix, job)).string();
}

/// True when the launcher that the name "<prefix><user>-<process>-<random>" contains is alive.
static bool is_of_running_job(const std::string& name, const std::string& prefix) {
  const int launcher = std::atoi(name.c_str() + prefix.size());
  return launcher > 0 && (::kill(launcher, 0) == 0 || errno == EPERM);
}

/// Removes this user's oldest records of failed jobs; the newest kFlightsKept stay.
static void forget_old_flights(const std::string& newest) {
  const std::string prefix = concat(kFlightPrefix, ::getuid(), '-');
  std::vector<std::pair<time_t, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(newest).parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    struct stat status {};
    if (!name.starts_with(prefix) || is_of_running_job(name, prefix)) continue;
    // Others may make something of that name where all may write; a link is not followed.
    if (::lstat(entry.path().c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) continue;
    if (status.st_uid == ::getuid()) found.emplace_back(status.st_mtime, entry.path());
  }
  std::ranges::sort(found, std::greater());
  // This job's own is of a launcher that lives.
  for (size_t i = kFlightsKept - 1; i < found.size(); ++i) fs::remove_all(found[i].second, error);
}

/// Starts the processes and returns when all have ended; a failure's cause is printed to stderr.
/// `seconds` end them, unless it is 0.
static LaunchReport launched(const LaunchedProgram& o, const std::vector<std::string>& command,
                             double seconds, int restart) {
  LaunchOptions options{.ranks = o.ranks,
                        .prefix = !o.no_prefix,
                        .job = new_job(),
                        .hosts = o.hosts,
                        .host_rank = o.host_rank,
                        .rendezvous = o.rendezvous};
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  if (seconds > 0 && options.timeout.count() == 0) options.timeout = std::chrono::milliseconds(1);
  const bool is_given = std::getenv(kFlightVariable) != nullptr;
  const std::string flight = is_given ? "" : flight_folder(options.job);
  if (!is_given) options.environment.emplace_back(kFlightVariable, flight);
  if (restart > 0) options.environment.emplace_back("WEFT_RESTART", std::to_string(restart));
  const LaunchReport report = launch(command, options);
  outlive_readers();
  std::error_code ignored;
  if (report.code == 0) {
    if (!is_given) fs::remove_all(flight, ignored);
    return report;
  }
  std::cerr << "weft run: " << escaped(report.cause) << '\n';
  if (!is_given && fs::is_directory(flight, ignored)) {
    forget_old_flights(flight);
    std::cerr << "weft run: the last operations of the ranks are in " << printable(flight)
              << "; to see them: weft trace " << printable(flight) << " -o trace.json\n";
  }
  return report;
}

/// The value of a flag of a command, "--save DIR" or "--save=DIR"; empty without.
static std::string flag_of(const std::vector<std::string>& command, const std::string& flag) {
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i] == flag && i + 1 < command.size()) return command[i + 1];
    if (command[i].starts_with(flag + '=')) return command[i].substr(flag.size() + 1);
  }
  return {};
}

static bool has_checkpoint(const std::string& directory) {
  try {
    return !newest_complete_checkpoint(directory).empty();
  } catch (const std::invalid_argument&) {  // it is not there yet
    return false;
  }
}

/// The command of a restart: `weft train` goes on from the newest complete checkpoint of --save.
static std::vector<std::string> restarted(std::vector<std::string> command) {
  const bool trains =
      command.size() > 1 && command[1] == "train" && fs::path(command[0]).filename() == "weft";
  if (!trains) return command;
  const std::string save = flag_of(command, "--save");
  if (save.empty()) {
    fail("run: --save of weft train is missing, expected a directory for --restarts to go on from");
  }
  // The run's own folder as soon as it has a checkpoint, also where the first start began from
  // another one.
  if (!flag_of(command, "--resume").empty() && !has_checkpoint(save)) return command;
  std::erase_if(command, [](const std::string& word) { return word.starts_with("--resume="); });
  const auto given = std::ranges::find(command, "--resume");
  if (given != command.end() && given + 1 != command.end()) command.erase(given, given + 2);
  command.insert(command.end(), {"--resume", save});
  return command;
}

/// Whether another start may do better: a rank failed, of itself, after it had started.
static bool may_restart(const LaunchReport& report) {
  constexpr int kWrongUsage = 2, kTimedOut = 124, kNotStarted = 127;
  constexpr int kFinal[] = {0, kWrongUsage, kTimedOut, kNotStarted};
  return report.rank >= 0 && !report.requested &&
         std::ranges::find(kFinal, report.code) == std::end(kFinal);
}

/// Runs the program, again after failures, and returns the exit code.
static int run_program(const LaunchedProgram& o) {
  if (o.command.empty() || o.command[0].empty()) {
    fail("run: the program is missing, expected weft run -n N -- program arguments");
  }
  using Clock = std::chrono::steady_clock;
  constexpr double kLongestWait = 60;
  if (o.restarts > 0) restarted(o.command);
  const auto began = Clock::now();
  double wait = 1;
  for (int restart = 0;; ++restart) {
    const double passed = std::chrono::duration<double>(Clock::now() - began).count();
    const bool is_limited = o.timeout > 0 && restart > 0;
    const double left = is_limited ? std::max(1e-3, o.timeout - passed) : o.timeout;
    const LaunchReport report =
        launched(o, restart == 0 ? o.command : restarted(o.command), left, restart);
    if (restart == o.restarts || !may_restart(report)) return report.code;
    const double now = std::chrono::duration<double>(Clock::now() - began).count();
    if (o.timeout > 0 && now + wait >= o.timeout) {
      std::cerr << concat("weft run: the timeout of ", o.timeout, " s leaves no time for restart ",
                          restart + 1, "\n");
      return 124;
    }
    std::cerr << concat("weft run: restart ", restart + 1, " of ", o.restarts, " in ", wait,
                        " s\n");
    std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    wait = std::min(2 * wait, kLongestWait);
  }
}

void add_run(CLI::App& program, int& argc, char** argv, int& code) {
  const auto launched = std::make_shared<LaunchedProgram>();
  LaunchedProgram& o = *launched;
  CLI::App* run = program.add_subcommand("run", "Start a program as N processes of each host");
  run->footer(
      "weft run -n N [--timeout S] [--restarts N] [--no-prefix] -- program arguments\n"
      "Example: weft run -n 4 -- weft train --data src\n"
      "Output is written in whole lines, \"[2] \" before those of rank 2. Rank 0 has the stdin.\n"
      "Signals are passed on to all. When one rank fails the others are ended too.\n"
      "On several hosts, run it on each with another --host-rank; the ranks meet over TCP:\n"
      "  weft run --hosts 2 --host-rank 0 --rendezvous 10.0.0.1:29500 -n 4 -- weft train ...\n"
      "  weft run --hosts 2 --host-rank 1 --rendezvous 10.0.0.1:29500 -n 4 -- weft train ...\n"
      "The first address is that of host 0. Nothing is encrypted: use a network that you trust.\n"
      "With --restarts all are then started again, after 1 s, 2 s, 4 s, ... up to 60 s, with the\n"
      "number of the restart as WEFT_RESTART; weft train goes on from the newest complete\n"
      "checkpoint of its --save. A stop by a signal, the timeout, and exit code 2 are final.\n"
      "Exit codes: 0 when all ranks exited with 0, otherwise that of the first that failed\n"
      "(128 + signal if it was killed); 124 after the timeout, 127 when the program cannot be\n"
      "started, 2 when a flag is wrong, 1 when the ranks' output cannot be written.");
  takes_whole(run->add_option("-n,--np", o.ranks, "Processes, one a rank; -np too"), 1,
              kMostLocalRanks)
      ->required();
  add_number(*run, "--timeout", o.timeout, "End all after so many seconds (default: never)", 0,
             kLongestTimeout)
      ->type_name("S");
  takes_whole(run->add_option("--restarts", o.restarts,
                              "Start again after so many failures of a rank (default: 0)"),
              0, kMostRestarts);
  takes_whole(run->add_option("--hosts", o.hosts,
                              "Hosts, on each of which such a command starts N ranks (default: 1)"),
              1, kMostHosts);
  takes_whole(run->add_option("--host-rank", o.host_rank, "The number of this host, from 0"), 0,
              kMostHosts - 1);
  add_named(*run, "--rendezvous", o.rendezvous, "HOST:PORT",
            "Where rank 0 of host 0 listens for the others; HOST:PORT/NAME names the job");
  run->add_flag("--no-prefix", o.no_prefix, "Write lines as they are");
  run->prefix_command();
  o.command = cut_program(argc, argv);
  run->callback([run, launched, &code] {
    if (launched->hosts > 1) {
      for (const char* flag : {"--host-rank", "--rendezvous"}) {
        if (run->count(flag) == 0) fail("run: ", flag, " is missing, expected with --hosts");
      }
    }
    const std::vector<std::string> left = run->remaining();
    if (!left.empty() && left[0].starts_with('-')) {
      fail("run: flag ", in_quotes(left[0]), " does not exist; see weft run --help");
    }
    if (!left.empty()) launched->command = left;
    code = run_program(*launched);
  });
}

static std::vector<std::string> records_of(const std::vector<std::string>& paths) {
  std::vector<std::string> records;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      records.push_back(path);
      continue;
    }
    const size_t before = records.size();
    for (const auto& entry : fs::directory_iterator(path, error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("rank-") || !name.ends_with(".json")) continue;
      records.push_back(entry.path().string());
    }
    if (error) fail("trace: ", path, ": ", error.message());
    if (records.size() == before)
      fail("trace: ", path, " holds no flight record, expected files rank-<r>.json");
    std::sort(records.begin() + static_cast<std::ptrdiff_t>(before), records.end());
  }
  return records;
}

/// Merges the records into one file and prints what is in it. std::invalid_argument names a file
/// that is missing or malformed.
static void merge_traces(const TraceOptions& o) {
  const std::vector<std::string> records = records_of(o.paths);
  for (const std::string& record : records) {
    if (located(record) != located(o.out)) continue;
    fail("--out ", o.out, " is also one of the records, expected another file");
  }
  set_aside("--out", o.out);
  const FlightSummary summary = merge_flight_records(records, o.out);
  print(records.size(), records.size() == 1 ? " rank, " : " ranks, ", summary.operations,
        " operations, ", summary.unfinished, " of them unfinished, over ");
  std::printf("%.6f s: %s\n", summary.seconds, printable(o.out).c_str());
  if (summary.missing.empty()) return;
  print("no record of rank ", listed(summary.missing), '\n');
}

void add_trace(CLI::App& program) {
  const auto options = std::make_shared<TraceOptions>();
  TraceOptions& o = *options;
  CLI::App* trace = program.add_subcommand(
      "trace", "Merge the flight records of ranks into a Chrome or Perfetto trace");
  trace->footer(
      "A rank writes its last 1,024 collectives to the folder that WEFT_FLIGHT names (weft run "
      "sets\n"
      "it) when the job fails, and at SIGUSR1. Open the result in https://ui.perfetto.dev.\n"
      "Example: weft trace /tmp/weft-flight-0-1234-5678 -o trace.json");
  add_named(*trace, "records", o.paths, "PATH...", "Records, rank-<r>.json, or folders of them")
      ->required();
  add_named(*trace, "-o,--out", o.out, "FILE", "The trace to write")->required();
  trace->callback([options] { merge_traces(*options); });
}

}  // namespace weft::cli
