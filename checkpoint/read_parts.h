// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/source.h"

namespace weft {

/// Elements that are wanted: `box` of the tensor `name`, to go to `into`, dense and row-major.
struct Wish {
  std::string name;
  Box box;
  std::byte* into;
};

/// Fills all wishes. Each is first proven to be filled exactly once; each file is read once, from
/// front to back, by its blocks that hold something wanted; where there are checksums they are
/// checked. `on_bytes` is told of bytes as they are read.
void read_wishes(const CheckpointSource& source, const std::vector<Wish>& wishes,
                 const std::function<void(int64_t)>& on_bytes = {});

}  // namespace weft
