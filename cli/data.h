// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/extend/token_files.h"
#include "weft/text_dataset.h"

namespace weft::cli {

/// The data of a run: its files, and rows of them.
struct RunData {
  TokenStream stream;
  DataSplit rows;
};

}  // namespace weft::cli
