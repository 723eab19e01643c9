// SPDX-License-Identifier: Apache-2.0
#include "cli/expert_report.h"

#include <algorithm>
#include <numeric>

#include "weft/autograd.h"
#include "weft/moe.h"

namespace weft::cli {

double ExpertReport::imbalance() const {
  double most = 1;
  for (const std::vector<double>& layer : load) {
    const double rows = std::accumulate(layer.begin(), layer.end(), 0.0);
    if (rows == 0) continue;
    most = std::max(most, std::ranges::max(layer) * static_cast<double>(layer.size()) / rows);
  }
  return most;
}

std::optional<ExpertReport> end_step_of_experts(TransformerModel& model, double rate) {
  const std::vector<MoE*> layers = moe_layers(model);
  if (layers.empty()) return {};
  const NoGrad no_grad;
  ExpertReport report;
  for (MoE* layer : layers) {
    report.load.push_back(layer->load().full_tensor().to_vector<double>());
    report.dropped += layer->dropped();
    layer->update_balance(rate);
  }
  const Tensor& loss = model.balance_loss();
  if (loss) report.balance_loss = loss.full_tensor().item();
  return report;
}

}  // namespace weft::cli
