// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <functional>

#include "data/tokenizer/json_part.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/json.h"

namespace weft::text {

namespace fs = std::filesystem;

static constexpr int64_t kLargestTemplate = int64_t{1} << 20;

/// Calls `use` with the file's object, if the file exists.
static void with_file(const std::string& directory, const char* name,
                      const std::function<void(const JsonPart&)>& use) {
  const fs::path path = fs::path(directory) / name;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const auto json = nlohmann::json::parse(read_json("tokenizer", path.string()));
  use(JsonPart(concat("tokenizer: ", path.string()), "", json));
}

/// A token, written as its text or as an object with its content.
static std::string token_text(const JsonPart& part) {
  return part.value().is_object() ? part.text("content") : part.text();
}

static void read_names(const JsonPart& root, TokenizerConfig& config) {
  if (config.bos.empty() && root.has("bos_token")) config.bos = token_text(root.at("bos_token"));
  if (config.eos.empty() && root.has("eos_token")) config.eos = token_text(root.at("eos_token"));
}

static void read_added_tokens(const JsonPart& part, TokenizerConfig& config) {
  if (!part.value().is_object()) part.refuse("an object");
  for (const auto& [key, value] : part.value().items()) {
    const JsonPart entry(part.what(), concat(part.place(), '.', key), value);
    if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != key.npos) {
      fail(part.what(), ": ", part.place(), " has the key ", in_quotes(key), ", expected an id");
    }
    config.added.push_back(added_token(entry));
    config.added.back().id = std::stoi(key);
  }
}

/// One template, or several of which one is named "default".
static void read_chat_template(const JsonPart& part, TokenizerConfig& config) {
  if (!part.value().is_array()) {
    config.chat_template = part.text();
    return;
  }
  for (const JsonPart& entry : part.elements()) {
    if (entry.text("name") == "default") config.chat_template = entry.text("template");
  }
}

static void read_main(const JsonPart& root, TokenizerConfig& config) {
  read_names(root, config);
  const std::string kind = root.text("tokenizer_class", "");
  const bool is_llama = kind.starts_with("Llama") || kind.starts_with("Gemma");
  config.adds_bos = root.flag("add_bos_token", is_llama);
  config.adds_eos = root.flag("add_eos_token", false);
  if (root.has("added_tokens_decoder")) read_added_tokens(root.at("added_tokens_decoder"), config);
  if (root.has("chat_template")) read_chat_template(root.at("chat_template"), config);
}

static void read_ends(const JsonPart& root, TokenizerConfig& config) {
  if (!root.has("eos_token_id")) return;
  const JsonPart part = root.at("eos_token_id");
  if (!part.value().is_array()) return config.ends.push_back(part.whole());
  for (const JsonPart& id : part.elements()) config.ends.push_back(id.whole());
}

TokenizerConfig read_tokenizer_config(const std::string& directory) {
  TokenizerConfig config;
  with_file(directory, "tokenizer_config.json",
            [&](const JsonPart& root) { read_main(root, config); });
  with_file(directory, "special_tokens_map.json",
            [&](const JsonPart& root) { read_names(root, config); });
  with_file(directory, "generation_config.json",
            [&](const JsonPart& root) { read_ends(root, config); });
  const fs::path path = fs::path(directory) / "chat_template.jinja";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return config;
  const File file("tokenizer", path.string());
  if (file.size() > kLargestTemplate) {
    fail("tokenizer: ", path.string(), " has ", file.size(), " bytes, expected at most ",
         kLargestTemplate);
  }
  config.chat_template = file.text();
  return config;
}

}  // namespace weft::text
