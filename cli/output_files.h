// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/train_options.h"

namespace weft::cli {

/// Checks that `weft train` writes no file that it or the next run reads, and that no two flags
/// name the same file. std::invalid_argument naming the flags.
void check_output_files(const TrainOptions& options);

/// std::invalid_argument unless it can be written: before hours of work, not after them. Leaves no
/// file where there was none.
void check_writable(const char* flag, const std::string& path);

/// From now on a stdout or stderr whose reader is gone is an error at the end, instead of SIGPIPE
/// at once: for commands that save something.
void outlive_readers();

}  // namespace weft::cli
