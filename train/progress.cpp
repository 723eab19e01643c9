// SPDX-License-Identifier: Apache-2.0
#include "train/progress.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "train/option_names.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/run_folder.h"
#include "weft/moe.h"
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

std::optional<ExpertReport> end_step_of_experts(Module& model, double rate) {
  const std::vector<MoE*> layers = moe_layers(model);
  if (layers.empty()) return {};
  const NoGrad no_grad;
  ExpertReport report;
  for (MoE* layer : layers) {
    report.load.push_back(layer->load().full_tensor().to_vector<double>());
    report.dropped += layer->dropped();
    layer->update_balance(rate);
  }
  const auto* transformer = dynamic_cast<const TransformerModel*>(&model);
  const Tensor loss = transformer ? transformer->balance_loss() : Tensor();
  if (loss) report.balance_loss = loss.full_tensor().item();
  return report;
}

using Clock = std::chrono::steady_clock;

/// Between two lines on the terminal, unless there is news.
static constexpr auto kQuiet = std::chrono::seconds(2);

/// Whether a file ends with a line of a step after `done`, or with a part of a line; `begin`
/// becomes the start of that line.
static bool ends_with_later_step(std::string_view text, int64_t done, size_t& begin) {
  const bool is_whole = text.ends_with('\n');
  begin = text.find_last_of('\n', text.size() - (is_whole ? 2 : 1)) + 1;
  if (text.size() == 1) begin = 0;
  const std::string_view line = text.substr(begin);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (json.is_discarded()) return !is_whole && line.starts_with('{');
  const auto step = json.is_object() ? json.find("step") : json.end();
  return step != json.end() && step->is_number_integer() && step->get<int64_t>() > done;
}

/// Cuts the lines of steps after `done`, which run again, and a last line that was torn.
static void cut_metrics(const std::string& flag, const std::string& path, int64_t done) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;
  const std::string text = read_file(flag, path);
  size_t end = text.size(), begin = 0, lines = 0;
  for (; end > 0 && ends_with_later_step({text.data(), end}, done, begin); ++lines) end = begin;
  if (lines > 0) {
    std::filesystem::resize_file(path, end, error);
    if (error) fail_call("truncate", flag, ": ", path, ": ", error.message());
    warn(flag, ' ', printable(path), ": removed ", lines, lines == 1 ? " line" : " lines",
         " after step ", done, ", from which the run goes on");
  } else if (!text.empty() && !text.ends_with('\n')) {
    OutputFile(flag, path, OutputFile::Mode::append).write("\n");
  }
}

Progress::Progress(const TrainerOptions& options, int64_t done) : options_(options) {
  if (options.metrics.empty()) return;
  const std::string flag = option_name("metrics", options.checkpoints.are_flags);
  done > 0 ? cut_metrics(flag, options.metrics, done) : set_aside(flag.c_str(), options.metrics);
  file_.emplace(flag, options.metrics,
                done > 0 ? OutputFile::Mode::append : OutputFile::Mode::replace);
}

void Progress::report(const StepReport& report) {
  if (first_ == 0) first_ = report.step;
  if (file_) write_metrics(report);
  if (report.utilization.value_or(0) > 1 && !std::exchange(is_above_peak_, true)) {
    warn(kAbovePeak);
  }
  bool is_end = report.step == options_.steps;
  bool is_due = !told_ || Clock::now() - *told_ >= kQuiet;
  if (is_end || is_due || report.validation_loss) tell_line(report);
}

using MetricsJson = nlohmann::ordered_json;

static MetricsJson number_or_null(const std::optional<double>& number) {
  return number ? MetricsJson(*number) : MetricsJson();
}

void Progress::write_metrics(const StepReport& report) {
  MetricsJson line{{"step", report.step},
                   {"loss", report.loss},
                   {"val_loss", number_or_null(report.validation_loss)},
                   {"lr", report.learning_rate},
                   {"grad_norm", report.gradient_norm},
                   {"tokens_per_second", report.tokens_per_second},
                   {"mfu", number_or_null(report.utilization)},
                   {"seconds", report.seconds}};
  if (report.experts) {
    line["experts"] = {{"load", report.experts->load},
                       {"imbalance", report.experts->imbalance()},
                       {"dropped", report.experts->dropped},
                       {"balance_loss", number_or_null(report.experts->balance_loss)}};
  }
  line["bytes_moved"] = report.bytes_moved;
  line["peak_bytes"] = report.memory.total.peak;
  for (int i = 0; i < kPurposes; ++i) {
    const auto purpose = static_cast<size_t>(i);
    line["peak_bytes_of"][std::string(name_of(static_cast<Purpose>(i)))] =
        report.memory.by_purpose[purpose].peak;
  }
  file_->write(line.dump() + '\n');
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
  if (!report.skipped.empty()) line += concat("  skipped: ", report.skipped);
  options_.tell(concat(line, "  ", duration_text(left), " left"));
}

}  // namespace weft
