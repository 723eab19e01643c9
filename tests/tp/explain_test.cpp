// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "tests/tp/little_llama.h"
#include "weft/error.h"
#include "weft/extend/module_sharder.h"

namespace weft {
namespace {

int64_t bytes_of(const std::vector<PlannedCollective>& collectives, const std::string& within,
                 bool backward) {
  int64_t bytes = 0;
  for (const PlannedCollective& collective : collectives) {
    const bool inside = (collective.module + ".").starts_with(within);
    if (inside && collective.backward == backward) bytes += collective.step.bytes;
  }
  return bytes;
}

/// A sharded Llama, and one batch.
struct Laid {
  Laid(const DeviceMesh& over, const TransformerConfig& config, bool sequence_parallel,
       int parts = 1)
      : mesh(over), model(config) {
    const TransformerStyleOptions options{.sequence_parallel = sequence_parallel, .parts = parts};
    parallelize(model, mesh["tp"], transformer_styles(config, options));
  }
  Tensor loss(Device device) {
    const Placements rows = mesh.ndim() == 1 ? Placements() : Placements({{"dp", Shard(0)}});
    const TensorOptions options{.dtype = i64, .device = device, .sharding = Sharding(mesh, rows)};
    return model.loss(some_ids({4, 7}, 1, options), some_ids({4, 7}, 2, options));
  }
  std::vector<PlannedCollective> planned() {
    return planned_collectives(model, [this] { return loss(meta); });
  }

  DeviceMesh mesh;
  TransformerModel model;
};

/// Counts the bytes received while the modules "model.layers.<i>" run forward.
void count_layers(Laid& laid, std::vector<int64_t>& received) {
  const auto blocks = laid.model.blocks();
  received.assign(blocks.size(), 0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto count = [&, i](int64_t sign, const Tensors& tensors) {
      received[i] += sign * laid.mesh.traffic().bytes;
      return tensors;
    };
    blocks[i]->add_hooks(
        {.before = [count](const Tensors& inputs) { return count(-1, inputs); },
         .after = [count](const Tensors&, const Tensors& outputs) { return count(1, outputs); }});
  }
}

/// Expects that forward and backward receive the bytes that are planned.
void expect_received(Laid& laid, const std::vector<PlannedCollective>& planned) {
  laid.model.materialize();
  Tensor loss;
  const int64_t forward = bytes_received(laid.mesh, [&] { loss = laid.loss(cpu); });
  EXPECT_EQ(forward, bytes_of(planned, "", false));
  EXPECT_EQ(bytes_received(laid.mesh, [&] { loss.backward(); }), bytes_of(planned, "", true));
}

/// Norms over the width of all heads reduce one number a token instead of gathering the width.
TEST(Explain, ListsTheReductionsOfCutNorms) {
  for (const int ranks : {2, 3}) {
    on_mesh({{"tp", ranks}}, [&](const DeviceMesh& mesh) {
      TransformerConfig config = little_llama(6, 6);
      config.query_norm = QueryNorm::width, config.norm_place = NormPlace::after;
      Laid laid(mesh, config, true);
      const auto planned = laid.planned();
      expect_received(laid, planned);
      const int64_t tokens = 4 * 7;
      for (const char* norm : {"q_norm.", "k_norm."}) {
        const std::string within = concat("model.layers.0.self_attn.", norm);
        const int64_t sums = bytes_of(planned, within, false);
        EXPECT_GT(sums, 0);
        EXPECT_LE(sums, 4 * tokens * (ranks - 1));
        EXPECT_LE(bytes_of(planned, within, true), 2 * 4 * tokens * (ranks - 1));
      }
    });
  }
}

/// The bytes of a step and of each layer equal the listed bytes.
TEST(Explain, ListsWhatIsMeasured) {
  for (const auto& axes : {std::vector<MeshAxis>{{"tp", 2}}, {{"dp", 2}, {"tp", 2}}, {{"tp", 3}}}) {
    for (const auto& [sequence_parallel, parts] :
         {std::pair{false, 1}, {true, 1}, {true, 2}, {true, 5}}) {
      on_mesh(axes, [&, sequence = sequence_parallel, count = parts](const DeviceMesh& mesh) {
        Laid laid(mesh, little_llama(6, 6), sequence, count);
        const auto planned = laid.planned();
        std::vector<int64_t> layers;
        count_layers(laid, layers);
        expect_received(laid, planned);
        for (size_t i = 0; i < layers.size(); ++i) {
          const std::string layer = concat("model.layers.", i, ".");
          EXPECT_GT(layers[i], 0);
          EXPECT_EQ(layers[i], bytes_of(planned, layer, false)) << layer;
        }
      });
    }
  }
}

/// An additional layer costs in backward what is listed for a layer.
TEST(Explain, ListsTheGradientsOfALayer) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    std::vector<int64_t> received;
    std::vector<PlannedCollective> planned;
    for (int64_t layers : {1, 2}) {
      Laid laid(mesh, little_llama(4, 2, layers), true);
      planned = laid.planned();
      laid.model.materialize();
      const Tensor loss = laid.loss(cpu);
      received.push_back(bytes_received(mesh, [&] { loss.backward(); }));
    }
    EXPECT_EQ(received[1] - received[0], bytes_of(planned, "model.layers.1.", true));
  });
}

TEST(Explain, ChangesNothing) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    Laid laid(mesh, little_llama(4, 2), false);
    const RandomState random = Context::current().random;
    const int64_t memory = memory_statistics().total.current;
    EXPECT_EQ(bytes_received(mesh, [&] { laid.planned(); }), 0);
    EXPECT_EQ(memory_statistics().total.current, memory);
    EXPECT_EQ(Context::current().random, random);
    for (const ParameterPtr& parameter : laid.model.parameters()) {
      EXPECT_EQ(parameter->tensor().body(), parameter->value().body());
      EXPECT_FALSE(parameter->grad());
    }
  });
}

/// Names, in a simulated world whose ranks share no memory, the collectives of Megatron's sequence
/// parallelism (Korthikanti et al., 2022).
TEST(Explain, NamesCollectivesByLayer) {
  const DeviceMesh mesh(fake_world(0, 4, 8, false), {{"dp", 2}, {"tp", 2}});
  Laid laid(mesh, little_llama(4, 2), true);
  const std::string text = explain(laid.model, [&] { return laid.loss(meta); });
  EXPECT_NE(text.find("model.layers.0 to model.layers.1, each: "), std::string::npos) << text;
  for (const char* line :
       {"  forward  self_attn, redistribute: all_gather over tp, [S(0), S(1)] -> [S(0), R], ",
        "  forward  self_attn.o_proj, redistribute: reduce_scatter over tp, [S(0), P(sum)] -> "
        "[S(0), S(1)], ",
        "  forward  mlp, redistribute: all_gather over tp, [S(0), S(1)] -> [S(0), R], ",
        "  backward mlp, redistribute: reduce_scatter over tp, [S(0), P(sum)] -> [S(0), S(1)], ",
        "  backward mlp.down_proj, redistribute: all_gather over tp, [S(0), S(1)] -> [S(0), R], ",
        "  forward  cross_entropy: all_reduce over tp, [S(0), P(max)] -> [S(0), R], ",
        "model.embed_tokens: ", "lm_head: "}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

/// Without sequence parallelism there are four all-reduces a layer, as in Megatron (Shoeybi et al.,
/// 2019): projections that share an input share the reduction of its gradient.
TEST(Explain, CostsFourReductionsALayer) {
  const DeviceMesh mesh(fake_world(0, 2, 8, false), {{"tp", 2}});
  Laid laid(mesh, little_llama(4, 2), false);
  std::vector<std::string> collectives;
  for (const PlannedCollective& collective : laid.planned()) {
    if (!collective.module.starts_with("model.layers.1")) continue;
    EXPECT_EQ(collective.step.from + collective.step.to, "[P(sum)][R]");
    collectives.push_back(concat(collective.module, collective.backward ? " backward" : " forward",
                                 " ", collective.step.kind));
  }
  const std::vector<std::string> expected = {"model.layers.1.self_attn.o_proj forward all_reduce",
                                             "model.layers.1.mlp.down_proj forward all_reduce",
                                             "model.layers.1.mlp backward all_reduce",
                                             "model.layers.1.self_attn backward all_reduce"};
  EXPECT_EQ(collectives, expected);
}

TEST(Explain, ListsForwardAloneWithoutGradients) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    Laid laid(mesh, little_llama(4, 2), false);
    NoGrad no_grad;
    for (const PlannedCollective& collective : laid.planned()) EXPECT_FALSE(collective.backward);
  });
}

TEST(Explain, NamesWhatItCannotRun) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    Laid laid(mesh, little_llama(4, 2), false);
    EXPECT_EQ(error_of([&] { explain(laid.model, [] { return ones({}); }); }),
              "explain: the loss is on cpu, expected meta; give the model tensors on meta");
    Parameter& parameter = *laid.model.parameters()[0];
    ModuleSharder::set_used(parameter, zeros(parameter.shape()));
    EXPECT_EQ(
        error_of([&] { laid.planned(); }),
        "explain: parameter \"model.embed_tokens.weight\" is gathered for use, expected one as it "
        "is stored; explain the model before fully_shard, or without memory: materialize(meta)");
  });
}

}  // namespace
}  // namespace weft
