// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tests/train/formula_rows.h"
#include "weft/extend/fixed_products.h"
#include "weft/extend/hash.h"
#include "weft/fsdp_module.h"
#include "weft/layers.h"
#include "weft/ops.h"
#include "weft/pipelined_transformer.h"
#include "weft/tensor_parallel.h"

namespace weft {
namespace {

/// A way to compute the same training.
struct Way {
  std::vector<MeshAxis> axes = {{"dp", 1}};
  std::string strategy = "full_shard";
  int threads = 1;
  int64_t accumulate = 1;
  DType compute = f32;
  bool recomputes = false;
  /// The program of stages along an axis "pp".
  std::string schedule = "1f1b";
  int microbatches = 8;
  /// Cuts norms by tokens along an axis "tp".
  bool cuts_tokens = true;
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  for (const MeshAxis& axis : way.axes) out << axis.name << '=' << axis.size << ' ';
  return out << way.strategy << ", " << way.threads << " threads, accumulate " << way.accumulate
             << ", " << way.compute << (way.recomputes ? ", recomputed" : "") << ", "
             << way.schedule << ' ' << way.microbatches;
}

struct Result {
  std::vector<double> numbers;
  uint64_t weights = 0;

  /// Equal bits; steps without targets have no loss.
  bool operator==(const Result& other) const {
    return weights == other.weights && numbers.size() == other.numbers.size() &&
           std::memcmp(numbers.data(), other.numbers.data(), 8 * numbers.size()) == 0;
  }
};

std::ostream& operator<<(std::ostream& out, const Result& result) {
  for (const double number : result.numbers) out << std::hexfloat << number << ' ';
  return out << result.weights;
}

TrainerOptions options_of(const Way& way, int64_t batch, int64_t steps) {
  TrainerOptions options;
  options.batch = batch;
  options.accumulate = way.accumulate;
  options.steps = steps;
  options.clip = 0.5;
  options.schedule = [](int64_t) { return 5e-3; };
  options.validation = std::make_shared<FormulaRows>(7, 1000);
  options.reproducible = true;
  return options;
}

FullyShardOptions sharding_of(const Way& way) {
  FullyShardOptions sharding{.strategy = Strategy::named(way.strategy)};
  if (way.compute != f32) sharding.precision = {.compute = way.compute, .reduce = f32};
  return sharding;
}

bool has_axis(const DeviceMesh& mesh, const std::string& name) {
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.axis_name(axis) == name) return true;
  }
  return false;
}

/// Cuts the model over an axis "tp", and then over the others.
void prepare(TransformerModel& model, const Way& way, const DeviceMesh& whole) {
  DeviceMesh mesh = whole;
  if (has_axis(whole, "tp")) {
    const auto styles = transformer_styles(model.config(), {.sequence_parallel = way.cuts_tokens});
    parallelize_stage(model, whole["tp"], styles);
    std::vector<std::string_view> others;
    for (int axis = 0; axis < whole.ndim(); ++axis) {
      if (whole.axis_name(axis) != "tp") others.push_back(whole.axis_name(axis));
    }
    if (others.empty()) return;
    mesh = whole.view(others);
  }
  for (Module* block : model.blocks()) {
    if (way.recomputes) block->set_recompute(true);
    fully_shard(*block, mesh, sharding_of(way));
  }
  fully_shard(model, mesh, sharding_of(way));
}

uint64_t hash_of(const Tensor& tensor, uint64_t seed) {
  const Tensor whole = tensor.full_tensor();
  const auto bytes = static_cast<size_t>(whole.numel()) * size_of(whole.dtype());
  return xxh3_of({static_cast<const std::byte*>(whole.block().data), bytes}, seed);
}

/// Trains, and returns losses, norms of gradients and the validation loss, and the sum of hashes
/// of the weights, which ranks along `line` hold in parts.
Result trained_model(const std::vector<NamedParameter>& parameters, TrainerOptions options,
                     Module& model, const Sharding& rows, const Communicator& line) {
  AdamW optimizer(parameters, {.learning_rate = 5e-3, .weight_decay = 0.1});
  std::vector<double> numbers;
  options.on_step = [&](const StepReport& report) {
    numbers.push_back(report.loss);
    numbers.push_back(report.gradient_norm);
  };
  options.on_evaluation = [&](int64_t, double loss) { numbers.push_back(loss); };
  Trainer(model, std::make_shared<FormulaRows>(), optimizer, rows, options).run();
  uint64_t weights = 0;
  for (const NamedParameter& named : parameters) {
    weights += hash_of(named.parameter->value(), xxh3_of(std::as_bytes(std::span(named.name()))));
  }
  if (line)
    weights =
        static_cast<uint64_t>(line.all_reduce_number(static_cast<int64_t>(weights), ReduceOp::sum));
  return {numbers, weights};
}

Sharding rows_over(const DeviceMesh& mesh) {
  std::vector<NamedPlacement> cut;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    const std::string& name = mesh.axis_name(axis);
    if (name != "pp" && name != "tp" && name != "cp") cut.push_back({name, Shard(0)});
  }
  return Sharding(mesh, Placements(std::span<const NamedPlacement>(cut)));
}

Result trained_stages(const Way& way, const TransformerConfig& config, TrainerOptions options,
                      const DeviceMesh& mesh) {
  const int stages = mesh.axis_size(mesh.axis("pp"));
  const auto pipeline = std::make_shared<PipelinedTransformer>(
      mesh, config, pipeline_program(way.schedule, stages, way.microbatches), kFormulaSequence);
  for (const auto& stage : pipeline->stages()) prepare(*stage, way, pipeline->stage_mesh());
  pipeline->materialize();
  options.pipeline = pipeline;
  return trained_model(pipeline->named_parameters(), options, pipeline->module(), rows_over(mesh),
                       mesh["pp"].communicator());
}

Result trained(const Way& way, const TransformerConfig& config, int64_t batch, int64_t steps) {
  Result result;
  const auto body = [&](const DeviceMesh& mesh) {
    Result own;
    if (std::ranges::find(way.axes, "pp", &MeshAxis::name) != way.axes.end()) {
      own = trained_stages(way, config, options_of(way, batch, steps), mesh);
    } else {
      TransformerModel model(config);
      prepare(model, way, mesh);
      model.materialize();
      own = trained_model(model.named_parameters(), options_of(way, batch, steps), model,
                          rows_over(mesh), {});
    }
    if (mesh.rank() == 0) result = own;
  };
  run_ranks(ranks_of(way.axes), [&](Communicator world) { body(DeviceMesh(world, way.axes)); },
            {.deadline = std::chrono::seconds(60), .threads_per_rank = way.threads, .seed = 3});
  return result;
}

TransformerConfig grouped() { return transformer_config(grouped_model()); }

TEST(Reproducible, LossesAndWeightsHaveTheSameBitsOnAnyMesh) {
  const Way ways[] = {
      {.threads = 3, .accumulate = 4},
      {.axes = {{"dp", 2}}, .strategy = "ddp", .threads = 2},
      {.axes = {{"dp", 2}}, .strategy = "zero2", .accumulate = 2, .recomputes = true},
      {.axes = {{"dp", 3}}, .strategy = "full_shard"},
      {.axes = {{"dp", 4}}, .strategy = "zero1", .accumulate = 2},
      {.axes = {{"a", 2}, {"b", 2}}, .strategy = "full_shard", .threads = 2},
      {.axes = {{"a", 2}, {"b", 2}}, .strategy = "hsdp", .recomputes = true},
      {.axes = {{"a", 3}, {"b", 2}}, .strategy = "hsdp"},
      {.axes = {{"a", 2}, {"b", 3}}, .strategy = "full_shard"},
      {.axes = {{"dp", 8}}, .strategy = "full_shard", .accumulate = 4},
  };
  const Result expected = trained({.strategy = "ddp"}, grouped(), 8, 4);
  ASSERT_EQ(expected.numbers.size(), 9U);
  for (const Way& way : ways) EXPECT_EQ(trained(way, grouped(), 8, 4), expected) << way;
  const Result narrow = trained({.compute = bf16}, grouped(), 8, 4);
  EXPECT_NE(narrow, expected);
  const Way halves = {.axes = {{"dp", 4}}, .strategy = "zero2", .threads = 2, .compute = bf16};
  EXPECT_EQ(trained(halves, grouped(), 8, 4), narrow);
}

TEST(Reproducible, ExpertsHaveTheSameBits) {
  TransformerConfig config = grouped();
  config.experts = 4;
  config.expert_ffn = 16;
  const Result expected = trained({.threads = 2}, config, 8, 4);
  EXPECT_EQ(trained({.axes = {{"dp", 2}}, .strategy = "ddp"}, config, 8, 4), expected);
  EXPECT_EQ(trained({.axes = {{"a", 2}, {"b", 2}}, .strategy = "hsdp"}, config, 8, 4), expected);
}

TEST(Reproducible, StagesHaveTheSameBits) {
  TransformerConfig config = grouped();
  config.layers = 4;
  const Result expected = trained({.strategy = "ddp"}, config, 8, 4);
  const Way ways[] = {
      {.axes = {{"pp", 2}}, .accumulate = 2},
      {.axes = {{"pp", 3}}, .schedule = "gpipe", .microbatches = 4},
      {.axes = {{"dp", 2}, {"pp", 2}}, .strategy = "zero2", .threads = 2, .recomputes = true},
      {.axes = {{"pp", 2}, {"a", 1}, {"b", 2}}, .strategy = "hsdp", .schedule = "interleaved"},
  };
  for (const Way& way : ways) EXPECT_EQ(trained(way, config, 8, 4), expected) << way;
}

#define SKIP_WITHOUT_EQUAL_PARTS \
  if (!FixedProducts::have_equal_parts()) GTEST_SKIP() << "oneDNN has no kernels of AVX-512 here"

/// Trains in the ways, of which each cuts the sums of a row in two.
void expect_halves(const std::vector<Way>& ways, const TransformerConfig& config) {
  const Result wide = trained({.strategy = "ddp"}, config, 8, 4);
  const Result narrow = trained({.strategy = "ddp", .compute = bf16}, config, 8, 4);
  for (const Way& way : ways) {
    EXPECT_EQ(trained(way, config, 8, 4), way.compute == f32 ? wide : narrow) << way;
  }
}

TEST(Reproducible, TensorParallelModelsHaveTheSameBits) {
  SKIP_WITHOUT_EQUAL_PARTS;
  expect_halves({{.axes = {{"dp", 1}, {"tp", 2}}, .threads = 2},
                 {.axes = {{"dp", 1}, {"tp", 2}}, .compute = bf16, .cuts_tokens = false},
                 {.axes = {{"dp", 2}, {"tp", 2}}, .accumulate = 2, .recomputes = true},
                 {.axes = {{"tp", 2}, {"dp", 3}}, .strategy = "zero2", .compute = bf16}},
                grouped());
}

TEST(Reproducible, SharedSequencesHaveTheSameBits) {
  SKIP_WITHOUT_EQUAL_PARTS;
  expect_halves({{.axes = {{"cp", 2}}, .strategy = "ddp", .threads = 2},
                 {.axes = {{"dp", 2}, {"cp", 2}}, .compute = bf16, .recomputes = true}},
                grouped());
}

TEST(Reproducible, BiasesHaveTheSameBits) {
  SKIP_WITHOUT_EQUAL_PARTS;
  TransformerConfig config = grouped();
  config.norm = NormKind::layer;
  config.norm_bias = config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.head_bias = true;
  expect_halves({{.axes = {{"dp", 2}, {"tp", 2}}, .compute = bf16},
                 {.axes = {{"dp", 2}, {"cp", 2}}, .compute = bf16}},
                config);
}

TEST(Reproducible, DropoutHasTheSameBits) {
  SKIP_WITHOUT_EQUAL_PARTS;
  TransformerConfig config = grouped();
  config.residual_dropout = config.attention_dropout = config.embedding_dropout = 0.1;
  const Result expected = trained({.strategy = "ddp"}, config, 8, 4);
  EXPECT_NE(trained({.strategy = "ddp"}, grouped(), 8, 4), expected);
  for (const Way& way :
       {Way{.axes = {{"dp", 2}}, .strategy = "ddp", .threads = 2, .recomputes = true},
        Way{.axes = {{"a", 3}, {"b", 2}}, .strategy = "hsdp"},
        Way{.axes = {{"dp", 2}, {"tp", 2}}}}) {
    EXPECT_EQ(trained(way, config, 8, 4), expected) << way;
  }
}

/// The values of each pair of choices meet: 43 meshes and strategies, each with 4 of the others.
TEST(Reproducible, PairsOfChoices) {
  const char* steps = std::getenv("WEFT_REPRODUCIBLE_STEPS");
  SKIP_WITHOUT_EQUAL_PARTS;
  if (!steps) GTEST_SKIP() << "set WEFT_REPRODUCIBLE_STEPS, for example 100, to run it";
  std::vector<Way> ways;
  for (const char* strategy : {"ddp", "zero1", "zero2", "full_shard"}) {
    for (const int ranks : {1, 2, 3, 4, 6, 8}) {
      ways.push_back({.axes = {{"dp", ranks}}, .strategy = strategy});
    }
  }
  for (const auto& [a, b] : {std::pair(2, 2), {2, 3}, {3, 2}, {2, 4}, {4, 2}}) {
    ways.push_back({.axes = {{"a", a}, {"b", b}}, .strategy = "hsdp"});
  }
  for (const std::vector<MeshAxis>& axes :
       std::vector<std::vector<MeshAxis>>{{{"dp", 1}, {"tp", 2}},
                                          {{"dp", 2}, {"tp", 2}},
                                          {{"tp", 2}, {"dp", 3}},
                                          {{"dp", 4}, {"tp", 2}},
                                          {{"cp", 2}},
                                          {{"dp", 2}, {"cp", 2}},
                                          {{"dp", 3}, {"cp", 2}},
                                          {{"dp", 4}, {"cp", 2}},
                                          {{"pp", 2}},
                                          {{"pp", 3}},
                                          {{"pp", 4}},
                                          {{"pp", 2}, {"dp", 3}},
                                          {{"dp", 2}, {"pp", 4}},
                                          {{"pp", 2}, {"dp", 2}, {"tp", 2}}}) {
    ways.push_back({.axes = axes});
    if (ways.size() % 2 == 0) ways.back().schedule = "gpipe", ways.back().microbatches = 5;
  }
  TransformerConfig config = transformer_config("tiny");
  int number = 0, differ = 0;
  Result expected[2];
  for (Way way : ways) {
    for (int i = 0; i < 4; ++i, ++number) {
      way.threads = 1 + i;
      way.accumulate = int64_t{1} << (number / 4 + i) % 3;
      way.compute = (number / 8 + i) % 2 == 0 ? f32 : bf16;
      way.recomputes = (number / 4 + i / 2) % 2 == 0;
      Result& one = expected[way.compute == bf16];
      if (one.numbers.empty()) {
        one = trained({.compute = way.compute}, config, 8, std::atoi(steps));
      }
      const bool is_equal = trained(way, config, 8, std::atoi(steps)) == one;
      EXPECT_TRUE(is_equal) << way;
      differ += !is_equal;
    }
  }
  std::printf("%d of %d ways differ\n", differ, number);
}

TEST(Reproducible, GoesOnWithTheSameBitsOnOtherRanks) {
  const tests::Scratch scratch;
  TrainerOptions options = options_of({}, 8, 4);
  std::vector<double> whole, parts;
  on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) {
    const std::vector<double> losses = FormulaRun(mesh).losses(options);
    if (mesh.rank() == 0) whole = losses;
  });
  options.checkpoints.save = options.checkpoints.resume = scratch.path("run");
  for (const int ranks : {4, 3, 1}) {
    options.steps = 5 - ranks;
    if (ranks == 1) options.reproducible = false;
    const std::string error = error_of([&] {
      on_mesh({{"dp", ranks}}, [&](const DeviceMesh& mesh) {
        const std::vector<double> losses = FormulaRun(mesh).losses(options);
        if (mesh.rank() == 0) parts.insert(parts.end(), losses.begin(), losses.end());
      });
    });
    EXPECT_EQ(error, ranks > 1 ? "nothing"
                               : "trainer: resume: reproducible is empty, the checkpoint's is yes, "
                                 "expected equal values; allow_change reproducible continues with "
                                 "the new value");
  }
  whole.resize(2);
  EXPECT_EQ(parts, whole);
}

/// The error of a trainer of a changed model, or of its first step.
struct Refused {
  std::vector<MeshAxis> axes = {{"dp", 2}};
  FullyShardOptions sharding = {};
  std::function<void(TransformerConfig&)> config = {};
  std::function<void(TransformerModel&)> model = {};
  std::function<void(TrainerOptions&)> options = {};
  std::vector<Placement> rows = {Shard(0)};
  bool has_loss = false, has_lamb = false, cuts_experts = false;
};

std::string error_of_training(const Refused& refused) {
  return error_of([&] {
    on_mesh(refused.axes, [&](const DeviceMesh& mesh) {
      TransformerConfig config = grouped();
      if (refused.config) refused.config(config);
      TransformerModel model(config);
      if (refused.cuts_experts) {
        parallelize(model, mesh["ep"], expert_styles());
        fully_shard(model, mesh, with_experts({}, {&model}, mesh));
      } else {
        fully_shard(model, mesh["dp"], refused.sharding);
      }
      model.materialize();
      if (refused.model) refused.model(model);
      AdamW adamw(model.named_parameters());
      Lamb lamb(model.named_parameters());
      TrainerOptions options = options_of({}, 4, 1);
      if (refused.options) refused.options(options);
      Trainer::Loss loss;
      if (refused.has_loss) {
        loss = [&](const Trainer::Batch& batch) { return model.loss(batch.ids, batch.targets); };
      }
      Optimizer& optimizer = refused.has_lamb ? static_cast<Optimizer&>(lamb) : adamw;
      Trainer(model, std::make_shared<FormulaRows>(), optimizer,
              Sharding(mesh, Placements(std::span<const Placement>(refused.rows))), options, loss)
          .run();
    });
  });
}

TEST(Reproducible, NamesWhatIsNotCutInTwo) {
  const std::pair<Refused, const char*> cases[] = {
      {{.axes = {{"dp", 2}, {"tp", 3}}, .rows = {Shard(0), Replicate()}},
       "3 ranks hold the same rows along axis tp, expected 2 for reproducible"},
      {{.axes = {{"dp", 1}, {"tp", 2}, {"cp", 2}}, .rows = {Shard(0), Replicate(), Replicate()}},
       "ranks along axes tp and cp hold the same rows, expected those of one axis for "
       "reproducible"},
      {{.axes = {{"dp", 1}, {"tp", 2}},
        .config = [](TransformerConfig& c) { c.experts = 4, c.expert_ffn = 16; },
        .rows = {Shard(0), Replicate()}},
       "experts are cut along axis tp, expected none for reproducible"},
      {{.axes = {{"dp", 1}, {"tp", 2}},
        .config = [](TransformerConfig& c) { c.query_norm = QueryNorm::width; },
        .rows = {Shard(0), Replicate()}},
       "norms of the width of queries are cut along axis tp, expected none for reproducible"},
      {{.axes = {{"dp", 1}, {"tp", 2}},
        .config =
            [](TransformerConfig& c) {
              c.kv_lora_rank = 8, c.nope_head_dim = 8, c.value_head_dim = 8, c.kv_heads = c.heads;
            },
        .rows = {Shard(0), Replicate()}},
       "latent attention is cut along axis tp, expected attention by heads for reproducible"},
      {{.axes = {{"dp", 1}, {"cp", 2}},
        .config = [](TransformerConfig& c) { c.query_norm = QueryNorm::head; },
        .rows = {Shard(0), Replicate()}},
       "norms of queries are cut along axis cp, expected none for reproducible"},
      {{.axes = {{"dp", 1}, {"cp", 2}},
        .config = [](TransformerConfig& c) { c.sinks = true; },
        .rows = {Shard(0), Replicate()}},
       "attention has sinks along axis cp, expected none for reproducible"},
      {{.axes = {{"dp", 1}, {"cp", 2}},
        .config = [](TransformerConfig& c) { c.tied = true; },
        .rows = {Shard(0), Replicate()}},
       "the embedding and the head are tied along axis cp, expected two parameters for "
       "reproducible"},
      {{.axes = {{"dp", 1}, {"tp", 2}},
        .config = [](TransformerConfig& c) { c.kv_heads = 1; },
        .rows = {Shard(0), Replicate()}},
       "4 query and 1 key heads are cut along axis tp, expected even numbers for reproducible"},
  };
  for (const auto& [refused, error] : cases) {
    EXPECT_EQ(error_of_training(refused), concat("trainer: ", error));
  }
}

TEST(Reproducible, NamesWhatHasOtherBits) {
  const std::pair<Refused, const char*> cases[] = {
      {{.options =
            [](TrainerOptions& o) {
              o.device = Device{DeviceKind::cuda, 0};
            }},
       "device is cuda:0, expected cpu for reproducible"},
      {{.sharding = {.precision = {.compute = f16, .reduce = f32}}},
       "model computes in f16, expected f32 or bf16 for reproducible"},
      {{.config =
            [](TransformerConfig& c) { c.experts = 4, c.expert_ffn = 16, c.balance_loss = true; }},
       "model has a balance loss of experts, expected none for reproducible"},
      {{.model = [](TransformerModel& m) { convert_to_float8(m); }},
       "module model.layers.0.self_attn.q_proj computes in f8, expected none for reproducible"},
      {{.has_lamb = true},
       "optimizer is not elementwise, expected AdamW, Adam, SGD or Lion for reproducible"},
      {{.sharding = {.precision = {.storage = bf16}}},
       "parameter model.embed_tokens.weight is bf16, expected f32 for reproducible"},
      {{.sharding = {.quantization = {.reduce = i8}}},
       "gradients are sent as codes of i8, expected f32 for reproducible"},
      {{.sharding = {.precision = {.reduce = bf16}}},
       "gradients are reduced in bf16, expected f32 for reproducible"},
      {{.sharding = {.precision = {.reduce = f32, .accumulate = bf16}}},
       "gradients are accumulated in bf16, expected f32 for reproducible"},
      {{.sharding = {.offload = {.gradients = Tier::disk("/tmp")}}},
       "gradients rest on disk, expected them in memory for reproducible"},
      {{.model =
            [](TransformerModel& m) { FsdpModule(m).set_all_reduce_hook([](const auto&) {}); }},
       "gradients have an all-reduce hook, expected none for reproducible"},
      {{.model =
            [](TransformerModel& m) {
              FsdpModule(m).set_custom_reduce_scatter([](const auto& ranks, const auto& pieces) {
                return ranks.reduce_scatter(pieces, ReduceOp::sum);
              });
            }},
       "gradients have a custom reduce-scatter, expected none for reproducible"},
      {{.axes = {{"dp", 1}, {"ep", 2}},
        .config = [](TransformerConfig& c) { c.experts = 4, c.expert_ffn = 16; },
        .rows = {Shard(0), Shard(0)},
        .cuts_experts = true},
       "gradients of some parameters are not summed over all ranks of mesh(dp=1, ep=2), expected "
       "no axis that cuts experts for reproducible"},
      {{.has_loss = true},
       "loss is given, expected the loss of a TransformerModel for reproducible"},
      {{.options = [](TrainerOptions& o) { o.batch = 3; }},
       "batch is 3, expected a multiple of 2, the rows that ranks compute at once, for "
       "reproducible"},
  };
  for (const auto& [refused, error] : cases) {
    EXPECT_EQ(error_of_training(refused), concat("trainer: ", error));
  }
}

TEST(Reproducible, LossesAreThoseOfPytorch) {
  const nlohmann::json reference = trainer_reference();
  on_mesh({{"dp", 3}}, [&](const DeviceMesh& mesh) {
    FormulaRun run(mesh);
    TrainerOptions options = formula_options();
    options.reproducible = true;
    double validation = 0;
    options.on_evaluation = [&](int64_t, double loss) { validation = loss; };
    const std::vector<double> losses = run.losses(options);
    ASSERT_EQ(losses.size(), 20U);
    for (size_t step = 0; step < losses.size(); ++step) {
      const nlohmann::json& expected = reference["masked"][step];
      ASSERT_EQ(expected.is_null(), std::isnan(losses[step])) << step;
      if (expected.is_null()) continue;
      EXPECT_NEAR(losses[step], expected.get<double>(), 1e-4) << step;
    }
    EXPECT_NEAR(validation, reference["validation"].get<double>(), 1e-4);
  });
}

}  // namespace
}  // namespace weft
