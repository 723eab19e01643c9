// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "cli/run_description.h"
#include "cli/used_tokens.h"
#include "cli/weights.h"
#include "weft/checkpoint.h"
#include "weft/ranks.h"

namespace weft::cli {

/// Checks what the flags say together, and that --save takes no other run's directory.
void complete(ResumeOptions& options);

/// Whether a run begins at step 1 where there are checkpoints and none is complete.
enum class Start : uint8_t {
  refused,
  /// When no save was ever complete: each run left at most one checkpoint, which lacks files, and
  /// noted none.
  never_saved,
  allowed
};

/// As --allow-change says.
Start start_of(const ResumeOptions& options);

/// "finite elements: all", "finite elements: all but 3, the first in tensor "x"" or "finite
/// elements: unknown".
std::string finite_in_words(const CheckpointReport& report);

/// Calls `work`, which takes a checkpoint of the run's directory `path`, and again where that was
/// removed meanwhile for newer ones. Ranks that are processes cannot begin anew: the first error
/// ends them.
template <class Work> auto again_if_removed(const std::string& path, const Work& work) {
  for (int left = 100;; --left) {
    try {
      return work();
    } catch (const CheckpointRemoved&) {
      if (left == 0 || launched_ranks() > 1 || !is_directory(path)) throw;
    }
  }
}

/// The newest complete checkpoint of a directory (of the finite ones, where there are any), or the
/// directory itself, when it is one; "" when there is none at all. Says on stderr what it passed
/// over, and why; of those in `suspects` every block is read first. std::runtime_error when there
/// are some and none is complete, or the system fails; `start` says when it returns "" instead.
std::string complete_checkpoint(const std::string& directory,
                                const std::set<std::string>& suspects = {},
                                Start start = Start::refused);
/// The same, found by rank 0 and told to the others. Collective.
std::string chosen_checkpoint(const std::string& directory, const Communicator& world,
                              const std::set<std::string>& suspects = {},
                              Start start = Start::refused);

/// Saves a run and takes it up again: model, optimizer, random state and steps done, from which the
/// order of the data follows. One a rank; calls are collective.
class RunSaver {
 public:
  RunSaver(const ResumeOptions& options, const Communicator& world, TransformerModel& model,
           Optimizer& optimizer, UsedTokens& used);

  /// Loads what --resume says, before any step, and returns the steps done, 0 for a new run.
  /// `run` is saved with each checkpoint. std::invalid_argument when the checkpoint's run differs
  /// from it in what must be the same, or its last steps used other tokens; std::runtime_error when
  /// --save cannot be made.
  int64_t resume(RunDescription run);
  /// Call after step `step`. Saves when a save is due, while the next steps run, and prints a line
  /// when all ranks are done. Returns true when the run must end: at SIGTERM, SIGINT, SIGUSR2 or
  /// SIGHUP it saves first. Throws the error of a previous save.
  bool after_step(int64_t step, bool is_last);
  /// No step follows: signals end the program again.
  void end_steps();

 private:
  void add_description(const std::string& part);
  void check_resumed(const std::string& path);
  void take_up();
  void take_weights(const std::string& path);
  void listen() const;
  void finish_save();

  const ResumeOptions& options_;
  Communicator world_;
  TransformerModel& model_;
  int64_t step_ = 0;
  RunDescription run_;
  UsedTokens& used_;
  /// Settings of the run in the resumed checkpoint.
  std::map<std::string, int64_t> saved_;
  TrainingState state_;
  std::optional<CheckpointSaver> saver_;
  /// Path of the save that was begun and not yet told of.
  std::string under_way_;
};

/// The signal at which a run was saved and ended; 0: none.
int stopped_by();

}  // namespace weft::cli
