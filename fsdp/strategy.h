// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/communicator.h"
#include "weft/fsdp.h"
#include "weft/mesh.h"

namespace weft::fsdp {

/// Ranks that differ along some axes only, in the order of those axes. Of no axes: this rank alone.
struct AxisGroup {
  /// Names joined by "+".
  std::string axes;
  std::vector<int> sizes;
  /// Of a group of more than one rank.
  Communicator ranks;
  int rank = 0;
  int size = 1;
};

/// What a strategy asks of a mesh. State is cut by `cut`; the first `at_use` of these are gathered
/// at each use, the others before; gradients are reduced over the first `each_step` of them in each
/// micro-step, over the others and over `replicas` at the sync.
struct Roles {
  DeviceMesh mesh;
  std::vector<std::string> cut;
  /// Along which parameters that have it are cut.
  int dim = 0;
  size_t at_use = 0;
  /// What is gathered before is kept until the parameters change, else until the gradients of the
  /// step are complete.
  bool keeps_gathered = true;
  size_t each_step = 0;
  std::vector<std::string> replicas;

  AxisGroup group(size_t first, size_t last) const;
  AxisGroup replica_group() const;
};

/// std::invalid_argument when the rows do not fit the mesh, a row says what cannot be, or two rows
/// need opposite orders of cutting.
Roles roles_of(const DeviceMesh& mesh, const Strategy& strategy, const Reshard& reshard);

}  // namespace weft::fsdp
