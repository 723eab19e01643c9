// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <range/v3/view/zip.hpp>
#include <set>

#include "fsdp/fsdp_context.h"
#include "fsdp/quantized.h"
#include "weft/error.h"
#include "weft/extend/module_sharder.h"
#include "weft/moe.h"

namespace weft {

using fsdp::FsdpContext;
using fsdp::FsdpState;
using fsdp::FsdpStates;
using fsdp::ParamGroup;

/// Fails if a module below belongs to a model whose outermost sharded module is not below too.
static void check_free(const FsdpStates& below) {
  for (const auto& state : below) {
    const auto context = state->find_context();
    if (!context) continue;
    const auto is_root = [&](const auto& other) { return &context->root() == &*other->group(); };
    if (std::ranges::any_of(below, is_root)) continue;
    fail("fully_shard: module ", in_quotes(state->group()->name()),
         " is part of another sharded model, expected one model; shard one module that contains "
         "both");
  }
}

/// Fails if a module around this one has its parameters already.
static void check_order(const Module& module) {
  for (const NamedParameter& named : module.named_parameters()) {
    const auto owner =
        std::static_pointer_cast<const FsdpState>(ModuleSharder::sharder_of(*named.parameter));
    if (!owner) continue;
    for (Module* outer : owner->modules()) {
      for (const auto& [path, below] : outer->named_modules()) {
        if (below != &module || below == outer) continue;
        fail("fully_shard: module ", in_quotes(path), " is part of a module that is sharded ",
             "already, expected one that is not; shard inner modules before outer ones");
      }
    }
  }
}

static void check_options(const FullyShardOptions& options) {
  if (options.prefetch < 0) {
    fail("fully_shard: prefetch must be at least 0, got ", options.prefetch);
  }
  if (options.bucket_bytes < 1) {
    fail("fully_shard: bucket_bytes must be at least 1, got ", options.bucket_bytes);
  }
  if (!(options.gradient_divide_factor > 0)) {
    fail("fully_shard: gradient_divide_factor must be above 0, got ",
         options.gradient_divide_factor);
  }
  fsdp::check_quantization(options.quantization, options.precision);
}

/// Replaces the mesh by its data-parallel axes, and the strategy by rows for them.
static DeviceMesh data_parallel(const DeviceMesh& mesh, FullyShardOptions& options) {
  if (!options.dp_mesh_dims) return mesh;
  const auto& [shard, replicate] = *options.dp_mesh_dims;
  if (shard.empty() && replicate.empty()) {
    fail("fully_shard: dp_mesh_dims has no axes, expected shard or replicate");
  }
  if (options.strategy.name != Strategy::full_shard().name) {
    fail("fully_shard: strategy is ", in_quotes(options.strategy.name),
         " besides dp_mesh_dims, expected one of both");
  }
  std::vector<std::string_view> names(replicate.begin(), replicate.end());
  std::vector<StrategyRow> rows(names.size(), Strategy::ddp().rows[0]);
  names.insert(names.end(), shard.begin(), shard.end());
  rows.resize(names.size(), Strategy::full_shard().rows[0]);
  options.strategy = {"dp_mesh_dims", std::move(rows)};
  return mesh.view(names);
}

/// A state for each mesh and strategy that `shard_placement_fn` names, and one for all other
/// parameters.
static FsdpStates new_states(const std::vector<Module*>& modules, const DeviceMesh& mesh,
                             const FullyShardOptions& options) {
  const auto make = [&](const DeviceMesh& over, const Strategy& strategy) {
    FullyShardOptions own = options;
    own.strategy = strategy;
    auto state = std::make_shared<FsdpState>(
        fsdp::roles_of(over, strategy, options.reshard_after_forward), own);
    state->group()->set_names(std::vector<std::string>(modules.size()));
    return state;
  };
  FsdpStates states;
  for (const Module* module : modules) {
    if (!options.shard_placement_fn) break;
    for (const NamedParameter& named : module->named_parameters()) {
      const ShardPlacement placement = options.shard_placement_fn(named);
      const DeviceMesh over = placement.mesh ? placement.mesh : mesh;
      const Strategy strategy = placement.strategy.value_or(options.strategy);
      if (over.root() != mesh.root()) {
        fail("fully_shard: mesh of parameter ", named.name(), " is ", over, ", expected a view of ",
             mesh.root());
      }
      if (over == mesh && strategy.rows == options.strategy.rows) continue;
      const auto is_for = [&](const auto& state) { return state->is_for(over, strategy); };
      if (std::ranges::any_of(states, is_for)) continue;
      states.push_back(make(over, strategy));
    }
  }
  states.push_back(make(mesh, options.strategy));
  return states;
}

void fully_shard(const std::vector<Module*>& modules, const DeviceMesh& given,
                 const FullyShardOptions& wanted) {
  if (!given) fail("fully_shard: this rank is not in the mesh, expected one of its ranks");
  if (modules.empty()) fail("fully_shard: number of modules is 0, expected at least 1");
  for (const Module* module : modules) {
    const bool is_given_twice = std::ranges::count(modules, module) > 1;
    if (is_given_twice || ModuleSharder::attachment<FsdpState>(*module)) {
      fail("fully_shard: the module is sharded already, expected a call once");
    }
    check_order(*module);
  }
  check_options(wanted);
  FullyShardOptions options = wanted;
  const DeviceMesh mesh = data_parallel(given, options);
  for (Module* module : modules) check_free(fsdp::states_below(*module));
  ParamGroup::end_departed();
  const FsdpStates states = new_states(modules, mesh, options);
  fsdp::adopt_parameters(states, modules, false);
  for (const auto& state : states) {
    for (Module* module : modules) ModuleSharder::attach(*module, state);
    state->add_hooks(modules);
  }
  for (Module* module : modules) {
    ModuleSharder::replicate_buffers(*module, mesh);
    if (options.offload.activations.offloads()) {
      module->offload_activations(options.offload.activations);
    }
  }
  const auto context = FsdpContext::make(fsdp::states_from(modules));
  for (Module* module : modules) ModuleSharder::attach(*module, context);
}

void fully_shard(Module& module, const DeviceMesh& mesh, const FullyShardOptions& options) {
  fully_shard(std::vector<Module*>{&module}, mesh, options);
}

static std::set<const Parameter*> parameters_of_experts(const std::vector<Module*>& modules) {
  std::set<const Parameter*> found;
  for (Module* root : modules) {
    for (const auto& [path, module] : root->named_modules()) {
      if (!dynamic_cast<const Experts*>(module)) continue;
      for (const auto& [name, parameter] : module->own_parameters()) found.insert(parameter.get());
    }
  }
  return found;
}

FullyShardOptions with_experts(FullyShardOptions options, const std::vector<Module*>& modules,
                               const DeviceMesh& data, const std::string& ep) {
  const int at = data.axis(ep);
  std::vector<std::string_view> others;
  for (int axis = 0; axis < data.ndim(); ++axis) {
    if (axis != at) others.emplace_back(data.axis_name(axis));
  }
  if (others.empty()) {
    fail("fully_shard: mesh is ", data, ", expected an axis besides ", ep,
         " for the parameters of experts; it may have one rank");
  }
  std::vector<StrategyRow>& rows = options.strategy.rows;
  if (rows.size() > 1 && rows.size() != others.size()) {
    fail("fully_shard: strategy ", options.strategy.name, " has ", rows.size(),
         " rows, expected one, or ", others.size(), ", one for each axis but ", ep);
  }
  const Strategy strategy = options.strategy;
  if (rows.size() > 1) rows.insert(rows.begin() + at, strategy.rows.back());
  options.shard_placement_fn = [experts = parameters_of_experts(modules), mesh = data.view(others),
                                strategy,
                                given = options.shard_placement_fn](const NamedParameter& named) {
    if (!experts.contains(named.parameter.get())) return given ? given(named) : ShardPlacement{};
    return ShardPlacement{.mesh = mesh, .strategy = strategy};
  };
  return options;
}

static FsdpContext& built_context(const char* what, Module& model) {
  const auto context = FsdpContext::of(what, model);
  context->lazy_init();
  return *context;
}

NoSync::NoSync(Module& model, bool holds) : model_(model) {
  FsdpContext& context = built_context("NoSync", model);
  before_ = context.syncs();
  if (holds) context.set_syncs(false);
}

NoSync::~NoSync() { ModuleSharder::attachment<FsdpContext>(model_)->set_syncs(before_); }

static FullyShardBytes bytes_of(FsdpContext& context, int micro_steps) {
  std::vector<StepKind> steps;
  for (int i = 0; i < micro_steps; ++i) {
    steps.push_back({.sync = i + 1 == micro_steps, .updated = i == 0});
  }
  const fsdp::Schedule schedule = context.schedule(steps);
  FullyShardBytes bytes{.buffers = schedule.program.slot_bytes(), .copied = schedule.copied};
  for (const auto& [axes, received] : schedule.program.received_by_axes()) {
    fsdp::add_received(bytes, axes, received);
  }
  for (const auto& group : context.groups()) {
    bytes.parameters += group->slice_bytes();
    bytes.gradients += group->gradients().bytes();
  }
  return bytes;
}

FullyShardBytes predicted_bytes(Module& model, int micro_steps) {
  if (micro_steps < 1) fail("predicted_bytes: micro_steps must be at least 1, got ", micro_steps);
  FsdpContext& context = built_context("predicted_bytes", model);
  // Every micro-step between the first and the last one does the same.
  constexpr int kDifferent = 4;
  if (micro_steps <= kDifferent) return bytes_of(context, micro_steps);
  const FullyShardBytes before = bytes_of(context, kDifferent - 1);
  FullyShardBytes bytes = bytes_of(context, kDifferent);
  const int64_t more = micro_steps - kDifferent;
  bytes.received += (bytes.received - before.received) * more;
  bytes.copied += (bytes.copied - before.copied) * more;
  for (auto&& [now, then] : ranges::views::zip(bytes.by_axes, before.by_axes)) {
    now.bytes += (now.bytes - then.bytes) * more;
  }
  return bytes;
}

FullyShardBytes measured_bytes(Module& model) {
  FsdpContext& context = built_context("measured_bytes", model);
  FullyShardBytes bytes = context.traffic();
  for (const auto& group : context.groups()) {
    bytes.parameters += group->measured_slice_bytes();
    bytes.gradients += group->gradients().measured_bytes();
  }
  bytes.buffers = context.buffer_bytes();
  return bytes;
}

Program schedule_of(Module& model, const StepKind& kind) {
  return built_context("schedule_of", model).schedule({kind}).program;
}

std::string explain_schedule(Module& model, const StepKind& kind) {
  const std::string text =
      text_of(built_context("explain_schedule", model).schedule({kind}).program);
  if (!kind.training) return text;
  return text + "a call of grad: unshards a module's parameters when its backward or a recorded " +
         "gradient reads them, reshards them as after forward, reduces no gradient buffers\n" +
         "a backward with create_graph: the same, and reduces each gradient when it is complete, " +
         "recorded\n";
}

}  // namespace weft
