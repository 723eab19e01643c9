// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/source.h"

namespace weft {

/// Elements that are wanted: `box` of the tensor `name`, to go to `into`, dense and row-major.
struct Wish {
  std::string name;
  Box box;
  std::byte* into;
  /// No other rank wants them: what is read once need not stay in the page cache.
  bool is_own = false;
};

/// Fills all wishes. Each is first proven to be filled exactly once; each file is read once, by its
/// blocks that hold something wanted, a few at a time; where there are checksums they are checked.
/// Blocks of which all is wanted and own go past the page cache, unless it has them.
void read_wishes(const CheckpointSource& source, const std::vector<Wish>& wishes);

}  // namespace weft
