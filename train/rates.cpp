// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "train/run.h"
#include "weft/error.h"

namespace weft {

/// The number in checkpoints that is the schedule's rate of the last step.
static constexpr const char* kLastRate = "last_rate";
/// The note of the schedules of torch.optim.
static constexpr const char* kInitialRate = "initial_lr";

void Trainer::Run::note_rates() {
  if (!options_.schedule) return;
  rates_.clear();
  for (size_t group = 0; group < optimizer_.groups(); ++group) {
    const auto numbers = optimizer_.hyperparameters(group);
    // A run before this one may have changed the rate.
    const auto noted = std::ranges::find(numbers, kInitialRate, &Hyperparameter::name);
    rates_.push_back((noted == numbers.end() ? numbers.front() : *noted).get());
  }
  if (std::ranges::adjacent_find(rates_, std::not_equal_to()) == rates_.end()) {
    return rates_.clear();
  }
  peak_ = 0;
  for (int64_t step = 0; step < options_.steps; ++step) {
    peak_ = std::max(peak_, options_.schedule(step));
  }
}

void Trainer::Run::set_rates(int64_t done, StepReport& report) {
  if (options_.schedule) {
    const double rate = options_.schedule(done);
    if (rates_.empty()) optimizer_.set_learning_rate(rate);
    for (size_t group = 0; group < rates_.size(); ++group) {
      optimizer_.set_learning_rate(group, peak_ > 0 ? rates_[group] * (rate / peak_) : 0);
    }
  }
  report.learning_rate = optimizer_.learning_rate();
  std::vector<double> rates;
  for (size_t group = 0; group < optimizer_.groups(); ++group) {
    rates.push_back(optimizer_.learning_rate(group));
  }
  const bool differ = std::ranges::adjacent_find(rates, std::not_equal_to()) != rates.end();
  if (differ) report.learning_rates = std::move(rates);
}

void Trainer::Run::note_rate(int64_t done) {
  if (!options_.schedule) return;
  const double rate =
      done > 0 ? options_.schedule(done - 1) : std::numeric_limits<double>::quiet_NaN();
  numbers_[kLastRate] = std::bit_cast<int64_t>(rate);
}

void Trainer::Run::begin_rates() {
  for (size_t group = 0; group < rates_.size(); ++group) {
    optimizer_.set(group, kInitialRate, rates_[group]);
  }
  if (!options_.schedule || !is_first() || done_ == 0) return;
  const double saved = std::bit_cast<double>(numbers_.at(kLastRate));
  const double own = options_.schedule(done_ - 1);
  if (std::isnan(saved) || saved == own) return;
  warn("warning: the learning rate of step ", done_, " is ", own,
       " by the schedule of this run, and was ", saved, "; the rate changes from here on");
}

}  // namespace weft
