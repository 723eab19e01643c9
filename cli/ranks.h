// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/communicator.h"
#include "weft/device.h"

namespace weft::cli {

/// Ranks that a command runs on: those of the job that started this process, else `asked`, threads
/// of this process. std::invalid_argument when more than one are asked for by `flag` and the job
/// has another number.
int job_ranks(int asked, const char* flag);

/// The flags of this process, for `check_same_flags`.
void note_flags(int argc, char** argv);
/// Throws when a rank's process was started with other flags than rank 0's. Collective.
void check_same_flags(const Communicator& world);
/// std::invalid_argument on all ranks when the text of one is not rank 0's: "rank 2 <verb> <own>
/// but rank 0 <first>". Collective; nothing where all ranks are threads, which have the same.
void check_same(const Communicator& world, const char* verb, const std::string& own);

/// True in the process that speaks for all ranks.
bool is_first_process();

/// The device of a rank. "cuda" assigns the GPUs of a host to its ranks in turn, in a job of
/// processes by their rank on the host; any other name is the device of all ranks.
Device device_of_rank(const std::string& name, int rank);

/// Devices that so many ranks compute on; on the CPU each rank counts as one. Every host of a job
/// is taken to be like this one.
int devices_of_ranks(const std::string& name, int ranks);

}  // namespace weft::cli
