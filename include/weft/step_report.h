// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/storage.h"

namespace weft {

/// Figures of a model's experts for one step, over all ranks.
struct WEFT_API ExpertReport {
  /// Rows of each expert, by sparse layer.
  std::vector<std::vector<double>> load;
  int64_t dropped = 0;
  std::optional<double> balance_loss;  // where it is part of the loss

  /// The largest load of an expert over the mean of its layer; 1 is balanced.
  double imbalance() const;
};

/// Seconds of the parts of a step on a rank, by its clock. On a GPU a part ends when its work is
/// queued; the step waits for the GPU once, after backward, and in `validation`.
struct PartSeconds {
  /// Reading rows.
  double data = 0;
  double forward_backward = 0;
  double update = 0;
  double validation = 0;
  /// Waiting for saves after the step before.
  double save = 0;
  /// The part of `forward_backward` and `update` in collectives; empty on a GPU, where collectives
  /// are queued.
  std::optional<double> collectives = {};
};

/// Figures of one step.
struct StepReport {
  int64_t step = 0;
  /// The mean of the targets that count. The loss that balances the experts of a TransformerModel
  /// is apart, in `experts`.
  double loss = 0;
  std::optional<double> validation_loss;
  /// The rate of the first group.
  double learning_rate = 0;
  /// The rates of all groups; empty where they are equal.
  std::vector<double> learning_rates = {};
  double gradient_norm = 0;
  /// Tokens of all rows up to the last target of each that counts: padding does not; 0 for a step
  /// that reads none.
  double tokens_per_second = 0;
  /// Model FLOPs utilization (MFU): the fraction of the devices' peak.
  std::optional<double> utilization;
  /// Since the first step began.
  double seconds = 0;
  std::optional<ExpertReport> experts;  // none for a dense model
  /// Received from other ranks in this step, by this rank.
  int64_t bytes_moved = 0;
  PartSeconds parts = {};
  /// Memory of this rank so far.
  MemoryStatistics memory;
  /// The rank whose own work took longest in the last steps that were compared, and how many times
  /// the median of all ranks it took; -1 where it is not above 1.3 times, is not known yet, and for
  /// computations on GPUs.
  int slow_rank = -1;
  double slowness = 1;
  /// Why the step left the weights as they are; empty where it updated them.
  std::string skipped = {};
  /// The factor of the loss in backward, of a model that computes in f16.
  std::optional<double> loss_scale = {};
};

}  // namespace weft
