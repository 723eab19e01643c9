// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/mesh.h"
#include "weft/placement.h"

namespace weft {

// Meshes and placements of the tests of the op contract.

inline const std::vector<MeshAxis> kFour = {{"a", 4}};
inline const std::vector<MeshAxis> kTwoByTwo = {{"a", 2}, {"b", 2}};
inline const std::vector<MeshAxis> kThree = {{"a", 3}};
inline const Placement kWhole = Replicate();
inline const Placement kSum = Partial{ReduceOp::sum};
inline const Placement kAvg = Partial{ReduceOp::avg};

}  // namespace weft
