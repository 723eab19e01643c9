// SPDX-License-Identifier: Apache-2.0

// A custom model under HSDP: parameters are sharded within a group of two ranks and
// replicated over two groups. The run saves a checkpoint half-way. A second run loads it on a mesh
// of three ranks, fully sharded, and goes on; its losses are those of the first.
//
//   hsdp_training DIRECTORY

#include <cstdio>
#include <filesystem>

#include "weft/weft.h"

using namespace weft;

static constexpr int64_t kWidth = 32, kRows = 24, kSteps = 20;

/// x + down(gelu(up(norm(x)))).
class FeedForward final : public Module {
 public:
  explicit FeedForward(int64_t width) {
    norm_ = add("norm", std::make_shared<LayerNorm>(width));
    up_ = add("up", std::make_shared<Linear>(width, 4 * width, true));
    down_ = add("down", std::make_shared<Linear>(4 * width, width, true));
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    const Tensor& x = inputs[0];
    return {x + (*down_)(gelu((*up_)((*norm_)(x))))};
  }

 private:
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Linear> up_, down_;
};

/// Two layers and a head.
class Model final : public Module {
 public:
  Model() {
    for (const char* name : {"first", "second"}) {
      layers_.push_back(add(name, std::make_shared<FeedForward>(kWidth)));
    }
    head_ = add("head", std::make_shared<Linear>(kWidth, 1));
  }
  const std::vector<std::shared_ptr<FeedForward>>& layers() const { return layers_; }

 protected:
  Tensors forward(const Tensors& inputs) override {
    Tensor x = inputs[0];
    for (const auto& layer : layers_) x = (*layer)(x);
    return {(*head_)(x)};
  }

 private:
  std::vector<std::shared_ptr<FeedForward>> layers_;
  std::shared_ptr<Linear> head_;
};

/// Trains from step `first` to before step `last` and returns the losses. Each rank makes its own
/// rows of the batch: random values are those of the same elements of the whole batch.
static std::vector<double> train(Model& model, Optimizer& optimizer, const DeviceMesh& mesh,
                                 int64_t first, int64_t last) {
  std::vector<double> losses;
  const std::vector<Placement> rows(static_cast<size_t>(mesh.ndim()), Shard(0));
  const Sharding by_rows(mesh, Placements(std::span<const Placement>(rows)));
  for (int64_t step = first; step < last; ++step) {
    Context::current().random = {.seed = 1000 + static_cast<uint64_t>(step)};
    const Tensor x = randn({kRows, kWidth}, {.sharding = by_rows});
    const Tensor target = sum(tanh(x), {1}, true) * 0.2;
    const Tensor loss = mean(square(model(x) - target));
    loss.backward();
    optimizer.step(clip_scale(gradient_norm(model.parameters()), 1));
    optimizer.zero_grad();
    losses.push_back(loss.full_tensor().item());
  }
  return losses;
}

struct Run {
  Run(const DeviceMesh& mesh, const FullyShardOptions& options) {
    for (const auto& layer : model.layers()) fully_shard(*layer, mesh, options);
    fully_shard(model, mesh, options);
    model.materialize();
    optimizer =
        std::make_unique<AdamW>(model.named_parameters(), AdamWOptions{.learning_rate = 3e-3});
    state.add("model", model);
    state.add("optimizer", *optimizer);
  }
  Model model;
  std::unique_ptr<AdamW> optimizer;
  TrainingState state;
};

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: hsdp_training DIRECTORY\n");
    return 2;
  }
  const std::string directory = argv[1];
  std::filesystem::remove_all(directory);
  std::vector<double> expected, resumed;
  run_ranks(4, [&](const Communicator& world) {
    const DeviceMesh mesh(world, {{"replicate", 2}, {"shard", 2}});
    Run run(mesh, {.strategy = Strategy::hsdp()});
    const auto before = train(run.model, *run.optimizer, mesh, 0, kSteps);
    CheckpointSaver(world, directory).save(kSteps, run.state);
    const auto after = train(run.model, *run.optimizer, mesh, kSteps, 2 * kSteps);
    if (world.rank() != 0) return;
    expected = after;
    std::printf("hsdp on 2 x 2 ranks: loss %.2f before, %.2f after %d steps\n", before.front(),
                after.back(), static_cast<int>(2 * kSteps));
  });
  run_ranks(3, [&](const Communicator& world) {
    const DeviceMesh mesh(world, {{"shard", 3}});
    Run run(mesh, {});
    load(newest_complete_checkpoint(world, directory), run.state);
    const auto losses = train(run.model, *run.optimizer, mesh, kSteps, 2 * kSteps);
    if (world.rank() == 0) resumed = losses;
  });
  double off = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    off = std::max(off, std::abs(resumed[i] - expected[i]));
  }
  std::printf("resumed on 3 ranks: loss %.2f; %s the losses of the first run\n", resumed.back(),
              off < 1e-4 ? "equal to" : "differs from");
  return off < 1e-4 ? 0 : 1;
}
