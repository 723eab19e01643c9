// SPDX-License-Identifier: Apache-2.0
#include "tp/styles.h"

#include <algorithm>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/indices.hpp>
#include <range/v3/view/join.hpp>
#include <range/v3/view/take.hpp>
#include <range/v3/view/transform.hpp>
#include <set>
#include <string_view>

#include "weft/error.h"
#include "weft/extend/split_products.h"
#include "weft/layers.h"

namespace weft::tp {

namespace views = ranges::views;

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
  return layouts | views::transform([&](const AxisLayout& layout) {
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

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t start = 0; start < path.size();) {
    const size_t end = std::min(path.find('.', start), path.size());
    parts.push_back(path.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

bool is_number(const std::string& part) {
  return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
}

static bool matches_part(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*') {
    return !name.empty() && name[0] == pattern[0] &&
           matches_part(pattern.substr(1), name.substr(1));
  }
  for (size_t taken = 0; taken <= name.size(); ++taken) {
    if (matches_part(pattern.substr(1), name.substr(taken))) return true;
  }
  return false;
}

static bool matches(const std::string& pattern, const std::string& path) {
  const auto patterns = parts_of(pattern), names = parts_of(path);
  return std::equal(patterns.begin(), patterns.end(), names.begin(), names.end(), matches_part);
}

/// The least number of letters to insert, delete or replace (Levenshtein, 1966).
static size_t distance(const std::string& a, const std::string& b) {
  auto row = views::indices(b.size() + 1) | ranges::to<std::vector>();
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({exchanged, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

/// Replaces numbers by `*`, so that the layers of a model count as one.
static std::string general_path(const std::string& path) {
  const auto general = [](const std::string& part) { return is_number(part) ? "*" : part; };
  const std::vector<std::string> parts = parts_of(path);
  return parts | views::transform(general) | views::join('.') | ranges::to<std::string>();
}

static std::string close_paths(const NamedModules& modules, const std::string& pattern) {
  std::set<std::pair<size_t, std::string>> by_distance;
  for (const auto& [path, module] : modules) {
    if (path.empty()) continue;
    const std::string general = general_path(path);
    by_distance.emplace(distance(general_path(pattern), general), general);
  }
  if (by_distance.empty()) return "";
  const auto name = [](const auto& close) { return in_quotes(close.second); };
  return concat("; the closest are ", by_distance | views::take(3) | views::transform(name) |
                                          views::join(std::string(", ")) |
                                          ranges::to<std::string>());
}

NamedModules matching(const NamedModules& modules, const std::string& pattern) {
  const auto is_match = [&](const auto& named) { return matches(pattern, named.first); };
  auto found = modules | views::filter(is_match) | ranges::to<NamedModules>();
  if (found.empty()) {
    fail("parallelize: ", in_quotes(pattern), " matches no module, expected a path of one",
         close_paths(modules, pattern));
  }
  return found;
}

}  // namespace weft::tp
