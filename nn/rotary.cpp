// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/transformer_block.h"
#include "weft/error.h"
#include "weft/ops/documents.h"
#include "weft/ops/factories.h"
#include "weft/ops/networks.h"

namespace weft {

static int64_t rotated_width(const TransformerConfig& config) {
  return static_cast<int64_t>(static_cast<double>(config.head_dim) * config.rotary_fraction);
}

/// The base of "dynamic" for a sequence that is longer than the original ones.
static double dynamic_theta(const RopeScaling& scaling, double theta, double width,
                            int64_t length) {
  const auto original = static_cast<double>(scaling.original_max);
  const double longest = std::max(static_cast<double>(length), original);
  const double stretch = scaling.factor * longest / original - (scaling.factor - 1);
  return theta * std::pow(stretch, width / (width - 2));
}

/// Long waves are stretched, short ones stay, those between are interpolated.
static double llama3_frequency(const RopeScaling& scaling, double frequency) {
  const auto original = static_cast<double>(scaling.original_max);
  const double wave = 2 * std::numbers::pi / frequency;
  if (wave < original / scaling.high_frequency) return frequency;
  if (wave > original / scaling.low_frequency) return frequency / scaling.factor;
  const double smooth =
      (original / wave - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

namespace {

/// The pairs between which "yarn" goes from the frequencies to those divided by the factor.
struct YarnRange {
  double low, high;

  YarnRange(const RopeScaling& scaling, double theta, double width) {
    const auto pair_of = [&](double rotations) {
      const auto original = static_cast<double>(scaling.original_max);
      return width * std::log(original / (rotations * 2 * std::numbers::pi)) /
             (2 * std::log(theta));
    };
    low = pair_of(scaling.beta_fast), high = pair_of(scaling.beta_slow);
    if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, width - 1);
    if (low == high) high += 0.001;  // as transformers does, so that the division is defined
  }
  double stretched(double pair) const { return std::clamp((pair - low) / (high - low), 0.0, 1.0); }
};

}  // namespace

/// The frequencies by which `theta` and `scaling` rotate sequences of `length` tokens, one for each
/// pair of elements, as transformers computes them.
static std::vector<double> rotary_frequencies(const TransformerConfig& config, double theta,
                                              const RopeScaling& scaling, int64_t length) {
  using Kind = RopeScalingKind;
  const int64_t whole = rotated_width(config);
  const auto width = static_cast<double>(whole);
  if (scaling.kind == Kind::dynamic) theta = dynamic_theta(scaling, theta, width, length);
  const YarnRange yarn(scaling, theta, width);
  const auto& divisors = length > scaling.original_max ? scaling.long_factor : scaling.short_factor;
  std::vector<double> frequencies;
  for (int64_t i = 0; 2 * i < whole; ++i) {
    const double frequency = std::pow(theta, static_cast<double>(-2 * i) / width);
    const double stretched = yarn.stretched(static_cast<double>(i));
    switch (scaling.kind) {
      case Kind::linear: frequencies.push_back(frequency / scaling.factor); break;
      case Kind::llama3: frequencies.push_back(llama3_frequency(scaling, frequency)); break;
      case Kind::yarn:
        frequencies.push_back(frequency * (1 - stretched) + frequency / scaling.factor * stretched);
        break;
      case Kind::longrope:
        frequencies.push_back(frequency / divisors[static_cast<size_t>(i)]);
        break;
      default: frequencies.push_back(frequency);
    }
  }
  return frequencies;
}

/// The factor of rotated queries and keys.
static double attention_factor(const RopeScaling& scaling) {
  using Kind = RopeScalingKind;
  if (scaling.kind != Kind::yarn && scaling.kind != Kind::longrope) return 1;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  const double factor = scaling.factor;
  if (factor <= 1) return 1;
  if (scaling.kind == Kind::longrope) {
    return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(scaling.original_max)));
  }
  const auto scale = [&](double mscale) { return 0.1 * mscale * std::log(factor) + 1; };
  const bool both = scaling.mscale > 0 && scaling.mscale_all_dim > 0;
  return both ? scale(scaling.mscale) / scale(scaling.mscale_all_dim) : scale(1);
}

Rotary::Rotary(const TransformerConfig& config, double theta, const RopeScaling& scaling)
    : config_(config), theta_(theta), scaling_(scaling), factor_(attention_factor(scaling)) {}

const Tensor& Rotary::frequencies_on(const Tensor& x, int64_t length) {
  std::vector<double> values = rotary_frequencies(config_, theta_, scaling_, length);
  const Sharding sharding = x.is_sharded() ? Sharding(x.sharding().mesh(), {}) : Sharding();
  const bool serves =
      tensor_ && tensor_.device() == x.device() && values == values_ && sharding_ == sharding;
  if (serves) return tensor_;
  const TensorOptions options{.dtype = f32, .device = x.device(), .sharding = sharding};
  const Shape shape{static_cast<int64_t>(values.size())};
  tensor_ = x.device() == meta ? empty(shape, options) : from_values(values, shape, options);
  values_ = std::move(values);
  sharding_ = sharding;
  return tensor_;
}

bool Rotary::is_plain() const {
  return scaling_.kind == RopeScalingKind::none && rotated_width(config_) == config_.head_dim;
}

Tensor Rotary::operator()(const Tensor& x, int64_t position) {
  if (is_plain()) return rope(x, theta_, position);
  return rope(x, frequencies_on(x, position + x.size(1)), factor_, position);
}

Tensor Rotary::operator()(const Tensor& x, const Tensor& positions) {
  using Kind = RopeScalingKind;
  const bool follows_length = scaling_.kind == Kind::dynamic || scaling_.kind == Kind::longrope;
  if (follows_length && x.size(1) > scaling_.original_max) {
    fail("model: length of rows with segments is ", x.size(1), ", expected at most ",
         scaling_.original_max, ", because the rope scaling follows the length of a row");
  }
  if (is_plain()) return rope(x, theta_, positions);
  return rope(x, frequencies_on(x, x.size(1)), factor_, positions);
}

}  // namespace weft
