// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "weft/mesh.h"
#include "weft/transformer.h"

namespace weft::cli {

/// How tokens are drawn.
struct SampleOptions {
  int64_t tokens = 200;
  /// Tokens the model sees at once.
  int64_t context = 256;
  double temperature = 0.7;
  uint64_t seed = 0;
};

/// `prompt` (at least one token) continued by `options.tokens` tokens, drawn from the model's
/// distribution. Collective over the mesh: all ranks draw alike.
std::vector<int64_t> sample(TransformerModel& model, const DeviceMesh& mesh,
                            std::vector<int64_t> prompt, const SampleOptions& options);

}  // namespace weft::cli
