// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/mesh.h"
#include "weft/transformer.h"

namespace weft {

/// A batch as `TransformerModel::loss` takes it.
struct SharedBatch {
  Tensor ids, targets;
  TransformerLossOptions options = {};
};

/// Cuts rows, whole along `axis`, over its ranks. Their tokens are ordered as by `share_sequence`;
/// they keep their order, so that later ranks have more work of attention, in an encoder, with
/// dropout, where the rope scaling follows the length of a row, and with `keeps_order`, as for
/// adapters with dropout. `targets` and `segments` may be
/// empty. std::invalid_argument as `share_sequence`.
WEFT_API SharedBatch share_batch(const TransformerConfig& config, const Tensor& ids,
                                 const Tensor& targets, const Tensor& segments,
                                 const DeviceMesh& axis, bool keeps_order = false);

}  // namespace weft
