// SPDX-License-Identifier: Apache-2.0
#include "cli/weights.h"

#include <algorithm>
#include <filesystem>

#include "cli/resume.h"
#include "cli/run_description.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/saved_model.h"
#include "weft/hugging_face.h"
#include "weft/safetensors.h"
#include "weft/state_dict.h"

namespace weft::cli {

namespace fs = std::filesystem;

bool is_hugging_face(const std::string& directory) {
  std::error_code ignored;
  return fs::exists(fs::path(directory) / "config.json", ignored);
}

std::string weights_in(const std::string& flag, const std::string& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored))
    fail(flag, ' ', directory, " is missing or a file, expected a directory");
  if (is_hugging_face(directory)) return directory;
  const std::string checkpoint = complete_checkpoint(directory);
  if (!checkpoint.empty()) return checkpoint;
  fail(flag, ' ', directory,
       " has no weights, expected a complete checkpoint, or config.json and .safetensors files");
}

TransformerConfig config_of_weights(const std::string& weights) {
  return is_hugging_face(weights) ? transformer_config(weights)
                                  : saved_config(checkpoint_contents(weights).numbers, weights);
}

std::vector<std::string> files_of_weights(const std::string& weights) {
  std::vector<std::string> files;
  if (is_hugging_face(weights)) {
    const TensorFiles tensors(weights);
    for (const SafetensorsFile& file : tensors.files()) files.push_back(file.path());
    return files;
  }
  for (const auto& entry : fs::directory_iterator(weights)) {
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void load_weights(TransformerModel& model, const std::string& weights) {
  if (is_hugging_face(weights)) return load_hugging_face(model, weights);
  StateDict state;
  for (const auto& [name, tensor] : state_dict(model).tensors) {
    state.tensors.emplace(concat("model/", name), tensor);
  }
  const SkippedKeys skipped = load_common_keys(weights, state);
  if (!skipped.missing.empty())
    fail("weights: ", weights, ": tensor ", in_quotes(skipped.missing[0]), " is missing");
}

void keep_files(const std::string& weights, const std::string& directory) {
  if (weights.empty() || directory.empty()) return;
  keep_model_files(is_hugging_face(weights) ? weights : kept_model_files(weights), directory);
}

std::map<std::string, int64_t> numbers_of(const TransformerConfig& config) {
  RunDescription run;
  add_model(config, run);
  return run.numbers();
}

}  // namespace weft::cli
