// SPDX-License-Identifier: Apache-2.0
// The bytes of a step of whole models with experts, as they follow from the routers' choices and
// from FSDP's schedule.
#include <map>
#include <set>

#include "tests/ops/agreement.h"
#include "tests/support/model_configs.h"
#include "tests/support/ranks.h"
#include "weft/error.h"
#include "weft/extend/op_log.h"
#include "weft/fsdp.h"
#include "weft/moe.h"
#include "weft/tensor_parallel.h"
#include "weft/transformer.h"

namespace weft {
namespace {

const char* const kMixtral =
    R"({"model_type":"mixtral","hidden_size":20,"intermediate_size":13,"num_hidden_layers":2,)"
    R"("num_attention_heads":4,"num_key_value_heads":2,"head_dim":6,"vocab_size":31,)"
    R"("max_position_embeddings":64,"num_local_experts":5,"num_experts_per_tok":2})";

constexpr int64_t kSequence = 3, kF32 = 4, kKey = 8;

/// [begin, end) of part `index` of `count` chunks of n.
std::pair<int64_t, int64_t> chunk(int64_t n, int64_t count, int64_t index) {
  const int64_t size = (n + count - 1) / count;
  return {std::min(n, size * index), std::min(n, size * (index + 1))};
}

TransformerConfig config_of(const std::string& json, int64_t chunks) {
  TransformerConfig config = transformer_config_of(json, "config");
  config.expert_chunks = chunks;
  return config;
}

/// The key is the name of the op, and whether it is part of backward.
using BytesOfOps = std::map<std::pair<std::string, bool>, int64_t>;

/// A model over a mesh whose first axis carries rows and whose second one cuts experts too.
struct Model {
  DeviceMesh mesh;
  TransformerModel transformer;
  /// Counts of the last step: the experts of each router, and what this rank received.
  std::vector<Tensor> chosen = {};
  BytesOfOps moved = {};
  int64_t received = 0;

  Model(const std::string& json, const DeviceMesh& over, bool shards, int64_t chunks)
      : mesh(over), transformer(config_of(json, chunks)) {
    parallelize(transformer, mesh["ep"], expert_styles());
    if (shards) {
      const DeviceMesh data = mesh[{"shard", "ep"}];
      const FullyShardOptions options = with_experts({}, {&transformer}, data);
      for (const auto& unit : transformer.units()) fully_shard(unit, data, options);
      fully_shard(transformer, data, options);
    }
    transformer.materialize();
    for (MoE* layer : moe_layers(transformer)) {
      layer->module("gate").add_hooks(
          {.before = {}, .after = [this](const Tensors&, const Tensors& outputs) {
             chosen.push_back(outputs[1].detach());
             return outputs;
           }});
    }
  }

  void step(int64_t batch, unsigned salt) {
    chosen.clear();
    moved.clear();
    const Sharding rows(mesh, {{"shard", Shard(0)}, {"ep", Shard(0)}});
    const Shape shape = {batch, kSequence};
    const auto on_rows = [&](unsigned seed) {
      return random_array(shape, 0, 31, DType::i64, seed).on(rows);
    };
    const Tensor ids = on_rows(salt), targets = on_rows(salt + 1);
    OpLog log;
    received = bytes_received(mesh, [&] { transformer.loss(ids, targets).backward(); });
    for (const Movement& movement : log.movements) {
      for (const MovementStep& part : movement.steps) {
        moved[{movement.what, movement.backward}] += part.bytes;
      }
    }
  }
};

/// Tokens that this rank receives or lets others compute, counted from the choices of all.
struct Exchanged {
  /// Tokens of others that choose an expert of this rank, each once.
  int64_t arriving = 0;
  /// Own tokens, once for each other rank that computes them.
  int64_t computed_elsewhere = 0;

  void add(const Array& chosen, const DeviceMesh& mesh, int64_t batch, int64_t experts) {
    const int64_t shards = mesh.axis_size(0), parts = mesh.axis_size(1), k = chosen.shape[1];
    const int64_t shard = mesh.coordinate(0), own = mesh.coordinate(1);
    for (int64_t rank = 0; rank < parts; ++rank) {
      const auto [first, end] = chunk(batch, shards * parts, shard * parts + rank);
      for (int64_t token = first * kSequence; token < end * kSequence; ++token) {
        std::set<int64_t> at;
        for (int64_t choice = 0; choice < k; ++choice) {
          const auto id =
              static_cast<int64_t>(chosen.values[static_cast<size_t>(token * k + choice)]);
          for (int64_t part = 0; part < parts; ++part) {
            const auto [from, to] = chunk(experts, parts, part);
            if (id >= from && id < to) at.insert(part);
          }
        }
        if (rank == own) computed_elsewhere += static_cast<int64_t>(at.size() - at.count(own));
        if (rank != own) arriving += static_cast<int64_t>(at.count(own));
      }
    }
  }
};

/// Bytes that this rank receives in a step by name of the op, and whether it is part of backward.
BytesOfOps exchanges_of(const Model& model, int64_t batch) {
  const TransformerConfig& config = model.transformer.config();
  Exchanged exchanged;
  for (const Tensor& chosen : model.chosen) {
    exchanged.add(whole(chosen), model.mesh, batch, config.experts);
  }
  const int64_t row = config.dim * kF32, weights = config.experts_per_token * kF32;
  const int64_t arriving = exchanged.arriving, elsewhere = exchanged.computed_elsewhere;
  // Tokens with their weights; sums of tokens, with the key of each. The gradient of each is the
  // other one; that of combine asks for rows by their keys.
  return {{{"dispatch_rows", false}, arriving * (row + weights)},
          {{"combine_rows", false}, elsewhere * (row + kKey)},
          {{"dispatch_rows", true}, arriving * row},
          {{"combine_rows", true}, elsewhere * (row + weights + 2 * kKey)}};
}

struct Case {
  std::string json;
  std::vector<MeshAxis> axes;
  int64_t batch;
  int64_t chunks = 1;
};

void expect_exchanges(const Case& one) {
  on_mesh(one.axes, [&](const DeviceMesh& mesh) {
    Model model(one.json, mesh, false, one.chunks);
    for (unsigned step = 0; step < 2; ++step) {
      model.step(one.batch, step);
      BytesOfOps& moved = model.moved;
      for (const auto& [what, bytes] : exchanges_of(model, one.batch)) {
        EXPECT_EQ(moved[what], bytes) << what.first << (what.second ? " in backward" : "");
      }
    }
  });
}

/// Collectives of FSDP run during exchanges: the sum is what can be counted.
void expect_sum(const Case& one) {
  on_mesh(one.axes, [&](const DeviceMesh& mesh) {
    Model model(one.json, mesh, true, one.chunks);
    for (unsigned step = 0; step < 2; ++step) {
      const FullyShardBytes predicted = predicted_bytes(model.transformer);
      model.step(one.batch, step);
      const FullyShardBytes measured = measured_bytes(model.transformer);
      EXPECT_EQ(measured.received, predicted.received);
      EXPECT_EQ(measured.by_axes, predicted.by_axes);
      const auto exchanges = exchanges_of(model, one.batch);
      int64_t bytes = predicted.received;
      for (const auto& [what, moved] : exchanges) bytes += moved;
      for (const auto& [what, moved] : model.moved) {
        if (!exchanges.contains(what)) bytes += moved;
      }
      EXPECT_EQ(model.received, bytes);
    }
  });
}

}  // namespace

TEST(MoeTraffic, IsWhatTheChoicesAndTheScheduleSay) {
  for (const std::string& json : {std::string(kMixtral), small_deepseek(31)}) {
    for (const auto& [shard, ep] : {std::pair{1, 2}, {1, 3}, {1, 4}, {2, 2}, {2, 1}, {1, 1}}) {
      for (const int64_t chunks : {1, 2}) {
        const Case one{json, {{"shard", shard}, {"ep", ep}}, shard * ep * (1 + chunks), chunks};
        SCOPED_TRACE(concat(json, " on ", shard, " x ", ep, ", chunks ", chunks));
        expect_exchanges(one);
        expect_sum(one);
      }
    }
  }
}

}  // namespace weft
