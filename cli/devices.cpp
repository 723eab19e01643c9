// SPDX-License-Identifier: Apache-2.0
#include "cli/devices.h"

#include <algorithm>

#include "weft/ranks.h"

namespace weft::cli {

Device device_of_rank(const std::string& name, int rank) {
  Device device = device_named(name);
  if (name == "cuda") {
    const int on_host = launched_ranks() > 1 ? launched_local_rank().rank : rank;
    device.index = static_cast<int8_t>(on_host % device_count(DeviceKind::cuda));
  }
  return device;
}

int devices_of_ranks(const std::string& name, int ranks) {
  const Device device = device_named(name);
  if (device.kind != DeviceKind::cuda) return ranks;
  const int a_host = name == "cuda" ? device_count(DeviceKind::cuda) : 1;
  const int ranks_a_host = launched_ranks() > 1 ? launched_local_rank().size : ranks;
  if (ranks_a_host == 0) return ranks;
  return ranks / ranks_a_host * std::min(a_host, ranks_a_host);
}

}  // namespace weft::cli
