// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>

#include "fsdp/runtime.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

namespace weft {

using fsdp::Unit;

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

/// A unit has one outermost module, which runs it.
static void check_free(const std::vector<std::shared_ptr<Unit>>& below) {
  for (const auto& unit : below) {
    if (!unit->is_attached()) continue;
    const Unit& root = unit->runtime().root();
    if (std::any_of(below.begin(), below.end(),
                    [&](const auto& other) { return other.get() == &root; })) {
      continue;
    }
    fail("fully_shard: module ", in_quotes(unit->name()),
         " is part of another sharded model; shard one module that contains both");
  }
}

static bool is_below(const std::string& name, const std::string& module) {
  return name.size() > module.size() && name.starts_with(module) && name[module.size()] == '.';
}

/// Whether a parameter is that of a unit below, and of nothing outside it, or was left out there.
static bool stays_below(const std::vector<std::shared_ptr<Unit>>& below,
                        const NamedParameter& named) {
  return std::any_of(below.begin(), below.end(), [&](const auto& owner) {
    return owner->ignores(*named.parameter) ||
           (owner->owns(*named.parameter) &&
            std::all_of(named.names.begin(), named.names.end(),
                        [&](const std::string& name) { return is_below(name, owner->name()); }));
  });
}

/// A parameter that is shared between a unit below and something outside it belongs to their common
/// ancestor, which is the module sharded now.
static void take(const std::vector<std::shared_ptr<Unit>>& below, const NamedParameter& named,
                 Unit& unit) {
  bool moved = false;
  for (const auto& owner : below) {
    if (!owner->owns(*named.parameter)) continue;
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
static void replicate(Parameter& parameter, const DeviceMesh& mesh, const MixedPrecision& dtypes) {
  const bool floats = is_floating(parameter.dtype());
  const DType dtype = floats ? dtypes.buffers.value_or(parameter.dtype()) : parameter.dtype();
  const NoGrad no_grad;
  if (!parameter.is_materialized()) {
    const Sharding before = parameter.value().sharding();
    parameter.lay_out(
        empty(parameter.shape(), {dtype, meta, before ? before : Sharding(mesh.root(), {})}));
    return;
  }
  Tensor value = parameter.value().detach();
  if (!value.is_sharded()) value = distribute(value, mesh.root(), {});
  parameter.lay_out(value.to(dtype).detach());
}

/// Whose parameters are whose is settled, and whether they can be, before any is changed.
static void take_parameters(Module& module, const DeviceMesh& mesh,
                            const FullyShardOptions& options,
                            const std::vector<std::shared_ptr<Unit>>& below, Unit& unit) {
  std::vector<std::string> unknown = options.ignored;
  std::vector<NamedParameter> ignored, taken;
  for (NamedParameter& named : module.named_parameters()) {
    auto found =
        std::find_first_of(unknown.begin(), unknown.end(), named.names.begin(), named.names.end());
    if (found != unknown.end()) {
      unknown.erase(found);
      ignored.push_back(std::move(named));
    } else if (!stays_below(below, named)) {
      unit.check(named);
      taken.push_back(std::move(named));
    }
  }
  if (!unknown.empty()) fail("fully_shard: no parameter is called ", in_quotes(unknown[0]));
  for (const NamedParameter& named : ignored) {
    replicate(*named.parameter, mesh, options.precision);
    unit.ignore(named.parameter);
  }
  for (const NamedParameter& named : taken) take(below, named, unit);
}

/// Floating ones as `dtype`, if there is one.
static Tensors cast_all(const Tensors& tensors, const std::optional<DType>& dtype) {
  if (!dtype) return tensors;
  Tensors cast;
  for (const Tensor& tensor : tensors) {
    cast.push_back(tensor && is_floating(tensor.dtype()) ? tensor.to(*dtype) : tensor);
  }
  return cast;
}

/// The gradients divided as the outermost unit says.
static Tensors divided(const Unit& unit, const Tensors& gradients) {
  const double factor = unit.options().gradient_divide_factor;
  if (&unit != &unit.runtime().root() || factor == 1) return gradients;
  Tensors scaled;
  for (const Tensor& gradient : gradients) {
    scaled.push_back(gradient ? gradient * (1 / factor) : gradient);
  }
  return scaled;
}

/// The tensors, with a node before each that requires a gradient; as they are where none does.
static Tensors hooked(Tensors tensors, BackwardFunction function) {
  if (!Context::current().grad_enabled) return tensors;
  Tensors wanted;
  for (const Tensor& tensor : tensors) {
    if (tensor && tensor.requires_grad()) wanted.push_back(tensor);
  }
  if (wanted.empty()) return tensors;
  const Tensors recorded = record("fully_shard", wanted, wanted, std::move(function));
  auto next = recorded.begin();
  for (Tensor& tensor : tensors) {
    if (tensor && tensor.requires_grad()) tensor = *next++;
  }
  return tensors;
}

/// Backward begins where the outputs' gradients arrive.
static Tensors hooked_outputs(Unit& unit, const Tensors& given) {
  unit.runtime().after_forward(unit);
  return hooked(cast_all(given, unit.options().precision.outputs),
                [held = unit.weak_from_this()](const Tensors& gradients) {
                  const auto living = Unit::living(held);
                  living->runtime().before_backward(*living);
                  return divided(*living, gradients);
                });
}

/// Frozen parameters may be needed until the inputs' gradients are complete.
static Tensors hooked_inputs(Unit& unit, const Tensors& given) {
  unit.runtime().before_forward(unit);
  Tensors inputs = cast_all(given, unit.options().precision.inputs);
  if (!unit.has_frozen()) return inputs;
  return hooked(std::move(inputs), [held = unit.weak_from_this()](const Tensors& gradients) {
    const auto living = Unit::living(held);
    living->runtime().after_backward(*living);
    return gradients;
  });
}

static void add_hooks(Module& module, Unit& unit) {
  module.add_materializer([&unit](Device device) { unit.materialize(device); });
  module.enclose(
      {.before = [&unit](const Tensors& inputs) { return hooked_inputs(unit, inputs); },
       .after = [&unit](const Tensors&,
                        const Tensors& outputs) { return hooked_outputs(unit, outputs); }});
}

void fully_shard(Module& module, const DeviceMesh& mesh, const FullyShardOptions& options) {
  if (!mesh) fail("fully_shard: this rank is not in the mesh");
  if (module.attachment<Unit>()) fail("fully_shard: the module is sharded already");
  if (options.prefetch < 0) fail("fully_shard: prefetch is ", options.prefetch, "; at least 0");
  if (options.bucket_bytes < 1) {
    fail("fully_shard: buckets of ", options.bucket_bytes, " bytes; at least 1");
  }
  if (!(options.gradient_divide_factor > 0)) {
    fail("fully_shard: gradients are divided by ", options.gradient_divide_factor, "; above 0");
  }
  auto below = units_below(module);
  check_free(below);
  fsdp::Roles roles = fsdp::roles_of(mesh, options.strategy, options.reshard_after_forward);
  Unit::end_departed();
  auto unit = Unit::make(module, std::move(roles), options);
  take_parameters(module, mesh, options, below, *unit);
  module.attach(unit);
  add_hooks(module, *unit);
  below.push_back(unit);
  module.attach(std::make_shared<fsdp::RuntimeAttachment>(std::move(below)));
}

}  // namespace weft
