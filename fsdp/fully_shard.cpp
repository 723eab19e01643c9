// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>

#include "fsdp/runtime.h"
#include "weft/error.h"
#include "weft/ops/factories.h"

namespace weft {

using fsdp::Runtime;
using fsdp::Unit;

namespace {

/// Keeps the runtime with the outermost module.
struct RuntimeAttachment final : public ModuleAttachment {
  explicit RuntimeAttachment(std::vector<std::shared_ptr<Unit>> units)
      : runtime(std::move(units)) {}
  Runtime runtime;
};

}  // namespace

/// The units of the modules below `module`, in the modules' order, that one excluded.
static std::vector<std::shared_ptr<Unit>> units_below(Module& module) {
  std::vector<std::shared_ptr<Unit>> units;
  for (const auto& [name, child] : module.named_modules()) {
    if (child == &module) continue;
    if (auto unit = child->attachment<Unit>()) {
      unit->set_name(name);
      units.push_back(std::move(unit));
    }
  }
  return units;
}

static bool is_below(const std::string& name, const std::string& module) {
  return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
}

/// A parameter that is shared between a unit below and something outside it belongs to their common
/// ancestor, which is the module sharded now.
static void move_ties(const std::vector<std::shared_ptr<Unit>>& below, const NamedParameter& named,
                      Unit& unit) {
  bool moved = false;
  for (const auto& owner : below) {
    if (!owner->owns(*named.parameter)) continue;
    bool inside = std::all_of(named.names.begin(), named.names.end(), [&](const std::string& name) {
      return is_below(name, owner->name());
    });
    if (inside) return;
    owner->disown(*named.parameter);
    moved = true;
  }
  if (moved && unit.is_first_rank()) {
    std::cerr << concat("fully_shard: parameter ", named.names[0], " is ", named.names[1],
                        " too, so it is sharded with their common ancestor\n");
  }
  unit.adopt(named);
}

/// Each rank keeps an ignored parameter whole; its gradient is reduced by the tape.
static void replicate(Parameter& parameter, const DeviceMesh& mesh) {
  if (parameter.value().is_sharded()) return;
  if (parameter.is_materialized()) {
    parameter.set_value(distribute(parameter.value().detach(), mesh, {}));
  } else {
    parameter.set_value(empty(parameter.shape(), {parameter.dtype(), meta, Sharding(mesh, {})}));
  }
}

static void take_parameters(Module& module, const DeviceMesh& mesh,
                            const FullyShardOptions& options,
                            const std::vector<std::shared_ptr<Unit>>& below, Unit& unit) {
  std::vector<std::string> unknown = options.ignored;
  for (const NamedParameter& named : module.named_parameters()) {
    auto ignored =
        std::find_first_of(unknown.begin(), unknown.end(), named.names.begin(), named.names.end());
    if (ignored != unknown.end()) {
      unknown.erase(ignored);
      replicate(*named.parameter, mesh);
      unit.ignore(named.parameter);
      continue;
    }
    bool left_out = std::any_of(below.begin(), below.end(), [&](const auto& other) {
      return other->ignores(*named.parameter);
    });
    if (!left_out) move_ties(below, named, unit);
  }
  if (!unknown.empty()) fail("fully_shard: no parameter is called ", in_quotes(unknown[0]));
}

/// Backward begins where the outputs' gradients arrive.
static Tensors hooked_outputs(Unit& unit, const Tensors& outputs) {
  unit.runtime->after_forward(unit);
  bool recorded = Context::current().grad_enabled &&
                  std::any_of(outputs.begin(), outputs.end(),
                              [](const Tensor& output) { return output.requires_grad(); });
  if (!recorded) return outputs;
  return record("fully_shard", outputs, outputs, [&unit](const Tensors& gradients) {
    unit.runtime->before_backward(unit);
    return gradients;
  });
}

static void add_hooks(Module& module, Unit& unit) {
  module.add_materializer([&unit](Device device) { unit.materialize(device); });
  module.add_hooks(
      {.before =
           [&unit](const Tensors& inputs) {
             unit.runtime->before_forward(unit);
             return inputs;
           },
       .after = [&unit](const Tensors& outputs) { return hooked_outputs(unit, outputs); }});
}

void fully_shard(Module& module, const DeviceMesh& mesh, const FullyShardOptions& options) {
  if (!mesh) fail("fully_shard: this rank is not in the mesh");
  if (mesh.ndim() != 1) {
    fail("fully_shard: the mesh ", mesh, " has ", mesh.ndim(), " axes, not 1; give one of them");
  }
  if (module.attachment<Unit>()) fail("fully_shard: the module is sharded already");
  if (options.prefetch < 0) fail("fully_shard: prefetch is ", options.prefetch, "; at least 0");
  auto below = units_below(module);
  auto unit = std::make_shared<Unit>(module, mesh, options);
  take_parameters(module, mesh, options, below, *unit);
  module.attach(unit);
  add_hooks(module, *unit);
  below.push_back(unit);
  module.attach(std::make_shared<RuntimeAttachment>(std::move(below)));
}

static Runtime& runtime_of(const char* what, Module& model) {
  auto attached = model.attachment<RuntimeAttachment>();
  if (!attached) fail(what, ": the model is not sharded; call fully_shard on it first");
  for (const auto& unit : attached->runtime.units()) unit->build();
  return attached->runtime;
}

FullyShardBytes predicted_bytes(Module& model) {
  Runtime& runtime = runtime_of("predicted_bytes", model);
  FullyShardBytes bytes;
  for (const auto& unit : runtime.units()) {
    bytes.parameters += unit->slice_bytes();
    bytes.gradients += unit->gradient_bytes();
  }
  fsdp::Schedule schedule = runtime.training_schedule();
  bytes.buffers = schedule.buffer_bytes;
  bytes.received = schedule.received;
  return bytes;
}

FullyShardBytes measured_bytes(Module& model) {
  Runtime& runtime = runtime_of("measured_bytes", model);
  FullyShardBytes bytes;
  for (const auto& unit : runtime.units()) {
    bytes.parameters += unit->measured_slice_bytes();
    bytes.gradients += unit->measured_gradient_bytes();
  }
  bytes.buffers = runtime.pool().bytes();
  bytes.received = runtime.received();
  return bytes;
}

std::string explain_schedule(Module& model) {
  return runtime_of("explain_schedule", model).training_schedule().text();
}

}  // namespace weft
