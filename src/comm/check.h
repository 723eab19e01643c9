// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "src/comm/transport.h"

namespace weft {

/// The number of elements that a piece sends and receives on one rank, and the position of the
/// rank's own part in the whole.
struct PieceSizes {
  int64_t send = 0, recv = 0, own_offset = 0;
};
PieceSizes sizes_of(const Collective& call, const Piece& piece, int rank);

/// Returns the bytes that a rank receives from others in a call, counted the same way on every kind
/// of interconnect.
int64_t received_bytes(const Collective& call, int rank, int size);

/// Throws std::invalid_argument when a rank of a group of `size` cannot make this call: a root
/// outside the group, counts whose number differs from the group's size, missing or overlapping
/// memory, or an unsupported reduction.
void check_collective(const Collective& call, int rank, int size);

/// Throws std::invalid_argument unless `ranks` are distinct ranks of `parent` and include this one.
void check_subgroup(const Transport& parent, std::span<const int> ranks);

/// Throws std::invalid_argument: the ranks of the group are processes, and this build lacks NCCL.
[[noreturn]] void refuse_device_memory(const std::string& group, Device device);

}  // namespace weft
