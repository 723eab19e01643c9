// SPDX-License-Identifier: Apache-2.0
#include "cli/weights.h"

#include <algorithm>

#include "cli/commands.h"
#include "cli/resume.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/saved_model.h"
#include "weft/hugging_face.h"
#include "weft/safetensors.h"

namespace weft::cli {

namespace fs = std::filesystem;

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

fs::path located(const std::string& path) {
  std::error_code ignored;
  // Of a relative path whose first folder is missing, weakly_canonical gives a relative one.
  const fs::path place = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  return (place / "").lexically_normal();
}

void set_aside(const char* flag, const std::string& path) {
  std::error_code error;
  // A link stays, and its target is moved.
  const fs::path file = fs::canonical(path, error);
  const bool is_of_process = path.starts_with("/dev/") || path.starts_with("/proc/");
  if (error || is_of_process || !fs::is_regular_file(file, error) || fs::is_empty(file, error)) {
    return;
  }
  int number = 1;
  const auto other = [&] { return concat(file.string(), '.', number); };
  while (fs::exists(fs::symlink_status(other(), error))) ++number;
  fs::rename(file, other(), error);
  if (error)
    fail(flag, ": ", path, " exists and cannot be renamed (", error.message(),
         "), expected no file");
  warn(flag, ' ', printable(path), ": the file of an earlier run is now ", printable(other()));
}

void check_directory(const std::string& what, const std::string& path) {
  if (!is_directory(path)) fail(what, ' ', path, " is missing or a file, expected a directory");
}

bool is_hugging_face(const std::string& directory) {
  std::error_code ignored;
  return fs::exists(fs::path(directory) / "config.json", ignored);
}

std::string weights_in(const std::string& flag, const std::string& directory) {
  check_directory(flag, directory);
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
  weft::load_weights(weights, state);
}

void keep_files(const std::string& weights, const std::string& directory) {
  if (directory.empty()) return;
  const bool is_checkpoint = !weights.empty() && !is_hugging_face(weights);
  keep_model_files(is_checkpoint ? kept_model_files(weights) : weights, directory);
}

}  // namespace weft::cli
