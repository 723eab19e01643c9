// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "fsdp/strategy.h"
#include "weft/quantization.h"

namespace weft::fsdp {

/// The ranks of joined axes in two groups, over which codes move one after the other: `within`
/// along the axes of fast links, `across` along the others. Rank r of the joined axes is rank
/// `rank_within[r]` of its `within`; the ranks r of one `rank_within` are in the order of `across`.
struct Stages {
  AxisGroup within, across;
  std::vector<int> rank_within;

  /// The ranks of the joined axes by their rank within, then by that across.
  std::vector<int> order() const;
};

/// Returns the stages in which codes move over axes `first` to `last` (excluded) of
/// `roles.sharded`; nothing if they move over all of these axes at once.
std::optional<Stages> stages_of(const Roles& roles, size_t first, size_t last,
                                const Quantization& quantization);

}  // namespace weft::fsdp
