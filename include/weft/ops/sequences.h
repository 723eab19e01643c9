// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "weft/export.h"
#include "weft/mesh.h"
#include "weft/ops/networks.h"
#include "weft/tensor.h"

namespace weft {

/// How attention over a sequence that ranks share brings keys to queries. gather: each rank gathers
/// the keys and values of all. heads: ranks exchange tokens for heads, so that each one has the
/// whole sequence of some heads (Ulysses). ring: parts of the keys and values go from rank to rank,
/// so that a rank never holds more than 1.25 times its share. automatic: the way of the least
/// predicted time; the ring where the gathered keys and values of a layer exceed 1 GiB.
enum class SequenceWay : uint8_t { automatic, gather, heads, ring };

WEFT_API const char* name_of(SequenceWay way);
/// std::invalid_argument for an unknown name; `what` is its option.
WEFT_API SequenceWay sequence_way_named(const char* what, const std::string& name);

/// The places of the tokens of a sequence, whose elements may be in any order.
struct TokenOrder {
  /// Integers [batch, sequence]: the place of each token in its row.
  Tensor places = {};
  /// The same: the number of its document; empty: a row is one document.
  Tensor segments = {};
};

/// Causal attention of tokens in any order: a token attends to those of its document at its own
/// place and before it. q, k and v are as in `attention` and have the same tokens, which ranks may
/// share: Shard(1) along an axis. Of the options scale, window, softcap and sinks;
/// std::invalid_argument for a mask, ALiBi, dropout, segments, or if it is not causal.
WEFT_API Tensor ordered_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const TokenOrder& order, const AttentionOptions& options = {},
                                  SequenceWay way = SequenceWay::automatic);

/// Says for each way what a call with these operands moves, its predicted time, the most bytes of
/// keys and values on a rank, and which one is automatic.
WEFT_API std::string explain_attention(const Tensor& q, const Tensor& k, const Tensor& v);

/// A batch whose sequences ranks share: integers [batch, sequence] in an order in which all ranks
/// have the same number of tokens and about the same work of attention.
struct SharedSequence {
  /// Shard(1) along the axis; targets are empty if none are given.
  Tensor ids, targets;
  /// Shard(1): the place of each token in its document.
  Tensor positions;
  /// Whole along the axis.
  TokenOrder order;
};

/// Orders rows, whole along `axis`, and cuts them over its ranks. Without segments rank i of n has
/// parts i and 2n - 1 - i of 2n ("zig-zag"); with segments each row's documents are dealt out in
/// pieces, the costliest first. `targets` and `segments` may be empty.
WEFT_API SharedSequence share_sequence(const Tensor& ids, const Tensor& targets,
                                       const Tensor& segments, const DeviceMesh& axis);

}  // namespace weft
