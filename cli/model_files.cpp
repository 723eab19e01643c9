// SPDX-License-Identifier: Apache-2.0
#include "cli/model_files.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/weights.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
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
  std::error_code ignored;
  const fs::path path = fs::canonical(checkpoint, ignored), run = path.parent_path();
  if (fs::is_directory(path / kFolder, ignored)) return path / kFolder;
  // The files next to another run are not its own.
  const bool is_of_run = path.filename().string().starts_with("step-") &&
                         std::ranges::count(list_checkpoints(run.string()), path.string()) > 0;
  return (is_of_run ? run : path) / kFolder;
}

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

void keep_model_files(const std::string& weights, const std::string& directory) {
  if (directory.empty()) return;
  const fs::path to = fs::path(directory) / kFolder;
  fs::path from;
  if (!weights.empty()) from = is_hugging_face(weights) ? fs::path(weights) : kept_by(weights);
  std::error_code ignored;
  if (!from.empty() && fs::equivalent(from, to, ignored)) return;
  for (const char* name : kFiles) {
    if (!from.empty() && fs::is_regular_file(from / name, ignored)) {
      copy_whole(from / name, to / name);
    } else {
      fs::remove(to / name, ignored);
    }
  }
}

void check_config_at(const std::string& directory, const TransformerConfig& config) {
  std::error_code ignored;
  if (!fs::exists(fs::path(directory) / kConfig, ignored)) return;
  auto expected = numbers_of(config), actual = numbers_of(transformer_config(directory));
  // Weights do not depend on these.
  for (const char* name : {"config/max_sequence", "config/deviation"}) {
    expected.erase(name), actual.erase(name);
  }
  if (expected == actual) return;
  fail("export: ", directory, "/config.json describes another model, expected that of the ",
       "checkpoint; remove it or export to another directory");
}

void export_model_files(const std::string& checkpoint, const std::string& directory) {
  const fs::path from = kept_by(checkpoint), to = directory;
  std::error_code ignored;
  for (const char* name : kFiles) {
    if (name == std::string_view(kConfig) || !fs::is_regular_file(from / name, ignored)) continue;
    if (!fs::exists(to / name, ignored)) {
      copy_whole(from / name, to / name);
    } else if (bytes_of(from / name) != bytes_of(to / name)) {
      std::fprintf(stderr, "weft: warning: %s stays, but the model's is another file\n",
                   printable((to / name).string()).c_str());
    }
  }
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
