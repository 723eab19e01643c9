// SPDX-License-Identifier: Apache-2.0
#include "cli/resume.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <bit>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>

#include "cli/ranks.h"
#include "weft/context.h"
#include "weft/error.h"

namespace weft::cli {

static constexpr const char* kConfigPart = "config";

void add_resume_flags(CLI::App& command, ResumeOptions& o) {
  command.add_option("--save", o.save, "Save checkpoints to this directory")->type_name("DIR");
  command.add_option("--save-every", o.save_every, "Steps between them (default: only the last)");
  command.add_option("--keep", o.keep, "Complete ones to keep beside the newest; 0: all")
      ->capture_default_str();
  command
      .add_option("--resume", o.resume,
                  "Go on from the newest complete checkpoint of this directory (a new run if it "
                  "has none)")
      ->type_name("DIR");
}

/// What is newest there is so by its step: runs that are mixed go on from each other's checkpoints.
static void check_not_of_another_run(const ResumeOptions& o) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (o.save.empty() || !fs::is_directory(o.save, ignored)) return;
  const fs::path from = o.resume.empty() ? fs::path() : fs::canonical(o.resume, ignored);
  // --resume may also name one checkpoint of the directory.
  if (fs::equivalent(o.save, from, ignored)) return;
  if (fs::equivalent(o.save, from.parent_path(), ignored)) {
    const std::string newest = newest_complete_checkpoint(o.save);
    if (newest.empty() || fs::equivalent(newest, from, ignored)) return;
    fail("--save ", o.save, " holds ", newest, ", which is newer than --resume ", o.resume,
         " and would be taken for what is saved now; save to another directory");
  }
  const size_t held = list_checkpoints(o.save).size();
  if (held == 0) return;
  fail("--save ", o.save, " holds ", held, " checkpoint", held == 1 ? "" : "s",
       " of another run; go on from there with --resume ", o.save,
       ", or save to another directory");
}

void complete(ResumeOptions& o) {
  if (o.save_every < 0) fail("--save-every is ", o.save_every, "; at least 1");
  if (o.keep < 0) fail("--keep is ", o.keep, "; at least 1, or 0 for all");
  if (o.save_every > 0 && o.save.empty()) fail("--save-every needs --save DIR");
  check_not_of_another_run(o);
}

/// Both are one word: they become numbers of a checkpoint.
static RunNumbers numbers_of(const LlamaConfig& config) {
  return {{"dim", config.dim},
          {"layers", config.layers},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"ffn", config.ffn},
          {"vocabulary", config.vocabulary},
          {"max_sequence", config.max_sequence},
          {"tied", config.tied},
          {"rope_theta", std::bit_cast<int64_t>(config.rope_theta)},
          {"norm_eps", std::bit_cast<int64_t>(config.norm_eps)}};
}

LlamaConfig saved_config(const std::string& checkpoint) {
  const CheckpointContents contents = checkpoint_contents(checkpoint);
  const auto number = [&](const std::string& name) {
    const auto found = contents.numbers.find(concat(kConfigPart, '/', name));
    if (found == contents.numbers.end()) {
      fail(checkpoint, " says nothing of the model's ", name, "; was it saved by weft train?");
    }
    return found->second;
  };
  return {.dim = number("dim"),
          .layers = number("layers"),
          .heads = number("heads"),
          .kv_heads = number("kv_heads"),
          .head_dim = number("head_dim"),
          .ffn = number("ffn"),
          .vocabulary = number("vocabulary"),
          .max_sequence = number("max_sequence"),
          .rope_theta = std::bit_cast<double>(number("rope_theta")),
          .norm_eps = std::bit_cast<double>(number("norm_eps")),
          .tied = number("tied") != 0};
}

/// A part that is saved, and must be the same when it is loaded.
static TrainingState::Part fixed_part(const char* what, RunNumbers numbers) {
  return {.give =
              [numbers] {
                return StateDict{{}, numbers};
              },
          .take =
              [what, numbers](const RunNumbers& saved) {
                for (const auto& [name, number] : numbers) {
                  const int64_t before = saved.at(name);
                  if (before == number) continue;
                  fail("--resume: the checkpoint's ", what, " has ", name, ' ', before,
                       " but this run ", number);
                }
              }};
}

std::string complete_checkpoint(const std::string& directory,
                                const std::set<std::string>& suspects) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) fail(directory, " is no directory");
  if (list_checkpoints(directory).empty()) {
    const CheckpointReport report = inspect_checkpoint(directory, {.depth = Inspection::headers});
    if (report.verdict == Verdict::complete) return directory;
    if (report.verdict == Verdict::incomplete && report.ranks == 0) return {};
    fail_call("resume", directory, " is ", name_of(report.verdict), ": ", report.reason);
  }
  std::string newest;
  int passed = 0;
  for (const std::string& path : list_checkpoints(directory)) {
    const auto depth = suspects.contains(path) ? Inspection::data : Inspection::headers;
    const CheckpointReport report = inspect_checkpoint(path, {.depth = depth});
    if (report.verdict == Verdict::complete) return path;
    const std::string sentence =
        concat(path, ", which is ", name_of(report.verdict), ": ", report.reason);
    std::fprintf(stderr, "weft: passed over %s\n", sentence.c_str());
    if (passed++ == 0) newest = sentence;
  }
  // A new run beside them would be taken for theirs.
  fail_call("resume", "none of the ", passed, " checkpoints in ", directory,
            " is complete; passed over ", newest);
}

std::string chosen_checkpoint(const std::string& directory, const Communicator& world,
                              const std::set<std::string>& suspects) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    fail("--resume ", directory, " is no directory");
  }
  return world.broadcast(world.rank() == 0 ? complete_checkpoint(directory, suspects) : "", 0);
}

static volatile std::sig_atomic_t stop_signal = 0;
/// When it came, in milliseconds.
static std::atomic<int64_t> stop_time = 0;
/// The one that ended a run.
static std::atomic<int> ended_by = 0;

static constexpr int kStopSignals[] = {SIGTERM, SIGINT, SIGUSR2};

static void note_signal(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t milliseconds = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  if (stop_signal != 0) {
    // Who signals all processes of a job reaches a rank twice: the launcher passes its own on.
    if (milliseconds - stop_time < 1000) return;
    std::signal(signal, SIG_DFL);
    ::raise(signal);
    return;
  }
  stop_time = milliseconds;
  stop_signal = signal;
  constexpr char kText[] =
      "\nweft: stopping after this step, which will be saved; once more stops at once\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
}

/// What a signal does now: SIG_IGN where who started the program wants it to be ignored.
static auto handler_of(int signal) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

/// Nothing is left to be saved: a signal ends the program again.
static void stop_listening() {
  for (const int signal : kStopSignals) {
    if (handler_of(signal) == note_signal) std::signal(signal, SIG_DFL);
  }
}

/// mpirun sends SIGTERM when a rank is gone, and kills soon after: the ranks of other hosts then
/// say what they wait for.
static bool is_ended_by_mpirun() {
  return launched_by() == "mpirun" && launched_local_rank().size < launched_ranks();
}

RunSaver::RunSaver(const ResumeOptions& options, const Communicator& world, Llama& model,
                   Optimizer& optimizer, RunNumbers numbers)
    : options_(options), world_(world) {
  state_.add("model", model);
  state_.add("optimizer", optimizer);
  state_.add("random", Context::current().random);
  state_.add("step", step_);
  state_.add(kConfigPart, fixed_part("model", numbers_of(model.config())));
  state_.add("run", fixed_part("run", std::move(numbers)));
  if (options.save.empty()) return;
  // One process hears for all its ranks; a launcher tells all processes.
  if (world.rank() != 0 && launched_ranks() == 1) return;
  for (const int signal : kStopSignals) {
    if (signal == SIGTERM && is_ended_by_mpirun()) continue;
    if (handler_of(signal) != SIG_IGN) std::signal(signal, note_signal);
  }
}

static int64_t greatest(const Communicator& world, int64_t own) {
  int64_t all = 0;
  const std::array<int64_t, 1> counts{1};
  const Piece piece{.send = &own, .recv = &all, .dtype = DType::i64, .counts = counts};
  world.all_reduce({&piece, 1}, ReduceOp::max).wait();
  return all;
}

/// True when `mine` is so on any rank.
static bool is_on_any(const Communicator& world, bool mine) { return greatest(world, mine) != 0; }

void RunSaver::take_up() {
  std::string path;
  std::set<std::string> suspects;
  for (;;) {
    path = chosen_checkpoint(options_.resume, world_, suspects);
    if (path.empty()) break;
    std::exception_ptr error;
    try {
      load(path, state_);
    } catch (...) {
      error = std::current_exception();
    }
    if (!is_on_any(world_, error != nullptr)) break;
    // A block may be bad in what only some ranks read: then an older one is taken, else it is this
    // run that does not fit. Choosing it again looks at its blocks.
    const bool again = !suspects.insert(path).second;
    const bool none_else = path == options_.resume;
    if (error && (again || none_else)) std::rethrow_exception(error);
    if (again || none_else) fail_call("resume", path, " could not be loaded on another rank");
  }
  if (path.empty()) {
    if (world_.rank() == 0) {
      std::fprintf(stderr, "weft: %s has no complete checkpoint; the run starts at step 1\n",
                   options_.resume.c_str());
    }
    return;
  }
  if (world_.rank() == 0) {
    std::printf("resumed from %s after step %lld\n", path.c_str(), static_cast<long long>(step_));
  }
}

int64_t RunSaver::resume() {
  const bool continues = !options_.resume.empty();
  if (continues) take_up();
  if (options_.save.empty()) return step_;
  saver_.emplace(
      world_, options_.save,
      CheckpointOptions{.keep = options_.keep, .continues = continues, .resumed_step = step_});
  return step_;
}

/// All ranks stop after the same step, whichever of them saw a signal.
bool RunSaver::is_stopping() {
  const int64_t signal = greatest(world_, stop_signal);
  if (signal != 0) ended_by = static_cast<int>(signal);
  return signal != 0;
}

/// Whether no rank writes any more.
bool RunSaver::is_saved() { return !is_on_any(world_, saver_->is_saving()); }

void RunSaver::finish_save() {
  if (under_way_.empty()) return;
  saver_->wait();
  world_.barrier();
  if (world_.rank() == 0) {
    std::printf("saved %s\n", under_way_.c_str());
    std::fflush(stdout);
  }
  under_way_.clear();
}

bool RunSaver::after_step(int64_t step, bool is_last) {
  if (!saver_) return false;
  step_ = step;
  const bool stopping = is_stopping();
  // What went wrong with a save shows at the next step, not at the next save.
  if (!saver_->is_saving()) saver_->wait();
  if (!under_way_.empty() && is_saved()) finish_save();
  const bool due = options_.save_every > 0 && step % options_.save_every == 0;
  if (!stopping && !is_last && !due) return false;
  finish_save();
  under_way_ = saver_->save_async(step, state_);
  if (stopping || is_last) finish_save();
  return stopping;
}

void RunSaver::end_steps() {
  stop_listening();
  // It came after the last step that could heed it.
  if (stop_signal != 0 && ended_by == 0) std::raise(stop_signal);
}

int stopped_by() { return ended_by; }

}  // namespace weft::cli
