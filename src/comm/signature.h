// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "src/comm/transport.h"

namespace weft {

/// What a rank called, small enough to be published with every call: the hash that all ranks
/// compare, and what words are made of when they differ.
struct Signature {
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::f32;
  DType recv_dtype = DType::f32;
  DeviceKind device = DeviceKind::cpu;
  int32_t root = 0;
  int32_t pieces = 0;
  int32_t counts = 0;
  uint64_t hash = 0;
  int64_t elements = 0;
  /// The first piece's first counts.
  std::array<int64_t, 8> shown{};
  std::array<char, 80> words{};
};

/// Fills `into`; leaves what the kind of call does not need as it was.
void sign(const Collective& call, Signature& into);
void sign(const Exchange& call, Signature& into);

/// "all_reduce(sum, f32, [16])".
std::string in_words(const Signature& signature);

/// "send(f32, [8], to rank 2, tag 0)".
std::string message_in_words(const Collective& call);

}  // namespace weft
