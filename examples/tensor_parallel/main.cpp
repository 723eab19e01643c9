// SPDX-License-Identifier: Apache-2.0

// Tensor parallelism: the two matrices of a feed-forward layer are cut over two ranks, the first by
// its outputs, the second by its inputs, while the batch is cut over two others. The model's code
// does not change; the results equal those of one device.
//
//   tensor_parallel

#include <cstdio>
#include <iostream>

#include "weft/weft.h"

using namespace weft;

static constexpr int64_t kWidth = 16, kHidden = 64, kRows = 8;

/// down(silu(up(x))).
class FeedForward final : public Module {
 public:
  FeedForward() {
    up_ = add("up", std::make_shared<Linear>(kWidth, kHidden, true, 0.3));
    down_ = add("down", std::make_shared<Linear>(kHidden, kWidth, true, 0.3));
  }

 protected:
  Tensors forward(const Tensors& inputs) override { return {(*down_)(silu((*up_)(inputs[0])))}; }

 private:
  std::shared_ptr<Linear> up_, down_;
};

static Tensor batch(const TensorOptions& options) {
  Context::current().random = {.seed = 7};
  return randn({kRows, kWidth}, options);
}

/// The loss, and the gradient of the first matrix, whole.
static std::pair<double, Tensor> step(FeedForward& model, const Tensor& x) {
  const Tensor loss = mean(square(model(x) - x));
  loss.backward();
  return {loss.full_tensor().item(), model.parameters()[0]->grad()};
}

static void run(const Communicator& world) {
  FeedForward single;
  Context::current().random = {.seed = 1};
  single.materialize();
  const auto [expected, expected_gradient] = step(single, batch({}));

  const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
  const Sharding rows(mesh, {{"dp", Shard(0)}});
  FeedForward model;
  parallelize(model, mesh["tp"], {{"up", Colwise()}, {"down", Rowwise()}});

  // This prints the collectives of a step before there is memory for parameters.
  const std::string plan = explain(model, [&] {
    const Tensor x = empty({kRows, kWidth}, {.device = meta, .sharding = rows});
    return mean(square(model(x) - x));
  });

  Context::current().random = {.seed = 1};
  model.materialize();  // bitwise the values of the whole model
  const auto [loss, gradient] = step(model, batch({.sharding = rows}));
  const Shape part = model.parameters()[0]->value().local().shape();
  const double off = max(abs(gradient.full_tensor() - expected_gradient)).item() /
                     max(abs(expected_gradient)).item();
  if (world.rank() != 0) return;
  std::cout << plan << "up.weight is " << gradient.shape() << ", each rank holds " << part
            << std::endl;
  const bool equal_loss = std::abs(loss - expected) < 1e-5 * expected;
  std::printf("the loss and its gradient equal those of one device: %s\n",
              equal_loss && off < 1e-5 ? "yes" : "no");
}

int main() { run_world(4, run); }
