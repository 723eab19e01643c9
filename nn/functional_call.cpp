// SPDX-License-Identifier: Apache-2.0
#include "weft/functional_call.h"

#include <algorithm>
#include <map>

#include "weft/error.h"
#include "weft/extend/module_paths.h"
#include "weft/extend/module_sharder.h"
#include "weft/ops/elementwise.h"

namespace weft {

/// Returns `value` as forward uses the parameter.
static Tensor as_used(const Parameter& parameter, const Tensor& used, const Tensor& value) {
  const Tensor& like = used ? used : parameter.value();
  Tensor made = value;
  if (const Sharding sharding = like.sharding()) {
    if (!made.is_sharded()) made = distribute(made, sharding.mesh(), {});
    made = redistributed(made, sharding);
  }
  return made.dtype() == like.dtype() ? made : made.to(like.dtype());
}

ReplacedParameters::ReplacedParameters(Module& module, const NamedTensors& values) {
  for (const auto& [path, below] : module.named_modules()) {
    if (!ModuleSharder::recomputes(*below)) continue;
    fail("functional_call: module ", in_quotes(path),
         " recomputes its forward, expected none: it would use the parameters replaced");
  }
  const std::vector<NamedParameter> all = module.named_parameters();
  std::vector<Replaced> found;
  for (const auto& [name, value] : values) {
    const auto is_it = [&](const NamedParameter& named) {
      return std::ranges::find(named.names, name) != named.names.end();
    };
    const auto at = std::ranges::find_if(all, is_it);
    if (at == all.end()) {
      fail("functional_call: the module has no parameter ", in_quotes(name),
           ", expected names of its parameters");
    }
    if (!value || !(value.shape() == at->parameter->shape())) {
      fail("functional_call: parameter ", in_quotes(name), " is ",
           value ? concat(value.shape()) : std::string("missing"), ", expected ",
           at->parameter->shape());
    }
    ModuleSharder::lazy_init(*at->parameter);
    Tensor none;
    ModuleSharder::swap_used(*at->parameter, none);
    const Tensor used = none;
    ModuleSharder::swap_used(*at->parameter, none);
    found.push_back({at->parameter, as_used(*at->parameter, used, value)});
  }
  replaced_ = std::move(found);
  for (Replaced& one : replaced_) {
    ModuleSharder::swap_used(*one.parameter, one.used);
  }
}

void ReplacedParameters::restore() {
  for (Replaced& one : replaced_) {
    ModuleSharder::swap_used(*one.parameter, one.used);
  }
  replaced_.clear();
}

ScopeNames module_paths(Module& model) {
  std::map<const void*, std::string> paths;
  for (const auto& [path, module] : model.named_modules()) paths[module] = path;
  return [paths = std::move(paths)](const void* scope) {
    const auto found = paths.find(scope);
    return found == paths.end() ? std::string("outside of the model") : found->second;
  };
}

Tensors functional_call(Module& module, const NamedTensors& values, const Tensors& inputs) {
  const ReplacedParameters scope(module, values);
  return module(inputs);
}

}  // namespace weft
