// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "src/comm/transport.h"

namespace weft {

/// The description of a rank's call, small enough to publish with every call: the hash that all
/// ranks compare, and the data for an error text when hashes differ.
struct Signature {
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::f32;
  DType recv_dtype = DType::f32;
  DeviceKind device = DeviceKind::cpu;
  int32_t root = 0;
  int32_t pieces = 0;
  int32_t counts = 0;
  int32_t tag = 0;
  uint64_t hash = 0;
  int64_t elements = 0;
  /// The first counts of the first piece.
  std::array<int64_t, 8> shown{};
  std::array<char, 80> words{};
  /// What is moved, see SubjectScope; empty if that is not known. Its number is part of `hash`.
  std::array<char, 64> subject{};
  /// Claims of the rank since its last call; part of `hash`.
  Claim claim{};
};
static_assert(sizeof(Signature) % sizeof(uint64_t) == 0);

/// Fills `into`; fields that this kind of call does not use keep their values.
void sign(const Collective& call, const std::optional<Claim>& claim, Signature& into);
void sign(const Exchange& call, const std::optional<Claim>& claim, Signature& into);
inline const Signature& signature_of(const Signature& call) { return call; }
Signature signature_of(const Collective& call);

/// Returns whether a signature that came from another process can be described in words.
bool is_readable(const Signature& signature);

/// "all_reduce(sum, f32, [16])", "send(f32, [8], to rank 2, tag 0)".
std::string in_words(const Signature& signature);

/// "rank 0 called X but rank 1 called Y"; with `difference` when both are described alike, with
/// what the ranks claimed when only that differs.
std::string unequal_in_words(const std::string& first_rank, const Signature& first,
                             const std::string& other_rank, const Signature& other,
                             const char* difference);
/// " sends 3 elements to rank 1, which expects 4".
std::string counts_in_words(int64_t sent, int to, int64_t expected);

}  // namespace weft
