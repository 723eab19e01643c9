// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/module.h"
#include "weft/tensor_parallel.h"

namespace weft::tp {

/// A style resolved for one module.
struct ModuleLayouts {
  std::vector<std::pair<std::string, Placement>> parameters = {};
  std::vector<AxisLayout> inputs = {}, outputs = {};
  /// Redistributes the gradients of inputs back even if these have the stated layouts already.
  bool states_gradients = false;
  /// Number of heads, which stay whole; 0: any cut.
  int64_t heads = 0;
  /// Heads that the ranks do not divide are all on each rank.
  bool shares_heads = false;
  /// Parts that a Linear's product is split into: with its input's gather, or with the reduction
  /// and scatter of its output along `scatter_dim`.
  int parts = 1;
  int scatter_dim = -1;
};

/// Resolves a style. std::invalid_argument names `path` if the style does not fit the module.
ModuleLayouts layouts_of(const Style& style, const std::string& path, const Module& module);

using NamedModules = std::vector<std::pair<std::string, Module*>>;

/// Returns the parts of a dotted path; none for "".
std::vector<std::string> parts_of(const std::string& path);

/// True for a name of digits, like those of the children of a Sequential.
bool is_number(const std::string& part);

/// Returns the modules whose paths `pattern` matches, where `*` stands for any part of one name;
/// std::invalid_argument lists close paths if none does.
NamedModules matching(const NamedModules& modules, const std::string& pattern);

}  // namespace weft::tp
