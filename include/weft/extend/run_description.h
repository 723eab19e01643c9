// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/transformer_config.h"

namespace weft {

/// The consequence of resuming a run with another value of an item.
enum class Resumed : uint8_t {
  /// Refused.
  refused,
  /// Refused, unless ResumeOptions::allow_change names it.
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
  /// Resumed::allowed: what ResumeOptions::allow_change calls it. Resumed::noted: what follows from
  /// a change.
  std::string note = {};
  /// The first rank's digest is that of the run: hosts may differ.
  bool is_of_first = false;
};

/// All that decides the numbers of a run, in order: compared across ranks before the first step,
/// saved with a checkpoint, and compared with a checkpoint's when a run is resumed.
class WEFT_API RunDescription {
 public:
  /// Adds an item, unless there is one of that name.
  void add(RunItem item);
  const std::vector<RunItem>& items() const { return items_; }

  /// Takes the first rank's digests where they are the run's, and throws std::invalid_argument on
  /// all ranks when one has another value than rank 0: "train: rank 2 has lr 0.1, rank 0 has 0.2".
  /// Collective; nothing where all ranks are threads.
  void check_ranks(const Communicator& world);

  /// Numbers in a checkpoint: "config/<name>" of the model, "run/<name>" of the rest. Doubles and
  /// digests are their bits; a text is cut into numbers of 8 bytes, "run/<name>:<index>".
  std::map<std::string, int64_t> numbers() const;
  /// Compares with the numbers of a checkpoint at `path`: throws std::invalid_argument for items
  /// that must be the same and are not in `allowed`. With `warns`, gives warnings of what harmless
  /// or allowed items changed, and which ones the checkpoint does not hold. `are_flags` as in
  /// ResumeOptions.
  void check_resumed(const std::string& path, const std::map<std::string, int64_t>& saved,
                     std::span<const std::string> allowed, bool warns, bool are_flags) const;

 private:
  std::vector<RunItem> items_;
};

/// Adds the numbers of a model's config.
WEFT_API void add_model(const TransformerConfig& config, RunDescription& run);

}  // namespace weft
