// SPDX-License-Identifier: Apache-2.0
#include "train/policies.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "train/option_names.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/optimizers.h"

namespace weft {

/// Losses whose median a spike is compared with, and the least of them.
static constexpr int kRecentLosses = 32, kLeastLosses = 8;

static std::string recent_name(int64_t index) { return concat("recent_loss:", index); }

static bool is_finite(double value) { return value - value == 0; }

Policies::Policies(const TrainerOptions& options, const Module& model,
                   std::map<std::string, int64_t>& numbers)
    : options_(options), model_(model), numbers_(numbers) {
  // Checkpoints of runs without policies hold nothing of them.
  if (options.patience > 0 || options.keep_best) {
    begin_best();
    numbers_["validated"] = validated();
  }
  if (options.spike > 0) {
    numbers_["recent_losses"] = 0;
    for (int i = 0; i < kRecentLosses; ++i) set(recent_name(i), 0);
  }
  const bool skips = options.on_non_finite == OnTrouble::skip ||
                     (options.spike > 0 && options.on_spike == OnTrouble::skip);
  if (skips) numbers_["skipped_in_row"] = 0;
}

void Policies::begin_best() {
  set("best_loss", std::numeric_limits<double>::infinity());
  numbers_["best_step"] = numbers_["validations_since_best"] = 0;
}

/// A digest of the rows that a validation reads.
int64_t Policies::validated() const {
  if (!options_.validation) return 0;
  const Dataset& data = *options_.validation;
  std::string text = concat(data.rows(), ' ', data.sequence(), ' ', options_.batch, ' ',
                            options_.validation_batches);
  for (const auto& [name, digest] : data.digests()) {
    // Other names of the same files are the same rows.
    if (!name.ends_with("names")) text += concat('\n', name, ' ', digest);
  }
  return std::bit_cast<int64_t>(xxh3_of(std::as_bytes(std::span(text))));
}

bool Policies::begins_best_anew(int64_t done) {
  const auto saved = numbers_.find("validated");
  if (done == 0 || saved == numbers_.end()) return false;
  const int64_t own = validated();
  if (std::exchange(saved->second, own) == own) return false;
  begin_best();
  return true;
}

double Policies::number(const std::string& name) const {
  return std::bit_cast<double>(numbers_.at(name));
}

void Policies::set(const std::string& name, double value) {
  numbers_[name] = std::bit_cast<int64_t>(value);
}

std::optional<double> Policies::median() const {
  const int64_t count = std::min<int64_t>(numbers_.at("recent_losses"), kRecentLosses);
  if (count < kLeastLosses) return {};
  std::vector<double> losses;
  for (int64_t i = 0; i < count; ++i) losses.push_back(number(recent_name(i)));
  const auto middle = losses.begin() + count / 2;
  std::ranges::nth_element(losses, middle);
  return *middle;
}

void Policies::note_loss(double loss) {
  if (numbers_.contains("skipped_in_row")) numbers_["skipped_in_row"] = 0;
  if (options_.spike > 0) set(recent_name(numbers_["recent_losses"]++ % kRecentLosses), loss);
}

/// The first parameter whose gradient is not finite, or else the one of the largest norm.
std::string Policies::largest_gradient() const {
  double most = -1;
  std::string name;
  for (const NamedParameter& named : model_.named_parameters()) {
    if (!named.parameter->grad()) continue;
    const double norm = gradient_norm({named.parameter}).item();
    if (!is_finite(norm)) return concat("the gradient of ", named.name(), " is not finite");
    if (norm <= most) continue;
    most = norm;
    name = named.name();
  }
  return concat("the largest gradient is that of ", name, ", of norm ", most);
}

/// Counts one more, of the most in a row.
std::string Policies::skipped(const std::string& reason) {
  const int64_t in_row = ++numbers_["skipped_in_row"];
  if (in_row <= options_.most_skipped) return reason;
  fail_call("train", in_row, " steps in a row were skipped, expected at most ",
            options_.most_skipped, ", ",
            option_name("most_skipped", options_.checkpoints.are_flags), "; of the last one ",
            reason);
}

void Policies::check_finite(int64_t step, const char* what, double value) const {
  if (is_finite(value)) return;
  fail_call("train", "the ", what, " at step ", step, " is ", value, "; a smaller ",
            options_.checkpoints.are_flags ? "--lr" : "learning rate", " may help");
}

std::string Policies::reason_to_skip(int64_t step, double loss, double norm) {
  const bool skips_non_finite = options_.on_non_finite == OnTrouble::skip;
  if (!skips_non_finite) {
    check_finite(step, "loss", loss);
    check_finite(step, "norm of the gradients", norm);
  } else if (!is_finite(loss) || !is_finite(norm)) {
    return skipped(concat("the ", is_finite(loss) ? "norm of the gradients" : "loss", " is ",
                          is_finite(loss) ? norm : loss, ", ", largest_gradient()));
  }
  const std::optional<double> usual = options_.spike > 0 ? median() : std::nullopt;
  // A loss that may be negative may be as far above the usual one as that is from 0.
  const double most = usual && *usual > 0 ? options_.spike * *usual
                                          : usual.value_or(0) * (2 - std::max(1.0, options_.spike));
  if (!usual || loss <= most) {
    note_loss(loss);
    return {};
  }
  const std::string what = concat("the loss is ", loss, ", above ", options_.spike, " times ",
                                  *usual, ", the median of the last ones, ", largest_gradient());
  if (options_.on_spike == OnTrouble::skip) return skipped(what);
  fail_call("train", "at step ", step, ' ', what);
}

bool Policies::note_validation(int64_t step, double loss) {
  if (!numbers_.contains("best_loss")) return false;
  const bool is_lower = loss < number("best_loss");
  if (is_lower) {
    set("best_loss", loss);
    numbers_["best_step"] = step;
  }
  numbers_["validations_since_best"] = is_lower ? 0 : numbers_["validations_since_best"] + 1;
  return is_lower;
}

bool Policies::is_patience_over() const {
  return options_.patience > 0 && numbers_.at("validations_since_best") >= options_.patience;
}

std::string Policies::best_in_words() const {
  return concat("the lowest validation loss is ", number("best_loss"), ", of step ",
                numbers_.at("best_step"));
}

}  // namespace weft
