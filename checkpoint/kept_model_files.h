// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace weft {

/// Writes config.json, unless `config` is empty, with the ids of tokens of that in the folder
/// `files`, and copies the other files of a model from there. Files that exist stay as they are.
void write_model_files(const std::string& directory, const std::string& files,
                       const std::string& config);

}  // namespace weft
