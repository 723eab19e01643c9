// SPDX-License-Identifier: Apache-2.0

// A vision transformer of weft's blocks: trained from scratch, fully sharded over two ranks and cut
// by heads over two others, or filled from a file of transformers.
//
//   vit                  # trains on images that show a bright square
//   vit DIRECTORY        # google/vit-base-patch16-224: the likeliest class of a grey image

#include <cstdio>
#include <string>

#include "vit.h"

using namespace weft;

static constexpr int64_t kRows = 16, kSteps = 120;

/// Images with noise and a bright square in one of four corners, and the number of the corner. Each
/// rank makes its own rows.
static std::pair<Tensor, Tensor> batch(const VitConfig& config, const Sharding& rows,
                                       int64_t number) {
  Context::current().random = {.seed = 100 + static_cast<uint64_t>(number)};
  const int64_t n = config.image, half = n / 2;
  const Tensor noise = randn({kRows, config.channels, n, n}, {.sharding = rows});
  const Tensor labels = randint({kRows}, 0, 4, {.dtype = i64, .sharding = rows});
  const Tensor pixels = arange(0, n, 1, {.dtype = i64, .sharding = Sharding(rows.mesh(), {})});
  const Tensor corner = reshape(labels, {kRows, 1, 1, 1});
  const Tensor lower = greater_equal(reshape(pixels, {1, 1, n, 1}), half);
  const Tensor right = greater_equal(reshape(pixels, {1, 1, 1, n}), half);
  const Tensor shown = add(mul(cast(lower, i64), 2), cast(right, i64));
  return {add(mul(noise, 0.5), cast(equal(shown, corner), f32)), labels};
}

static void train(const Communicator& world) {
  const VitConfig config{
      .image = 12, .patch = 3, .classes = 4, .dim = 32, .layers = 2, .heads = 4, .ffn = 64};
  const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
  Vit model(config);
  parallelize(model, mesh["tp"], model.styles());
  for (const auto& unit : model.units()) fully_shard(unit, mesh["dp"]);
  fully_shard(model, mesh["dp"]);
  Context::current().random = {.seed = 1};
  model.materialize();
  AdamW optimizer(model.named_parameters(), {.learning_rate = 3e-3});
  const Sharding rows(mesh, {Shard(0), Replicate()});
  double first = 0, last = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto [images, labels] = batch(config, rows, step);
    const Tensor loss = cross_entropy(model(images), labels);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    last = loss.full_tensor().item();
    if (step == 0) first = last;
  }
  if (world.rank() != 0) return;
  std::printf("dp=2, tp=2: loss %.1f before, below 0.3 after %d steps: %s\n", first,
              static_cast<int>(kSteps), last < 0.3 ? "yes" : "no");
}

static void classify(const Communicator& world, const std::string& directory) {
  const VitConfig config;
  const DeviceMesh mesh(world, {{"dp", world.size()}});
  Vit model(config);
  for (const auto& unit : model.units()) fully_shard(unit, mesh);
  fully_shard(model, mesh);
  model.materialize();
  load_vit(model, directory);
  const NoGrad no_grad;
  const Tensor images = zeros({1, config.channels, config.image, config.image},
                              {.sharding = Sharding(mesh, {Replicate()})});
  const Tensor likeliest = argmax(model(images), 1).full_tensor();
  if (world.rank() == 0) std::printf("class %lld\n", static_cast<long long>(likeliest.item()));
}

int main(int argc, char** argv) {
  if (argc > 2) {
    std::fprintf(stderr, "usage: vit [DIRECTORY]\n");
    return 2;
  }
  if (argc == 2) {
    run_ranks(2, [&](const Communicator& world) { classify(world, argv[1]); });
  } else {
    run_ranks(4, train);
  }
}
