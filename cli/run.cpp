// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string_view>
#include <utility>

#include "cli/commands.h"
#include "cli/elastic.h"
#include "cli/job_signals.h"
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
/// Restarts of a job with --elastic or --redundancy that does not say how many.
static constexpr int kOwnRestarts = 100;
static constexpr std::string_view kWithValue[] = {
    "-n",           "--np",    "--timeout",   "--restarts",   "--elastic",
    "--redundancy", "--hosts", "--host-rank", "--rendezvous", "--grace"};

namespace {

/// Options of `weft run`.
struct LaunchedProgram {
  int ranks = 0;
  double timeout = 0;
  int hosts = 1;
  int host_rank = 0;
  std::string rendezvous;
  /// -1: not given.
  int restarts = -1;
  /// "MIN:MAX", or empty.
  std::string elastic;
  std::string redundancy = "none";
  /// This host takes the place of one that a running job has lost.
  bool rejoins = false;
  /// Seconds for ranks to end after `weft resize`.
  double grace = 300;
  bool no_prefix = false;
  /// The program and its arguments.
  std::vector<std::string> command;
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

namespace {

/// Holds what changes from one start of a job to the next.
struct JobStart {
  int ranks = 0;
  int number = 0;
  /// Seconds after which the ranks are ended; 0: never.
  double seconds = 0;
};

/// Holds what a job keeps from one start to the next.
struct KeptJob {
  std::unique_ptr<JobFolder> folder;
  std::unique_ptr<ElasticRanks> elastic;
  bool has_copies = false;
  /// Set where the job may start its ranks again.
  std::unique_ptr<JobSignals> signals;

  explicit KeptJob(const LaunchedProgram& o) : has_copies(o.redundancy != "none") {
    const RankBounds bounds = o.elastic.empty() ? RankBounds() : rank_bounds(o.elastic);
    if (!o.elastic.empty() && (o.ranks < bounds.least || o.ranks > bounds.most)) {
      fail("run: -n is ", o.ranks, ", expected ", bounds.least, " to ", bounds.most,
           ", as --elastic says");
    }
    if (!o.elastic.empty() || has_copies) folder = std::make_unique<JobFolder>();
    if (!o.elastic.empty()) elastic = std::make_unique<ElasticRanks>(*folder, bounds, o.ranks);
    if (o.restarts > 0 || folder) signals = std::make_unique<JobSignals>();
  }
  /// True if the job has gone on since its last start.
  bool has_gone_on() const { return has_copies && folder->has_news(); }
};

}  // namespace

/// Starts the processes and returns when all have ended; a failure's cause is printed to stderr.
static LaunchReport launched(const LaunchedProgram& o, const std::vector<std::string>& command,
                             const JobStart& start, const KeptJob& kept) {
  LaunchOptions options{.ranks = start.ranks,
                        .prefix = !o.no_prefix,
                        .job = new_job(),
                        .hosts = o.hosts,
                        .host_rank = o.host_rank,
                        .rendezvous = o.rendezvous};
  const double seconds = start.seconds;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  if (seconds > 0 && options.timeout.count() == 0) options.timeout = std::chrono::milliseconds(1);
  const bool is_given = std::getenv(kFlightVariable) != nullptr;
  const std::string flight = is_given ? "" : flight_folder(options.job);
  if (!is_given) options.environment.emplace_back(kFlightVariable, flight);
  if (start.number > 0) {
    options.environment.emplace_back("WEFT_RESTART", std::to_string(start.number));
  }
  if (kept.has_copies) options.environment.emplace_back("WEFT_COPIES", kept.folder->copies());
  if (kept.signals) {
    options.stops = [&] {
      return kept.signals->told() != 0 || (kept.elastic && kept.elastic->is_changed());
    };
    options.grace = std::chrono::milliseconds(static_cast<int64_t>(o.grace * 1000));
  }
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
  // another one. Ranks of all hosts must have the same flags, in the same order.
  const std::string resume = flag_of(command, "--resume");
  if (!resume.empty() && (resume == save || !has_checkpoint(save))) return command;
  std::erase_if(command, [](const std::string& word) { return word.starts_with("--resume="); });
  const auto given = std::ranges::find(command, "--resume");
  if (given != command.end() && given + 1 != command.end()) command.erase(given, given + 2);
  command.insert(command.end(), {"--resume", save});
  return command;
}

/// True if another start may do better: a rank failed, of itself, after it had started.
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
  const KeptJob kept(o);
  const int most = o.restarts >= 0 ? o.restarts : kept.folder ? kOwnRestarts : 0;
  if (most > 0 || kept.elastic || o.rejoins) restarted(o.command);
  const auto began = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  JobStart start{.ranks = o.ranks, .number = o.rejoins ? 1 : 0, .seconds = o.timeout};
  double next_wait = 1;
  bool had_gone_on = false;
  for (int failures = 0;; ++start.number) {
    if (o.timeout > 0 && start.number > 0) start.seconds = std::max(1e-3, o.timeout - passed());
    const LaunchReport report =
        launched(o, start.number == 0 ? o.command : restarted(o.command), start, kept);
    if (report.told) return report.code;
    if (kept.signals && kept.signals->told() != 0) return 128 + kept.signals->told();
    // The job has run with these flags before. They differ only from those of a host that came back
    // without --rejoin, so the copies are kept until it comes with it.
    const bool met_other_flags = o.hosts > 1 && kept.has_copies && start.number > 0 &&
                                 report.rank >= 0 && !report.requested && report.code == 2;
    const bool has_failed = may_restart(report) || met_other_flags;
    if (kept.elastic && (has_failed || report.requested || report.stopped)) {
      if (!kept.elastic->take(report)) return report.code;
      start.ranks = kept.elastic->ranks();
    } else if (!has_failed) {
      return report.code;
    }
    if (has_failed && failures++ == most) return report.code;
    // A job that has gone on since its last start, or the one before, goes on at once.
    const bool has_gone_on = !has_failed || kept.has_gone_on();
    const bool goes_on = std::exchange(had_gone_on, has_gone_on && kept.has_copies) || has_gone_on;
    if (goes_on) next_wait = 1;
    const double wait = goes_on ? 0 : next_wait;
    if (o.timeout > 0 && passed() + wait >= o.timeout) {
      std::cerr << concat("weft run: the timeout of ", o.timeout, " s leaves no time for restart ",
                          start.number + 1, "\n");
      return 124;
    }
    std::cerr << concat("weft run: restart ", start.number + 1, " of ", most,
                        wait > 0 ? concat(" in ", wait, " s") : " at once",
                        kept.elastic ? concat(" with -n ", start.ranks) : "", "\n");
    if (const int signal = kept.signals->told_within(wait)) return 128 + signal;
    if (wait > 0) next_wait = std::min(2 * wait, kLongestWait);
  }
}

static constexpr const char* kRunText =

    "weft run -n N [--timeout S] [--restarts N] [--elastic MIN:MAX] [--redundancy host|mirror]\n"
    "    [--no-prefix] -- program arguments\n"
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
    "With --redundancy host a trainer that saves copies its state to the host's memory after\n"
    "each step, and a restart goes on at once from the newest copy, without a disk. With\n"
    "--redundancy mirror on several hosts each copy is kept on the next host too: when a host is\n"
    "lost, start its command elsewhere with --rejoin, and the ranks go on with it. With\n"
    "--elastic a restart after the death of a rank has one rank less, down to MIN; a rank that\n"
    "gets SIGTERM leaves in the same way; weft resize PID N changes their number.\n"
    "Exit codes: 0 when all ranks exited with 0, otherwise that of the first that failed\n"
    "(128 + signal if it was killed); 124 after the timeout, 127 when the program cannot be\n"
    "started, 2 when a flag is wrong, 1 when the ranks' output cannot be written.";

/// Checks the flags that go with --hosts.
static void check_hosts(const CLI::App& run, int hosts, const std::string& redundancy) {
  if (redundancy == "parity") {
    fail(
        "run: --redundancy is parity, expected none, host or mirror; copies are whole files, and "
        "sums of them are not made");
  }
  if (hosts == 1 && run.count("--rejoin") > 0) {
    fail("run: --rejoin is given without --hosts, expected a job of several hosts");
  }
  if (hosts == 1) return;
  for (const char* flag : {"--host-rank", "--rendezvous"}) {
    if (run.count(flag) == 0) fail("run: ", flag, " is missing, expected with --hosts");
  }
  if (run.count("--elastic") > 0) {
    fail("run: --elastic is given with --hosts ", hosts, ", expected one host");
  }
  if (redundancy == "host") {
    fail("run: --redundancy is host with --hosts ", hosts,
         ", expected mirror, which survives the loss of a host");
  }
}

void add_run(CLI::App& program, int& argc, char** argv, int& code) {
  const auto launched = std::make_shared<LaunchedProgram>();
  LaunchedProgram& o = *launched;
  CLI::App* run = program.add_subcommand("run", "Start a program as N processes of each host");
  run->footer(kRunText);
  takes_whole(run->add_option("-n,--np", o.ranks, "Processes, one a rank; -np too"), 1,
              kMostLocalRanks)
      ->required();
  add_number(*run, "--timeout", o.timeout, "End all after so many seconds (default: never)", 0,
             kLongestTimeout)
      ->type_name("S");
  takes_whole(run->add_option("--restarts", o.restarts,
                              "Start again after so many failures of a rank (default: 0; 100 "
                              "with --elastic or --redundancy)"),
              0, kMostRestarts);
  takes_whole(run->add_option("--hosts", o.hosts,
                              "Hosts, on each of which such a command starts N ranks (default: 1)"),
              1, kMostHosts);
  takes_whole(run->add_option("--host-rank", o.host_rank, "The number of this host, from 0"), 0,
              kMostHosts - 1);
  add_named(
      *run, "--rendezvous", o.rendezvous, "HOST:PORT",
      "Address at which rank 0 of host 0 listens for the others; HOST:PORT/NAME names the job");
  add_named(*run, "--elastic", o.elastic, "MIN:MAX",
            "Go on with MIN to MAX ranks when ranks die, leave or join");
  run->add_option("--redundancy", o.redundancy,
                  "Place of a copy of a trainer's state, kept after each step: none; host, its "
                  "memory; mirror, the next host's too (default: none)")
      ->check(CLI::IsMember({"none", "host", "mirror", "parity"}));
  add_number(*run, "--grace", o.grace,
             "Seconds for ranks to end after weft resize, then they are killed (default: 300)",
             1e-3, kLongestTimeout)
      ->type_name("S");
  run->add_flag("--rejoin", o.rejoins, "Take the place of a host that a running job has lost");
  run->add_flag("--no-prefix", o.no_prefix, "Write lines as they are");
  run->prefix_command();
  o.command = cut_program(argc, argv);
  run->callback([run, launched, &code] {
    check_hosts(*run, launched->hosts, launched->redundancy);
    const std::vector<std::string> left = run->remaining();
    if (!left.empty() && left[0].starts_with('-')) {
      fail("run: flag ", in_quotes(left[0]), " does not exist; see weft run --help");
    }
    if (!left.empty()) launched->command = left;
    code = run_program(*launched);
  });
}

}  // namespace weft::cli
