// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/module.h"

namespace weft {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Lets a module compute with other tensors in place of the parameters of these names, until it is
/// restored or destroyed. Each is recorded, brought to the layout and dtype in which forward uses
/// the parameter: that of the gathered one for a sharded module. std::invalid_argument for a name
/// that the module does not have, another shape, and a module that recomputes.
class WEFT_API ReplacedParameters : NotCopied {
 public:
  ReplacedParameters(Module& module, const NamedTensors& values);
  ~ReplacedParameters() { restore(); }
  void restore();

 private:
  struct Replaced {
    ParameterPtr parameter;
    Tensor used;
  };
  std::vector<Replaced> replaced_;
};

/// Calls the module with other tensors in place of some of its parameters. Gradients flow to these.
WEFT_API Tensors functional_call(Module& module, const NamedTensors& values, const Tensors& inputs);

}  // namespace weft
