// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/device.h"

namespace weft::cli {

/// The device of a rank. "cuda" assigns the GPUs of a host to its ranks in turn, in a job of
/// processes by their rank on the host; any other name is the device of all ranks.
Device device_of_rank(const std::string& name, int rank);

/// Devices that so many ranks compute on; on the CPU each rank counts as one. Every host of a job
/// is taken to be like this one.
int devices_of_ranks(const std::string& name, int ranks);

}  // namespace weft::cli
