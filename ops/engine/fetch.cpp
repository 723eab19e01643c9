// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/fetch.h"

#include <algorithm>

#include "mesh/plan.h"
#include "weft/extend/pattern.h"

namespace weft {

std::vector<Box> needed_boxes(const Layout& operand, const Layout& result, const Needs& needs) {
  Box whole{Dims::filled(operand.shape.ndim(), 0), operand.shape};
  std::vector<Box> boxes;
  for (int rank = 0; rank < operand.sharding.mesh().size(); ++rank) {
    boxes.push_back(overlap(whole, needs(result.box_of(rank))));
  }
  return boxes;
}

bool is_local_fetch(const Layout& operand, const std::vector<Box>& needed) {
  for (size_t rank = 0; rank < needed.size(); ++rank) {
    Box own = overlap(needed[rank], operand.box_of(static_cast<int>(rank)));
    if (own.shape.product() != needed[rank].shape.product()) return false;
  }
  return true;
}

double predicted_fetch_seconds(const Layout& operand, const Layout& result, const Needs& needs) {
  std::vector<Box> needed = needed_boxes(operand, result, needs);
  int64_t most = 0;
  for (size_t rank = 0; rank < needed.size(); ++rank) {
    Box own = overlap(needed[rank], operand.box_of(static_cast<int>(rank)));
    most = std::max(most, needed[rank].shape.product() - own.shape.product());
  }
  if (most == 0) return 0;
  return predicted_exchange_seconds(operand.sharding.mesh(),
                                    most * static_cast<int64_t>(size_of(operand.dtype)));
}

}  // namespace weft
