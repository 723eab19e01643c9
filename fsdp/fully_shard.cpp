// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/transform.hpp>
#include <range/v3/view/zip.hpp>

#include "fsdp/fsdp_state.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/module_sharder.h"
#include "weft/ops/factories.h"
#include "weft/warnings.h"

namespace weft {

using fsdp::FsdpContext;
using fsdp::FsdpState;
using fsdp::FsdpStates;
using fsdp::ParamGroup;

/// Returns the states of the modules below `module`, in the modules' order.
static FsdpStates states_below(Module& module) {
  FsdpStates states;
  for (const auto& [name, child] : module.named_modules()) {
    if (child == &module) continue;
    if (auto state = ModuleSharder::attachment<FsdpState>(*child)) {
      state->group()->set_name(name);
      states.push_back(std::move(state));
    }
  }
  return states;
}

/// Fails if a module below belongs to a model whose outermost sharded module is not below too.
static void check_free(const FsdpStates& below) {
  for (const auto& state : below) {
    const auto context = state->find_context();
    if (!context) continue;
    const ParamGroup& root = context->root();
    if (std::any_of(below.begin(), below.end(),
                    [&](const auto& other) { return other->group().get() == &root; })) {
      continue;
    }
    fail("fully_shard: module ", in_quotes(state->group()->name()),
         " is part of another sharded model, expected one model; shard one module that contains "
         "both");
  }
}

static bool is_below(const std::string& name, const std::string& module) {
  return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
}

/// True if a module below ignores the parameter, or its group has it and it has no name outside
/// that module.
static bool stays_below(const FsdpStates& below, const NamedParameter& named) {
  return std::any_of(below.begin(), below.end(), [&](const auto& state) {
    const ParamGroup& owner = *state->group();
    return owner.ignores(*named.parameter) ||
           (owner.owns(*named.parameter) &&
            std::all_of(named.names.begin(), named.names.end(),
                        [&](const std::string& name) { return is_below(name, owner.name()); }));
  });
}

/// Moves a parameter that a group below shares with something outside that group to the common
/// ancestor, which is the module that is sharded now.
static void adopt(const FsdpStates& below, const NamedParameter& named, FsdpState& state) {
  bool moved = false;
  for (const auto& other : below) {
    if (!other->group()->owns(*named.parameter)) continue;
    other->group()->disown(*named.parameter);
    moved = true;
  }
  if (moved && state.group()->is_first_rank()) {
    warn("fully_shard: parameter ", named.names[0], " is also ", named.names[1],
         ", so it is sharded with their common ancestor");
  }
  state.adopt(named);
}

/// Replicates an ignored parameter; the tape reduces its gradient.
static void replicate(Parameter& parameter, const DeviceMesh& mesh, const MixedPrecision& dtypes) {
  const bool floats = is_floating(parameter.dtype());
  const DType dtype = floats ? dtypes.buffers.value_or(parameter.dtype()) : parameter.dtype();
  const NoGrad no_grad;
  if (!parameter.is_materialized()) {
    const Sharding before = parameter.value().sharding();
    ModuleSharder::lay_out(
        parameter,
        empty(parameter.shape(), {dtype, meta, before ? before : Sharding(mesh.root(), {})}));
    return;
  }
  Tensor value = parameter.value().detach();
  if (!value.is_sharded()) value = distribute(value, mesh.root(), {});
  ModuleSharder::lay_out(parameter, value.to(dtype).detach());
}

/// Finds the parameters that the module ignores or shards, and checks them all before it changes
/// the first.
static void adopt_parameters(Module& module, const DeviceMesh& mesh,
                             const FullyShardOptions& options, const FsdpStates& below,
                             FsdpState& state) {
  std::vector<std::string> unknown = options.ignored;
  std::vector<NamedParameter> ignored, sharded;
  for (NamedParameter& named : module.named_parameters()) {
    auto found =
        std::find_first_of(unknown.begin(), unknown.end(), named.names.begin(), named.names.end());
    if (found != unknown.end()) {
      unknown.erase(found);
      ignored.push_back(std::move(named));
    } else if (!stays_below(below, named)) {
      state.group()->check(named);
      sharded.push_back(std::move(named));
    }
  }
  if (!unknown.empty()) {
    fail("fully_shard: ignored parameter ", in_quotes(unknown[0]), " does not exist");
  }
  for (const NamedParameter& named : ignored) {
    replicate(*named.parameter, mesh, options.precision);
    state.group()->ignore(named.parameter);
  }
  for (const NamedParameter& named : sharded) adopt(below, named, state);
}

void fully_shard(Module& module, const DeviceMesh& mesh, const FullyShardOptions& options) {
  if (!mesh) fail("fully_shard: this rank is not in the mesh, expected one of its ranks");
  if (ModuleSharder::attachment<FsdpState>(module))
    fail("fully_shard: the module is sharded already, expected a call once");
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
  FsdpStates states = states_below(module);
  check_free(states);
  fsdp::Roles roles = fsdp::roles_of(mesh, options.strategy, options.reshard_after_forward);
  ParamGroup::end_departed();
  auto state = std::make_shared<FsdpState>(std::move(roles), options);
  adopt_parameters(module, mesh, options, states, *state);
  ModuleSharder::attach(module, state);
  state->add_hooks(module);
  ModuleSharder::replicate_buffers(module, mesh);
  states.push_back(std::move(state));
  ModuleSharder::attach(module, FsdpContext::make(std::move(states)));
}

static FsdpContext& built_context(const char* what, Module& model) {
  const auto context = ModuleSharder::attachment<FsdpContext>(model);
  if (!context) fail(what, ": the model is not sharded, expected one after fully_shard");
  if (!context->is_current()) {
    fail(what, ": the module is part of a sharded model, expected its outermost sharded module");
  }
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
  const auto step = [&](int i) {
    return StepKind{.sync = i + 1 == micro_steps, .updated = i == 0};
  };
  const fsdp::Schedule schedule =
      context.schedule(ranges::views::ints(0, micro_steps) | ranges::views::transform(step) |
                       ranges::to<std::vector>());
  FullyShardBytes bytes{.buffers = schedule.buffer_bytes,
                        .received = schedule.received,
                        .by_axes = schedule.by_axes,
                        .copied = schedule.copied};
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

std::vector<ScheduledAction> schedule_of(Module& model, const StepKind& kind) {
  return built_context("schedule_of", model).schedule({kind}).actions;
}

std::string explain_schedule(Module& model, const StepKind& kind) {
  return built_context("explain_schedule", model).schedule({kind}).text();
}

}  // namespace weft
