// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "tp/styles.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/split_products.h"
#include "weft/layers.h"
#include "weft/ops/factories.h"

namespace weft {

using tp::ModuleLayouts;

namespace {

/// An entry of the styles, resolved for one module.
struct StyledModule {
  std::string path;
  Module* module;
  ModuleLayouts layouts;
};

/// The placement of a parameter along the axis, and the module that states it.
struct StatedPlacement {
  Placement placement = Replicate();
  std::string path = {};
};

/// By parameter; tied names have one entry.
using StatedPlacements = std::map<const Parameter*, StatedPlacement>;

}  // namespace

static void check_axis(const DeviceMesh& axis) {
  if (!axis) fail("parallelize: this rank is not in the mesh, expected one of its ranks");
  if (axis.ndim() == 1) return;
  fail("parallelize: ", axis, " has ", axis.ndim(), " axes, expected one, as of mesh[\"",
       axis.axis_name(axis.ndim() - 1), "\"]");
}

/// Cuts the adapter of a Linear as its weight: B by rows, or A by columns.
static void add_adapter(const StyledModule& at, std::vector<StyledModule>& styled) {
  const auto& own = at.layouts.parameters;
  const auto weight =
      std::ranges::find_if(own, [](const auto& entry) { return entry.first == "weight"; });
  if (weight == own.end() || !weight->second.is_shard() || !dynamic_cast<Linear*>(at.module))
    return;
  const std::string child = weight->second.dim() == 0 ? "lora_B" : "lora_A";
  for (const auto& [name, module] : at.module->children()) {
    if (name != child) continue;
    styled.push_back({at.path + "." + name, module.get(), {.parameters = {*weight}}});
  }
}

/// Cuts between heads that the ranks do not divide: the first ranks have one more; or none are cut.
static void keep_heads_whole(StyledModule& at, const DeviceMesh& axis) {
  ModuleLayouts& layouts = at.layouts;
  const int64_t heads = layouts.heads, ranks = axis.size();
  if (heads == 0 || heads % ranks == 0) return;
  for (auto& [name, placement] : layouts.parameters) {
    if (layouts.shares_heads) placement = Replicate();
    if (!placement.is_shard()) continue;
    const auto& own = at.module->own_parameters();
    const auto found =
        std::ranges::find_if(own, [&](const auto& entry) { return entry.first == name; });
    if (found == own.end()) continue;
    const int64_t width = found->second->shape()[placement.dim()];
    if (width < heads) {
      fail("parallelize: ", in_quotes(at.path), " is quantized and has ", heads, " heads on ",
           ranks, " ranks, expected ranks that divide the heads");
    }
    if (width % heads != 0) {
      fail("parallelize: ", in_quotes(at.path), " has ", heads, " heads in a width of ", width,
           ", expected a multiple of the heads");
    }
    Shard shard{placement.dim()};
    for (int64_t rank = 0; rank < ranks; ++rank) {
      shard.sizes.push_back((heads / ranks + (rank < heads % ranks ? 1 : 0)) * (width / heads));
    }
    placement = shard;
    const bool is_of_input = shard.dim == 1 && dynamic_cast<Linear*>(at.module);
    if (is_of_input) layouts.inputs = {Shard{-1, std::move(shard.sizes)}};
  }
}

static std::vector<StyledModule> styled_modules(Module& module, const DeviceMesh& axis,
                                                const std::vector<ModuleStyle>& styles) {
  const tp::NamedModules modules = module.named_modules();
  std::vector<StyledModule> styled;
  for (const ModuleStyle& style : styles) {
    for (const auto& [path, at] : tp::matching(modules, style.path)) {
      StyledModule one{path, at, tp::layouts_of(style.style, path, *at)};
      keep_heads_whole(one, axis);
      styled.push_back(one);
      add_adapter(one, styled);
    }
  }
  return styled;
}

static StatedPlacements stated_placements(const std::vector<StyledModule>& styled) {
  StatedPlacements result;
  for (const StyledModule& at : styled) {
    for (const auto& [name, parameter] : at.module->own_parameters()) {
      const auto& own = at.layouts.parameters;
      const auto says =
          std::ranges::find_if(own, [&](const auto& entry) { return entry.first == name; });
      if (says == own.end()) continue;
      const auto& [placement, path] =
          result.insert({parameter.get(), {says->second, at.path}}).first->second;
      if (placement == says->second) continue;
      fail("parallelize: parameter ", in_quotes(name), " of ", in_quotes(at.path),
           " is laid out as ", says->second, ", expected ", placement, ", as by the style of ",
           in_quotes(path));
    }
  }
  return result;
}

/// Parameters may be sharded over other axes by earlier calls, but not by `fully_shard`.
static void check_unsharded(const NamedParameter& named, const DeviceMesh& axis,
                            bool is_fully_sharded) {
  const Parameter& parameter = *named.parameter;
  const Sharding sharding = parameter.value().sharding();
  if (!sharding && !ModuleSharder::has_used(parameter)) return;
  const bool here = sharding && sharding.mesh() == axis.root();
  if (here && sharding[axis.root_axis(0)].is_shard()) {
    fail("parallelize: parameter ", named.name(), " is laid out as ", sharding,
         ", expected one that is not sharded over ", axis.axis_name(0));
  }
  if (here && (sharding.is_replicated() || !is_fully_sharded)) return;
  fail("parallelize: parameter ", named.name(), " is laid out as ", sharding,
       ", expected none yet; parallelize first, shard over other axes "
       "afterwards");
}

/// Returns the value in new memory, so that the whole one can be freed.
static Tensor laid_out(const Tensor& value, const Sharding& sharding) {
  PurposeScope purpose(Purpose::parameters);
  Tensor part = empty(value.shape(),
                      {.dtype = value.dtype(), .device = value.device(), .sharding = sharding});
  if (part.device().kind == DeviceKind::meta) return part;
  NoGrad no_grad;
  const Tensor before = value.detach();
  copy_(part, before.is_sharded() ? before : distribute(before, sharding.mesh(), {}));
  return part;
}

/// The sharding of the value, with that placement along the axis.
static Sharding with_placement(const Tensor& value, const DeviceMesh& axis,
                               const Placement& placement) {
  if (!value.is_sharded()) return Sharding(axis, {placement}, value.ndim());
  Pattern pattern = value.sharding().pattern();
  pattern.set(axis.root_axis(0), placement.counted(value.ndim()));
  return Sharding::of(axis.root(), pattern);
}

static std::string module_at(const std::string& path) {
  return path.empty() ? "the module" : in_quotes(path);
}

/// Redistributes `tensor` to the target along the axis; its layout along others stays.
static Tensor brought_along(const Tensor& tensor, const DeviceMesh& axis, const Placement& target,
                            bool states_gradient, const std::string& what) {
  const Sharding sharding = tensor.sharding();
  if (!sharding || !(sharding.mesh() == axis.root())) {
    fail("parallelize: ", what, ", a tensor ", tensor.shape(), ", has no layout, ",
         "expected one over ", axis.root(),
         "; from_local(tensor, mesh, {Shard(0)}) makes it of rows that differ between ranks, "
         "distribute(tensor, mesh, {}) of values that are equal on all");
  }
  const int number = axis.root_axis(0);
  const Placement placement = target.counted(tensor.ndim());
  if (placement.dim() >= tensor.ndim()) {
    fail("parallelize: placement of ", what, ' ', tensor.shape(), " is ", placement,
         ", expected a dim that it has");
  }
  if (sharding[number] == placement && !states_gradient) return tensor;
  Pattern pattern = sharding.pattern();
  pattern.set(number, placement);
  return redistributed(tensor, Sharding::of(axis.root(), pattern));
}

static Tensors all_brought_along(const Tensors& tensors, const DeviceMesh& axis,
                                 const std::vector<AxisLayout>& targets, bool states_gradients,
                                 const char* kind, const std::string& path) {
  if (tensors.size() < targets.size()) {
    fail("parallelize: number of ", kind, "s of ", module_at(path), " is ", tensors.size(),
         ", expected ", targets.size(), ", that of its style");
  }
  Tensors brought = tensors;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!targets[i] || !tensors[i]) continue;
    brought[i] = brought_along(tensors[i], axis, *targets[i], states_gradients,
                               concat(kind, " ", i, " of ", module_at(path)));
  }
  return brought;
}

static void add_layout_hooks(const StyledModule& at, const DeviceMesh& axis) {
  const std::vector<AxisLayout>&inputs = at.layouts.inputs, &outputs = at.layouts.outputs;
  ModuleHooks hooks;
  if (std::ranges::any_of(inputs, &AxisLayout::has_value)) {
    // A product that gathers its input by itself; a product in 8 bits does not.
    const bool gathers = at.layouts.parts > 1 && at.layouts.scatter_dim < 0;
    const auto* layer = gathers ? dynamic_cast<const Linear*>(at.module) : nullptr;
    hooks.before = [axis, layer, path = at.path, targets = inputs,
                    states = at.layouts.states_gradients](const Tensors& tensors) {
      const bool gathered_later = layer && !layer->is_float8() && tensors[0].is_sharded();
      if (gathered_later && tensors[0].sharding().mesh() == axis.root()) return tensors;
      return all_brought_along(tensors, axis, targets, states, "input", path);
    };
  }
  if (std::ranges::any_of(outputs, &AxisLayout::has_value)) {
    hooks.after = [axis, path = at.path, targets = outputs](const Tensors&,
                                                            const Tensors& tensors) {
      return all_brought_along(tensors, axis, targets, false, "output", path);
    };
  }
  if (hooks.before || hooks.after) at.module->add_hooks(std::move(hooks));
}

/// The input that the layers of one module gather, while it runs.
using SharedInput = std::shared_ptr<std::unique_ptr<GatheredInput>>;

/// Splits the products of layers whose styles ask for it.
static void split_products(Module& module, const std::vector<StyledModule>& styled,
                           const DeviceMesh& axis) {
  std::map<std::pair<std::string, int>, SharedInput> inputs;
  for (const StyledModule& at : styled) {
    const SplitProducts split{axis, at.layouts.parts};
    if (split.parts == 1) continue;
    auto& layer = dynamic_cast<Linear&>(*at.module);
    if (at.layouts.scatter_dim >= 0) {
      layer.set_product([split, dim = at.layouts.scatter_dim](const Tensor& x, const Tensor& weight,
                                                              const Tensor& bias) {
        return linear_reduce_scatter(x, weight, bias, dim, split);
      });
      continue;
    }
    const size_t dot = at.path.rfind('.');
    const std::string parent = dot == at.path.npos ? "" : at.path.substr(0, dot);
    SharedInput& shared = inputs[{parent, split.parts}];
    if (!shared) {
      shared = std::make_shared<std::unique_ptr<GatheredInput>>();
      ModuleHooks hooks;
      hooks.after = [shared](const Tensors&, const Tensors& outputs) {
        shared->reset();
        return outputs;
      };
      module.module(parent).add_hooks(std::move(hooks));
    }
    layer.set_product([shared, split](const Tensor& x, const Tensor& weight, const Tensor& bias) {
      if (!*shared || !(*shared)->is_of(x)) *shared = std::make_unique<GatheredInput>(x, split);
      return (*shared)->linear(weight, bias);
    });
  }
}

void parallelize(Module& module, const DeviceMesh& axis, const std::vector<ModuleStyle>& styles) {
  check_axis(axis);
  const std::vector<StyledModule> styled = styled_modules(module, axis, styles);
  StatedPlacements stated = stated_placements(styled);
  const std::vector<NamedParameter> parameters = module.named_parameters();
  const tp::NamedModules modules = module.named_modules();
  const bool is_fully_sharded = std::ranges::any_of(
      modules, [](const auto& at) { return ModuleSharder::is_sharded(*at.second); });
  for (const NamedParameter& named : parameters) check_unsharded(named, axis, is_fully_sharded);
  for (const NamedParameter& named : parameters) {
    const Tensor& value = named.parameter->value();
    ModuleSharder::lay_out(
        *named.parameter,
        laid_out(value, with_placement(value, axis, stated[named.parameter.get()].placement)));
  }
  for (const StyledModule& at : styled) add_layout_hooks(at, axis);
  split_products(module, styled, axis);
  ModuleSharder::replicate_buffers(module, axis);
}

}  // namespace weft
