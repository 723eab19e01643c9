// SPDX-License-Identifier: Apache-2.0
#include "weft/hugging_face.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "checkpoint/model_files.h"
#include "checkpoint/source.h"
#include "weft/adapters.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/packed.h"
#include "weft/extend/saved_model.h"
#include "weft/extend/store.h"
#include "weft/ops/factories.h"
#include "weft/safetensors.h"
#include "weft/transformer.h"

namespace weft {

/// Names the tensors of the files that the model leaves out, once: each rank of a process loads.
static void warn_of_left_out(const TensorFiles& tensors, const Module& model) {
  const auto* transformer = dynamic_cast<const TransformerModel*>(&model);
  std::vector<std::string> further, others;
  for (const std::string& name : tensors.names()) {
    if (!leaves_out(model, name)) continue;
    const bool predicts = transformer && predicts_further_tokens(transformer->config(), name);
    (predicts ? further : others).push_back(name);
  }
  if (further.empty() && others.empty()) return;
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  if (!warned.insert(tensors.path()).second) return;
  if (!further.empty()) {
    warn(kLoadModel, ": ", tensors.path(), ": skipped ", further.size(),
         " tensors of layers that predict further tokens (multi-token prediction)");
  }
  if (others.empty()) return;
  warn(kLoadModel, ": ", tensors.path(), ": skipped ", others.size(),
       " tensors that the model computes or does without: ", some_of(others));
}

CheckpointContents hugging_face_contents(const std::string& path, const TransformerConfig& config) {
  const TensorFiles tensors(path);
  const ModelFiles files(TransformerModel(config), tensors);
  CheckpointContents contents;
  for (const auto& [name, parameter] : files.parameters()) {
    contents.tensors.emplace(name, CheckpointContents::Entry{parameter.dtype, parameter.shape});
  }
  return contents;
}

/// Checks that the elements of `box` of a parameter are equal under all its names in the files.
static void check_equal(const ModelFiles& files, const std::string& path, const std::string& name,
                        const Box& box) {
  const auto& [dtype, shape, names, transposed, part, slices] = files.parameters().at(name);
  Tensor first;
  for (size_t alias = 0; names.size() > 1 && alias < names.size(); ++alias) {
    const Tensor elements = empty(box.shape, {.dtype = dtype});
    files.read_box(name, box, elements.block().data, alias);
    if (alias == 0) first = elements;
    check_tied(concat(kLoadModel, ": ", path), names[0], first, names[alias], elements);
  }
}

static void fill(const Tensor& whole, const ModelFiles& files, const std::string& path,
                 const std::string& name) {
  check_equal(files, path, name, whole.box());
  const TensorFill fill(whole, files.parameters().at(name).dtype);
  files.read_box(name, whole.box(), fill.memory());
  fill.finish();
}

static void loaded(Module& model, const std::string& path, SkippedKeys* skipped) {
  const TensorFiles tensors(path);
  warn_of_left_out(tensors, model);
  const ModelFiles files(model, tensors, skipped);
  model.materialize();
  NoGrad no_grad;
  const std::map<std::string, int64_t> packed = packed_weights(model);
  for (const NamedParameter& named : model.named_parameters()) {
    if (!files.parameters().contains(named.name())) continue;
    const Tensor& value = named.parameter->value();
    const auto columns = packed.find(named.name());
    if (columns == packed.end()) {
      fill(value, files, path, named.name());
      continue;
    }
    // One weight at a time has memory in f32.
    const Tensor matrix = unpacked_like(value, columns->second);
    fill(matrix, files, path, named.name());
    pack_into(value, matrix);
  }
  for (const NamedBuffer& buffer : model.named_buffers()) {
    if (!buffer.persistent || !files.parameters().contains(buffer.name)) continue;
    fill(buffer.value, files, path, buffer.name);
  }
}

void load_hugging_face(Module& model, const std::string& path) { loaded(model, path, nullptr); }

SkippedKeys load_common_hugging_face(Module& model, const std::string& path) {
  SkippedKeys skipped;
  loaded(model, path, &skipped);
  return skipped;
}

void load_hugging_face(StateDict& into, const std::string& path, const TransformerConfig& config) {
  const TensorFiles tensors(path);
  const TransformerModel model(config);
  warn_of_left_out(tensors, model);
  const ModelFiles files(model, tensors);
  const NoGrad no_grad;
  for (const auto& [name, tensor] : into.tensors) {
    if (!files.parameters().contains(name)) {
      fail(kLoadModel, ": ", path, ": tensor ", in_quotes(name), " is not one of the model");
    }
    fill(tensor, files, path, name);
  }
}

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

void save_text(const std::string& key, const std::string& text,
               std::map<std::string, int64_t>& numbers) {
  for (size_t at = 0; at < text.size(); at += sizeof(int64_t)) {
    int64_t number = 0;
    std::memcpy(&number, text.data() + at, std::min(sizeof number, text.size() - at));
    numbers.emplace(concat(key, ':', at / sizeof number), number);
  }
}

std::string saved_text(const std::string& key, const std::map<std::string, int64_t>& numbers) {
  std::string text;
  for (int i = 0; numbers.contains(concat(key, ':', i)); ++i) {
    text.append(reinterpret_cast<const char*>(&numbers.at(concat(key, ':', i))), sizeof(int64_t));
  }
  text.resize(std::min(text.size(), text.find('\0')));
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~'; };
  return std::ranges::all_of(text, is_plain) ? text : in_quotes(text);
}

std::string saved_choices(const TransformerConfig& config) {
  OrderedJson json = OrderedJson::parse(config_json(config));
  json.erase("initializer_range");
  if (config.rope_scaling.kind != RopeScalingKind::dynamic) {
    json.erase("max_position_embeddings"), json.erase("n_positions");
  }
  return json.dump();
}

bool are_same_choices(const std::string& a, const std::string& b) {
  const auto parsed = [](const std::string& text) {
    return OrderedJson::parse(text, nullptr, false);
  };
  OrderedJson x = parsed(a), y = parsed(b);
  // Earlier versions stated no padding, whatever the config had.
  for (OrderedJson* json : {&x, &y}) {
    if (json->is_object() && json->value("pad_token_id", OrderedJson()).is_null()) {
      x.erase("pad_token_id"), y.erase("pad_token_id");
    }
  }
  return a == b || x == y;
}

std::map<std::string, int64_t> config_numbers(const TransformerConfig& config) {
  std::map<std::string, int64_t> numbers{{"max_sequence", config.max_sequence}};
  for_saved_sizes(config, [&]<class Size>(const char* name, const Size& size) {
    numbers.emplace(name, std::bit_cast<int64_t>(SavedSize<Size>{size}));
  });
  save_text("config", saved_choices(config), numbers);
  return numbers;
}

TransformerConfig saved_config(const std::map<std::string, int64_t>& numbers,
                               const std::string& checkpoint) {
  const auto number = [&](const std::string& name) {
    const auto found = numbers.find("config/" + name);
    if (found == numbers.end()) {
      fail("checkpoint: ", checkpoint, " has no ", name,
           " of the model, expected its config; import it again from a directory with its "
           "config.json");
    }
    return found->second;
  };
  TransformerConfig config;
  const std::string choices = saved_text("config/config", numbers);
  if (!choices.empty()) {
    config = transformer_config_of(choices, checkpoint);
  } else {  // written before there were other families
    for_saved_sizes(config, [&]<class Size>(const char* name, Size& size) {
      size = static_cast<Size>(std::bit_cast<SavedSize<Size>>(number(name)));
    });
  }
  config.max_sequence = number("max_sequence");
  return config;
}

static constexpr const char* kConfigName = "config.json";
static constexpr const char* kModelFiles[] = {"generation_config.json",
                                              "tokenizer.json",
                                              "tokenizer.model",
                                              "tokenizer_config.json",
                                              "special_tokens_map.json",
                                              "added_tokens.json",
                                              "chat_template.jinja",
                                              "vocab.json",
                                              "merges.txt",
                                              "vocab.txt"};
static constexpr const char* kKeptFolder = "hugging_face";

static void write_whole(const std::string& bytes, const fs::path& to) {
  Store::of(to.string()).put(to.string(), bytes);
}

std::string kept_model_files(const std::string& checkpoint) {
  std::error_code ignored;
  const bool is_object = is_object_path(checkpoint);
  const fs::path path =
      is_object ? fs::path(object_path(checkpoint)) : fs::weakly_canonical(checkpoint, ignored);
  const fs::path run = path.parent_path();
  if (path_is_directory(path / kKeptFolder)) return path / kKeptFolder;
  // The files next to another run are not its own.
  const bool is_of_run = path.filename().string().starts_with("step-") &&
                         std::ranges::count(list_checkpoints(run.string()), path.string()) > 0;
  return (is_of_run ? run : path) / kKeptFolder;
}

void check_kept_model_files(const std::string& directory) {
  std::error_code ignored;
  const std::string kept = (fs::path(directory) / kKeptFolder).string();
  for (const StoredName& stored : Store::of(kept).list(kept, ignored)) {
    if (!stored.name.ends_with(".safetensors")) continue;
    fail("model files: ", kept, '/', stored.name,
         " is a model's, expected a folder for the files that a run keeps; save to another "
         "directory");
  }
}

void keep_model_files(const std::string& from, const std::string& directory) {
  const fs::path to = fs::path(directory) / kKeptFolder;
  if (!from.empty() && is_same_place(from, to)) return;
  check_kept_model_files(directory);
  const auto replace = [&](const char* name) {
    const fs::path source = fs::path(from) / name;
    if (!from.empty() && path_is_file(source)) {
      write_whole(read_file("model files", source.string()), to / name);
    } else {
      Store::of(to).remove(to / name);
    }
  };
  replace(kConfigName);
  for (const char* name : kModelFiles) replace(name);
}

void check_config_at(const std::string& directory, const TransformerConfig& config) {
  if (!path_exists(fs::path(directory) / kConfigName)) return;
  TransformerConfig there = transformer_config(directory);
  // Weights do not depend on these.
  there.deviation = config.deviation;
  if (config.rope_scaling.kind != RopeScalingKind::dynamic) {
    there.max_sequence = config.max_sequence;
  }
  if (config_json(there) == config_json(config)) return;
  fail("export: ", directory, "/config.json describes another model, expected that of the ",
       "checkpoint; remove it or export to another directory");
}

std::string with_token_ids(const std::string& config, const std::string& files) {
  const fs::path path = fs::path(files) / kConfigName;
  if (!path_is_file(path)) return config;
  const auto kept = OrderedJson::parse(read_json("export", path.string()));
  auto json = OrderedJson::parse(config);
  json.erase("pad_token_id");  // without one, the default that the model had
  for (const auto& [key, value] : kept.items()) {
    if (key.ends_with("_token_id")) json[key] = value;
  }
  return json.dump(2) + "\n";
}

void write_model_files(const std::string& directory, const std::string& files,
                       const std::string& config) {
  const fs::path from = files, to = directory;
  if (!config.empty() && !path_exists(to / kConfigName)) {
    write_whole(config, to / kConfigName);
  }
  for (const char* name : kModelFiles) {
    if (!path_is_file(from / name)) continue;
    const std::string bytes = read_file("model files", (from / name).string());
    if (!path_exists(to / name)) {
      write_whole(bytes, to / name);
    } else if (bytes != read_file("model files", (to / name).string())) {
      warn((to / name).string(), " stays, but the model's is another file");
    }
  }
}

}  // namespace weft
