// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "weft/text_dataset.h"

namespace weft::cli {

/// The data of a run: rows of tokens, and what makes tokens of text; without it bytes are tokens.
struct RunData {
  DataSplit rows;
  std::optional<Tokenizer> tokenizer;
};

}  // namespace weft::cli
