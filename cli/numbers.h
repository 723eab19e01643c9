// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

namespace CLI {
class Option;
}

namespace weft::cli {

/// The most of what a flag counts.
inline constexpr int64_t kMostCount = std::numeric_limits<int32_t>::max();
/// Threads of one rank.
inline constexpr int64_t kMostThreads = 1024;

/// Lets the flag take whole numbers from `least` to `most` only. Parsing anything else throws
/// std::invalid_argument "--steps is 0, expected a whole number from 1 to 2147483647".
CLI::Option* takes_whole(CLI::Option* option, uint64_t least, uint64_t most = kMostCount);
/// The same for finite numbers from `least`, or above it, to `most`.
CLI::Option* takes_number(CLI::Option* option, double least,
                          double most = std::numeric_limits<double>::max());
CLI::Option* takes_number_above(CLI::Option* option, double bound,
                                double most = std::numeric_limits<double>::max());

}  // namespace weft::cli
