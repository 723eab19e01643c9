// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <string>

namespace weft::bench {

/// A matrix [side, side] of f32, and how many rounds it is timed.
struct Size {
  const char* name;
  int64_t side;
  int rounds;
};
inline constexpr std::array<Size, 3> kSizes = {
    {{"4KiB", 32, 300}, {"1MiB", 512, 100}, {"64MiB", 4096, 15}}};

/// The flags of benchmarks that time rounds over matrices of these sizes.
struct MatrixRounds {
  int rounds = 0;
  int warmup = 5;
  std::string size = {};

  void add_to(CLI::App& app) {
    app.add_option("--rounds", rounds, "Rounds; 0: 300, 100 or 15 by size")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--size", size, "Run only this size (default: all)")
        ->check(CLI::IsMember({"4KiB", "1MiB", "64MiB"}));
    app.add_option("--warmup", warmup, "Rounds before, not counted")->check(CLI::NonNegativeNumber);
  }
};

}  // namespace weft::bench
