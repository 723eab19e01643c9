// SPDX-License-Identifier: Apache-2.0
#include "train/resume.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <exception>
#include <filesystem>
#include <span>
#include <vector>

#include "train/option_names.h"
#include "weft/adapters.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/extend/saved_model.h"
#include "weft/extend/store.h"
#include "weft/pipelined_transformer.h"
#include "weft/ranks.h"

namespace weft {

Start start_of(const ResumeOptions& options) {
  const auto& allowed = options.allow_change;
  const bool always = std::ranges::find(allowed, "start") != allowed.end();
  return always ? Start::allowed : Start::never_saved;
}

/// The name of an option in errors.
static std::string option(const ResumeOptions& o, const char* name) {
  return option_name(name, o.are_flags);
}

static std::string best_folder(const ResumeOptions& o) { return concat(o.save, "/best"); }

/// The newest one there is so by step: runs that are mixed go on from each other's checkpoints.
static void check_not_of_another_run(const ResumeOptions& o) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (o.save.empty() || continues_copies(o) || !is_directory(o.save)) return;
  fs::path from = o.resume.empty() ? fs::path() : fs::canonical(o.resume, ignored);
  if (is_object_path(o.resume)) from = object_path(o.resume);
  // --resume may also name one checkpoint of the directory.
  if (is_same_place(o.save, from)) return;
  if (is_same_place(o.save, from.parent_path())) {
    for (const std::string& path : list_checkpoints(o.save)) {
      if (is_same_place(path, from)) return;
      const auto report = inspect_existing(path, {.depth = Inspection::headers});
      if (!report || report->verdict != Verdict::complete) continue;
      fail(option(o, "save"), ' ', o.save, " holds ", path, ", expected nothing newer than ",
           option(o, "resume"), ' ', o.resume, "; save to another directory");
    }
  }
  const size_t held = list_checkpoints(o.save).size();
  if (held == 0) return;
  fail(option(o, "save"), ' ', o.save, " holds ", held, " checkpoint", held == 1 ? "" : "s",
       " of another run, expected none; go on from there with ", option(o, "resume"), ' ', o.save,
       ", or save to another directory");
}

/// Checks that a new run keeps no best checkpoint next to that of another run.
static void check_best(const ResumeOptions& o, bool keeps_best) {
  if (!keeps_best || !o.resume.empty() || continues_copies(o)) return;
  const size_t held = list_checkpoints(best_folder(o)).size();
  if (held == 0) return;
  fail(option(o, "save"), ' ', best_folder(o), " holds ", held, " checkpoint", held == 1 ? "" : "s",
       " of another run, expected none; save to another directory");
}

void check_directories(const ResumeOptions& o) {
  if (o.save_every > 0 && o.save.empty()) {
    fail(option(o, "save"), " is empty, expected a directory for ", option(o, "save_every"));
  }
  // The first start of a script that also restarts: --save makes it.
  const bool will_be_made = !o.save.empty() && located(o.save) == located(o.resume);
  if (!o.resume.empty() && !will_be_made) check_directory(option(o, "resume"), o.resume);
  check_not_of_another_run(o);
}

static volatile std::sig_atomic_t stop_signal = 0;
/// The time when it came, in milliseconds.
static std::atomic<int64_t> stop_time = 0;
/// The one that ended a run.
static std::atomic<int> ended_by = 0;

static constexpr int kStopSignals[] = {SIGTERM, SIGINT, SIGUSR2, SIGHUP};

static void note_signal(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t milliseconds = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  if (stop_signal != 0) {
    // A signal to all processes of a job reaches a rank twice: the launcher forwards its copy.
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

/// The current handler of a signal: SIG_IGN when the parent process wants the signal ignored.
static auto handler_of(int signal) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

/// mpirun sends SIGTERM when a rank is gone, and kills soon after: the ranks of other hosts then
/// say what they wait for.
static bool is_ended_by_mpirun() {
  return launched_by() == "mpirun" && launched_local_rank().size < launched_ranks();
}

/// True when all other parameters are frozen: they come from the base model.
static bool trains_only_adapters(Module& model) {
  if (adapted_linears(model).empty()) return false;
  return std::ranges::all_of(model.named_parameters(), [](const NamedParameter& named) {
    return is_adapter_parameter(named.name()) || !named.parameter->is_trainable();
  });
}

RunSaver::RunSaver(const TrainerOptions& options, const Communicator& world, Module& model,
                   Optimizer& optimizer, Ema* ema, UsedTokens& used,
                   std::map<std::string, int64_t>& numbers)
    : all_options_(options),
      options_(options.checkpoints),
      world_(world),
      model_(model),
      used_(used),
      numbers_(numbers) {
  if (options.pipeline) {
    options.pipeline->add_to(state_, optimizer);
  } else {
    trains_only_adapters(model) ? state_.add_adapters("model", model) : state_.add("model", model);
    state_.add("optimizer", optimizer);
  }
  if (ema) state_.add("ema", *ema);
  state_.add("random", Context::current().random);
  state_.add("step", step_);
  add_description("config");
  add_description("run");
}

void RunSaver::tell(const std::string& line) const {
  if (world_.rank() == 0 && all_options_.tell) all_options_.tell(line);
}

/// Listens once the folder is this run's. Before that there is nothing to save: a signal that comes
/// while another job's lease is waited for ends the program.
void RunSaver::listen(bool listens) const {
  if (!options_.heeds_signals) return;
  // One process hears for all its ranks; a launcher tells all processes.
  if (listens && world_.rank() != 0 && launched_ranks() == 1) return;
  for (const int signal : kStopSignals) {
    if (signal == SIGTERM && is_ended_by_mpirun()) continue;
    if (listens && handler_of(signal) != SIG_IGN) std::signal(signal, note_signal);
    if (!listens && handler_of(signal) == note_signal) std::signal(signal, SIG_DFL);
  }
}

/// A part with those numbers of the run that belong to it, whichever a checkpoint has.
void RunSaver::add_description(const std::string& part) {
  const auto give = [this, prefix = part + '/'] {
    StateDict own;
    for (const auto& [key, number] : run_.numbers()) {
      if (key.starts_with(prefix)) own.numbers.emplace(key.substr(prefix.size()), number);
    }
    if (prefix != "run/") return own;
    own.numbers.merge(used_.numbers());
    own.numbers.insert(numbers_.begin(), numbers_.end());
    return own;
  };
  const auto take = [this, prefix = part + '/'](const std::map<std::string, int64_t>& numbers) {
    for (const auto& [name, number] : numbers) saved_[prefix + name] = number;
  };
  state_.add(part, {.give = give, .take = take, .takes_any_numbers = true});
}

/// Loads a model that was saved without steps; the run starts at step 1.
void RunSaver::take_weights(const std::string& path) {
  const auto& pipeline = all_options_.pipeline;
  pipeline ? pipeline->load_weights(path) : load_weights(model_, path);
  if (world_.rank() != 0) return;
  warn(printable(path), " holds weights only; the run starts with them at step 1");
}

void RunSaver::take_up() {
  std::string path;
  std::set<std::string> suspects;
  const std::string cure = option(options_, "allow_change") + " start";
  for (;;) {
    path = newest_copy(suspects);
    if (path.empty() && options_.resume.empty()) return;
    if (path.empty() && is_hugging_face(options_.resume)) return take_weights(options_.resume);
    if (path.empty()) {
      path = chosen_checkpoint(option(options_, "resume"), options_.resume, world_, suspects,
                               start_of(options_), cure);
    }
    if (path.empty()) {
      if (world_.rank() != 0) return;
      return warn(printable(options_.resume),
                  " has no complete checkpoint; the run starts at step 1");
    }
    // 1: this rank found an error; 2: the checkpoint was removed meanwhile.
    int64_t found = 0;
    bool is_run = true;
    std::exception_ptr error;
    saved_.clear();
    try {
      is_run = checkpoint_contents(path).numbers.contains("step/value");
      if (is_run) load(path, state_);
    } catch (const CheckpointRemoved&) {
      found = 2;
      error = std::current_exception();
    } catch (...) {
      found = 1;
      error = std::current_exception();
    }
    found = world_.all_reduce_number(found, ReduceOp::max);
    if (found == 0) {
      if (!is_run) return take_weights(path);
      break;
    }
    const bool none_else = path == options_.resume;
    if (found == 2 && !none_else) continue;
    // A block may be bad in what only some ranks read: then an older one is taken, else it is this
    // run that does not fit. Choosing it again looks at its blocks.
    const bool again = !suspects.insert(path).second;
    if (error && (again || none_else)) std::rethrow_exception(error);
    if (again || none_else) fail_call("resume", path, " could not be loaded on another rank");
  }
  check_resumed(path);
  forget_other_copies(path);
  tell(concat("resumed from ", printable(path), " after step ", step_));
}

/// Compares the loaded checkpoint with this run, and across ranks.
void RunSaver::check_resumed(const std::string& path) {
  const auto& allowed = options_.allow_change;
  std::string text;
  for (const auto& [key, number] : saved_) text += concat(key, ' ', number, '\n');
  check_same(world_, "loaded",
             concat("a checkpoint of step ", step_, " whose settings have hash ",
                    xxh3_of(std::as_bytes(std::span(text)))));
  run_.check_resumed(path, saved_, allowed, world_.rank() == 0, options_.are_flags);
  const bool reads_others = std::ranges::any_of(allowed, [](const std::string& what) {
    return what == "data" || what == "seed" || what == "batch" || what == "seq";
  });
  used_.resume(saved_, !reads_others, options_.are_flags);
  for (auto& [name, number] : numbers_) {
    const auto found = saved_.find("run/" + name);
    if (found != saved_.end()) number = found->second;
  }
}

int64_t RunSaver::resume(RunDescription run) {
  run_ = std::move(run);
  const bool continues = !options_.resume.empty();
  // This precedes the choice of a checkpoint: it waits until no other job saves there.
  if (!options_.save.empty()) {
    saver_.emplace(world_, options_.save,
                   CheckpointOptions{.keep = options_.keep,
                                     .continues = continues,
                                     .refuse_non_finite = !options_.save_non_finite,
                                     .lease_seconds = options_.lease_seconds});
    if (all_options_.keep_best) {
      best_saver_.emplace(world_, best_folder(options_),
                          CheckpointOptions{.keep = 1,
                                            .continues = continues,
                                            .refuse_non_finite = !options_.save_non_finite,
                                            .lease_seconds = options_.lease_seconds});
    }
    // Another job may have saved there while this one waited for its lease.
    told_by_first(world_, [&] {
      check_not_of_another_run(options_);
      check_best(options_, all_options_.keep_best);
      return "";
    });
    begin_copies();
    listen(true);
  }
  if (continues || copies_) take_up();
  begin_copier();
  if (saver_) saver_->set_resumed_step(step_);
  if (best_saver_) best_saver_->set_resumed_step(step_);
  return step_;
}

/// Nobody can load a checkpoint of ranks that will draw unequal numbers.
void RunSaver::check_random() const {
  const RandomState& random = Context::current().random;
  const std::string own = concat("seed ", random.seed, ", stream ", random.stream);
  const std::string first = world_.broadcast(own, 0);
  fail_on_all_ranks(world_, own == first ? ""
                                         : concat("trainer: random state of rank ", world_.rank(),
                                                  " is ", own, ", expected ", first,
                                                  ", that of rank 0; draw the same numbers on all "
                                                  "ranks"));
}

void RunSaver::save_best(int64_t step) {
  step_ = step;
  used_.compare();
  check_random();
  const std::string path = best_saver_->save(step, state_);
  world_.barrier();
  best_saver_->note_saved();
  if (world_.rank() == 0) keep_model_files(kept_model_files(options_.save), best_folder(options_));
  tell(concat("saved ", printable(path)));
  if (all_options_.on_save) all_options_.on_save(path);
}

void RunSaver::finish_save() {
  if (under_way_.empty()) return;
  saver_->wait();
  world_.barrier();
  saver_->note_saved();
  tell(concat("saved ", printable(under_way_)));
  if (all_options_.on_save) all_options_.on_save(under_way_);
  under_way_.clear();
}

bool RunSaver::after_step(int64_t step, bool is_last, bool stops) {
  step_ = step;
  // All ranks stop after the same step, whichever of them saw a signal.
  const int heard = saver_ && options_.heeds_signals ? int{stop_signal} : 0;
  std::array<int64_t, 2> agreed{heard, stops};
  world_.all_reduce_numbers(agreed, ReduceOp::max);
  const auto signal = static_cast<int>(agreed[0]);
  const bool stopping = signal != 0 || agreed[1] != 0;
  if (signal != 0) ended_by = signal;
  if (!saver_) return stopping;
  if (copier_ && !stopping && !is_last) copy();
  // Reports a failed save at the next step, not at the next save.
  if (!saver_->is_saving()) saver_->wait();
  const bool is_saved =
      !under_way_.empty() && world_.all_reduce_number(saver_->is_saving(), ReduceOp::max) == 0;
  if (is_saved) finish_save();
  const bool due = options_.save_every > 0 && step % options_.save_every == 0;
  if (!stopping && !is_last && !due) return false;
  finish_save();
  // All ranks throw where the first one may not save: then none of them writes.
  told_by_first(world_, [&] {
    saver_->check_may_save();
    return "";
  });
  used_.compare();
  check_random();
  under_way_ = saver_->save_async(step, state_);
  if (stopping || is_last) finish_save();
  if (copier_ && is_last) remove_copies();
  return stopping;
}

void RunSaver::end_steps() {
  listen(false);
  // It came after the last step that could heed it.
  if (stop_signal != 0 && ended_by == 0) std::raise(stop_signal);
}

int stopped_by() { return ended_by; }

}  // namespace weft
