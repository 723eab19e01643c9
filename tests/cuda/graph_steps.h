// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tests/cuda/trained_llama.h"
#include "weft/graph.h"

namespace weft {

/// Runs steps with different learning rates, with a graph or without, and evaluates the model
/// between some of them. Returns rank 0's losses, bytes received from other ranks, number of
/// collectives, and the sum of each final weight.
inline std::vector<double> numbers_of_steps(bool by_graph, const Recipe& recipe) {
  std::vector<double> all;
  recipe.run(ranks_of(recipe), [&](Communicator world) {
    PreparedLlama prepared(recipe, world, gpu);
    const DeviceMesh& rows = prepared.rows;
    TransformerModel& model = prepared.model;
    AdamW optimizer(model.named_parameters(), {.learning_rate = 1e-2});
    const Tensor ids = batch_of(rows, 12, 0).to(gpu), targets = batch_of(rows, 12, 1).to(gpu);
    Tensor loss;
    std::vector<double> numbers;
    Graph graph(gpu);
    for (int step = 0; step < 5; ++step) {
      copy_(ids, batch_of(rows, 12, step).to(gpu));
      copy_(targets, batch_of(rows, 12, step + 1).to(gpu));
      optimizer.set_learning_rate(1e-2 / (1 + step));
      const auto work = [&] {
        optimizer.zero_grad();
        const Tensor own = model.loss(ids, targets);
        own.backward();
        optimizer.step(clip_scale(gradient_norm(model.parameters()), 0.5));
        loss = own.detach();
      };
      by_graph ? graph.run(work) : work();
      numbers.push_back(loss.full_tensor().item());
      if (step == 1 || step >= 3) {
        const NoGrad no_grad;
        numbers.push_back(model.loss(ids, targets).full_tensor().item());
      }
    }
    EXPECT_EQ(optimizer.steps(0), 5);
    EXPECT_EQ(graph.is_recorded(), by_graph);
    numbers.push_back(static_cast<double>(prepared.mesh.traffic().bytes));
    numbers.push_back(static_cast<double>(prepared.mesh.traffic().collectives));
    for (const ParameterPtr& parameter : model.parameters()) {
      numbers.push_back(sum(parameter->value().full_tensor()).item());
    }
    if (world.rank() == 0) all = numbers;
  });
  return all;
}

}  // namespace weft
