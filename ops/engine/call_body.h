// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "ops/engine/inline_list.h"
#include "ops/engine/route.h"
#include "weft/extend/op.h"

namespace weft {

/// Operands as an op uses them: redistributed, or as given.
using UsedOperands = InlineList<const Tensor*, kMaxOperands>;

/// Returns the device of an op's operands, which must be one; cpu without operands.
Device device_of(const OpBody& op, std::span<const Tensor> operands);

/// The data behind a Call.
struct CallBody {
  // An aggregate would be zeroed, 4 KiB per call.
  CallBody(const Route& way, const Attributes& given) : route(way), attributes(given) {}

  const Route& route;
  const Attributes& attributes;
  InlineList<MemoryBlock, kMaxOperands> ins;
  InlineList<MemoryBlock, kMaxResults> outs;
  InlineList<MemoryBlock, kMaxResults> stages;
  std::array<bool, kMaxResults> accumulate = {};
};

}  // namespace weft
