// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/tensor_parallel.h"

namespace weft::tp {

/// What one input or output is brought to along the axis.
struct Target {
  AxisLayout layout = {};
  /// Cut along its last dim, whatever its number is.
  bool last_dim = false;
  /// Its gradient is brought back here even if the tensor itself lies as it should.
  bool states_gradient = false;

  explicit operator bool() const { return layout.has_value() || last_dim; }
};

/// A style as it is for one module.
struct ModuleLayouts {
  std::vector<std::pair<std::string, Placement>> parameters = {};
  std::vector<Target> inputs = {};
  std::vector<Target> outputs = {};
  /// What the ranks must divide; 0: nothing.
  int64_t heads = 0;
};

/// std::invalid_argument naming `path` when the style is not for such a module.
ModuleLayouts layouts_of(const Style& style, const std::string& path, const Module& module);

}  // namespace weft::tp
