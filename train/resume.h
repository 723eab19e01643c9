// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "train/host_copies.h"
#include "train/used_tokens.h"
#include "weft/checkpoint.h"
#include "weft/extend/run_description.h"
#include "weft/extend/run_folder.h"
#include "weft/module.h"
#include "weft/trainer.h"

namespace weft {

class Ema;

/// True if this is a restart of a run that has copies in the memory of the host.
bool continues_copies(const ResumeOptions& options);

/// Saves a run and takes it up again: model, optimizer, random state and steps done, from which the
/// order of the data follows. One a rank; calls are collective.
class RunSaver {
 public:
  /// `ema` may be null. `numbers` are saved with the run's description, and get the values of the
  /// checkpoint that is resumed, where it has them.
  RunSaver(const TrainerOptions& options, const Communicator& world, Module& model,
           Optimizer& optimizer, Ema* ema, UsedTokens& used,
           std::map<std::string, int64_t>& numbers);
  ~RunSaver() { listen(false); }

  /// Loads what ResumeOptions::resume says, before any step, and returns the steps done, 0 for a
  /// new run. `run` is saved with each checkpoint. std::invalid_argument when the checkpoint's run
  /// differs from it in what must be the same, or its last steps used other tokens;
  /// std::runtime_error when the folder of checkpoints cannot be made.
  int64_t resume(RunDescription run);
  /// Call after step `step`. Saves when a save is due, while the next steps run, and tells when all
  /// ranks are done. Returns true when the run must end: after a signal, or when `stops` on a rank;
  /// it saves first. Throws the error of a previous save.
  bool after_step(int64_t step, bool is_last, bool stops);
  /// Saves to the folder "best" of the run, after step `step`.
  void save_best(int64_t step);
  /// No step follows: signals end the program again.
  void end_steps();

 private:
  void add_description(const std::string& part);
  void check_resumed(const std::string& path);
  void take_up();
  /// Makes `copies_`, where the launcher keeps copies (WEFT_COPIES).
  void begin_copies();
  /// Makes `copier_`, once the run has been taken up.
  void begin_copier();
  void remove_copies();
  /// Saves to `copier_`; without memory for that the run goes on without copies.
  void copy();
  void check_random() const;
  /// The newest complete copy that is not older than the newest checkpoint, or "".
  std::string newest_copy(const std::set<std::string>& suspects);
  bool is_good_copy(const std::string& path) const;
  /// Removes all copies but the one that the run goes on from, if it is one.
  void forget_other_copies(const std::string& resumed);
  void take_weights(const std::string& path);
  void listen(bool listens) const;
  void finish_save();
  void tell(const std::string& line) const;

  const TrainerOptions& all_options_;
  const ResumeOptions& options_;
  Communicator world_;
  Module& model_;
  int64_t step_ = 0;
  RunDescription run_;
  UsedTokens& used_;
  std::map<std::string, int64_t>& numbers_;
  /// Settings of the run in the resumed checkpoint.
  std::map<std::string, int64_t> saved_;
  TrainingState state_;
  std::optional<CheckpointSaver> saver_, best_saver_;
  /// Saves to the memory of the host after each step.
  std::optional<CheckpointSaver> copier_;
  std::optional<HostCopies> copies_;
  std::string last_copy_;
  /// Path of the save that was begun and not yet told of.
  std::string under_way_;
};

}  // namespace weft
