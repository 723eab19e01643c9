// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <optional>
#include <utility>

#include "tp/styles.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/export.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/op_log.h"
#include "weft/ops/factories.h"
#include "weft/tensor_parallel.h"

namespace weft {

namespace {

/// Makes forward use parameters without memory in their present layouts, while it exists. Their
/// gradients are dropped. Random numbers continue afterwards from where they were.
class WithoutMemory : NotCopied {
 public:
  explicit WithoutMemory(const tp::NamedModules& modules) {
    for (const auto& [path, module] : modules) {
      for (const auto& [name, parameter] : module->own_parameters()) {
        // Code that shards the parameter has set the tensor in use.
        const bool has_memory = parameter->device().kind != DeviceKind::meta;
        if (!ModuleSharder::has_used(*parameter) || !has_memory) continue;
        fail("explain: parameter ", in_quotes(path + "." + name),
             " is gathered for use, expected one as it is stored; explain the model before "
             "fully_shard, or without memory: materialize(meta)");
      }
    }
    for (const auto& [path, module] : modules) {
      RunScope scope(module);
      for (const auto& [name, parameter] : module->own_parameters()) {
        // A tied parameter counts for the first module that has it.
        if (ModuleSharder::has_used(*parameter)) continue;
        replaced_.push_back(parameter.get());
        Tensor stand_in = empty(parameter->shape(), {.dtype = parameter->dtype(),
                                                     .device = meta,
                                                     .sharding = parameter->value().sharding()});
        if (parameter->is_trainable()) stand_in.set_requires_grad();
        ModuleSharder::set_used(*parameter, std::move(stand_in));
      }
    }
  }
  ~WithoutMemory() {
    for (Parameter* parameter : replaced_) ModuleSharder::set_used(*parameter, {});
  }

 private:
  std::vector<Parameter*> replaced_;
  ContextSetting<&Context::random> random_{Context::current().random};
};

/// The text about one layer, or about the modules outside of all layers.
struct LayerText {
  std::string name;
  std::string lines;
  int64_t bytes = 0;
  /// Name of the last of the following layers that are equal.
  std::string last = {};
};

}  // namespace

std::vector<PlannedCollective> planned_collectives(Module& model,
                                                   const std::function<Tensor()>& loss) {
  const tp::NamedModules modules = model.named_modules();
  WithoutMemory parameters(modules);
  OpLog log;
  const Tensor result = loss();
  if (result.device().kind != DeviceKind::meta) {
    fail("explain: the loss is on ", result.device(),
         ", expected meta; give the model tensors on meta");
  }
  if (result.requires_grad()) result.backward();
  std::map<const void*, std::string> paths;
  for (const auto& [path, module] : modules) paths[module] = path;
  std::vector<PlannedCollective> collectives;
  for (const Movement& movement : log.movements) {
    for (const MovementStep& step : movement.steps) {
      collectives.push_back({paths[movement.scope], movement.backward, movement.what, step});
    }
  }
  return collectives;
}

/// "model.layers.3" for "model.layers.3.mlp"; the whole path if it has no number.
static std::string layer_of(const std::string& path) {
  std::string layer;
  for (const std::string& part : tp::parts_of(path)) {
    layer += layer.empty() ? part : "." + part;
    if (tp::is_number(part)) break;
  }
  return layer;
}

static std::string line_of(const PlannedCollective& collective, const std::string& layer) {
  std::string inside = collective.module.substr(layer.size());
  if (!inside.empty() && inside[0] == '.') inside.erase(0, 1);
  const MovementStep& step = collective.step;
  return concat(
      "  ", collective.backward ? "backward " : "forward  ", inside, inside.empty() ? "" : ", ",
      collective.op == "backward" ? "parameter's gradient" : collective.op, ": ", step.kind,
      " over ", step.axes, ", ", step.from, " -> ", step.to, ", ", step.bytes, " B\n");
}

/// Returns the layers in the order of the model; consecutive equal ones are joined.
static std::vector<LayerText> layer_texts(Module& model,
                                          const std::vector<PlannedCollective>& collectives) {
  const auto is_layer = [](const LayerText& of) {
    return tp::is_number(tp::parts_of("." + of.name).back());
  };
  std::vector<LayerText> layers;
  std::optional<std::string> before;
  for (const auto& [path, module] : model.named_modules()) {
    LayerText layer{.name = layer_of(path), .lines = ""};
    if (std::exchange(before, layer.name) == layer.name) continue;
    for (const PlannedCollective& collective : collectives) {
      if (layer_of(collective.module) != layer.name) continue;
      layer.lines += line_of(collective, layer.name);
      layer.bytes += collective.step.bytes;
    }
    if (layer.lines.empty()) continue;
    const bool alike = !layers.empty() && is_layer(layer) && is_layer(layers.back()) &&
                       layers.back().lines == layer.lines;
    if (alike) {
      layers.back().last = layer.name;
    } else {
      layers.push_back(std::move(layer));
    }
  }
  return layers;
}

std::string explain(Module& model, const std::function<Tensor()>& loss) {
  const std::vector<PlannedCollective> collectives = planned_collectives(model, loss);
  int64_t bytes = 0;
  for (const PlannedCollective& collective : collectives) bytes += collective.step.bytes;
  std::string text =
      concat(collectives.size(), " collectives a step, ", bytes, " B received by this rank\n");
  for (const LayerText& layer : layer_texts(model, collectives)) {
    text += layer.name.empty() ? "the model itself" : layer.name;
    if (!layer.last.empty()) text += concat(" to ", layer.last, ", each");
    text += concat(": ", layer.bytes, " B\n", layer.lines);
  }
  return text;
}

}  // namespace weft
