// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft::cli {

/// Ranks that a command runs on: those of the job that started this process, else `asked`, threads
/// of this process. std::invalid_argument when more than one are asked for by `flag` and the job
/// has another number.
int job_ranks(int asked, const char* flag);

/// True in the process that speaks for all ranks.
bool is_first_process();

}  // namespace weft::cli
