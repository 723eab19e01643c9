// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weft/transformer.h"

namespace weft::cli {

// The weights that a directory holds: a checkpoint of `weft train` or `weft ckpt import`, or a
// Hugging Face model.

/// Whether the path is a directory, as far as the system says.
bool is_directory(const std::string& path);
/// Where the path leads, or would lead if it existed: equal for all names of one place.
std::filesystem::path located(const std::string& path);
/// std::invalid_argument "<what> <path> is missing or a file, expected a directory".
void check_directory(const std::string& what, const std::string& path);
/// Whether it is a Hugging Face model: it has a config.json.
bool is_hugging_face(const std::string& directory);
/// `directory` if it is one of them; of a run's directory the newest complete checkpoint.
/// std::invalid_argument, which begins with `flag`, when it holds none.
std::string weights_in(const std::string& flag, const std::string& directory);
TransformerConfig config_of_weights(const std::string& weights);
/// Their files, sorted.
std::vector<std::string> files_of_weights(const std::string& weights);
/// Fills a model that has memory; each rank reads what it holds, and rounds it to the model's dtype
/// where the files have another one.
void load_weights(TransformerModel& model, const std::string& weights);

/// Keeps the files of `weights`, a Hugging Face model or a checkpoint of a run that keeps some, in
/// the run of `directory`, in place of those of another model. Does nothing where `weights` are of
/// that run, and for an empty `directory`.
void keep_files(const std::string& weights, const std::string& directory);

}  // namespace weft::cli
