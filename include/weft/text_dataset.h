// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/dataset.h"
#include "weft/tokenizer.h"

namespace weft {

/// Tokens that count for the loss. `automatic`: the assistant's in conversations, otherwise all.
enum class LossOn : uint8_t { automatic, assistant, all };

/// The treatment of a document that is longer than a row: `split` makes several rows of it, all of
/// which but the first lack its beginning, such as the prompt; `truncate` keeps the first row,
/// `drop` none.
enum class LongDocuments : uint8_t { split, truncate, drop };

/// Files of text or tokens, and how rows are made of them.
struct DataOptions {
  /// Files, or directories, which stand for the files below them. `.bin` files are token shards of
  /// llm.c, where an index `.idx` next to one may tell its documents; `.jsonl` files have a text or
  /// a conversation in each line, which are documents; other files are text.
  std::vector<std::string> paths = {};
  /// Tokens of a row.
  int64_t sequence = 1;
  /// Ids of the model; 0: those of the tokenizer, or of bytes.
  int64_t vocabulary = 0;
  /// Decides the order of the rows.
  uint64_t seed = 0;
  /// Turns text into tokens. Without one the bytes of text are the tokens, which only a model of
  /// kByteIds ids may read, unless `bytes`.
  std::optional<Tokenizer> tokenizer = {};
  bool bytes = false;
  /// The field of a line of JSON that has the text or the messages; empty: `messages`,
  /// `conversations` (also with the keys and roles of ShareGPT), `prompt` and `completion`, or
  /// `text`.
  std::string field = {};
  LossOn loss = LossOn::automatic;
  /// True: a row holds several documents, whose tokens do not attend to each other. False: a
  /// line of JSON has separate rows, padded at the end, and text is one sequence of tokens.
  bool pack = false;
  /// Lines of JSON and documents of an index; other text is one sequence of tokens.
  LongDocuments long_documents = LongDocuments::split;
  /// A weight for each of `paths`: the share of the rows that are of it. Empty: all paths are one
  /// source.
  std::vector<double> weights = {};
  /// A folder that keeps the tokens of text for the next run; empty: none.
  std::string cache = {};
  /// Threads that tokenise; 0: those of the caller's kernels.
  int threads = 0;
};
/// The ids of bytes.
inline constexpr int64_t kByteIds = 256;

/// Rows to train on, shuffled anew each epoch, and rows held out, in the order of the text.
struct DataSplit {
  std::shared_ptr<const Dataset> train, held_out;
};

/// All rows of the files, shuffled anew each epoch. std::invalid_argument names the option, or the
/// file that is missing, empty or malformed, and the first token that is not below `vocabulary`.
WEFT_API std::shared_ptr<const Dataset> text_dataset(const DataOptions& options);

/// The same, with the last rows held out: a twentieth of them, at least 1 row and at most 16
/// batches of `batch` rows; of more than a batch, whole ones.
WEFT_API DataSplit split_text_dataset(const DataOptions& options, int64_t batch);

}  // namespace weft
