// SPDX-License-Identifier: Apache-2.0
#include "cli/data_flags.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/numbers.h"
#include "cli/prompts.h"
#include "weft/extend/file.h"
#include "weft/extend/saved_model.h"
#include "weft/extend/store.h"

namespace weft::cli {

void add_text_flags(CLI::App& command, TextFlags& flags) {
  add_named(command, "--field", flags.field, "NAME",
            "Field of each line of JSON that has its text or its messages (default: messages, "
            "conversations, prompt and completion, or text)");
  add_shown(command, "--loss-on", flags.loss,
            "Tokens that count for the loss: assistant, all, or auto, which is the assistant's in "
            "conversations")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"auto", "assistant", "all"}));
  add_named(command, "--chat-template", flags.chat_template, "NAME",
            "Chat template of conversations, where the model has none or another one is wanted: a "
            "name, or a file of Jinja text");
}

LossOn TextFlags::loss_on() const {
  return loss == "all" ? LossOn::all : loss == "auto" ? LossOn::automatic : LossOn::assistant;
}

Tokenizer with_chat_template(const Tokenizer& tokenizer, const std::string& chat_template) {
  if (chat_template.empty()) return tokenizer;
  std::error_code ignored;
  return tokenizer.with_chat_template(std::filesystem::is_regular_file(chat_template, ignored)
                                          ? read_file("--chat-template", chat_template, 1 << 20)
                                          : chat_template);
}

void add_data_flags(CLI::App& command, DataFlags& flags) {
  add_named(command, "--tokenizer", flags.tokenizer, "PATH",
            "Tokenizer of the text: a directory or a tokenizer file, or \"bytes\", which are then "
            "the tokens (default: the model's)");
  add_text_flags(command, flags.text);
  command.add_flag("--pack", flags.pack,
                   "Pack several documents into a row, without attention between them; otherwise "
                   "each line of JSON has separate rows, padded at the end");
  add_shown(command, "--long-documents", flags.long_documents,
            "Treatment of a line of JSON or a document that is longer than --seq: split makes "
            "several rows of it, truncate keeps the first one, drop none")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"split", "truncate", "drop"}));
  add_named(command, "--mix", flags.mix, "WEIGHT...",
            "A weight for each path of --data: its share of the rows")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_named(command, "--token-cache", flags.cache, "DIR",
            "Folder that keeps the tokens of text for the next run (default: tokens in the folder "
            "of --save)");
}

std::string tokenizer_in(const std::string& model) {
  if (model.empty()) return {};
  if (Tokenizer::is_in(model)) return model;
  const std::string folder = std::filesystem::path(model).parent_path().string();
  if (model.ends_with(".json") && Tokenizer::is_in(folder)) return folder;
  const std::string kept = local_copy(kept_model_files(model));
  return Tokenizer::is_in(kept) ? kept : "";
}

void keep_tokenizer(const DataFlags& flags, const std::optional<Tokenizer>& tokenizer,
                    const std::string& directory) {
  namespace fs = std::filesystem;
  if (directory.empty() || !tokenizer) return;
  const fs::path kept = kept_model_files(directory), from = flags.tokenizer;
  Store& store = Store::of(kept);
  const auto copy = [&](const fs::path& file) {
    if (is_same_place(file, kept / file.filename())) return;
    store.put(kept / file.filename(), read_file("train", file));
  };
  const auto is_of_tokenizer = [](const std::string& name) {
    return name.starts_with("tokenizer") || name.starts_with("chat_template") ||
           name == "special_tokens_map.json";
  };
  if (from.empty()) {
    // That of the model, which the run keeps already.
  } else if (!fs::is_directory(from)) {
    copy(from);
  } else {
    for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
      if (entry.is_regular_file() && is_of_tokenizer(entry.path().filename())) copy(entry.path());
    }
  }
  if (flags.text.chat_template.empty()) return;
  store.put(kept / "chat_template.jinja", tokenizer->chat_template());
}

void apply(const DataFlags& flags, const std::string& model, DataOptions& options) {
  options.bytes = flags.tokenizer == "bytes";
  std::string path = options.bytes ? "" : flags.tokenizer;
  if (flags.tokenizer.empty()) path = model;
  if (!path.empty()) {
    options.tokenizer = with_chat_template(tokenizer_at(path), flags.text.chat_template);
  } else if (!flags.text.chat_template.empty()) {
    fail("--chat-template is given without a tokenizer, expected both; name one by --tokenizer");
  }
  options.field = flags.text.field;
  options.loss = flags.text.loss_on();
  options.pack = flags.pack;
  options.long_documents = flags.long_documents == "drop"       ? LongDocuments::drop
                           : flags.long_documents == "truncate" ? LongDocuments::truncate
                                                                : LongDocuments::split;
  options.weights = flags.mix;
  if (!flags.cache.empty()) options.cache = flags.cache;
}

}  // namespace weft::cli
