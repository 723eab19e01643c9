// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/train_options.h"
#include "weft/extend/run_description.h"
#include "weft/optimizer_named.h"
#include "weft/schedules.h"
#include "weft/transformer.h"

namespace weft::cli {

/// Values of --allow-change.
std::vector<std::string> changes_that_can_be_allowed();

/// std::invalid_argument for a --no-decay that is no regular expression.
NamedOptimizerOptions optimizer_options(const TrainOptions& options);
/// Fills in what the flags leave out by what the checkpoint that is resumed has: the learning rate,
/// and the numbers of the schedule.
void take_saved_defaults(TrainOptions& options);
/// Adds the numbers of the schedule.
void add_schedule_flags(CLI::App& train, TrainOptions& options);
/// std::invalid_argument names a flag that the schedule does not use.
void check_schedule(const TrainOptions& options);
std::string schedule_in_words(const TrainOptions& options);
Schedule schedule_of(const TrainOptions& options);

/// Describes a training run, without its data and the digests of files.
RunDescription described(const TrainOptions& options, const TransformerConfig& config);

/// The items that need the bytes of the files of --init, which takes time.
std::vector<RunItem> digests_of_weights(const TrainOptions& options);

}  // namespace weft::cli
