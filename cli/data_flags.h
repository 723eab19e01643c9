// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/text_dataset.h"

namespace CLI {
class App;
}

namespace weft::cli {

/// Options of turning text into tokens.
struct TextFlags {
  std::string field, chat_template, loss = "auto";
  LossOn loss_on() const;
};
void add_text_flags(CLI::App& command, TextFlags& flags);
/// The tokenizer with the template of --chat-template: a name, a file or Jinja text.
Tokenizer with_chat_template(const Tokenizer& tokenizer, const std::string& chat_template);

/// Options of the rows that `weft train` makes of --data.
struct DataFlags {
  TextFlags text;
  /// A directory, a file or "bytes"; empty: that of the model, if it has one.
  std::string tokenizer;
  bool pack = false;
  std::string long_documents = "split";
  std::vector<double> mix;
  std::string cache;
};
void add_data_flags(CLI::App& command, DataFlags& flags);

/// The directory of the tokenizer of a model: a directory, its config.json, or what a run keeps of
/// the model that it began from; empty: none.
std::string tokenizer_in(const std::string& model);

/// Copies the files of a tokenizer and the chat template that flags name to what the run in
/// `directory` keeps, so that it is sampled and taken up with them. Nothing for a run that is not
/// saved.
void keep_tokenizer(const DataFlags& flags, const std::optional<Tokenizer>& tokenizer,
                    const std::string& directory);

/// Fills in what the flags say. `model` is the directory of the model's tokenizer, or empty.
void apply(const DataFlags& flags, const std::string& model, DataOptions& options);

}  // namespace weft::cli
