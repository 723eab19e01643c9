// SPDX-License-Identifier: Apache-2.0
#include "cli/pipeline_cost.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "cli/pipeline.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/ops/factories.h"
#include "weft/shared_batch.h"
#include "weft/transformer_stage.h"

namespace weft::cli {

namespace {

/// The ranks of one stage among all.
struct StageRanks {
  /// The axes without pp.
  std::string mesh;
  int positions = 1, position = 0, ranks = 1, rank = 0, ranks_per_host = 1;
  /// Ranks of neighbouring stages are of several hosts.
  bool crosses_hosts = false;
};

}  // namespace

static StageRanks stage_ranks(const std::string& mesh, int rank, int ranks, int ranks_per_host) {
  StageRanks made;
  int inner = 1;
  bool is_behind = false;
  for (const MeshAxis& axis : parsed_axes(mesh)) {
    if (axis.name == kPipelineAxis) {
      made.positions = axis.size, is_behind = true;
      continue;
    }
    if (is_behind) inner *= axis.size;
    made.mesh += concat(made.mesh.empty() ? "" : ",", axis.name, '=', axis.size);
  }
  if (made.mesh.empty()) made.mesh = "dp=1";
  const int both = inner * made.positions;
  made.position = rank / inner % made.positions;
  made.rank = rank / both * inner + rank % inner;
  made.ranks = ranks / made.positions;
  made.ranks_per_host =
      ranks_per_host >= both ? ranks_per_host / made.positions : std::min(inner, ranks_per_host);
  made.crosses_hosts = made.positions > 1 && both > ranks_per_host;
  return made;
}

/// The layers [first, end) of a model, with their choices.
static TransformerConfig layers_of(TransformerConfig config, int first, int end) {
  config.layers = end - first;
  for (auto* flags : {&config.windowed, &config.unrotated, &config.dense}) {
    if (flags->empty()) continue;
    flags->erase(flags->begin() + end, flags->end());
    flags->erase(flags->begin(), flags->begin() + first);
  }
  return config;
}

/// The costs of all stages. Stages that are alike are measured once.
static std::vector<StageCost> stage_costs(const TransformerConfig& config,
                                          const ParallelOptions& options,
                                          const std::vector<int>& ends, const StageRanks& own,
                                          const Machine& machine) {
  const Communicator world = fake_world(own.rank, own.ranks, own.ranks_per_host, !machine.overlaps);
  std::map<std::string, StageCost> known;
  std::vector<StageCost> all;
  int first = 0;
  for (const int end : ends) {
    ParallelOptions stage = options;
    stage.mesh = own.mesh;
    auto& blocks = stage.choice.blocks;
    if (!blocks.empty()) blocks = {blocks.begin() + first, blocks.begin() + end};
    const TransformerConfig layers = layers_of(config, first, end);
    StagePart part{.first = first == 0, .last = end == config.layers, .is_stage = true};
    const std::string key = concat(layers.layers, part.first, part.last, listed(layers.windowed),
                                   listed(layers.unrotated), listed(layers.dense), listed(blocks));
    if (!known.contains(key)) {
      StageCost cost;
      part.output_bytes = &cost.output;
      cost.cost = step_cost(world, layers, stage, part);
      if (machine.overlaps) cost.cost.leave_out_scratch();
      known.emplace(key, std::move(cost));
    }
    all.push_back(known.at(key));
    first = end;
  }
  return all;
}

PipelineCost pipeline_cost(const TransformerConfig& config, const ParallelOptions& options,
                           int rank, int ranks, int ranks_per_host, const Machine& machine) {
  const PipelineProgram program = program_of(options);
  const StageRanks own = stage_ranks(options.mesh, std::max(rank, 0), ranks, ranks_per_host);
  const std::vector<int> ends = stage_ends_of(config, options, program);
  const std::vector<StageCost> stages = stage_costs(config, options, ends, own, machine);
  PipelineStepCost all = pipeline_step_cost(program, stages, step_times(options), machine,
                                            kPipelineAxis, own.crosses_hosts);
  PipelineCost made{.bubble = all.bubble, .stages = program.stages()};
  for (const StepCost& cost : all.costs) made.peaks.push_back(cost.peak_bytes());
  made.position = rank >= 0
                      ? own.position
                      : static_cast<int>(std::ranges::max_element(made.peaks) - made.peaks.begin());
  const auto at = static_cast<size_t>(made.position);
  made.cost = std::move(all.costs[at]), made.seconds = all.seconds[at];
  for (int s = 0, layer = 0; s < program.stages(); ++s) {
    for (; layer < ends[static_cast<size_t>(s)]; ++layer) {
      const bool is_own = program.rank_of_stage[static_cast<size_t>(s)] == made.position;
      made.sparse_layers += is_own && config.is_sparse(layer) ? 1 : 0;
    }
  }
  return made;
}

/// Bytes of a stage's gradients in f32, cut along tp, and those of experts along ep.
static int64_t whole_gradients(const Module& stage) {
  int64_t bytes = 0;
  for (const NamedParameter& named : stage.named_parameters()) {
    if (!named.parameter->is_trainable()) continue;
    const Tensor& value = named.parameter->value();
    int64_t elements = value.shape().product();
    const bool is_of_experts = named.name().find(".experts.") != std::string::npos;
    const Sharding sharding = value.sharding();
    for (int axis = 0; axis < sharding.axes(); ++axis) {
      const std::string& name = sharding.mesh().axis_name(axis);
      const bool stays = name == kTensorAxis || (is_of_experts && name == kExpertAxis);
      const int ranks = sharding.mesh().axis_size(axis);
      if (stays && sharding[axis].is_shard()) elements = (elements + ranks - 1) / ranks;
    }
    bytes += elements * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

void reduce_once(Module& stage, int64_t micro_steps, StepCost& cost) {
  const Program program = schedule_of(stage, {.sync = false, .updated = false});
  for (const ProgramStep& action : program.steps) {
    if (action.act != ProgramAct::reduce) continue;
    for (AxisCost& axis : cost.traffic) {
      if (axis.axes != action.axes || axis.of != std::string_view("parameters and gradients")) {
        continue;
      }
      axis.bytes -= action.bytes * (micro_steps - 1);
      if (action.bytes > 0) axis.collectives -= micro_steps - 1;
    }
  }
  // Strategies that replicate parameters have them anyway.
  int64_t& gradients = cost.memory[static_cast<size_t>(Purpose::gradients)];
  const int64_t whole = whole_gradients(stage);
  if (gradients < whole) gradients += whole;
}

/// The hidden states of a micro-batch as the stage before sends them.
static Tensor hidden_states(ParallelTransformer& stage, const ParallelOptions& o) {
  const Sharding& rows = stage.rows();
  std::vector<Placement> placements(rows.placements().begin(), rows.placements().end());
  for (int axis = 0; axis < rows.axes(); ++axis) {
    const std::string& name = rows.mesh().axis_name(axis);
    const bool cuts =
        name == kSequenceAxis || (name == kTensorAxis && o.sequence_parallel.value_or(true));
    if (cuts) placements[static_cast<size_t>(axis)] = Shard(1);
  }
  const Sharding sharding(rows.mesh(), Placements(std::span<const Placement>(placements)));
  const DType dtype = o.dtype == "f32" ? f32 : dtype_named(o.dtype);
  return empty({stage.micro_batch(), o.seq, stage.model().config().dim}, {dtype, meta, sharding});
}

void differentiate_stage(ParallelTransformer& stage, const ParallelOptions& o) {
  const TensorOptions integers{DType::i64, meta, stage.rows()};
  const Tensor ids = empty({stage.micro_batch(), o.seq}, integers);
  const int axis = sequence_axis(stage.mesh());
  const SharedBatch batch =
      axis < 0 ? SharedBatch{ids, ids, {}}
               : share_batch(stage.model().config(), ids, ids, {}, stage.mesh()[kSequenceAxis]);
  Tensors given = {batch.ids};
  if (!stage.part().first) given = {hidden_states(stage, o).set_requires_grad()};
  if (stage.part().last) {
    return stage_loss(stage.model(), given, batch.targets, batch.options).backward();
  }
  const Tensors made = run_stage(stage.model(), given, batch.options, batch.targets);
  int64_t bytes = 0;
  Tensors roots, gradients;
  for (const Tensor& one : made) {
    bytes += one.box().shape.product() * static_cast<int64_t>(size_of(one.dtype()));
    if (!one.requires_grad()) continue;
    roots.push_back(one);
    gradients.push_back(empty(one.shape(), {one.dtype(), meta, one.sharding()}));
  }
  if (stage.part().output_bytes) *stage.part().output_bytes = bytes;
  backward(roots, gradients);
}

}  // namespace weft::cli
