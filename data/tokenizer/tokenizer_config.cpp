// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "data/tokenizer/json_part.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft::text {

namespace fs = std::filesystem;

static constexpr int64_t kLargestTemplate = int64_t{1} << 20;

std::string TokenizerConfig::token(std::string_view name) const {
  const auto found = std::ranges::find(named, name, [](const auto& row) { return row.first; });
  return found == named.end() ? "" : found->second;
}

/// A token, written as its text or as an object with its content.
static std::string token_text(const JsonPart& part) {
  return part.value().is_object() ? part.text("content") : part.text();
}

static void read_names(const JsonPart& root, TokenizerConfig& config) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    if (!config.token(name).empty() || !root.has(name)) continue;
    config.named.emplace_back(name, token_text(root.at(name)));
  }
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

/// One template, or several with names.
static void read_chat_template(const JsonPart& part, TokenizerConfig& config) {
  config.chat_templates.clear();
  if (!part.value().is_array()) {
    config.chat_templates.emplace_back("default", part.text());
    return;
  }
  for (const JsonPart& entry : part.elements()) {
    config.chat_templates.emplace_back(entry.text("name"), entry.text("template"));
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

/// Reads the end tokens of a model's config, at its top or else in the part of the decoder.
static void read_model_ends(const JsonPart& root, TokenizerConfig& config) {
  read_ends(root, config);
  for (const char* part : {"decoder", "generator", "text_config"}) {
    if (!config.ends.empty()) return;
    if (root.has(part) && root.at(part).value().is_object()) read_ends(root.at(part), config);
  }
}

/// Files of templates replace those of tokenizer_config.json; additional ones are named as they
/// are.
static void read_template_files(const fs::path& directory, TokenizerConfig& config) {
  std::vector<std::pair<std::string, std::string>> read;
  const auto add = [&](const std::string& name, const fs::path& path) {
    read.emplace_back(name, read_file("tokenizer", path.string(), kLargestTemplate));
  };
  std::error_code ignored;
  const fs::path main = directory / "chat_template.jinja";
  if (fs::exists(main, ignored)) add("default", main);
  for (const auto& entry :
       fs::directory_iterator(directory / "additional_chat_templates", ignored)) {
    if (entry.path().extension() == ".jinja") add(entry.path().stem().string(), entry.path());
  }
  if (!read.empty()) config.chat_templates = std::move(read);
}

/// The file in which a processor keeps the template of its model.
static void read_processor_template(const JsonPart& root, TokenizerConfig& config) {
  const bool has = config.chat_templates.empty() && root.has("chat_template");
  if (has) read_chat_template(root.at("chat_template"), config);
}

TokenizerConfig read_tokenizer_config(const std::string& directory) {
  using Read = void (*)(const JsonPart&, TokenizerConfig&);
  TokenizerConfig config;
  std::error_code ignored;
  const auto read_with = [&](const char* name, Read read) {
    const std::string path = (fs::path(directory) / name).string();
    if (!fs::exists(path, ignored)) return false;
    const auto json = nlohmann::json::parse(read_json("tokenizer", path));
    read(JsonPart(concat("tokenizer: ", path), "", json), config);
    return true;
  };
  read_with("tokenizer_config.json", read_main);
  read_with("special_tokens_map.json", read_names);
  if (!read_with("generation_config.json", read_ends)) read_with("config.json", read_model_ends);
  read_template_files(directory, config);
  read_with("chat_template.json", read_processor_template);
  return config;
}

}  // namespace weft::text
