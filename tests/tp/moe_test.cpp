// SPDX-License-Identifier: Apache-2.0
// MoE blocks over meshes, compared with the blocks of transformers.
#include <fstream>
#include <iterator>
#include <memory>

#include "tests/ops/agreement.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/fsdp.h"
#include "weft/hugging_face.h"
#include "weft/latent_attention.h"
#include "weft/moe.h"
#include "weft/optimizers.h"
#include "weft/safetensors.h"
#include "weft/state_dict.h"
#include "weft/tensor_parallel.h"
#include "weft/trace.h"

namespace weft {
namespace {

MoEConfig config_of(const std::string& name) {
  MoEConfig config{.dim = 12, .width = 7, .experts = 5};
  RouterOptions& router = config.router;
  if (name == "mixtral") router.top_k = 2;
  if (name == "qwen3_moe") router.top_k = 3;
  if (name == "qwen2_moe") {
    router = {.top_k = 3, .normalize = false};
    config.shared_width = 11;
    config.shared_gate = true;
    config.shared_name = "shared_expert";
  }
  if (name == "deepseek_v2") {
    config.experts = 6;
    router = {.top_k = 2, .normalize = false, .scale = 2.5, .groups = 3, .top_groups = 2};
    config.shared_width = 14;
  }
  if (name == "deepseek_v3") {
    config.experts = 6;
    router = {.top_k = 3,
              .scores = RouterOptions::Scores::sigmoid,
              .scale = 2.5,
              .groups = 3,
              .top_groups = 2,
              .group_score = RouterOptions::GroupScore::best_two};
    config.balance_bias = true;
    config.shared_width = 7;
  }
  return config;
}

const std::vector<std::string> kBlocks = {"mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2",
                                          "deepseek_v3"};

std::string path_of(const std::string& name) {
  return std::string(WEFT_SOURCE_DIR) + "/tests/reference/moe/" + name + ".safetensors";
}

Tensor read(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry& entry = file.entry(name);
  const Tensor tensor = empty(entry.shape, {.dtype = entry.dtype});
  file.read_box(entry, tensor.box(), tensor.block().data);
  return tensor;
}

double difference(const Tensor& value, const Tensor& expected) {
  const auto a = whole_values(value), b = expected.to_vector<double>();
  if (a.size() != b.size()) return INFINITY;
  double most = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return most / largest;
}

/// Compares output and every gradient with transformers'. `shard` lays out the block; tokens are
/// laid out as `rows` states.
void expect_equal(Module& block, const std::string& name, const DeviceMesh& mesh,
                  const Placements& rows) {
  constexpr double kBound = 1e-5;
  const SafetensorsFile reference(path_of(name + ".reference"));
  load_hugging_face(block, path_of(name));
  const Tensor x = distribute(read(reference, "x"), mesh, rows).set_requires_grad();
  const Tensor y = block(x);
  EXPECT_LE(difference(y, read(reference, "y")), kBound) << name << " y";
  sum(mul(y, distribute(read(reference, "dy"), mesh, rows))).backward();
  EXPECT_LE(difference(x.grad(), read(reference, "grad.x")), kBound) << name << " x";
  size_t compared = 0;
  for (const NamedParameter& named : block.named_parameters()) {
    const Tensor expected = read(reference, "grad." + named.name());
    EXPECT_LE(difference(named.parameter->grad(), expected), kBound) << name << named.name();
    ++compared;
  }
  EXPECT_EQ(compared + 4, reference.entries().size());
}

void expect_as_transformers(const std::string& name, const DeviceMesh& mesh, const Placements& rows,
                            const std::function<void(MoE&)>& shard) {
  MoE block(config_of(name));
  shard(block);
  expect_equal(block, name, mesh, rows);
  EXPECT_EQ(sum(block.load()).full_tensor().item(),
            static_cast<double>(15 * config_of(name).router.top_k));
}

/// Experts over ep, and, where the mesh has the axis, their width over tp.
void parallelize_experts(MoE& block, const DeviceMesh& mesh, bool has_tp) {
  parallelize(block, mesh["ep"], {{"experts", ExpertParallel()}});
  if (!has_tp) return;
  parallelize(block, mesh["tp"],
              {{"experts", Layouts{.parameters = {{"gate_proj", Shard(1)},
                                                  {"up_proj", Shard(1)},
                                                  {"down_proj", Shard(2)}},
                                   .outputs = {Replicate()}}}});
}

/// Dense parameters are sharded over the joined axes [shard, ep], experts over shard.
FullyShardOptions joined_with_ep(const DeviceMesh& mesh, bool has_replicas) {
  FullyShardOptions options;
  options.dp_mesh_dims = DataParallelMeshDims{.shard = {"shard", "ep"}};
  if (has_replicas) options.dp_mesh_dims->replicate = {"replicate"};
  options.shard_placement_fn = [mesh, has_replicas](const NamedParameter& named) {
    if (named.name().find("experts.") != 0 || named.parameter->shape().ndim() != 3) {
      return ShardPlacement{};
    }
    if (!has_replicas) {
      return ShardPlacement{.mesh = mesh["shard"], .strategy = Strategy::full_shard()};
    }
    return ShardPlacement{.mesh = mesh[{"replicate", "shard"}], .strategy = Strategy::hsdp()};
  };
  return options;
}

}  // namespace

TEST(Moe, EqualTransformersOnOneRankAndOverEp) {
  for (const int ep : {1, 2, 3, 4}) {
    on_mesh({{"ep", ep}}, [](const DeviceMesh& mesh) {
      for (const std::string& name : kBlocks) {
        expect_as_transformers(name, mesh, {{"ep", Shard(0)}},
                               [&](MoE& block) { parallelize_experts(block, mesh, false); });
      }
    });
  }
}

TEST(Moe, EqualTransformersWithWholeTokens) {
  on_mesh({{"ep", 2}}, [](const DeviceMesh& mesh) {
    for (const std::string& name : kBlocks) {
      expect_as_transformers(name, mesh, {},
                             [&](MoE& block) { parallelize_experts(block, mesh, false); });
    }
  });
}

TEST(Moe, EqualTransformersOverTp) {
  on_mesh({{"ep", 2}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    for (const std::string& name : kBlocks) {
      expect_as_transformers(name, mesh, {{"ep", Shard(0)}},
                             [&](MoE& block) { parallelize_experts(block, mesh, true); });
    }
  });
}

TEST(Moe, EqualTransformersFullySharded) {
  const Placements rows = {{"shard", Shard(0)}, {"ep", Shard(0)}};
  for (const bool has_tp : {false, true}) {
    std::vector<MeshAxis> axes = {{"shard", 2}, {"ep", 2}};
    if (has_tp) axes.push_back({"tp", 2});
    on_mesh(axes, [&](const DeviceMesh& mesh) {
      for (const std::string& name : kBlocks) {
        expect_as_transformers(name, mesh, rows, [&](MoE& block) {
          parallelize_experts(block, mesh, has_tp);
          fully_shard(block, mesh, joined_with_ep(mesh, false));
        });
      }
    });
  }
}

TEST(Moe, EqualTransformersOverReplicas) {
  const Placements rows = {{"replicate", Shard(0)}, {"shard", Shard(0)}, {"ep", Shard(0)}};
  on_mesh({{"replicate", 2}, {"shard", 2}, {"ep", 2}}, [&](const DeviceMesh& mesh) {
    for (const std::string& name : kBlocks) {
      expect_as_transformers(name, mesh, rows, [&](MoE& block) {
        parallelize_experts(block, mesh, false);
        fully_shard(block, mesh, joined_with_ep(mesh, true));
      });
    }
  });
}

TEST(Moe, LatentAttentionEqualsTransformers) {
  for (const std::string name : {"latent_attention", "latent_attention_v2_lite"}) {
    on_mesh({{"dp", 2}, {"tp", 2}}, [&](const DeviceMesh& mesh) {
      LatentAttentionConfig config{.dim = 12,
                                   .heads = 4,
                                   .kv_lora_rank = 9,
                                   .qk_nope_head_dim = 5,
                                   .qk_rope_head_dim = 6,
                                   .v_head_dim = 7,
                                   .rope_theta = 100};
      if (name == "latent_attention") config.q_lora_rank = 7;
      LatentAttention block(config);
      parallelize(block, mesh["tp"],
                  {{config.q_lora_rank > 0 ? "q_b_proj" : "q_proj", Colwise{.heads = 4}},
                   {"kv_b_proj", Colwise{.heads = 4}},
                   {"o_proj", Rowwise{.heads = 4}}});
      expect_equal(block, name, mesh, {{"dp", Shard(0)}});
    });
  }
}

namespace {

/// A block, sharded as the axes of the mesh allow, and its optimizer.
struct Training {
  explicit Training(const DeviceMesh& on) : mesh(on), block(config_of("qwen2_moe")) {
    const bool has_ep = mesh.axis_name(mesh.ndim() - 1) == "ep";
    if (has_ep) parallelize_experts(block, mesh, false);
    if (mesh.axis_name(0) == "shard") {
      fully_shard(block, mesh, has_ep ? joined_with_ep(mesh, false) : FullyShardOptions());
    }
    for (int axis = 0; axis < mesh.ndim(); ++axis) rows.push_back({mesh.axis_name(axis), Shard(0)});
    load_hugging_face(block, path_of("qwen2_moe"));
    optimizer =
        std::make_unique<AdamW>(block.named_parameters(), AdamWOptions{.learning_rate = 1e-2});
    state.add("model", block);
    state.add("optimizer", *optimizer);
  }

  double step(int64_t number) {
    const Array data = random_array({10, 3, 12}, -1, 1, DType::f32, static_cast<unsigned>(number));
    const Tensor x = distribute(data.on(), mesh, Placements(rows));
    const Tensor y = block(x);
    const Tensor loss = mean(mul(sub(y, 1), sub(y, 1)));
    optimizer->zero_grad();
    loss.backward();
    norm = gradient_norm(block.parameters()).item();
    clip_grad_norm(block.parameters(), 0.05);
    optimizer->step();
    return loss.full_tensor().item();
  }

  DeviceMesh mesh;
  MoE block;
  std::vector<NamedPlacement> rows;
  std::unique_ptr<AdamW> optimizer;
  TrainingState state;
  double norm = 0;
};

/// Losses and gradient norms of `steps` steps from step `first` on.
std::vector<double> losses_of(Training& training, int64_t first, int64_t steps) {
  std::vector<double> losses;
  for (int64_t step = first; step < first + steps; ++step) {
    losses.push_back(training.step(step));
    losses.push_back(training.norm);
  }
  return losses;
}

}  // namespace

/// Steps with clipping go on alike on any mesh, from a checkpoint of another one.
TEST(Moe, GoesOnFromACheckpointOfAnotherMesh) {
  const tests::Scratch scratch;
  std::vector<double> expected, saved_run;
  on_mesh({{"shard", 1}}, [&](const DeviceMesh& mesh) {
    Training training(mesh);
    expected = losses_of(training, 0, 10);
  });
  const std::vector<double> before(expected.begin(), expected.begin() + 10);
  const std::vector<double> after(expected.begin() + 10, expected.end());
  on_mesh({{"ep", 4}}, [&](const DeviceMesh& mesh) {
    Training training(mesh);
    expect_values(losses_of(training, 0, 5), before, 1e-5);
    CheckpointSaver saver(mesh.communicator(), scratch.path("saved"));
    saver.save(5, training.state);
    const std::vector<double> gone_on = losses_of(training, 5, 5);
    expect_values(gone_on, after, 1e-5);
    if (mesh.rank() == 0) saved_run = gone_on;
  });
  const std::vector<std::vector<MeshAxis>> others = {
      {{"shard", 2}, {"ep", 2}}, {{"shard", 3}}, {{"ep", 2}}, {{"shard", 2}, {"ep", 3}}};
  for (const auto& axes : others) {
    on_mesh(axes, [&](const DeviceMesh& mesh) {
      Training training(mesh);
      load(scratch.path("saved"), training.state);
      expect_values(losses_of(training, 5, 5), saved_run, 1e-6);
    });
  }
}

/// A checkpoint's experts become files of one tensor an expert, and come back.
TEST(Moe, IsExportedByExpert) {
  const tests::Scratch scratch;
  on_mesh({{"ep", 2}}, [&](const DeviceMesh& mesh) {
    MoE block(config_of("deepseek_v3")), back(config_of("deepseek_v3"));
    for (MoE* one : {&block, &back}) parallelize_experts(*one, mesh, false);
    load_hugging_face(block, path_of("deepseek_v3"));
    TrainingState state;
    state.add("model", block);
    CheckpointSaver saver(mesh.communicator(), scratch.path("saved"));
    const std::string path = saver.save(1, state);
    mesh.communicator().barrier();
    export_hugging_face(path, scratch.path("exported"), mesh.communicator());
    const SafetensorsFile file(scratch.path("exported/model.safetensors"));
    const SafetensorsFile given(path_of("deepseek_v3"));
    EXPECT_EQ(file.entries().size(), given.entries().size());
    for (const SafetensorsEntry& entry : given.entries()) {
      EXPECT_EQ(read(file, entry.name).to_vector<double>(),
                read(given, entry.name).to_vector<double>())
          << entry.name;
    }
    load_hugging_face(back, scratch.path("exported"));
    for (size_t i = 0; i < block.parameters().size(); ++i) {
      EXPECT_EQ(whole_values(back.parameters()[i]->value()),
                whole_values(block.parameters()[i]->value()));
    }
  });
}

/// The trace of a forward in so many parts.
static std::string trace_of(int64_t chunks) {
  const tests::Scratch scratch;
  on_mesh({{"ep", 2}}, [&](const DeviceMesh& mesh) {
    MoEConfig config = config_of("deepseek_v3");
    config.chunks = chunks;
    MoE block(config);
    parallelize_experts(block, mesh, false);
    block.materialize();
    TraceScope trace;
    block(randn({4, 3, 12}, {.sharding = Sharding(mesh, {{"ep", Shard(0)}})}));
    trace.write(mesh.communicator(), scratch.path("trace.json"));
  });
  return bytes_in(scratch.path("trace.json"));
}

TEST(Moe, ShowsItsStepsInATrace) {
  const std::string whole = trace_of(1), parts = trace_of(2);
  for (const char* name : {"dispatch", "expert products", "combine"}) {
    EXPECT_NE(whole.find(concat('"', name, '"')), std::string::npos) << name;
    // A span of each part, and none of all tokens.
    EXPECT_EQ(parts.find(concat('"', name, '"')), std::string::npos) << name;
    for (const int part : {0, 1}) {
      EXPECT_NE(parts.find(concat('"', name, ' ', part, '"')), std::string::npos) << name << part;
      EXPECT_EQ(whole.find(concat('"', name, ' ', part, '"')), std::string::npos) << name << part;
    }
    EXPECT_EQ(parts.find(concat('"', name, " 2\"")), std::string::npos) << name;
  }
  for (const std::string& text : {whole, parts}) {
    EXPECT_NE(text.find("\"shared expert\""), std::string::npos);
  }
}

/// Parts of the sequences one after the other compute the same.
TEST(Moe, InChunksEqualsTransformers) {
  for (const std::string& name : kBlocks) {
    for (const int64_t chunks : {2, 3, 9}) {
      on_mesh({{"ep", 2}}, [&](const DeviceMesh& mesh) {
        MoEConfig config = config_of(name);
        config.chunks = chunks;
        MoE block(config);
        parallelize_experts(block, mesh, false);
        expect_equal(block, name, mesh, {{"ep", Shard(0)}});
        EXPECT_EQ(sum(block.load()).full_tensor().item(),
                  static_cast<double>(15 * config.router.top_k));
      });
    }
  }
  MoEConfig config = config_of("mixtral");
  config.chunks = 2, config.capacity_factor = 1;
  EXPECT_THROW(MoE{config}, std::invalid_argument);
}

/// Experts that run again for each part, in a group that is resharded when its gradients are
/// complete.
TEST(Moe, RecomputesFullyShardedExpertsOfParts) {
  for (const int64_t chunks : {1, 2, 3}) {
    on_mesh({{"shard", 2}, {"ep", 2}}, [&](const DeviceMesh& mesh) {
      MoEConfig config = config_of("qwen3_moe");
      config.chunks = chunks;
      MoE block(config);
      parallelize_experts(block, mesh, false);
      fully_shard(block, mesh, joined_with_ep(mesh, false));
      block.module("experts").set_recompute(true);
      expect_equal(block, "qwen3_moe", mesh, {{"shard", Shard(0)}, {"ep", Shard(0)}});
    });
  }
}

TEST(Moe, ExpertParallelNamesWhatDoesNotFit) {
  on_mesh({{"ep", 1}}, [](const DeviceMesh& mesh) {
    const auto error = [&](Module& module, const char* path) {
      return error_of([&] { parallelize(module, mesh["ep"], {{path, ExpertParallel()}}); });
    };
    MoE block(config_of("mixtral"));
    EXPECT_EQ(error(block, ""),
              "parallelize: \"\" has no parameters, expected those of experts for ExpertParallel");
    LayerNorm norm(4);
    Linear linear(3, 4, true);
    EXPECT_EQ(error(linear, ""), "nothing");
  });
}

}  // namespace weft
