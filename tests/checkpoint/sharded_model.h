// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "weft/context.h"
#include "weft/layers.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/state_dict.h"

namespace weft {

class DropoutLayer final : public Module {
 public:
  double p = 0;

 protected:
  Tensors forward(const Tensors& inputs) override {
    return {p > 0 ? dropout(inputs[0], p) : inputs[0]};
  }
};

/// A small model of uneven sizes whose matrices lie as told (vectors are whole), and its optimizer.
struct ShardedModel {
  static constexpr int64_t kIn = 5, kHidden = 7, kOut = 3;

  ShardedModel(const DeviceMesh& over, const Placements& placements, uint64_t seed = 0)
      : mesh(over) {
    manual_seed(seed);
    auto layers = std::make_shared<Sequential>();
    layers->append(std::make_shared<Linear>(kIn, kHidden, true, 0.5));
    layers->append(std::make_shared<LayerNorm>(kHidden));
    dropout_layer = std::make_shared<DropoutLayer>();
    layers->append(dropout_layer);
    layers->append(std::make_shared<Linear>(kHidden, kOut, false, 0.5));
    module = layers;
    for (const NamedParameter& named : module->named_parameters()) {
      const Parameter& parameter = *named.parameter;
      const Sharding sharding =
          parameter.value().ndim() == 2 ? Sharding(mesh, placements) : Sharding(mesh, {});
      named.parameter->set_value(empty(parameter.shape(), {.device = meta, .sharding = sharding}));
    }
    module->materialize();
    optimizer =
        std::make_unique<AdamW>(module->named_parameters(), AdamWOptions{.learning_rate = 1e-2});
  }

  /// Steps on data that follow from their number.
  std::vector<double> train(int steps) {
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i, ++step) {
      std::vector<double> numbers;
      for (int64_t j = 0; j < 6 * kIn; ++j) numbers.push_back(double((j * 7 + step * 5) % 11) / 5);
      const Tensor x = from_values(numbers, {6, kIn}, {.sharding = Sharding(mesh, {Shard(0)})});
      const Tensor loss = mean(square((*module)(x)));
      loss.backward();
      optimizer->step();
      optimizer->zero_grad();
      losses.push_back(loss.full_tensor().item());
    }
    return losses;
  }

  /// All that training depends on.
  TrainingState training_state() {
    TrainingState state;
    state.add("model", *module);
    state.add("optimizer", *optimizer);
    state.add("random", Context::current().random);
    state.add("data", step);
    return state;
  }

  /// Values of all parameters, gathered.
  std::vector<double> values() const {
    std::vector<double> all;
    for (const ParameterPtr& parameter : module->parameters()) {
      const std::vector<double> own = parameter->value().full_tensor().to_vector<double>();
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

  DeviceMesh mesh;
  std::shared_ptr<Module> module;
  std::shared_ptr<DropoutLayer> dropout_layer;
  std::unique_ptr<Optimizer> optimizer;
  int64_t step = 0;
};

}  // namespace weft
