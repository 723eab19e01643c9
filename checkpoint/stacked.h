// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/module.h"
#include "weft/safetensors.h"
#include "weft/transformer_config.h"

namespace weft {

/// The file's tensor `name`, which is parameter[slice].
FileTensor slice_of(const std::string& parameter, const std::string& name, int64_t slice);

/// The tensors that Hugging Face's files hold of a parameter or buffer: one under its name, or the
/// slices of experts' stacked matrices ("mlp.experts.gate_proj" [experts, n, k]).
std::vector<FileTensor> tensors_of(const std::string& name, const Shape& shape);

/// The names of a parameter's slices in files that have one tensor for each expert:
/// "mlp.experts.0.gate_proj.weight", "mlp.experts.1.gate_proj.weight", ... for
/// "mlp.experts.gate_proj"; with Mixtral's leaves too ("w1"). None unless `files` has the first of
/// them.
std::vector<std::string> names_of_slices(const NamedParameter& named, const TensorFiles& files);

}  // namespace weft
