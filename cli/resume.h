// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "weft/checkpoint.h"
#include "weft/llama.h"
#include "weft/optimizers.h"

namespace CLI {
class App;
}

namespace weft::cli {

/// Where a run saves, how often, and what it goes on from.
struct ResumeOptions {
  std::string save;
  int64_t save_every = 0;
  int keep = 3;
  std::string resume;
};

/// Adds --save, --save-every, --keep and --resume.
void add_resume_flags(CLI::App& command, ResumeOptions& options);
/// Checks what the flags say together, and that --save takes no other run's directory.
void complete(ResumeOptions& options);

/// What the order of the data and the schedule follow from; a run goes on only with the same.
using RunNumbers = std::map<std::string, int64_t>;

/// The newest complete checkpoint of a directory, or the directory itself, when it is one; "" when
/// there is none at all. Says on stderr what it passed over, and why; of those in `suspects` every
/// block is read first. std::runtime_error when there are some and none is complete, or the system
/// fails.
std::string complete_checkpoint(const std::string& directory,
                                const std::set<std::string>& suspects = {});
/// The same, found by rank 0 and told to the others. Collective.
std::string chosen_checkpoint(const std::string& directory, const Communicator& world,
                              const std::set<std::string>& suspects = {});

/// Saves a run and takes it up again: model, optimizer, random state and steps done, from which the
/// order of the data follows. One a rank; calls are collective.
class RunSaver {
 public:
  RunSaver(const ResumeOptions& options, const Communicator& world, Llama& model,
           Optimizer& optimizer, RunNumbers numbers);

  /// Loads what --resume says, before any step; steps done, 0 for a new run. std::invalid_argument
  /// when the model or the run is another; std::runtime_error when --save cannot be made.
  int64_t resume();
  /// After step `step`: saves when it is time, while the next steps run, and says so when all ranks
  /// are done. True when the run must end: at SIGTERM, SIGINT or SIGUSR2 it is saved first. Throws
  /// what went wrong with a save before.
  bool after_step(int64_t step, bool is_last);
  /// No step follows: signals end the program again.
  void end_steps();

 private:
  void take_up();
  bool is_stopping();
  bool is_saved();
  void finish_save();

  const ResumeOptions& options_;
  Communicator world_;
  int64_t step_ = 0;
  TrainingState state_;
  std::optional<CheckpointSaver> saver_;
  /// Path of the save that was begun and not yet told of.
  std::string under_way_;
};

/// The signal at which a run was saved and ended; 0: none.
int stopped_by();

/// The config that a RunSaver saved with the model. std::invalid_argument when there is none.
LlamaConfig saved_config(const std::string& checkpoint);

}  // namespace weft::cli
