// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "train/reproducible.h"
#include "train/run.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/fixed_norm.h"
#include "weft/extend/fixed_products.h"
#include "weft/extend/fixed_sums.h"
#include "weft/extend/flight.h"
#include "weft/extend/replicas.h"
#include "weft/fsdp.h"
#include "weft/fsdp_module.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/pipelined_transformer.h"
#include "weft/trace.h"
#include "weft/transformer.h"

namespace weft {

/// The places of a row up to its last target that counts.
static int64_t places_used(std::span<const int64_t> targets) {
  const auto last = std::find_if(targets.rbegin(), targets.rend(),
                                 [](int64_t target) { return target != kIgnoredTarget; });
  return targets.rend() - last;
}

Trainer::Run::MicroBatch Trainer::Run::read(int64_t step, int64_t first, int64_t most) {
  const Dataset& data = step == 0 ? *options_.validation : *data_;
  Batch rows{empty_rows(), empty_rows()};
  if (used_->has_segments()) rows.segments = empty_rows();
  const auto local = static_cast<size_t>(rows.ids.block().numel());
  const auto span_of = [local](const Tensor& tensor) {
    return tensor ? std::span(tensor.block().as<int64_t>(), local) : std::span<int64_t>();
  };
  const RowSpans spans{span_of(rows.ids), span_of(rows.targets), span_of(rows.segments)};
  used_->read(step, first, spans);
  const int64_t left = most - first - rows.ids.box().offset[0];
  const auto kept = static_cast<size_t>(std::max<int64_t>(0, left) * data.sequence());
  if (kept < local) std::ranges::fill(spans.targets.subspan(kept), kIgnoredTarget);
  MicroBatch made;
  if (!data.has_masks()) {
    made.counted = made.tokens = std::min(micro_batch(), most - first) * data.sequence();
  } else if (used_->reads_first()) {
    made.counted = std::ranges::count_if(spans.targets,
                                         [](int64_t target) { return target != kIgnoredTarget; });
    const auto size = static_cast<size_t>(data.sequence());
    for (size_t at = 0; at < local; at += size) {
      made.tokens += places_used(spans.targets.subspan(at, size));
    }
  }
  const auto placed = [&](const Tensor& t) { return t ? t.to(options_.device) : t; };
  made.rows = {placed(rows.ids), placed(rows.targets), placed(rows.segments)};
  return made;
}

void Trainer::Run::agree_on_counts(std::vector<MicroBatch>& batches) const {
  std::vector<int64_t> counts;
  for (const MicroBatch& batch : batches) {
    counts.insert(counts.end(), {batch.counted, batch.tokens});
  }
  mesh_.communicator().all_reduce_numbers(counts, ReduceOp::sum);
  for (size_t i = 0; i < batches.size(); ++i) {
    batches[i].counted = counts[2 * i];
    batches[i].tokens = counts[2 * i + 1];
  }
  const auto is_empty = [](const MicroBatch& batch) { return batch.counted == 0; };
  // All ranks leave out the same, and a reproducible run none of several: rows have their places in
  // the tree.
  if (options_.reproducible && !std::ranges::all_of(batches, is_empty)) return;
  std::erase_if(batches, is_empty);
}

/// The micro-batches of a step of which some target counts.
std::vector<Trainer::Run::MicroBatch> Trainer::Run::batches_of(int64_t step) {
  std::vector<MicroBatch> all;
  for (int64_t i = 0; i < micro_batches(); ++i) {
    all.push_back(read(step, i * micro_batch(), options_.batch));
  }
  if (data_->has_masks()) agree_on_counts(all);
  return all;
}

Tensor Trainer::Run::loss_of(const Batch& rows) {
  const TraceSpan span("forward", -1, rows.ids.device());
  return loss_(rows);
}

/// The part of a loss that is of the targets. A loss function that does not call the model's own
/// loss leaves the `earlier` balance loss.
Tensor Trainer::Run::without_balance(const Tensor& loss, const Tensor& earlier) const {
  const Tensor balance = balanced_ ? balanced_->balance_loss() : Tensor();
  if (!balance || (earlier && earlier.storage() == balance.storage())) return loss.detach();
  const NoGrad no_grad;
  return sub(loss.detach(), mul(balance, balanced_->config().balance_coefficient));
}

/// The mean of losses, each of so many targets; of equal numbers without rounding products.
static double mean_loss(const std::vector<double>& losses, const std::vector<double>& counts) {
  double sum = 0, total = 0;
  const bool are_equal = std::ranges::adjacent_find(counts, std::not_equal_to()) == counts.end();
  for (size_t i = 0; i < losses.size(); ++i) {
    const double weight = are_equal ? 1 : counts[i];
    sum += losses[i] * weight;
    total += weight;
  }
  return sum / total;
}

static double total_count(const auto& batches) {
  double total = 0;
  for (const auto& batch : batches) total += static_cast<double>(batch.counted);
  return total;
}

/// The same by the stages of a pipeline.
void Trainer::Run::differentiate_stages(const std::vector<MicroBatch>& batches) {
  const double total = total_count(batches), scale = is_scaled() ? scaler_.scale() : 1;
  std::vector<Batch> rows;
  std::vector<double> weights;
  for (const MicroBatch& batch : batches) {
    rows.push_back(batch.rows);
    weights.push_back(scale * static_cast<double>(batch.counted) / total);
  }
  const std::vector<double> losses = options_.pipeline->differentiate(rows, weights);
  const std::vector<double>& balances = options_.pipeline->balance_losses();
  const double coefficient = options_.pipeline->stages()[0]->config().balance_coefficient;
  for (size_t i = 0; i < losses.size(); ++i) {
    const double balance = balances.empty() ? 0 : coefficient * balances[i];
    losses_.push_back(full({1}, losses[i] / weights[i] - balance));
  }
}

/// Leaves gradients, clipped by value, their norms, and the loss of each micro-step.
void Trainer::Run::differentiate(const std::vector<MicroBatch>& batches) {
  optimizer_.zero_grad();
  losses_.clear();
  if (options_.reproducible) {
    options_.pipeline ? differentiate_stages_by_rows(batches) : differentiate_rows(batches);
  } else {
    options_.pipeline ? differentiate_stages(batches) : differentiate_whole(batches);
  }
  const auto norm = [&] {
    const auto& stages = options_.pipeline;
    if (options_.reproducible) {
      return fixed_norm(updated_, stages ? mesh_["pp"].communicator() : Communicator());
    }
    return scaler_.unscaled(stages ? stages->gradient_norm() : gradient_norm(updated_));
  };
  norm_ = clipped_norm_ = norm();
  if (options_.clip_value == 0) return;
  // The norm before clipping shows gradients that are not finite.
  clip_grad_value(updated_, options_.clip_value * (is_scaled() ? scaler_.scale() : 1));
  clipped_norm_ = norm();
}

void Trainer::Run::differentiate_whole(const std::vector<MicroBatch>& batches) {
  const double total = total_count(batches);
  const bool is_sharded = FsdpModule::is_sharded(model_);
  for (const MicroBatch& batch : batches) {
    std::optional<NoSync> no_sync;
    if (is_sharded) no_sync.emplace(model_, &batch != &batches.back());
    const Tensor earlier = balanced_ ? balanced_->balance_loss() : Tensor();
    const Tensor loss = loss_of(batch.rows);
    const TraceSpan span("backward", -1, batch.rows.ids.device());
    const double weight = static_cast<double>(batch.counted) / total;
    scaler_.scale(weight == 1 ? loss : mul(loss, weight)).backward();
    losses_.push_back(without_balance(loss, earlier).full_tensor());
  }
}

/// The same as a graph, of batches that are always in one place, and the update with it.
void Trainer::Run::step_by_graph(const std::vector<MicroBatch>& batches) {
  for (size_t i = 0; i < fixed_.size(); ++i) {
    copy_(fixed_[i].rows.ids, batches[i].rows.ids);
    copy_(fixed_[i].rows.targets, batches[i].rows.targets);
    if (fixed_[i].rows.segments) copy_(fixed_[i].rows.segments, batches[i].rows.segments);
  }
  if (fixed_.empty()) fixed_ = batches;
  const TraceSpan span("graph", -1, options_.device);
  graph_->run([this] {
    differentiate(fixed_);
    if (graph_updates()) update();
  });
}

void Trainer::Run::update() {
  const TraceSpan span("update", -1, options_.device);
  const Tensor clip = options_.clip > 0 ? clip_scale(clipped_norm_, options_.clip) : Tensor();
  if (!is_scaled()) return optimizer_.step(clip);
  scaler_.step(optimizer_, norm_, clip);
  take_scale();
}

void Trainer::Run::take_scale() {
  numbers_["loss_scale"] = std::bit_cast<int64_t>(scaler_.scale());
  numbers_["loss_scale_steps"] = scaler_.growth_tracker();
}

/// An overflow of scaled gradients is no trouble until the scale is small.
std::string Trainer::Run::reason_to_skip(StepReport& report) {
  const bool overflows = is_scaled() && std::isfinite(report.loss) &&
                         !std::isfinite(report.gradient_norm) && scaler_.scale() > 1;
  if (is_scaled()) report.loss_scale = scaler_.scale();
  if (!overflows) return policies_.reason_to_skip(report.step, report.loss, report.gradient_norm);
  const double scale = scaler_.scale();
  scaler_.update(false);
  take_scale();
  return concat("gradients overflow f16 at the loss scale ", scale);
}

/// Returns the seconds since `since`, which becomes now.
static double lap(std::chrono::steady_clock::time_point& since) {
  const auto before = std::exchange(since, std::chrono::steady_clock::now());
  return std::chrono::duration<double>(since - before).count();
}

int64_t Trainer::Run::bytes_moved() const {
  const int64_t bytes = mesh_.traffic().bytes;
  return options_.pipeline ? bytes + options_.pipeline->stage_mesh().traffic().bytes : bytes;
}

StepReport Trainer::Run::train_step(int64_t step) {
  const TraceSpan span("step", step);
  const auto began = Clock::now();
  auto since = began;
  const double waited = seconds_in_waits();
  const int64_t moved = bytes_moved();
  PurposeScope purpose(Purpose::activations);
  StepReport report;
  report.step = step;
  set_rates(step - 1, report);
  report.parts.save = save_seconds_;
  report.slow_rank = slow_rank_;
  report.slowness = slow_rank_ < 0 ? 1 : slowness_;
  const std::vector<MicroBatch> batches = batches_of(step);
  report.parts.data = lap(since);
  if (batches.empty()) {
    report.loss = std::numeric_limits<double>::quiet_NaN();
    report.skipped = policies_.skipped("no target counts");
    optimizer_.zero_grad();
  } else {
    graph_ ? step_by_graph(batches) : differentiate(batches);
    std::vector<double> losses, counts;
    for (size_t i = 0; i < losses_.size(); ++i) {
      losses.push_back(losses_[i].item());
      counts.push_back(static_cast<double>(batches[i].counted));
    }
    report.loss = options_.reproducible ? losses_[0].item() : mean_loss(losses, counts);
    report.gradient_norm = norm_.item();
    report.parts.forward_backward = lap(since);
    report.skipped = reason_to_skip(report);
    if (report.skipped.empty() && !graph_updates()) update();
    if (report.skipped.empty() && ema_) ema_->update();
    // A step that is left out moves no biases; its load does not count for the next one.
    report.experts = end_step_of_experts(model_, report.skipped.empty() ? options_.balance_rate : 0,
                                         options_.pipeline.get());
    report.parts.update = lap(since);
  }
  if (options_.device == cpu) report.parts.collectives = seconds_in_waits() - waited;
  int64_t tokens = 0;
  for (const MicroBatch& batch : batches) tokens += batch.tokens;
  report_figures(report, began, moved, tokens);
  return report;
}

void Trainer::Run::report_figures(StepReport& report, Clock::time_point began, int64_t moved,
                                  int64_t tokens) const {
  const auto now = Clock::now();
  report.tokens_per_second =
      static_cast<double>(tokens) / std::chrono::duration<double>(now - began).count();
  if (options_.peak_tokens) report.utilization = report.tokens_per_second / *options_.peak_tokens;
  report.seconds = std::chrono::duration<double>(now - started_).count();
  report.bytes_moved = bytes_moved() - moved;
  report.memory = memory_statistics(options_.device.kind);
}

/// Ends the run where ranks with the same parameters hold other bits: a rank computes wrongly.
void Trainer::Run::check_bits(int64_t step) {
  const TraceSpan span("check_replicas");
  try {
    if (!options_.pipeline) check_replicas(model_);
    if (options_.pipeline) {
      for (const auto& stage : options_.pipeline->stages()) check_replicas(*stage);
    }
    check_replicas(optimizer_);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(concat(error.what(), ", after step ", step));
  }
}

/// Compares how long the ranks' own work of the last steps took.
void Trainer::Run::compare_ranks(const PartSeconds& parts, int64_t step) {
  constexpr int64_t kSteps = 8;
  constexpr double kSlow = 1.3;
  const Communicator& ranks = mesh_.communicator();
  if (ranks.size() == 1 || options_.device != cpu) return;
  busy_ += parts.data + parts.forward_backward + parts.update - parts.collectives.value_or(0);
  if (step % kSteps != 0) return;
  const auto own = static_cast<int64_t>(1e9 * std::exchange(busy_, 0));
  std::vector<int64_t> all = ranks.all_gather_numbers({&own, 1});
  const auto slowest = std::ranges::max_element(all) - all.begin();
  const auto most = static_cast<double>(all[static_cast<size_t>(slowest)]);
  const auto middle = all.begin() + (std::ssize(all) - 1) / 2;
  std::ranges::nth_element(all, middle);
  slowness_ = most / static_cast<double>(std::max<int64_t>(1, *middle));
  slow_rank_ = slowness_ > kSlow ? static_cast<int>(slowest) : -1;
  if (slow_rank_ >= 0) const TraceSpan span("slow rank", slow_rank_);
}

namespace {

/// No module trains while it lives; afterwards those do that did before.
class EvaluationScope : NotCopied {
 public:
  explicit EvaluationScope(Module& model) {
    // Parents come before their children, which a change of the parent changes too.
    for (const auto& [name, module] : model.named_modules()) {
      were_.emplace_back(module, module->is_training());
    }
    model.set_training(false);
  }
  ~EvaluationScope() {
    for (const auto& [module, was] : were_) module->set_training(was);
  }

 private:
  std::vector<std::pair<Module*, bool>> were_;
};

}  // namespace

/// The mean losses of batches without gradients; of a reproducible run this rank's part of sums.
std::vector<double> Trainer::Run::validated(const std::vector<Batch>& batches) {
  if (batches.empty()) return {};
  if (options_.reproducible) {
    const FixedProducts fixed;
    const FixedSums sums(halved_axes());
    if (options_.pipeline) return options_.pipeline->run_rows(batches, 1, {});
    return {own_part(sum_of_losses(batches[0], 1))};
  }
  if (options_.pipeline) {
    return options_.pipeline->evaluate(batches, std::vector<double>(batches.size(), 1));
  }
  return {loss_(batches[0]).full_tensor().item()};
}

double Trainer::Run::evaluate() {
  if (!options_.validation) fail("trainer: validation is null, expected a dataset to evaluate on");
  const TraceSpan span("validation");
  const NoGrad no_grad;
  const EvaluationScope scope(model_);
  std::optional<Ema::Applied> averaged;
  if (ema_ && ema_->updates() > 0) averaged.emplace(*ema_);
  const int64_t rows = options_.validation->rows();
  int64_t batches = (rows + micro_batch() - 1) / micro_batch();
  if (options_.validation_batches > 0) {
    batches = std::min(batches, options_.validation_batches * micro_batches());
  }
  std::vector<double> losses, counts;
  std::vector<Batch> waiting;
  const size_t at_once = options_.pipeline ? static_cast<size_t>(options_.accumulate) : 1;
  const auto validate = [&] {
    for (const double loss : validated(std::exchange(waiting, {}))) losses.push_back(loss);
  };
  for (int64_t i = 0; i < batches; ++i) {
    std::vector<MicroBatch> one{read(0, i * micro_batch(), rows)};
    if (options_.validation->has_masks()) agree_on_counts(one);
    if (one.empty()) continue;
    waiting.push_back(one[0].rows);
    counts.push_back(static_cast<double>(one[0].counted));
    if (waiting.size() == at_once) validate();
  }
  validate();
  if (losses.empty()) fail("trainer: validation has no target that counts, expected at least one");
  if (!options_.reproducible) return mean_loss(losses, counts);
  return sum_over_rows(losses) / std::accumulate(counts.begin(), counts.end(), 0.0);
}

}  // namespace weft
