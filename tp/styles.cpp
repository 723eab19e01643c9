// SPDX-License-Identifier: Apache-2.0
#include "tp/styles.h"

#include <algorithm>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/transform.hpp>

#include "weft/error.h"
#include "weft/extend/split_products.h"
#include "weft/layers.h"

namespace weft::tp {

namespace {

enum class Layer { linear, embedding };

}  // namespace

static Layer layer_of(const char* style, const std::string& path, const Module& module) {
  if (dynamic_cast<const Linear*>(&module)) return Layer::linear;
  if (dynamic_cast<const Embedding*>(&module)) return Layer::embedding;
  fail("parallelize: ", in_quotes(path),
       " is another module, expected a Linear or an Embedding for ", style,
       "; Layouts states how any parameters are laid out");
}

static std::vector<Target> targets(const std::vector<AxisLayout>& layouts, bool states_gradient) {
  return layouts | ranges::views::transform([&](const AxisLayout& layout) {
           return Target{.layout = layout, .states_gradient = states_gradient};
         }) |
         ranges::to<std::vector>();
}

static void check_parts(int parts, const std::string& path, Layer layer) {
  if (parts < 1 || parts > kMostProductParts) {
    fail("parallelize: number of parts of ", in_quotes(path), " is ", parts,
         ", expected one from 1 to ", kMostProductParts);
  }
  if (parts == 1 || layer == Layer::linear) return;
  fail("parallelize: ", in_quotes(path), " is an Embedding, expected a Linear for products in ",
       parts, " parts");
}

static ModuleLayouts resolved(const Colwise& style, const std::string& path, const Module& module) {
  const Layer layer = layer_of("Colwise", path, module);
  const bool linear = layer == Layer::linear;
  check_parts(style.parts, path, layer);
  return {.parameters = linear
                            ? std::vector<std::pair<std::string, Placement>>{{"weight", Shard(0)},
                                                                             {"bias", Shard(0)}}
                            : std::vector<std::pair<std::string, Placement>>{{"weight", Shard(1)}},
          .inputs = {{.layout = Replicate()}},
          .outputs = {{.layout = style.output}},
          .heads = style.heads,
          .parts = style.parts};
}

static ModuleLayouts resolved(const Rowwise& style, const std::string& path, const Module& module) {
  const Layer layer = layer_of("Rowwise", path, module);
  const bool linear = layer == Layer::linear;
  check_parts(style.parts, path, layer);
  const bool scatters = style.output && style.output->is_shard() && style.output->dim() >= 0;
  if (style.parts > 1 && !scatters) {
    const std::string stated = style.output ? concat(*style.output) : "not stated";
    fail("parallelize: output of ", in_quotes(path), " is ", stated,
         ", expected Shard of a dim counted from the first for a product in ", style.parts,
         " parts");
  }
  return {.parameters = {{"weight", linear ? Shard(1) : Shard(0)}},
          .inputs = {linear ? Target{.last_dim = true} : Target{.layout = Replicate()}},
          .outputs = {{.layout = style.output}},
          .heads = style.heads,
          .parts = style.parts,
          .scatter_dim = style.parts > 1 ? style.output->dim() : -1};
}

static ModuleLayouts resolved(const SequenceParallel& style, const std::string&, const Module&) {
  return {.inputs = {{.layout = Shard(style.dim)}}};
}

static ModuleLayouts resolved(const ExpertParallel&, const std::string& path,
                              const Module& module) {
  ModuleLayouts layouts;
  int64_t experts = -1;
  for (const auto& [name, parameter] : module.own_parameters()) {
    const Shape& shape = parameter->shape();
    if (shape.ndim() == 0 || (experts >= 0 && shape[0] != experts)) {
      fail("parallelize: parameter ", in_quotes(name), " of ", in_quotes(path), " is ", shape,
           ", expected one stacked by expert for ExpertParallel");
    }
    experts = shape[0];
    layouts.parameters.emplace_back(name, Shard(0));
  }
  if (experts < 0) {
    fail("parallelize: ", in_quotes(path),
         " has no parameters, expected those of experts for ExpertParallel");
  }
  return layouts;
}

static ModuleLayouts resolved(const PrepareInput& style, const std::string&, const Module&) {
  return {.inputs = targets(style.inputs, true)};
}

static ModuleLayouts resolved(const PrepareOutput& style, const std::string&, const Module&) {
  return {.outputs = targets(style.outputs, false)};
}

static ModuleLayouts resolved(const Layouts& style, const std::string& path, const Module& module) {
  const auto& own = module.own_parameters();
  for (const auto& [name, placement] : style.parameters) {
    const auto found = std::find_if(own.begin(), own.end(),
                                    [&](const auto& other) { return other.first == name; });
    if (found == own.end()) {
      fail("parallelize: parameter ", in_quotes(name), " of ", in_quotes(path), " does not exist");
    }
    const Shape& shape = found->second->shape();
    if (placement.is_partial() || placement.dim() >= shape.ndim()) {
      fail("parallelize: placement of parameter ", in_quotes(name), " ", shape, " of ",
           in_quotes(path), " is ", placement, ", expected Replicate or a dim that it has");
    }
  }
  return {.parameters = style.parameters,
          .inputs = targets(style.inputs, true),
          .outputs = targets(style.outputs, false)};
}

ModuleLayouts layouts_of(const Style& style, const std::string& path, const Module& module) {
  return std::visit([&](const auto& stated) { return resolved(stated, path, module); }, style);
}

}  // namespace weft::tp
