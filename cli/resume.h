// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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
/// Checks what the flags say together.
void complete(ResumeOptions& options);

/// What the order of the data and the schedule follow from; a run goes on only with the same.
using RunNumbers = std::map<std::string, int64_t>;

/// The newest complete checkpoint of a directory (or the directory itself, when it is one), found
/// by rank 0 and told to the others; it says on stderr what it passed over, and why. Collective.
std::string chosen_checkpoint(const std::string& directory, const Communicator& world);

/// Saves a run and takes it up again: model, optimizer, random state and steps done, from which the
/// order of the data follows. One a rank; calls are collective.
class RunSaver {
 public:
  RunSaver(const ResumeOptions& options, const Communicator& world, Llama& model,
           Optimizer& optimizer, RunNumbers numbers);

  /// Loads what --resume says; steps done, 0 for a new run. std::invalid_argument when the model or
  /// the run is another.
  int64_t resume();
  /// After step `step`: saves when it is time, while the next steps run. True when the run must
  /// end: at SIGTERM or SIGINT it is saved first.
  bool after_step(int64_t step, bool is_last);

 private:
  bool is_stopping();

  const ResumeOptions& options_;
  Communicator world_;
  int64_t step_ = 0;
  TrainingState state_;
  std::optional<CheckpointSaver> saver_;
};

/// The config that a RunSaver saved with the model. std::invalid_argument when there is none.
LlamaConfig saved_config(const std::string& checkpoint);

}  // namespace weft::cli
