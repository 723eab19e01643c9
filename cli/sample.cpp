// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <random>
#include <span>

#include "cli/train_options.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft::cli {

/// The logits that follow the last of `tokens`. The row is padded to `context`: causal attention
/// keeps what comes later from what came before, and the shapes stay equal.
static std::vector<double> next_logits(TransformerModel& model, const DeviceMesh& mesh,
                                       std::span<const int64_t> tokens, int64_t context) {
  std::vector<double> row(static_cast<size_t>(context), 0);
  std::copy(tokens.begin(), tokens.end(), row.begin());
  const Device device = model.parameters()[0]->device();
  Tensor ids = from_values(row, {1, context}, {DType::i64, device, Sharding(mesh, {})});
  Tensor logits = model(ids);
  auto last = static_cast<int64_t>(tokens.size()) - 1;
  return slice(logits, 1, last, last + 1).full_tensor().to_vector<double>();
}

/// A token drawn from the distribution of these logits.
static int64_t drawn(const std::vector<double>& logits, std::mt19937_64& random) {
  static constexpr double temperature = 0.7;
  double most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  for (double logit : logits) weights.push_back(std::exp((logit - most) / temperature));
  return std::discrete_distribution<int64_t>(weights.begin(), weights.end())(random);
}

std::vector<int64_t> sample(TransformerModel& model, const DeviceMesh& mesh,
                            std::vector<int64_t> prompt, int64_t count, int64_t context,
                            uint64_t seed) {
  if (prompt.empty()) fail("sample: the prompt is empty, expected at least one token");
  NoGrad no_grad;
  model.set_training(false);
  std::mt19937_64 random(seed);
  std::vector<int64_t> tokens = std::move(prompt);
  for (int64_t i = 0; i < count; ++i) {
    size_t seen = std::min(tokens.size(), static_cast<size_t>(context));
    std::span<const int64_t> window(tokens.end() - static_cast<ptrdiff_t>(seen), tokens.end());
    tokens.push_back(drawn(next_logits(model, mesh, window, context), random));
  }
  model.set_training(true);
  return tokens;
}

}  // namespace weft::cli
