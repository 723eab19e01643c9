// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/row_order.h"

#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "fsdp/fsdp_state.h"
#include "fsdp/param_group.h"
#include "weft/error.h"

namespace weft {

std::pair<std::string, const char*> reduction_obstacle(Module& module) {
  for (const auto& state : fsdp::states_from({&module})) {
    const fsdp::ParamGroup& group = *state->group();
    const FullyShardOptions& options = group.options();
    const MixedPrecision& precision = options.precision;
    if (const auto& codes = options.quantization.reduce) {
      return {concat("gradients are sent as codes of ", *codes), "f32"};
    }
    if (precision.reduce.value_or(f32) != f32) {
      return {concat("gradients are reduced in ", *precision.reduce), "f32"};
    }
    if (precision.accumulate.value_or(f32) != f32) {
      return {concat("gradients are accumulated in ", *precision.accumulate), "f32"};
    }
    if (options.offload.gradients.is_disk()) return {"gradients rest on disk", "them in memory"};
    const auto& settings = group.gradients().settings;
    if (settings.hook) return {"gradients have an all-reduce hook", "none"};
    if (settings.collective) return {"gradients have a custom reduce-scatter", "none"};
  }
  return {};
}

namespace {

/// The rows of a sum: [first, first + count). Without a count there is no sum, and a count below 0
/// says that it was added otherwise than in the tree.
struct SummedRows {
  int64_t first = 0, count = 0;
};

}  // namespace

static SummedRows added(const SummedRows& a, const SummedRows& b) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  const bool are_siblings =
      a.count == b.count && b.first == a.first + a.count && a.first % (2 * a.count) == 0;
  return {a.first, are_siblings ? 2 * a.count : -1};
}

/// Adds as `reduce_n` does.
static SummedRows added_up(std::span<const SummedRows> all) {
  if (all.size() == 1) return all[0];
  const size_t half = std::bit_ceil(all.size()) / 2;
  return added(added_up(all.first(half)), added_up(all.subspan(half)));
}

bool adds_rows_in_tree(Module& module, const Communicator& ranks, int64_t row, int64_t rows) {
  const fsdp::FsdpStates states = fsdp::states_from({&module});
  int64_t in_tree = rows == 1 || !states.empty();
  for (const auto& state : states) {
    SummedRows sum{std::max<int64_t>(0, row), row < 0 ? 0 : 1};
    for (const fsdp::Reduction& reduction : state->group()->gradients().reductions()) {
      if (!reduction.ranks.communicator) continue;
      const int64_t own[] = {sum.first, sum.count};
      const std::vector<int64_t> numbers = reduction.ranks.communicator.all_gather_numbers(own);
      std::vector<SummedRows> all;
      for (size_t i = 0; i < numbers.size(); i += 2) all.push_back({numbers[i], numbers[i + 1]});
      sum = added_up(all);
    }
    if (sum.first != 0 || sum.count != rows) in_tree = 0;
  }
  return ranks.all_reduce_number(in_tree, ReduceOp::min) == 1;
}

}  // namespace weft
