// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/run_folder.h"

#include <algorithm>

#include "weft/adapters.h"
#include "weft/checkpoint.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/packed.h"
#include "weft/extend/saved_model.h"
#include "weft/extend/store.h"
#include "weft/hugging_face.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/reductions.h"
#include "weft/safetensors.h"

namespace weft {

namespace fs = std::filesystem;

bool is_directory(const std::string& path) { return path_is_directory(path); }

fs::path located(const std::string& path) {
  if (is_object_path(path)) return fs::path(object_path(path)) / "";
  std::error_code ignored;
  // For a relative path whose first folder is missing, weakly_canonical returns a relative one.
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
  return path_exists(fs::path(directory) / "config.json");
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
  std::error_code error;
  for (const auto& [name, kind, bytes] : Store::of(weights).list(weights, error)) {
    const std::string path = (fs::path(weights) / name).string();
    if (kind == PathKind::file || path_is_file(path)) files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The file of a parameter, and its name there.
static std::string place_of(const std::string& weights, const TransformerConfig& config,
                            const std::string& parameter) {
  if (!is_hugging_face(weights)) return concat(weights, ": tensor ", in_quotes(parameter));
  const TensorFiles files(weights);
  for (const FileTensor& tensor : file_tensors(config)) {
    if (std::ranges::count(tensor.parts, parameter, &FilePart::parameter) == 0) continue;
    for (const std::string& name : tensor.names) {
      if (!files.contains(name)) continue;
      return concat(files.file(name).path(), ": tensor ", in_quotes(name));
    }
  }
  return concat(weights, ": tensor ", in_quotes(parameter));
}

/// Collective where parameters are sharded.
static void check_finite(const Module& model, const std::string& weights) {
  const NoGrad no_grad;
  const std::map<std::string, int64_t> packed = packed_weights(model);
  std::vector<std::string> bad;
  std::string first;
  for (const NamedParameter& named : model.named_parameters()) {
    Tensor value = named.parameter->value();
    if (rests_on_disk(value)) continue;
    const auto columns = packed.find(named.name());
    if (columns != packed.end()) value = unpack_rows(value, columns->second);
    const double count = count_nonzero(logical_not(isfinite(value))).full_tensor().item();
    if (count == 0) continue;
    if (bad.empty()) first = concat(" has ", count, " of ", value.numel());
    bad.push_back(named.name());
  }
  if (bad.empty()) return;
  const auto* transformer = dynamic_cast<const TransformerModel*>(&model);
  fail("weights: ",
       transformer ? place_of(weights, transformer->config(), bad[0])
                   : concat(weights, ": tensor ", in_quotes(bad[0])),
       first, " elements that are NaN or infinite",
       bad.size() > 1 ? concat(", and so have ", bad.size() - 1, " other tensors") : "",
       ", expected finite weights");
}

void load_weights(Module& model, const std::string& weights) {
  if (is_hugging_face(weights)) {
    auto* transformer = dynamic_cast<TransformerModel*>(&model);
    if (!transformer) {
      fail("weights: model is not a TransformerModel, expected one for a Hugging Face model, ",
           weights);
    }
    load_hugging_face(*transformer, weights);
    return check_finite(model, weights);
  }
  if (saved_adapters(checkpoint_contents(weights), "model/")) {
    fail("weights: ", weights,
         " has adapters only, expected the weights of a model; name the model that they belong to");
  }
  const std::map<std::string, int64_t> packed = packed_weights(model);
  const bool has_adapters = !adapted_linears(model).empty();
  StateDict state;
  for (const auto& [name, tensor] : state_dict(model).tensors) {
    if (has_adapters && is_adapter_parameter(name)) continue;
    const auto columns = packed.find(name);
    state.tensors.emplace(concat("model/", name), columns == packed.end()
                                                      ? tensor
                                                      : unpacked_like(tensor, columns->second));
  }
  for (const auto& [name, entry] : checkpoint_contents(weights).tensors) {
    if (!name.starts_with("model/") || state.tensors.contains(name)) continue;
    fail("weights: ", weights, ": it holds tensor ", in_quotes(name),
         ", which the model has no parameter for");
  }
  weft::load_weights(weights, state);
  for (const auto& [name, columns] : packed) {
    pack_into(state_dict(model).tensors.at(name), state.tensors.at(concat("model/", name)));
  }
  check_finite(model, weights);
}

void keep_files(const std::string& weights, const std::string& directory) {
  if (directory.empty()) return;
  const bool is_checkpoint = !weights.empty() && !is_hugging_face(weights);
  keep_model_files(is_checkpoint ? kept_model_files(weights) : weights, directory);
}

}  // namespace weft
