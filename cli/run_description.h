// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "cli/data.h"
#include "cli/train_options.h"
#include "weft/communicator.h"
#include "weft/optimizers.h"
#include "weft/transformer.h"

namespace weft::cli {

/// What it means when a run is resumed with another value of an item.
enum class Resumed : uint8_t {
  /// Refused.
  refused,
  /// Refused, unless --allow-change names it.
  allowed,
  /// Harmless: printed.
  noted,
  /// The checkpoint does not hold the item.
  not_saved,
};

using Digest = uint64_t;

/// A value that decides the numbers of a run.
struct RunItem {
  std::string name;
  std::variant<int64_t, double, std::string, Digest> value;
  Resumed resumed = Resumed::not_saved;
  /// Resumed::allowed: what --allow-change calls it. Resumed::noted: what follows from a change.
  std::string note = {};
  /// The first rank's digest is that of the run: hosts may differ.
  bool is_of_first = false;
};

/// All that decides the numbers of a run, in order: compared across ranks before the first step,
/// saved with a checkpoint, and compared with a checkpoint's when a run is resumed.
class RunDescription {
 public:
  void add(RunItem item) { items_.push_back(std::move(item)); }

  /// Takes the first rank's digests where they are the run's, and throws std::invalid_argument on
  /// all ranks when one has another value than rank 0: "train: rank 2 has lr 0.1, rank 0 has 0.2".
  /// Collective; nothing where all ranks are threads.
  void check_ranks(const Communicator& world);

  /// What a checkpoint keeps: "config/<name>" of the model, "run/<name>" of the rest. Doubles and
  /// digests are their bits; a text is cut into numbers of 8 bytes, "run/<name>:<index>".
  std::map<std::string, int64_t> numbers() const;
  /// Compares with the numbers of a checkpoint at `path`: throws std::invalid_argument for items
  /// that must be the same and are not in `allowed`. With `prints`, writes to stderr what harmless
  /// or allowed items changed, and which ones the checkpoint does not hold.
  void check_resumed(const std::string& path, const std::map<std::string, int64_t>& saved,
                     std::span<const std::string> allowed, bool prints) const;

 private:
  std::vector<RunItem> items_;
};

/// Values of --allow-change.
std::vector<std::string> changes_that_can_be_allowed();

AdamWOptions adamw_options(const TrainOptions& options);
WarmupCosine schedule_of(const TrainOptions& options);

/// Adds the numbers of a model's config.
void add_model(const TransformerConfig& config, RunDescription& run);

/// Describes a training run on `data`, without the digests of files.
RunDescription described(const TrainOptions& options, const TransformerConfig& config,
                         const TokenStream& data);

/// The items that need the bytes of files, which take time: of --data and --init.
std::vector<RunItem> digests_of_files(const TrainOptions& options, const TokenStream& data);

}  // namespace weft::cli
