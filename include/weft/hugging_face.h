// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/export.h"
#include "weft/module.h"

namespace weft {

/// Fills the parameters of `model` (materialised if they are not) with the tensors of `path`: a
/// .safetensors file, an index of several, or a Hugging Face directory. Each rank reads the
/// elements that it holds, and converts bf16, f16, f32 and f64 to the parameter's dtype. No
/// communication. std::invalid_argument before anything is read when a parameter is missing there,
/// a tensor is no parameter, or a shape or dtype does not fit; of a tied parameter any name will
/// do, and where there are several their elements must be equal.
WEFT_API void load_hugging_face(Module& model, const std::string& path);

}  // namespace weft
