// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>

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
  explicit WithoutMemory(const tp::NamedModules& modules) : random_(Context::current().random) {
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
      for (const auto& [name, parameter] : module->own_parameters()) replace(*parameter);
    }
  }
  ~WithoutMemory() {
    for (Parameter* parameter : replaced_) ModuleSharder::set_used(*parameter, {});
    Context::current().random = random_;
  }

 private:
  /// A tied parameter counts for the first module that has it.
  void replace(Parameter& parameter) {
    if (ModuleSharder::has_used(parameter) || !replaced_.insert(&parameter).second) return;
    Tensor stand_in = empty(
        parameter.shape(),
        {.dtype = parameter.dtype(), .device = meta, .sharding = parameter.value().sharding()});
    if (parameter.is_trainable()) stand_in.set_requires_grad();
    ModuleSharder::set_used(parameter, std::move(stand_in));
  }

  std::set<Parameter*> replaced_;
  RandomState random_;
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

static std::vector<PlannedCollective> collectives_of(const OpLog& log,
                                                     const tp::NamedModules& modules) {
  std::map<const void*, std::string> paths;
  for (const auto& [path, module] : modules) paths[module] = path;
  std::vector<PlannedCollective> collectives;
  for (const Movement& movement : log.movements) {
    for (const MovementStep& step : movement.steps) {
      const auto at = paths.find(movement.scope);
      collectives.push_back({.module = at == paths.end() ? "" : at->second,
                             .backward = movement.backward,
                             .op = movement.what,
                             .step = step});
    }
  }
  return collectives;
}

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
  return collectives_of(log, modules);
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
  std::vector<LayerText> layers;
  for (const auto& [path, module] : model.named_modules()) {
    const std::string name = layer_of(path);
    if (layers.empty() || layers.back().name != name) layers.push_back({.name = name, .lines = ""});
  }
  for (LayerText& layer : layers) {
    for (const PlannedCollective& collective : collectives) {
      if (layer_of(collective.module) != layer.name) continue;
      layer.lines += line_of(collective, layer.name);
      layer.bytes += collective.step.bytes;
    }
  }
  std::erase_if(layers, [](const LayerText& layer) { return layer.lines.empty(); });
  std::vector<LayerText> different;
  for (LayerText& layer : layers) {
    const auto is_layer = [](const LayerText& of) {
      return tp::is_number(tp::parts_of("." + of.name).back());
    };
    const bool alike = !different.empty() && is_layer(layer) && is_layer(different.back()) &&
                       different.back().lines == layer.lines;
    if (alike) {
      different.back().last = layer.name;
    } else {
      different.push_back(std::move(layer));
    }
  }
  return different;
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
