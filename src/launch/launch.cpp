// SPDX-License-Identifier: Apache-2.0
#include "weft/launch.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>

#include "src/comm/memory/memory_worlds.h"
#include "src/comm/tcp/sockets.h"
#include "src/comm/world.h"
#include "src/launch/rank.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/ranks.h"

namespace weft {

using LaunchClock = LaunchRank::Clock;

/// The time for the others to end when one has failed, then from SIGTERM to SIGKILL.
static constexpr std::chrono::milliseconds kOwnEnd{2000}, kLastSignal{1000};
/// The time for a stopped rank to be continued when the others have exited.
static constexpr std::chrono::seconds kStoppedEnd{5};
/// The time between looks at a terminal that others read, at what exited ranks left running, and at
/// LaunchOptions::stops.
static constexpr std::chrono::milliseconds kLook{100};
static constexpr int kTimedOut = 124, kNotStarted = 127, kIncompleteOutput = 1;

std::string new_job() { return concat(::getuid(), '-', ::getpid(), '-', random_digits()); }

namespace {

/// The processes of one launch, from start to end.
class LaunchedJob {
 public:
  LaunchedJob(const std::vector<std::string>& command, const LaunchOptions& options)
      : command_(command),
        options_(options),
        job_(options.job.empty() ? new_job() : options.job),
        out_(options.out),
        err_(options.err) {}

  /// Kills ranks that still run, after an exception.
  ~LaunchedJob() {
    send_all(SIGKILL);
    for (LaunchRank& rank : ranks_) {
      rank.out().close();
      rank.err().close();
      RankExit how;
      while (!rank.is_gone()) {
        if (!rank.look(how) && !rank.has_exited()) ::usleep(1000);
        rank.clear_away(true);
      }
    }
  }

  LaunchReport run() {
    ranks_.reserve(static_cast<size_t>(options_.ranks));
    try {
      for (int rank = 0; rank < options_.ranks; ++rank) {
        start(rank);
        input_.close_for_child();
      }
    } catch (const std::runtime_error& error) {
      fail_first(kNotStarted, in_world(static_cast<int>(ranks_.size())), error.what());
      begin(Ending::by_itself, std::chrono::milliseconds(0));
    }
    while (!std::ranges::all_of(ranks_, &LaunchRank::is_gone)) {
      wait_for_news();
      take_signals();
      ask_whether_to_stop();
      look_at_ranks();
      end_stopped();
      end_ranks();
    }
    write_rest();
    for (const LineSink* sink : {&out_, &err_}) {
      if (sink->error() == 0) continue;
      fail_first(kIncompleteOutput, -1,
                 concat(sink == &out_ ? "stdout" : "stderr",
                        ": the output of the ranks is incomplete: ", std::strerror(sink->error())));
    }
    return std::move(report_);
  }

 private:
  /// The way in which the ranks have been asked to exit.
  enum class Ending { none, by_itself, terminated, killed };

  /// The rank in the world of a rank of this host.
  int in_world(int rank) const { return options_.host_rank * options_.ranks + rank; }

  /// The environment of a rank, as "NAME=value"; the first value of a name counts.
  std::vector<std::string> environment_of(int rank) const {
    std::map<std::string, std::string> all(options_.environment.begin(),
                                           options_.environment.end());
    all.insert({{"WEFT_RANK", std::to_string(in_world(rank))},
                {"WEFT_WORLD_SIZE", std::to_string(options_.ranks * options_.hosts)},
                {"WEFT_LOCAL_RANK", std::to_string(rank)},
                {"WEFT_LOCAL_WORLD_SIZE", std::to_string(options_.ranks)},
                {"WEFT_JOB", job_}});
    if (options_.hosts > 1) {
      all.insert({{"WEFT_RENDEZVOUS", options_.rendezvous},
                  {"WEFT_HOST_RANK", std::to_string(options_.host_rank)}});
    }
    for (char** entry = environ; *entry; ++entry) {
      const std::string text = *entry;
      if (const size_t end = text.find('='); end != text.npos) {
        all.emplace(text.substr(0, end), text.substr(end + 1));
      }
    }
    const int cores = std::max(1, available_cores() / options_.ranks);
    all.insert({{"OMP_WAIT_POLICY", "passive"}, {"OMP_NUM_THREADS", std::to_string(cores)}});
    std::vector<std::string> entries;
    for (const auto& [name, value] : all) entries.push_back(concat(name, '=', value));
    return entries;
  }

  void start(int rank) {
    LaunchPipe out = new_pipe(), err = new_pipe();
    const std::string prefix = options_.prefix ? concat('[', in_world(rank), "] ") : "";
    const bool ends_last = options_.prefix || options_.ranks > 1;
    make_nonblocking(out.read.get());
    make_nonblocking(err.read.get());
    const LaunchChild child{command_, environment_of(rank),
                            in_world(rank) == 0 ? input_.for_child() : -1, out.write.get(),
                            err.write.get()};
    ranks_.emplace_back(start_child(child, signals_),
                        RankOutput(std::move(out.read), out_, prefix, ends_last),
                        RankOutput(std::move(err.read), err_, prefix, ends_last));
  }

  void fail_first(int code, int rank, std::string cause) {
    if (report_.code != 0) return;
    report_.code = code;
    report_.rank = rank;
    report_.cause = std::move(cause);
  }

  /// poll's timeout: until something is due that no descriptor announces.
  int milliseconds_to_wait() const {
    LaunchClock::time_point until = LaunchClock::time_point::max();
    if (asks() || input_.is_in_background() ||
        std::ranges::any_of(ranks_, &LaunchRank::has_exited)) {
      until = LaunchClock::now() + kLook;
    }
    if (ending_ != Ending::none && ending_ != Ending::killed) until = std::min(until, next_ending_);
    if (has_timeout()) until = std::min(until, started_ + options_.timeout);
    if (has_grace()) until = std::min(until, stopped_at_ + options_.grace);
    if (until == LaunchClock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - LaunchClock::now());
    return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
  }

  void wait_for_news() {
    std::vector<pollfd> all{{signals_.descriptor(), POLLIN, 0},
                            {input_.descriptor(), input_.events(), 0}};
    for (const LineSink* sink : {&out_, &err_}) {
      all.push_back({sink->is_empty() ? -1 : sink->descriptor(), POLLOUT, 0});
    }
    const size_t before = all.size();
    for (LaunchRank& rank : ranks_) {
      all.push_back({rank.out().descriptor(), POLLIN, 0});
      all.push_back({rank.err().descriptor(), POLLIN, 0});
    }
    if (::poll(all.data(), all.size(), milliseconds_to_wait()) <= 0) return;
    if (all[1].revents) input_.pass_on();
    out_.write();
    err_.write();
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (all[before + 2 * i].revents) ranks_[i].out().read();
      if (all[before + 2 * i + 1].revents) ranks_[i].err().read();
    }
  }

  void look_at_ranks() {
    // Among exits found together, a killed rank is the cause; the others only noticed it, and may
    // have aborted because they did not catch that error.
    const auto weight = [](const RankExit& how) {
      return how.signal == 0 ? 0 : how.signal == SIGABRT ? 1 : 2;
    };
    std::optional<std::pair<int, RankExit>> first;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      RankExit how;
      if (ranks_[r].look(how) && how.code != 0 && (!first || weight(how) > weight(first->second))) {
        first = {in_world(static_cast<int>(r)), how};
      }
    }
    if (first) ended(first->first, first->second);
    for (LaunchRank& rank : ranks_) rank.clear_away(gives_up_);
  }

  void ended(int rank, const RankExit& how) {
    constexpr int kStops[] = {SIGTERM, SIGINT, SIGUSR2, SIGHUP};
    const bool has_stopped =
        how.signal == 0 && std::ranges::find(kStops, how.code - 128) != std::end(kStops);
    if (report_.code == 0) report_.requested = has_stopped || told_to_end_ != 0;
    if (told_to_end_ != 0 && how.code == 128 + told_to_end_) {
      // The rank ended as told: the others take the time that they need.
      return fail_first(how.code, rank,
                        concat("ended by ", name_of_signal(told_to_end_), seconds_in_words()));
    }
    fail_first(how.code, rank, concat("rank ", rank, ' ', how.in_words(), seconds_in_words()));
    if (ending_ == Ending::none) begin(Ending::by_itself, kOwnEnd);
  }

  void send_all(int signal) const {
    for (const LaunchRank& rank : ranks_) rank.send(signal);
  }

  void take_signals() {
    for (const int signal : signals_.take()) {
      if (signal == SIGTSTP) {
        send_all(SIGTSTP);
        ::raise(SIGSTOP);
        send_all(SIGCONT);
        continue;
      }
      const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
      report_.told |= ends || signal == SIGUSR2;
      if (ends) {
        told_to_end_ = signal;
        if (std::ranges::all_of(ranks_, &LaunchRank::has_exited)) gives_up_ = true;
      }
      send_all(signal);
    }
  }

  bool asks() const { return options_.stops && told_to_end_ == 0 && ending_ == Ending::none; }

  void ask_whether_to_stop() {
    if (!asks() || !options_.stops()) return;
    told_to_end_ = SIGTERM;
    report_.stopped = true;
    stopped_at_ = LaunchClock::now();
    send_all(SIGTERM);
  }

  bool has_grace() const {
    return report_.stopped && options_.grace.count() > 0 && ending_ == Ending::none;
  }

  /// Ends ranks that go on after SIGTERM.
  void end_deaf(LaunchClock::time_point now) {
    if (!has_grace() || now < stopped_at_ + options_.grace) return;
    const auto deaf = std::ranges::find(ranks_, false, &LaunchRank::has_exited);
    if (deaf == ranks_.end()) return;
    report_.code = 128 + SIGKILL;
    report_.rank = in_world(static_cast<int>(deaf - ranks_.begin()));
    report_.requested = true;
    report_.cause = formatted("rank %d did not end within %g s of SIGTERM and is killed",
                              report_.rank, std::chrono::duration<double>(options_.grace).count());
    begin(Ending::terminated, std::chrono::milliseconds(0));
  }

  void begin(Ending ending, std::chrono::milliseconds next) {
    ending_ = ending;
    next_ending_ = LaunchClock::now() + next;
  }

  /// The ranks that have exited do not wait for the others, so no deadline of theirs ends these.
  void end_stopped() {
    const auto rests = [](const LaunchRank& rank) {
      return rank.has_exited() || rank.is_stopped();
    };
    const auto left = std::ranges::find(ranks_, false, &LaunchRank::has_exited);
    if (ending_ != Ending::none || left == ranks_.end() ||
        std::ranges::none_of(ranks_, &LaunchRank::has_exited) ||
        !std::ranges::all_of(ranks_, rests)) {
      return stopped_since_.reset();
    }
    if (!stopped_since_) stopped_since_ = LaunchClock::now();
    if (LaunchClock::now() - *stopped_since_ < kStoppedEnd) return;
    const int rank = in_world(static_cast<int>(left - ranks_.begin()));
    fail_first(128 + SIGSTOP, rank,
               concat("rank ", rank, " was stopped by a signal and not continued within ",
                      kStoppedEnd.count(), " s after the others exited"));
    begin(Ending::by_itself, std::chrono::milliseconds(0));
  }

  void end_ranks() {
    const auto now = LaunchClock::now();
    end_deaf(now);
    if (has_timeout() && now >= started_ + options_.timeout) {
      timed_out_ = true;
      const double limit = std::chrono::duration<double>(options_.timeout).count();
      fail_first(kTimedOut, -1, concat("ended all ranks: the timeout of ", limit, " s passed"));
      if (ending_ < Ending::terminated) begin(Ending::by_itself, std::chrono::milliseconds(0));
    }
    if (ending_ == Ending::none || ending_ == Ending::killed || now < next_ending_) return;
    if (ending_ == Ending::by_itself) {
      send_all(SIGTERM);
      // A stopped process gets no signal but that and SIGKILL.
      send_all(SIGCONT);
      begin(Ending::terminated, kLastSignal);
    } else {
      send_all(SIGKILL);
      ending_ = Ending::killed;
      gives_up_ |= timed_out_;
    }
  }

  /// Writes what is left of the output, unless told to give up.
  void write_rest() {
    for (LineSink* sink : {&out_, &err_}) {
      while (!sink->is_empty() && !gives_up_) {
        pollfd all[] = {{sink->descriptor(), POLLOUT, 0}, {signals_.descriptor(), POLLIN, 0}};
        ::poll(all, 2, milliseconds_to_wait());
        take_signals();
        end_ranks();
        sink->write();
      }
      sink->write();
    }
  }

  /// " after 1.2 s".
  std::string seconds_in_words() const {
    const std::chrono::duration<double> seconds = LaunchClock::now() - started_;
    return formatted(" after %.1f s", seconds.count());
  }
  bool has_timeout() const { return options_.timeout.count() > 0 && !timed_out_; }

  const std::vector<std::string>& command_;
  const LaunchOptions& options_;
  const std::string job_;
  LaunchSignals signals_;
  LaunchInput input_;
  LineSink out_, err_;
  std::vector<LaunchRank> ranks_;
  LaunchClock::time_point started_ = LaunchClock::now();
  LaunchReport report_;
  Ending ending_ = Ending::none;
  LaunchClock::time_point next_ending_{};
  bool timed_out_ = false;
  /// The time since which all ranks that have not exited are stopped.
  std::optional<LaunchClock::time_point> stopped_since_;
  /// The time at which LaunchOptions::stops ended the ranks.
  LaunchClock::time_point stopped_at_{};
  /// The last signal passed on that ends a program, or 0.
  int told_to_end_ = 0;
  /// The launcher no longer waits for the reader of the output.
  bool gives_up_ = false;
};

}  // namespace

static void check_hosts(const LaunchOptions& options) {
  if (options.hosts < 1 || options.hosts > kMostHosts) {
    fail("launch: number of hosts is ", options.hosts, ", expected 1 to ", kMostHosts);
  }
  if (options.host_rank < 0 || options.host_rank >= options.hosts) {
    fail("launch: host rank is ", options.host_rank, ", expected 0 to ", options.hosts - 1);
  }
  if (options.hosts == 1) return;
  const size_t slash = std::min(options.rendezvous.find('/'), options.rendezvous.size());
  endpoint_of(options.rendezvous.substr(0, slash));
}

LaunchReport launch(const std::vector<std::string>& command, const LaunchOptions& options) {
  if (command.empty() || command[0].empty())
    fail("launch: the command is empty, expected a program");
  if (options.ranks < 1 || options.ranks > kMostLocalRanks) {
    fail("launch: the number of ranks is ", options.ranks, ", expected 1 to ", kMostLocalRanks);
  }
  check_hosts(options);
  if (options.timeout.count() < 0) {
    fail("launch: timeout must be at least 0 ms, got ", options.timeout.count());
  }
  open_standard_descriptors();
  return LaunchedJob(command, options).run();
}

}  // namespace weft
