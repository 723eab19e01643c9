// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/transformer_config.h"

namespace weft {

/// std::invalid_argument when `directory` has a config.json of another model.
void check_config_at(const std::string& directory, const TransformerConfig& config);

/// Returns the text of a config.json with the ids of tokens of the one in the folder `files`.
std::string with_token_ids(const std::string& config, const std::string& files);

/// Writes config.json, unless `config` is empty, and copies the other files of a model from the
/// folder `files`. Files that exist stay as they are; a warning names those copies that differ.
void write_model_files(const std::string& directory, const std::string& files,
                       const std::string& config);

}  // namespace weft
