// SPDX-License-Identifier: Apache-2.0
#include "cli/pipeline.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "cli/numbers.h"
#include "cli/step_cost.h"
#include "weft/error.h"
#include "weft/layers.h"
#include "weft/transformer_stage.h"

namespace weft::cli {

int pipeline_ranks(const ParallelOptions& options) {
  for (const MeshAxis& axis : parsed_axes(options.mesh)) {
    if (axis.name == kPipelineAxis) return axis.size;
  }
  return 0;
}

/// Names for `pipeline_program`.
static constexpr const char* kPipelines[] = {"gpipe", "1f1b", "interleaved", "zb"};

bool is_pipeline(const std::string& schedule) {
  return std::ranges::find(kPipelines, schedule) != std::end(kPipelines);
}

void add_pipeline_flags(CLI::App& command, ParallelOptions& o, bool& is_given) {
  command
      .add_option_function<std::string>(
          "--pipeline-schedule",
          [&o, &is_given](const std::string& name) { o.pipeline = name, is_given = true; },
          "How the stages of an axis pp of --mesh compute the micro-steps of --accumulate: gpipe, "
          "1f1b (default), interleaved, or zb (zero bubble, ZB-H1)")
      ->check(
          CLI::IsMember(std::vector<std::string>(std::begin(kPipelines), std::end(kPipelines))));
  add_whole(command, "--pipeline-chunks", o.chunks,
            "Stages of a rank with the schedule interleaved", 1, 64);
  command
      .add_option("--pipeline-split", o.stage_firsts,
                  "First modules of all stages but the first, e.g. "
                  "model.layers.3,model.layers.6 (default: stages of equal predicted cost)")
      ->type_name("MODULE,...")
      ->delimiter(',');
}

PipelineProgram program_of(const ParallelOptions& o) {
  return pipeline_program(o.pipeline, pipeline_ranks(o), static_cast<int>(o.accumulate),
                          static_cast<int>(o.chunks));
}

void check_has_pipeline(const ParallelOptions& o) {
  if (pipeline_ranks(o) > 0) return;
  fail("--mesh is ", o.mesh, ", expected one with an axis pp for the schedule ", o.pipeline,
       " of a pipeline");
}

void check_pipeline(const TrainOptions& options, const TransformerConfig& config) {
  const ParallelOptions& o = options.parallel;
  if (options.pipeline_given || !o.stage_firsts.empty()) check_has_pipeline(o);
  if (pipeline_ranks(o) == 0) return;
  const std::pair<const char*, bool> others[] = {
      {"--lora", o.adapters.lora.has_value()},
      {"--sample", options.sample > 0},
      {"--cuda-graph", options.cuda_graph},
      {"--shadow", options.shadow > 0},
      {"--offload parameters=disk", o.choice.offload.parameters.is_disk()},
      {"--offload gradients=disk", o.choice.offload.gradients.is_disk()},
      {"--offload state=disk", o.choice.state.is_disk()},
  };
  for (const auto& [flag, is_given] : others) {
    if (is_given) {
      fail(flag, " is given with the axis pp of --mesh ", o.mesh, ", expected one of them");
    }
  }
  check_stages(config, o);
}

void check_stages(const TransformerConfig& config, const ParallelOptions& o) {
  const PipelineProgram program = program_of(o);
  const int stages = program.stages();
  if (config.layers < stages) {
    fail("--mesh ", o.mesh, ": number of stages is ", stages, ", expected at most ", config.layers,
         ", the layers of the model");
  }
  stage_ends_of(config, o, program);
}

std::vector<int> stage_ends_of(const TransformerConfig& config, const ParallelOptions& o,
                               const PipelineProgram& program) {
  if (o.stage_firsts.empty()) return balanced_stages(block_costs(config, o.seq), program.stages());
  std::vector<int> ends = stage_ends(config, o.stage_firsts);
  if (static_cast<int>(ends.size()) == program.stages()) return ends;
  fail("--pipeline-split: number of modules is ", o.stage_firsts.size(), ", expected ",
       program.stages() - 1, ", the first ones of all stages but the first");
}

PipelineTimes step_times(const ParallelOptions& o) {
  PipelineTimes times;
  // The part of the blocks that run again: their gradients of weights do not wait.
  const double again = o.recompute == "none" ? 0 : o.recompute == "selective" ? 0.5 : 1;
  const double repeated = o.recompute == "op" ? 0 : again;
  times.backward_input = 1 + repeated + again;
  times.backward_weight = 1 - again;
  return times;
}

ParallelOptions for_stages(const TrainOptions& options) {
  ParallelOptions parallel = options.parallel;
  if (options.reproducible) parallel.accumulate = parallel.batch;
  return parallel;
}

double predicted_bubble(const PipelinedTransformer& pipeline, const TransformerConfig& config,
                        const ParallelOptions& o) {
  PipelineTimes times = step_times(o);
  const std::vector<double> blocks = block_costs(config, o.seq);
  int begin = 0;
  double all = 0;
  for (const int end : pipeline.ends()) {
    times.stages.push_back(std::accumulate(blocks.begin() + begin, blocks.begin() + end, 0.0));
    all += times.stages.back();
    begin = end;
  }
  const auto mean = all / static_cast<double>(times.stages.size());
  for (double& stage : times.stages) stage /= mean;
  return predict(pipeline.pipeline().program(), times).bubble;
}

std::shared_ptr<PipelinedTransformer> pipelined(const Communicator& world,
                                                const TransformerConfig& config,
                                                const ParallelOptions& options) {
  if (pipeline_ranks(options) == 0) return nullptr;
  const DeviceMesh mesh(world, axes_with_rows(options.mesh));
  auto pipeline = std::make_shared<PipelinedTransformer>(
      mesh, with_flags(config, options), program_of(options), options.seq,
      stage_ends_of(config, options, program_of(options)));
  const DeviceMesh& stage_mesh = pipeline->stage_mesh();
  std::string expert_axis;
  bool cuts_tensors = false;
  for (int axis = 0; axis < stage_mesh.ndim(); ++axis) {
    if (stage_mesh.axis_name(axis) == kExpertAxis) expert_axis = kExpertAxis;
    cuts_tensors = cuts_tensors || stage_mesh.axis_name(axis) == kTensorAxis;
  }
  if (!expert_axis.empty()) pipeline->parallelize(kExpertAxis, expert_styles());
  if (cuts_tensors) {
    pipeline->parallelize(
        kTensorAxis,
        transformer_styles(config, {.sequence_parallel = options.sequence_parallel.value_or(true),
                                    .parts = options.async_tp}));
  }
  if (sequence_axis(stage_mesh) >= 0) {
    pipeline->share_sequences(kSequenceAxis,
                              sequence_way_named("--sequence-way", options.sequence_way));
  }
  FullyShardOptions sharding = sharding_of(options);
  sharding.strategy = with_sequences(std::move(sharding.strategy), axes_of_rows(stage_mesh));
  const std::vector<int> numbers = pipeline->pipeline().own_stages();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const std::shared_ptr<TransformerModel>& stage = pipeline->stages()[i];
    if (options.float8) {
      convert_to_float8(*stage,
                        [](const Linear&, const std::string& path) { return path != "lm_head"; });
    }
    const auto at = static_cast<size_t>(numbers[i]);
    const int first = at == 0 ? 0 : pipeline->ends()[at - 1];
    set_block_policies(*stage, options, static_cast<size_t>(first));
    shard_units({.model = stage,
                 .blocks = stage->blocks(),
                 .units = stage->units(),
                 .expert_axis = expert_axis},
                axes_of_rows(stage_mesh), sharding, options.choice.fine_units);
  }
  return pipeline;
}

}  // namespace weft::cli
