// SPDX-License-Identifier: Apache-2.0
#include "cli/model_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/weights.h"
#include "weft/extend/file.h"
#include "weft/extend/json.h"

namespace weft::cli {

namespace fs = std::filesystem;

static constexpr const char* kConfig = "config.json";
static constexpr const char* kFiles[] = {kConfig,
                                         "generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer.model",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "chat_template.jinja",
                                         "vocab.json",
                                         "merges.txt",
                                         "vocab.txt"};

static constexpr const char* kFolder = "hugging_face";

/// The folder in which a run, or the run of a checkpoint, keeps its files.
static fs::path kept_by(const std::string& checkpoint) {
  fs::path path = fs::path(checkpoint).lexically_normal();
  std::error_code ignored;
  if (fs::is_directory(path / kFolder, ignored)) return path / kFolder;
  if (!path.has_filename()) path = path.parent_path();
  return path.parent_path() / kFolder;
}

static void copy_bytes(const fs::path& from, const fs::path& to) {
  const File file("model files", from.string());
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  OutputFile out("model files", to.string(), OutputFile::Mode::replace);
  out.write(bytes);
  out.close();
}

/// Copies those of the files that `from` has and `to` lacks.
static void copy_missing(const fs::path& from, const fs::path& to, bool with_config) {
  std::error_code ignored;
  for (const char* name : kFiles) {
    if (name == kConfig && !with_config) continue;
    if (!fs::is_regular_file(from / name, ignored) || fs::exists(to / name, ignored)) continue;
    fs::create_directories(to);
    copy_bytes(from / name, to / name);
  }
}

void keep_model_files(const std::string& weights, const std::string& directory) {
  if (weights.empty() || directory.empty()) return;
  const fs::path from = is_hugging_face(weights) ? fs::path(weights) : kept_by(weights);
  copy_missing(from, fs::path(directory) / kFolder, true);
}

void export_model_files(const std::string& checkpoint, const std::string& directory) {
  copy_missing(kept_by(checkpoint), directory, false);
}

std::string with_kept_tokens(const std::string& config, const std::string& checkpoint) {
  const fs::path path = kept_by(checkpoint) / kConfig;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return config;
  const auto kept = nlohmann::ordered_json::parse(read_json("export", path.string()));
  auto json = nlohmann::ordered_json::parse(config);
  json.erase("pad_token_id");  // without one, the default that the model had
  for (const auto& [key, value] : kept.items()) {
    if (key.ends_with("_token_id")) json[key] = value;
  }
  return json.dump(2) + "\n";
}

}  // namespace weft::cli
