// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
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

/// A token drawn from the distribution of these logits; `temperature` is above 0.
int64_t drawn(const std::vector<double>& logits, double temperature, std::mt19937_64& random);

}  // namespace weft::cli
