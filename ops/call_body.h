// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "ops/inline_list.h"
#include "ops/route.h"
#include "weft/op.h"

namespace weft {

/// Operands as an op computes on them: moved, or as given.
using UsedOperands = InlineList<const Tensor*, kMaxOperands>;

/// What a Call looks at.
struct CallBody {
  // As an aggregate it would be zeroed, 4 KiB a call.
  CallBody(const Route& way, const Attributes& given) : route(way), attributes(given) {}

  const Route& route;
  const Attributes& attributes;
  InlineList<Block, kMaxOperands> ins;
  InlineList<Block, kMaxResults> outs;
  InlineList<Block, kMaxResults> stages;
  std::array<bool, kMaxResults> accumulate = {};
};

}  // namespace weft
