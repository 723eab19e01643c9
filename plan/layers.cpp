// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <vector>

#include "weft/step_cost.h"
#include "weft/transformer.h"

namespace weft {

double needed_operations_a_token(const TransformerConfig& config, int64_t sequence) {
  const double others = training_operations_a_token(config, 0);
  const double of_key = training_operations_a_token(config, 1) - others;
  double keys = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const int64_t window = config.has_window(layer) ? std::min(config.window, sequence) : sequence;
    // Sum over all queries of the keys on one side of each.
    const double side = static_cast<double>(window - 1) *
                        (static_cast<double>(sequence) - static_cast<double>(window) / 2);
    keys += 1 + (config.causal ? 1 : 2) * side / static_cast<double>(sequence);
  }
  return others + of_key * keys / static_cast<double>(config.layers);
}

void StepCost::add_stage(const StepCost& stage) {
  for (size_t i = 0; i < memory.size(); ++i) {
    const auto purpose = static_cast<Purpose>(i);
    const bool stays = purpose == Purpose::parameters || purpose == Purpose::gradients ||
                       purpose == Purpose::optimizer;
    memory[i] = stays ? memory[i] + stage.memory[i] : std::max(memory[i], stage.memory[i]);
  }
  for (const AxisCost& axis : stage.traffic) {
    const auto same = std::ranges::find_if(traffic, [&](const AxisCost& one) {
      return one.axes == axis.axes && std::string_view(one.of) == axis.of;
    });
    if (same == traffic.end()) {
      traffic.push_back(axis);
    } else {
      same->bytes += axis.bytes, same->collectives += axis.collectives;
    }
  }
  work.insert(work.end(), stage.work.begin(), stage.work.end());
  splits.insert(splits.end(), stage.splits.begin(), stage.splits.end());
  experts.parameters += stage.experts.parameters;
  experts.dispatch += stage.experts.dispatch;
  experts.combine += stage.experts.combine;
  experts.backward += stage.experts.backward;
  shared_operations += stage.shared_operations;
  expert_operations += stage.expert_operations;
  expert_chunks = stage.expert_chunks;
  updated_elements += stage.updated_elements;
  disk_bytes += stage.disk_bytes;
}

/// All numbers of a cost that a further layer changes, and in `operations` those that are not
/// whole.
static std::vector<int64_t*> numbers_of(StepCost& cost, std::vector<double*>& operations) {
  FullyShardBytes& sharding = cost.sharding;
  std::vector<int64_t*> numbers{&sharding.parameters,  &sharding.gradients, &sharding.buffers,
                                &sharding.received,    &sharding.copied,    &cost.disk_bytes,
                                &cost.updated_elements};
  ExpertBytes& experts = cost.experts;
  numbers.insert(numbers.end(),
                 {&experts.parameters, &experts.dispatch, &experts.combine, &experts.backward});
  operations.insert(operations.end(), {&cost.shared_operations, &cost.expert_operations});
  for (int64_t& bytes : cost.memory) numbers.push_back(&bytes);
  for (AxisTraffic& axis : sharding.by_axes) numbers.push_back(&axis.bytes);
  for (SplitCost& split : cost.splits) numbers.push_back(&split.calls);
  for (AxisCost& axis : cost.traffic) {
    numbers.insert(numbers.end(), {&axis.bytes, &axis.collectives});
  }
  for (OpWork& op : cost.work) {
    numbers.insert(numbers.end(), {&op.calls, &op.bytes, &op.largest});
    operations.push_back(&op.operations);
  }
  return numbers;
}

/// Continues the costs of models of n, n + p and n + 2p layers to one of n + (2 + `periods`) p;
/// false, with `c` unchanged, where they do not grow evenly.
static bool extrapolate(StepCost& a, StepCost& b, StepCost& c, int64_t periods) {
  std::vector<double*> first_operations, before, operations;
  const auto first = numbers_of(a, first_operations), second = numbers_of(b, before),
             third = numbers_of(c, operations);
  if (first.size() != third.size() || second.size() != third.size()) return false;
  for (size_t i = 0; i < third.size(); ++i) {
    if (*third[i] - *second[i] != *second[i] - *first[i]) return false;
  }
  // The most activations at once is the greater of what one layer takes and what all layers keep:
  // it grows evenly from where the second is greater.
  const auto activations = static_cast<size_t>(Purpose::activations);
  if (c.memory[activations] == b.memory[activations]) return false;
  for (size_t i = 0; i < third.size(); ++i) *third[i] += (*third[i] - *second[i]) * periods;
  for (size_t i = 0; i < operations.size(); ++i) {
    *operations[i] += (*operations[i] - *before[i]) * static_cast<double>(periods);
  }
  return true;
}

TransformerConfig with_layers(TransformerConfig config, int64_t layers) {
  config.layers = layers;
  for (auto* flags : {&config.windowed, &config.unrotated, &config.dense}) {
    if (!flags->empty()) flags->resize(static_cast<size_t>(layers));
  }
  return config;
}

/// The number of layers after which the kinds of layers from `first` on repeat, an even one because
/// selective recomputation leaves out every second; 0 where they do not repeat three times.
static int64_t period_of_layers(const TransformerConfig& config, int64_t first) {
  const auto kinds = {&config.windowed, &config.unrotated, &config.dense};
  const auto repeat_after = [&](int64_t period) {
    return std::ranges::all_of(kinds, [&](const auto* flags) {
      return flags->empty() ||
             std::equal(flags->begin() + first + period, flags->end(), flags->begin() + first);
    });
  };
  for (int64_t period = 2; first + 2 * period < config.layers; period += 2) {
    if (repeat_after(period)) return period;
  }
  return 0;
}

StepCost cost_of_layers(const TransformerConfig& config,
                        const std::function<StepCost(const TransformerConfig&)>& cost_of) {
  for (int64_t first = 4; first < config.layers; first *= 2) {
    const int64_t period = period_of_layers(config, first);
    if (period == 0) continue;
    const int64_t few = first + (config.layers - first) % period;
    if (few + 2 * period >= config.layers) continue;
    StepCost a = cost_of(with_layers(config, few)), b = cost_of(with_layers(config, few + period)),
             c = cost_of(with_layers(config, few + 2 * period));
    if (extrapolate(a, b, c, (config.layers - few) / period - 2)) return c;
  }
  return cost_of(config);
}

}  // namespace weft
