// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "tests/fsdp/chain.h"
#include "tests/fsdp/presets.h"
#include "tests/support/processes.h"
#include "tests/support/scratch.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/tape.h"
#include "weft/init.h"
#include "weft/ops/in_place.h"
#include "weft/optimizers.h"

namespace weft {

/// The ways in which the odd ranks differ from the even ones.
enum class Wrong { forward_swapped, backward_swapped, drops_another, skips_one };

static const char* const kWrongs[] = {"forward swapped", "backward swapped", "drops another layer",
                                      "one skips"};

/// Two layers of equal shape: all weights of `a` are 1, all of `b` 2.
class Pair final : public Module {
 public:
  Pair() {
    for (const char* name : {"a", "b"}) {
      layers.push_back(add(name, std::make_shared<Linear>(4, 4, false)));
    }
  }
  std::vector<std::shared_ptr<Linear>> layers;

 protected:
  Tensors forward(const Tensors& inputs) override {
    Tensors outputs;
    for (const int i : order) outputs.push_back((*layers[static_cast<size_t>(i)])(inputs[0]));
    return outputs;
  }

 public:
  /// The layers that forward calls.
  std::vector<int> order{0, 1};
};

static std::vector<int> order_of(Wrong wrong, bool is_odd) {
  switch (wrong) {
    case Wrong::forward_swapped: return is_odd ? std::vector{1, 0} : std::vector{0, 1};
    case Wrong::backward_swapped: return {0, 1};
    case Wrong::drops_another: return {is_odd ? 0 : 1};
    case Wrong::skips_one: return is_odd ? std::vector{0} : std::vector{0, 1};
  }
  return {};
}

namespace {

struct Case {
  Preset preset;
  std::vector<MeshAxis> axes;
  /// The layers are parts of one model, else a model each.
  bool one_model = true;
  /// The first of two micro-steps does not sync.
  bool accumulates = false;
  /// The ranks agree in a first step, which later ones repeat.
  bool is_recorded = false;
};

}  // namespace

/// Computes one step, and fails the test if a number is wrong.
static void step(const Case& now, Wrong wrong, Pair& pair, const DeviceMesh& mesh, bool is_odd) {
  const std::vector<Placement> cut(static_cast<size_t>(mesh.ndim()), Shard(0));
  const Tensor x = distribute(ones({mesh.size(), 4}), mesh, Placements(std::span(cut)));
  pair.order = order_of(wrong, is_odd);
  const int micro_steps = now.accumulates ? 2 : 1;
  for (int micro = 0; micro < micro_steps; ++micro) {
    std::optional<NoSync> hold;
    if (now.one_model && micro + 1 < micro_steps) hold.emplace(pair);
    Tensors outputs;
    if (now.one_model) {
      outputs = pair(Tensors{x});
    } else {
      for (const int i : pair.order) {
        outputs.push_back((*pair.layers[static_cast<size_t>(i)])(Tensors{x})[0]);
      }
    }
    Tensors losses(2);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int layer = pair.order[i];
      for (const float value : outputs[i].local().to_vector<float>()) {
        EXPECT_NEAR(value, layer == 0 ? 4 : 8, 0.1) << "layer " << layer;
      }
      losses[static_cast<size_t>(layer)] = sum(outputs[i]) * (layer == 0 ? 1 : 10);
    }
    if (wrong == Wrong::backward_swapped && is_odd) std::swap(losses[0], losses[1]);
    if (wrong == Wrong::backward_swapped) {
      for (const Tensor& loss : losses) loss.backward();
    } else {
      Tensor all;
      for (const Tensor& loss : losses) {
        if (loss) all = all ? all + loss : loss;
      }
      all.backward();
    }
  }
  int odd = mesh.size() / 2, even = mesh.size() - odd;
  for (size_t layer = 0; layer < 2; ++layer) {
    int users = mesh.size();
    if (wrong == Wrong::drops_another) users = layer == 0 ? odd : even;
    if (wrong == Wrong::skips_one && layer == 1) users = even;
    const Tensor gradient = pair.layers[layer]->parameters()[0]->grad();
    if (!gradient) continue;
    for (const float value : in_memory(gradient).full_tensor().to_vector<float>()) {
      EXPECT_NEAR(value, users * micro_steps * (layer == 0 ? 1 : 10), 0.1)
          << "gradient of " << layer;
    }
  }
}

static void clear(const Pair& pair) {
  for (const ParameterPtr& parameter : pair.parameters()) parameter->clear_grad();
}

/// Returns what the rank's error says, or "" if all numbers were right.
static std::string outcome(const Case& now, Wrong wrong, Communicator world) {
  const DeviceMesh mesh(world, now.axes);
  Pair pair;
  for (size_t i = 0; i < 2; ++i) {
    pair.layers[i]->parameters()[0]->set_value(full({4, 4}, i == 0 ? 1 : 2));
    fully_shard(*pair.layers[i], mesh, now.preset.options);
  }
  if (now.one_model) fully_shard(pair, mesh, now.preset.options);
  for (const auto& layer : pair.layers) layer->materialize();
  const bool is_odd = world.rank() % 2 == 1;
  if (now.is_recorded) {
    step(now, Wrong::forward_swapped, pair, mesh, false);
    clear(pair);
  }
  try {
    step(now, wrong, pair, mesh, is_odd);
    world.barrier();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

static std::string name_of(const Case& now, Wrong wrong) {
  return std::string(now.preset.name) + (now.one_model ? "" : ", two models") +
         (now.accumulates ? ", accumulates" : "") + (now.is_recorded ? ", recorded" : "") + ", " +
         kWrongs[static_cast<size_t>(wrong)];
}

/// All ranks must fail, or have the right numbers.
static void expect_no_blend(const Case& now, Wrong wrong, bool in_processes) {
  SCOPED_TRACE(name_of(now, wrong) + (in_processes ? ", processes" : ""));
  const int ranks = ranks_of(now.axes);
  const tests::Scratch scratch;
  const auto body = [&](Communicator world) {
    const std::string text = outcome(now, wrong, world);
    std::ofstream(scratch.path(std::to_string(world.rank()))) << text;
  };
  const RunOptions options{.deadline = std::chrono::seconds(3), .threads_per_rank = 1};
  if (in_processes) {
    run_processes(ranks, body, options);
  } else {
    error_of<CommError>([&] { run_ranks(ranks, body, options); });  // throws what the ranks caught
  }
  int failed = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    std::ifstream file(scratch.path(std::to_string(rank)));
    const std::string text(std::istreambuf_iterator<char>(file), {});
    failed += !text.empty();
    if (text.empty()) continue;
    // Ranks that wait for each other in different groups are found at the deadline.
    const bool says = text.find("of parameters of") != text.npos ||
                      text.find("of gradients of") != text.npos ||
                      text.find("within 3000 ms") != text.npos;
    EXPECT_TRUE(says) << text;
  }
  EXPECT_TRUE(failed == 0 || failed == ranks) << failed;
}

TEST(Divergence, RanksThatUseUnitsInDifferentOrderFailOrAreRight) {
  const std::vector<MeshAxis> one{{"dp", 2}}, two{{"across", 2}, {"within", 2}};
  std::vector<Case> cases;
  for (const Preset& preset :
       presets_and({"buckets", {.strategy = Strategy::ddp(), .bucket_bytes = 1}})) {
    cases.push_back({preset, one});
  }
  cases.push_back({{"hsdp", {.strategy = Strategy::hsdp()}}, two});
  const Quantization codes{.gather = i8, .reduce = i8, .block = 4};
  cases.push_back({{"codes", {.quantization = codes}}, one});
  cases.push_back({{"codes, hsdp", {.strategy = Strategy::hsdp(), .quantization = codes}}, two});
  const tests::Scratch scratch;
  const Tier disk = Tier::disk(scratch.root());
  cases.push_back({{"disk", {.offload = {disk, disk}}}, one});
  for (const Case& now : cases) {
    for (const Wrong wrong : {Wrong::forward_swapped, Wrong::backward_swapped, Wrong::drops_another,
                              Wrong::skips_one}) {
      // The outputs of one model have one backward.
      const bool swaps = wrong == Wrong::backward_swapped;
      const bool waits = now.axes.size() > 1 && wrong == Wrong::skips_one;
      for (const bool one_model : {true, false}) {
        if (one_model ? swaps : waits) continue;
        Case varied = now;
        varied.one_model = one_model;
        expect_no_blend(varied, wrong, false);
        if (kForks && !waits) expect_no_blend(varied, wrong, true);
      }
      if (waits) continue;
      for (const int more : {1, 2}) {
        Case varied = now;
        varied.one_model = !swaps;
        varied.accumulates = more == 1;
        varied.is_recorded = more == 2;
        expect_no_blend(varied, wrong, false);
      }
    }
  }
}

/// Two models whose parameters are equal, of which each rank clips another one.
TEST(Divergence, NormsOfDifferentModelsAreNotMixed) {
  const auto body = [](const DeviceMesh& mesh) {
    std::vector<std::shared_ptr<Linear>> models;
    for (int i = 0; i < 2; ++i) {
      models.push_back(std::make_shared<Linear>(4, 4, false));
      fully_shard(*models.back(), mesh);
      models.back()->materialize();
      const Tensor x = distribute(full({2, 4}, i + 1), mesh, {Shard(0)});
      sum((*models.back())(x)).backward();
    }
    EXPECT_EQ(clip_grad_norm(models[0]->parameters(), 100), 8);
    clip_grad_norm(models[static_cast<size_t>(mesh.rank())]->parameters(), 100);
  };
  const std::string text = error_of<CommError>([&] { on_mesh({{"dp", 2}}, body); });
  EXPECT_TRUE(has(text, " of gradient norm")) << text;
}

/// A layer of plain tensors: its forward moves `x`, or backward the gradient of its weight.
class Plain final : public Module {
 public:
  explicit Plain(bool moves) : moves_(moves) {
    declare("weight", {4}, [](const Tensor& w) { fill_(w, 1); });
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    if (moves_) return {inputs[0].redistribute({Replicate()})};
    return {inputs[0] * used(0)};
  }

 private:
  bool moves_;
};

class PlainPair final : public Module {
 public:
  explicit PlainPair(bool moves) {
    for (const char* name : {"a", "b"}) {
      layers.push_back(add(name, std::make_shared<Plain>(moves)));
    }
  }
  std::vector<std::shared_ptr<Plain>> layers;
  bool swaps = false;

 protected:
  Tensors forward(const Tensors& inputs) override {
    const size_t first = swaps ? 1 : 0;
    Tensors outputs(2);
    for (const size_t i : {first, 1 - first}) outputs[i] = (*layers[i])(inputs[0]);
    return {outputs[0] + outputs[1] * 10};
  }
};

TEST(Divergence, PlainTensorsAreToldApartByTheirModules) {
  for (const bool moves : {true, false}) {
    const auto body = [&](const DeviceMesh& mesh) {
      PlainPair pair(moves);
      for (const auto& layer : pair.layers) {
        layer->parameters()[0]->set_value(distribute(ones({4}), mesh, {}));
      }
      const Tensor x = distribute(ones({2, 4}), mesh, {Shard(0)});
      pair.swaps = mesh.rank() == 1;
      sum(pair(x)).backward();
    };
    const std::string text = error_of<CommError>([&] { on_mesh({{"tp", 2}}, body); });
    EXPECT_TRUE(has(text, "redistribute(f32")) << text;
    EXPECT_TRUE(has(text, "; call modules in the same order on all ranks")) << text;
    if (!moves) continue;
    EXPECT_TRUE(has(text, "of module \"a\" but rank 1 called")) << text;
    EXPECT_TRUE(has(text, "of module \"b\"; call modules in the same order")) << text;
  }
}

/// An earlier use of a leaf by one rank alone, without a collective, does not count.
TEST(Divergence, ALeafThatOneRankUsedBeforeIsUsedByAll) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    PlainPair pair(false);
    for (const auto& layer : pair.layers) {
      layer->parameters()[0]->set_value(distribute(ones({4}), mesh, {Shard(0)}));
    }
    Tensor x = distribute(ones({4}), mesh, {Replicate()});
    x.set_requires_grad();
    if (mesh.rank() == 0) pair(x);
    for (const auto& layer : pair.layers) sum((*layer)(x)).backward();
    for (const float value : x.grad().local().to_vector<float>()) EXPECT_EQ(value, 2);
  });
}

TEST(Divergence, RanksWithEmptySlicesMissTheirMemoryToo) {
  on_mesh({{"dp", 2}}, [](const DeviceMesh& mesh) {
    Linear layer(4, 1, false);
    fully_shard(layer, mesh);
    predicted_bytes(layer, 1);
    EXPECT_EQ(error_of([&] { FsdpModule(layer).unshard(); }),
              "fully_shard: the parameters of the model have no memory, expected some; call "
              "materialize() on the model first");
  });
}

/// A backward that throws after the first of two reductions of the last layer.
TEST(Divergence, AFailedBackwardLeavesNoSumOfOneReplica) {
  on_mesh({{"across", 2}, {"within", 2}}, [](const DeviceMesh& mesh) {
    Pair pair;
    for (const auto& layer : pair.layers) fully_shard(*layer, mesh, {.strategy = Strategy::hsdp()});
    fully_shard(pair, mesh, {.strategy = Strategy::hsdp()});
    pair.materialize();
    const Tensor x = distribute(ones({4, 4}), mesh, {Shard(0), Shard(0)});
    const Tensor broken = record("broken", {pair.layers[0]->parameters()[0]->tensor()}, {x},
                                 [](const Tensors&) -> Tensors { fail("broken"); })[0];
    Tensors outputs = pair(Tensors{broken});
    EXPECT_EQ(error_of([&] { sum(outputs[0] + outputs[1]).backward(); }), "broken");
    for (const ParameterPtr& parameter : pair.parameters()) EXPECT_FALSE(parameter->grad());
  });
}

}  // namespace weft
