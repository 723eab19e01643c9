// SPDX-License-Identifier: Apache-2.0
#include "fsdp/stages.h"

#include <algorithm>

#include "weft/error.h"
#include "weft/extend/links.h"

namespace weft::fsdp {

static DeviceMesh view_of(const DeviceMesh& mesh, const std::vector<std::string>& axes) {
  return mesh.view(std::vector<std::string_view>(axes.begin(), axes.end()));
}

/// True if a byte of codes takes less time in two stages than from each rank to each rank.
static bool is_faster(const DeviceMesh& within, const DeviceMesh& across) {
  const Link fast = link_along(within), slow = link_along(across);
  if (!slow.crosses_hosts || fast.crosses_hosts) return false;
  const double w = within.size(), a = across.size();
  const double at_once =
      (1 - 1 / a) * slow.seconds_per_byte + (w - 1) / (w * a) * fast.seconds_per_byte;
  // The sums of the first stage are f32, written and read once, and read again as codes.
  const double copied = (sizeof(float) * 2 + 2) / w * fast.seconds_per_copied_byte;
  const double in_stages =
      (1 - 1 / w) * fast.seconds_per_byte + (1 - 1 / a) / w * slow.seconds_per_byte + copied;
  return in_stages < at_once;
}

static void check_axis(const DeviceMesh& mesh, const std::string& within) {
  bool exists = within.empty();
  for (int axis = 0; axis < mesh.ndim(); ++axis) exists = exists || mesh.axis_name(axis) == within;
  if (exists) return;
  fail("fully_shard: axis within which codes move is ", in_quotes(within), ", expected one of ",
       mesh, ", or an empty name");
}

std::vector<int> Stages::order() const {
  std::vector<int> ranks;
  for (int place = 0; place < within.size; ++place) {
    for (int rank = 0; rank < within.size * across.size; ++rank) {
      if (rank_within[static_cast<size_t>(rank)] == place) ranks.push_back(rank);
    }
  }
  return ranks;
}

std::optional<Stages> stages_of(const Roles& roles, size_t first, size_t last,
                                const Quantization& quantization) {
  const DeviceMesh& mesh = roles.mesh;
  check_axis(mesh.root(), quantization.within.value_or(""));
  std::vector<std::string> within, across;
  std::vector<bool> is_within;
  for (size_t i = first; i < last; ++i) {
    const std::string& name = roles.sharded[i];
    is_within.push_back(quantization.within ? name == *quantization.within
                                            : !link_along(mesh[name]).crosses_hosts);
    (is_within.back() ? within : across).push_back(name);
  }
  if (within.empty() || across.empty()) return {};
  const DeviceMesh fast = view_of(mesh, within), slow = view_of(mesh, across);
  if (fast.size() == 1 || slow.size() == 1) return {};
  if (!quantization.within && !is_faster(fast, slow)) return {};
  Stages stages{roles.group(within), roles.group(across), {0}};
  for (size_t i = first; i < last; ++i) {
    const int size = mesh.axis_size(mesh.axis(roles.sharded[i]));
    std::vector<int> next;
    for (const int rank : stages.rank_within) {
      for (int at = 0; at < size; ++at) {
        next.push_back(is_within[i - first] ? rank * size + at : rank);
      }
    }
    stages.rank_within = std::move(next);
  }
  return stages;
}

}  // namespace weft::fsdp
