// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "src/comm/transport.h"

namespace weft {

/// How many elements a piece sends and receives on one rank, and where its own part lies in the
/// whole.
struct PieceSizes {
  int64_t send = 0;
  int64_t recv = 0;
  int64_t own_offset = 0;
};
PieceSizes sizes_of(const Collective& call, const Piece& piece, int rank);

/// std::invalid_argument when a call cannot be made by a rank of a group of `size`: a root that is
/// not there, counts that are not one a rank, memory that is missing or overlaps, a reduction that
/// does not exist.
void check_collective(const Collective& call, int rank, int size);

/// std::invalid_argument unless `ranks` are ranks of `parent`, each once, its own among them.
void check_subgroup(const Transport& parent, std::span<const int> ranks);

/// std::invalid_argument: ranks of the group are processes, and this build has no NCCL.
[[noreturn]] void refuse_device_memory(const std::string& group, Device device);

}  // namespace weft
