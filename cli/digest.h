// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace weft::cli {

/// XXH3 of the files' sizes and bytes, taken as one sequence: of all bytes up to 256 MiB, else of
/// 64 blocks of 1 MiB spread evenly over them. std::runtime_error or std::invalid_argument names a
/// file that cannot be read.
uint64_t digest_of(std::span<const std::string> files);

/// XXH3 of the files' names in their order, each relative to the one of `given` (directories and
/// files) below which it lies: hosts may mount the same data at different places. A file that was
/// given itself counts by its last name.
uint64_t digest_of_names(std::span<const std::string> files, std::span<const std::string> given);

}  // namespace weft::cli
