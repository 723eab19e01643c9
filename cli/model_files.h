// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/transformer_config.h"

namespace weft::cli {

// The files of a Hugging Face model other than its weights: config.json, generation_config.json
// and those of the tokenizer. A run keeps those of the model that it began with in its folder
// "hugging_face", from where an export takes them.

/// Copies the files of `weights`, a Hugging Face model or a checkpoint of a run that keeps some, to
/// the run in `directory`, in place of those of another model. Does nothing where `weights` are of
/// that run, and for an empty `directory`.
void keep_model_files(const std::string& weights, const std::string& directory);

/// std::invalid_argument when `directory` has a config.json of another model.
void check_config_at(const std::string& directory, const TransformerConfig& config);

/// Copies what the run of `checkpoint` keeps, but for config.json, to `directory`. Files that exist
/// there stay as they are; a warning names those that differ.
void export_model_files(const std::string& checkpoint, const std::string& directory);

/// Returns the text of a config.json with the ids of tokens that the run's kept one has.
std::string with_kept_tokens(const std::string& config, const std::string& checkpoint);

}  // namespace weft::cli
