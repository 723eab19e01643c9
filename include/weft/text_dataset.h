// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/dataset.h"

namespace weft {

/// Files of text or tokens, and how rows are made of them.
struct DataOptions {
  /// Files, or directories, which stand for the files below them. `.bin` files are token shards of
  /// llm.c, other files are text, whose bytes are the tokens.
  std::vector<std::string> paths;
  /// Tokens of a row.
  int64_t sequence = 1;
  /// Ids of the model.
  int64_t vocabulary = 256;
  /// Decides the order of the rows.
  uint64_t seed = 0;
};

/// Rows to train on, shuffled anew each epoch, and rows held out, in the order of the text.
struct DataSplit {
  std::shared_ptr<const Dataset> train, held_out;
};

/// All rows of the files, shuffled anew each epoch. std::invalid_argument names the option, or the
/// file that is missing, empty or malformed, and the first token that is not below `vocabulary`.
WEFT_API std::shared_ptr<const Dataset> text_dataset(const DataOptions& options);

/// The same, with the last rows held out: a twentieth of them in whole batches of `batch` rows, at
/// least 1 batch and at most 16.
WEFT_API DataSplit split_text_dataset(const DataOptions& options, int64_t batch);

}  // namespace weft
