// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/kept_model_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "weft/extend/file.h"
#include "weft/extend/json.h"
#include "weft/extend/saved_model.h"

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

/// Copies a file that `from` has and `to` lacks.
static void copy_missing(const char* name, const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  if (!fs::is_regular_file(from / name, ignored) || fs::exists(to / name, ignored)) return;
  fs::create_directories(to);
  const File file("model files", (from / name).string());
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  OutputFile out("model files", (to / name).string(), OutputFile::Mode::replace);
  out.write(bytes);
  out.close();
}

std::string kept_model_files(const std::string& checkpoint) {
  fs::path path = fs::path(checkpoint).lexically_normal();
  std::error_code ignored;
  if (fs::is_directory(path / kKeptFolder, ignored)) return path / kKeptFolder;
  if (!path.has_filename()) path = path.parent_path();
  return path.parent_path() / kKeptFolder;
}

void keep_model_files(const std::string& from, const std::string& directory) {
  const fs::path to = fs::path(directory) / kKeptFolder;
  copy_missing(kConfigName, from, to);
  for (const char* name : kModelFiles) copy_missing(name, from, to);
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
  for (const char* name : kModelFiles) copy_missing(name, files, directory);
}

}  // namespace weft
