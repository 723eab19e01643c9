// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "data/generation/generation.h"
#include "weft/error.h"

namespace weft {

static constexpr double kRuledOut = -std::numeric_limits<double>::infinity();

void check_sampling(const SamplingOptions& options) {
  const auto check = [](const char* name, double value, bool is_right, const char* range) {
    if (!is_right) fail("generate: ", name, " is ", value, ", expected ", range);
  };
  check("repetition_penalty", options.repetition_penalty,
        options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty),
        "a number above 0");
  check("temperature", options.temperature,
        options.temperature >= 0 && std::isfinite(options.temperature), "at least 0");
  check("top_k", static_cast<double>(options.top_k), options.top_k >= 0, "at least 0");
  check("top_p", options.top_p, options.top_p > 0 && options.top_p <= 1, "above 0 and at most 1");
  check("min_p", options.min_p, options.min_p >= 0 && options.min_p <= 1, "0 to 1");
}

static void penalize(std::vector<double>& logits, std::span<const int64_t> seen, double penalty) {
  if (penalty == 1) return;
  std::vector<bool> done(logits.size());
  for (const int64_t id : seen) {
    const auto index = static_cast<size_t>(id);
    if (id < 0 || index >= logits.size() || done[index]) continue;
    done[index] = true;
    logits[index] = logits[index] < 0 ? logits[index] * penalty : logits[index] / penalty;
  }
}

static std::vector<double> softmax_of(const std::vector<double>& logits) {
  const double most = *std::ranges::max_element(logits);
  std::vector<double> weights;
  weights.reserve(logits.size());
  for (const double logit : logits) weights.push_back(std::exp(logit - most));
  const double sum = std::reduce(weights.begin(), weights.end());
  for (double& weight : weights) weight /= sum;
  return weights;
}

static void rule_out_below(std::vector<double>& logits, double least) {
  std::ranges::replace_if(
      logits, [&](double logit) { return logit < least; }, kRuledOut);
}

/// Rules out all but the `count` largest; those equal to the smallest of them stay.
static void keep_largest(std::vector<double>& logits, int64_t count) {
  if (count == 0 || count >= static_cast<int64_t>(logits.size())) return;
  std::vector<double> sorted = logits;
  std::ranges::nth_element(sorted, sorted.begin() + (count - 1), std::greater());
  rule_out_below(logits, sorted[static_cast<size_t>(count - 1)]);
}

/// Rules out the least likely tokens that together have at most the probability 1 - `share`.
static void keep_share(std::vector<double>& logits, double share) {
  if (share >= 1) return;
  const std::vector<double> probabilities = softmax_of(logits);
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return probabilities[i]; });
  double sum = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    sum += probabilities[order[i]];
    if (sum > 1 - share) break;
    logits[order[i]] = kRuledOut;
  }
}

std::vector<double> next_probabilities(std::span<const double> given, std::span<const int64_t> seen,
                                       const SamplingOptions& options) {
  check_sampling(options);
  std::vector<double> logits(given.begin(), given.end());
  if (logits.empty()) fail("generate: there are 0 logits, expected at least 1");
  if (std::ranges::any_of(logits, [](double x) { return std::isnan(x); })) {
    fail("generate: a logit is NaN, expected a number");
  }
  penalize(logits, seen, options.repetition_penalty);
  const auto likeliest = std::ranges::max_element(logits);
  const double most = *likeliest;
  if (most == -kRuledOut) fail("generate: a logit is inf, expected a finite number");
  if (most == kRuledOut) fail("generate: every logit is -inf, expected a finite number");
  if (options.temperature == 0) {
    std::vector<double> one(logits.size());
    one[static_cast<size_t>(likeliest - logits.begin())] = 1;
    return one;
  }
  // The quotient of a logit alone may overflow.
  for (double& logit : logits) logit = (logit - most) / options.temperature;
  keep_largest(logits, options.top_k);
  keep_share(logits, options.top_p);
  if (options.min_p > 0) {
    rule_out_below(logits, *std::ranges::max_element(logits) + std::log(options.min_p));
  }
  return softmax_of(logits);
}

StopTexts::StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) fail("generate: a stop text is empty, expected at least 1 character");
  }
}

/// The length of the longest end of `text` that begins `stop`.
static size_t begun(std::string_view text, std::string_view stop) {
  size_t size = std::min(text.size(), stop.size() - 1);
  while (size > 0 && !stop.starts_with(text.substr(text.size() - size))) --size;
  return size;
}

std::string StopTexts::push(const std::string& text) {
  if (has_stopped_) return {};
  held_ += text;
  size_t first = held_.npos, waiting = 0;
  for (const std::string& stop : stops_) {
    first = std::min(first, held_.find(stop));
    waiting = std::max(waiting, begun(held_, stop));
  }
  has_stopped_ = first != held_.npos;
  const size_t certain = has_stopped_ ? first : held_.size() - waiting;
  std::string part = held_.substr(0, certain);
  held_.erase(0, has_stopped_ ? held_.size() : certain);
  return part;
}

std::string StopTexts::finish() { return std::exchange(held_, {}); }

}  // namespace weft
