// SPDX-License-Identifier: Apache-2.0
#include "train/progress.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "train/option_names.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/metrics_destination.h"
#include "weft/extend/run_folder.h"
#include "weft/extend/store.h"
#include "weft/moe.h"
#include "weft/pipelined_transformer.h"
#include "weft/transformer.h"

namespace weft {

double ExpertReport::imbalance() const {
  double most = 1;
  for (const std::vector<double>& layer : load) {
    const double rows = std::accumulate(layer.begin(), layer.end(), 0.0);
    if (rows == 0) continue;
    most = std::max(most, std::ranges::max(layer) * static_cast<double>(layer.size()) / rows);
  }
  return most;
}

/// The report of all stages, from what the layers of this rank's have: each rank adds 0 for others.
static std::optional<ExpertReport> report_of_stages(const ExpertReport& own,
                                                    const PipelinedTransformer& pipeline) {
  const TransformerConfig& config = pipeline.stages()[0]->config();
  const auto experts = static_cast<size_t>(config.experts);
  // Numbers of the sparse layers before each layer.
  std::vector<size_t> before;
  size_t layers = 0;
  for (int64_t i = 0; i < config.layers; ++i)
    before.push_back(std::exchange(layers, layers + (config.is_sparse(i) ? 1U : 0U)));
  if (layers == 0) return {};
  std::vector<int64_t> numbers(layers * experts + 1, 0);
  auto load = own.load.begin();
  for (const int stage : pipeline.pipeline().own_stages()) {
    const auto at = static_cast<size_t>(stage);
    for (int i = at == 0 ? 0 : pipeline.ends()[at - 1]; i < pipeline.ends()[at]; ++i) {
      if (!config.is_sparse(i)) continue;
      const size_t first = before[static_cast<size_t>(i)] * experts;
      for (size_t e = 0; e < experts; ++e) numbers[first + e] = std::llround((*load)[e]);
      ++load;
    }
  }
  numbers.back() = own.dropped;
  pipeline.mesh()["pp"].communicator().all_reduce_numbers(numbers, ReduceOp::sum);
  ExpertReport all;
  for (size_t layer = 0; layer < layers; ++layer) {
    const auto first = numbers.begin() + static_cast<ptrdiff_t>(layer * experts);
    all.load.emplace_back(first, first + config.experts);
  }
  all.dropped = numbers.back();
  if (!pipeline.balance_losses().empty()) all.balance_loss = pipeline.balance_losses().back();
  return all;
}

std::optional<ExpertReport> end_step_of_experts(Module& model, double rate,
                                                const PipelinedTransformer* pipeline) {
  const std::vector<MoE*> layers = moe_layers(model);
  if (layers.empty() && !pipeline) return {};
  const NoGrad no_grad;
  ExpertReport report;
  for (MoE* layer : layers) {
    report.load.push_back(layer->load().full_tensor().to_vector<double>());
    report.dropped += layer->dropped();
    layer->update_balance(rate);
  }
  if (pipeline) return report_of_stages(report, *pipeline);
  const auto* transformer = dynamic_cast<const TransformerModel*>(&model);
  const Tensor loss = transformer ? transformer->balance_loss() : Tensor();
  if (loss) report.balance_loss = loss.full_tensor().item();
  return report;
}

using Clock = std::chrono::steady_clock;

/// The time between two lines on the terminal, unless there is news.
static constexpr auto kQuiet = std::chrono::seconds(2);

Progress::Progress(const TrainerOptions& options, int64_t done) : options_(options) {
  const std::string flag = option_name("metrics", options.checkpoints.are_flags);
  for (const std::string& destination : options.metrics) {
    writers_.push_back(metrics_writer(flag, destination, done));
  }
  // An object store has no file that grows.
  if (options.checkpoints.save.empty() || is_object_path(options.checkpoints.save)) return;
  const std::string own = run_metrics(options.checkpoints.save);
  const bool is_given = std::ranges::any_of(options.metrics, [&](const std::string& destination) {
    return located(metrics_destination(destination).path) == located(own);
  });
  if (!is_given) writers_.push_back(metrics_writer(flag, own, done));
}

void Progress::report(const StepReport& report) {
  if (first_ == 0) first_ = report.step;
  if (!writers_.empty()) {
    const MetricsLine line = metrics_line(report);
    for (const auto& writer : writers_) writer->write(line);
  }
  if (report.utilization.value_or(0) > 1 && !std::exchange(is_above_peak_, true)) {
    warn(kAbovePeak);
  }
  bool is_end = report.step == options_.steps;
  bool is_due = !told_ || Clock::now() - *told_ >= kQuiet;
  if (is_end || is_due || report.validation_loss) tell_line(report);
}

/// "1 h 02 min", "3 min 20 s" or "12 s".
static std::string duration_text(double seconds) {
  auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) return formatted("%d h %02d min", int(whole / 3600), int(whole / 60 % 60));
  if (whole >= 60) return formatted("%d min %02d s", int(whole / 60), int(whole % 60));
  return formatted("%d s", int(whole));
}

void Progress::tell_line(const StepReport& report) {
  told_ = Clock::now();
  if (!options_.tell) return;
  double left = report.seconds / static_cast<double>(report.step - first_ + 1) *
                static_cast<double>(options_.steps - report.step);
  std::string line = concat("step ", report.step, '/', options_.steps);
  line += formatted("  loss %.4f", report.loss);
  if (report.validation_loss) line += formatted("  validation loss %.4f", *report.validation_loss);
  line += formatted("  lr %.2e  %.0f tokens/s", report.learning_rate, report.tokens_per_second);
  if (report.utilization) line += formatted("  MFU %.1f %%", 100 * *report.utilization);
  if (report.experts) {
    line += formatted("  largest load %.2f x mean", report.experts->imbalance());
    if (report.experts->balance_loss) {
      line += formatted("  balance loss %.3f", *report.experts->balance_loss);
    }
    if (report.experts->dropped > 0) line += concat("  ", report.experts->dropped, " dropped");
  }
  if (report.slow_rank >= 0) {
    line += formatted("  slow: rank %d, %.1f x the median", report.slow_rank, report.slowness);
  }
  if (!report.skipped.empty()) line += concat("  skipped: ", report.skipped);
  options_.tell(concat(line, "  ", duration_text(left), " left"));
}

}  // namespace weft
