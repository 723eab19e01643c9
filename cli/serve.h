// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace weft::cli {

/// Options of `weft sample`.
struct ServeOptions {
  /// A directory: see weights_in.
  std::string model;
  std::string prompt;
  int ranks = 1;
  std::string device = "cpu";
  int64_t tokens = 200;
  double temperature = 0.7;
  uint64_t seed = 0;
  int threads = 0;
};

/// Adds the subcommand `sample`, whose flags land in `options`.
CLI::App* add_sample(CLI::App& program, ServeOptions& options);

/// Loads the model of the newest complete checkpoint, cut by heads over the ranks, and prints what
/// it makes of the prompt, and tokens/s. Throws what went wrong.
void serve(const ServeOptions& options);

}  // namespace weft::cli
