// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/transformer_config.h"

namespace weft {

/// std::invalid_argument when `directory` has a config.json of another model.
void check_config_at(const std::string& directory, const TransformerConfig& config);

/// Writes config.json, unless `config` is empty, with the ids of tokens of that in the folder
/// `files`, and copies the other files of a model from there. Files that exist stay as they are; a
/// warning names those that differ.
void write_model_files(const std::string& directory, const std::string& files,
                       const std::string& config);

}  // namespace weft
