// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/module.h"
#include "weft/safetensors.h"

namespace weft {

/// The names of the slices of experts' stacked matrices ("mlp.experts.gate_proj" [experts, n, k])
/// in Hugging Face's files; none for other tensors.
std::vector<std::string> names_by_expert(const std::string& name, const Shape& shape);

/// The names of a parameter's slices in files that have one tensor for each expert:
/// "mlp.experts.0.gate_proj.weight", "mlp.experts.1.gate_proj.weight", ... for
/// "mlp.experts.gate_proj"; with Mixtral's leaves too ("w1"). None unless `files` has the first of
/// them.
std::vector<std::string> names_of_slices(const NamedParameter& named, const TensorFiles& files);

/// Copies this rank's elements of the slices into the parameter.
void fill_slices(const Parameter& parameter, const TensorFiles& files,
                 const std::vector<std::string>& names);

}  // namespace weft
