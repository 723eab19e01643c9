// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/kept_model_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/json.h"
#include "weft/extend/saved_model.h"
#include "weft/warnings.h"

namespace weft {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

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

static std::string bytes_of(const fs::path& path) {
  const File file("model files", path.string());
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

/// Under another name first: an interrupted copy leaves no part of a file.
static void copy_whole(const fs::path& from, const fs::path& to) {
  fs::create_directories(to.parent_path());
  const fs::path unfinished = to.parent_path() / concat('.', to.filename().string(), ".tmp");
  OutputFile out("model files", unfinished.string(), OutputFile::Mode::replace);
  out.write(bytes_of(from));
  out.close();
  fs::rename(unfinished, to);
}

std::string kept_model_files(const std::string& checkpoint) {
  std::error_code ignored;
  const fs::path path = fs::canonical(checkpoint, ignored), run = path.parent_path();
  if (fs::is_directory(path / kKeptFolder, ignored)) return path / kKeptFolder;
  // The files next to another run are not its own.
  const bool is_of_run = path.filename().string().starts_with("step-") &&
                         std::ranges::count(list_checkpoints(run.string()), path.string()) > 0;
  return (is_of_run ? run : path) / kKeptFolder;
}

void keep_model_files(const std::string& from, const std::string& directory) {
  const fs::path to = fs::path(directory) / kKeptFolder;
  std::error_code ignored;
  if (!from.empty() && fs::equivalent(from, to, ignored)) return;
  const auto keep = [&](const fs::path& name) {
    if (!from.empty() && fs::is_regular_file(from / name, ignored)) {
      copy_whole(from / name, to / name);
    } else {
      fs::remove(to / name, ignored);
    }
  };
  keep(kConfigName);
  for (const char* name : kModelFiles) keep(name);
}

void check_config_at(const std::string& directory, const TransformerConfig& config) {
  std::error_code ignored;
  if (!fs::exists(fs::path(directory) / kConfigName, ignored)) return;
  TransformerConfig actual = transformer_config(directory);
  // Weights do not depend on these.
  actual.max_sequence = config.max_sequence;
  actual.deviation = config.deviation;
  if (config_json(actual) == config_json(config)) return;
  fail("export: ", directory, "/config.json describes another model, expected that of the ",
       "checkpoint; remove it or export to another directory");
}

/// The text of a config.json with the ids of tokens of the one in `files`.
static std::string with_token_ids(const std::string& config, const fs::path& files) {
  const fs::path path = files / kConfigName;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return config;
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
  const fs::path path = fs::path(directory) / kConfigName;
  if (!config.empty() && !fs::exists(path)) {
    OutputFile file("export", path.string(), OutputFile::Mode::replace);
    file.write(with_token_ids(config, files));
    file.close();
  }
  for (const char* name : kModelFiles) {
    const fs::path from = fs::path(files) / name, to = fs::path(directory) / name;
    std::error_code ignored;
    if (!fs::is_regular_file(from, ignored)) continue;
    if (!fs::exists(to, ignored)) {
      copy_whole(from, to);
    } else if (bytes_of(from) != bytes_of(to)) {
      warn(to.string(), " stays, but the model's is another file");
    }
  }
}

}  // namespace weft
