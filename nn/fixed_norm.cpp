// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/fixed_norm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>

#include "nn/parameter_memory.h"
#include "weft/context.h"
#include "weft/ops/factories.h"

namespace weft {

/// Bits of a square below the square of the greatest magnitude.
static constexpr int kSquareBits = 61;

/// A whole number of any sign-free size: the sum of part[i] * 2^(32 i).
using WideNumber = std::array<int64_t, 3>;

/// The bits of a magnitude order as the magnitudes do, and those of NaN come last.
static int64_t greatest_bits(std::span<const float> values) {
  int32_t greatest = 0;
  for (const float value : values) {
    greatest = std::max(greatest, std::bit_cast<int32_t>(value) & 0x7fffffff);
  }
  return greatest;
}

/// Adds the squares of values * scale, which are at most 1, in units of 2^-kSquareBits.
static void add_squares(std::span<const float> values, double scale, WideNumber& sum) {
  constexpr double kUnits = static_cast<double>(int64_t{1} << kSquareBits);
  constexpr int64_t kLow = 0xffffffff;
  constexpr size_t kAtOnce = size_t{1} << 24;
  for (size_t begin = 0; begin < values.size(); begin += kAtOnce) {
    int64_t low = 0, high = 0;
    for (const float value : values.subspan(begin, std::min(kAtOnce, values.size() - begin))) {
      // The square of an f32 is exact in f64.
      const double scaled = static_cast<double>(value) * scale;
      const auto units = static_cast<int64_t>(scaled * scaled * kUnits);
      low += units & kLow;
      high += units >> 32;
    }
    sum[0] += low & kLow;
    sum[1] += (low >> 32) + (high & kLow);
    sum[2] += high >> 32;
  }
}

/// The number that is the same for all ways to write it in parts.
static double value_of(WideNumber number) {
  for (size_t i = 0; i < 2; ++i) {
    number[i + 1] += number[i] >> 32;
    number[i] &= 0xffffffff;
  }
  return std::ldexp(static_cast<double>(number[2]), 64) +
         std::ldexp(static_cast<double>(number[1]), 32) + static_cast<double>(number[0]);
}

Tensor fixed_norm(const std::vector<ParameterPtr>& parameters, const Communicator& others) {
  const NoGrad no_grad;
  Tensors gradients;
  uint64_t model = 0;
  for (const ParameterPtr& parameter : parameters) {
    if (Tensor gradient = parameter->grad()) gradients.push_back(std::move(gradient));
    model = least_model(model, *parameter);
  }
  const SquaresReduction reduction("gradient norm", gradients, model);
  std::vector<size_t> counted;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (reduction.counts_here(i)) counted.push_back(i);
  }
  Tensors parts;
  for (const Run& run : adjacent_runs({&gradients}, counted)) {
    parts.push_back(copied_flat(gradients, run).to(f32));
  }
  const auto values_of = [](const Tensor& part) {
    return std::span<const float>(part.block().as<float>(), static_cast<size_t>(part.numel()));
  };
  int64_t greatest = 0;
  for (const Tensor& part : parts) greatest = std::max(greatest, greatest_bits(values_of(part)));
  const auto reduce = [&](std::span<int64_t> numbers, ReduceOp op) {
    reduction.reduce_numbers(numbers, op);
    if (others) others.all_reduce_numbers(numbers, op);
  };
  reduce({&greatest, 1}, ReduceOp::max);
  const float most = std::bit_cast<float>(static_cast<int32_t>(greatest));
  if (most == 0 || !std::isfinite(most)) return full({}, most, {.dtype = f32});
  int exponent = 0;
  std::frexp(most, &exponent);
  WideNumber sum{};
  for (const Tensor& part : parts) add_squares(values_of(part), std::ldexp(1.0, -exponent), sum);
  reduce(sum, ReduceOp::sum);
  const double norm = std::ldexp(std::sqrt(std::ldexp(value_of(sum), -kSquareBits)), exponent);
  return full({}, norm, {.dtype = f32});
}

}  // namespace weft
