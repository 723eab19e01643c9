// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weft/device.h"

namespace weft::cli {

/// Where a rank computes: "cuda" gives the ranks of a host its GPUs in turn, in a job of processes
/// by their rank on the host; any other name is that device's for all.
Device device_of_rank(const std::string& name, int rank);

/// Devices that so many ranks compute on; on the CPU each rank counts as one. Every host of a job
/// is taken to be like this one.
int devices_of_ranks(const std::string& name, int ranks);

/// Operations that a device of that name does in a second at most, by its maker's data sheet: dense
/// products computed in "bf16" or "f32", TF32 off. Nothing for a device that no table here has.
std::optional<double> peak_operations(std::string_view device_name, std::string_view dtype);

}  // namespace weft::cli
