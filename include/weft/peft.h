// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "weft/adapters.h"
#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/state_dict.h"

namespace weft {

// Adapters in the files of the PEFT library: adapter_model.safetensors and adapter_config.json.
// Modules have the names of Hugging Face's model of the family, also where a TransformerModel names
// them differently.

/// The contents of adapter_config.json besides the options of the adapters.
struct PeftOptions {
  /// The directory or the hub's name of the model that the adapters belong to; empty: null.
  std::string base_model = {};
  std::string task = "CAUSAL_LM";
  /// The ranks that call `save_peft` for a model that is not sharded; the first one writes.
  std::optional<Communicator> world = {};
};

/// Writes the adapters of `model` to `directory`, which is made. Gathers each adapter: all ranks of
/// a sharded model, or of `world`, call it, and the first rank writes. std::invalid_argument,
/// before anything is written, when the model has no adapters, a module is only a part of a module
/// of Hugging Face's model (a fused projection), or the directory has an adapter already.
WEFT_API void save_peft(Module& model, const std::string& directory,
                        const PeftOptions& options = {});

/// std::invalid_argument where `save_peft` would refuse the modules that have adapters.
WEFT_API void check_peft(Module& model);

/// Fills the adapters of `model` from `directory`; each rank reads the elements that it holds. A
/// model without adapters gets those of the files, by `add_adapters`. std::invalid_argument, before
/// anything is changed, names a tensor that has no adapter or an adapter that has no tensor, a
/// shape, rank or scale that differs, and a setting of the config that weft does not compute.
WEFT_API void load_peft(Module& model, const std::string& directory);

/// Returns the options of the adapters in `directory`, for `add_adapters` before a model is
/// sharded. Its targets are paths in `model`.
WEFT_API AdapterOptions peft_options(const Module& model, const std::string& directory);

/// Returns the parameters of the adapters as they are at rest, by their names in the model
/// ("<path>.lora_A.weight"), and their options as numbers.
WEFT_API StateDict adapter_state_dict(const Module& model);

}  // namespace weft
