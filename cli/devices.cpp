// SPDX-License-Identifier: Apache-2.0
#include "cli/devices.h"

#include <algorithm>

#include "weft/context.h"

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

namespace {

/// Operations a second, in units of 1e12.
struct Peak {
  /// In the names of such devices.
  std::string_view part;
  double bf16;
  double f32;
};

}  // namespace

/// NVIDIA's data sheets of these GPUs, without sparsity; the first whose part is found counts.
/// GH200 computes as an H100 SXM does.
static constexpr Peak kPeaks[] = {
    {"H100 PCIe", 756, 51.2}, {"H100 NVL", 835.5, 60}, {"H200 NVL", 835.5, 60},
    {"H100", 989.4, 66.9},    {"H200", 989.4, 66.9},   {"A100", 312, 19.5},
};

std::optional<double> peak_operations(std::string_view device_name, std::string_view dtype) {
  const auto* found = std::ranges::find_if(
      kPeaks, [&](const Peak& peak) { return device_name.find(peak.part) != std::string::npos; });
  if (found == std::end(kPeaks)) return {};
  return 1e12 * (dtype == "bf16" ? found->bf16 : found->f32);
}

}  // namespace weft::cli
