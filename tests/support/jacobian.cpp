// SPDX-License-Identifier: Apache-2.0
#include "tests/support/jacobian.h"

#include <algorithm>
#include <cmath>

#include "tests/support/sweep_values.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/ops/factories.h"

namespace weft {

namespace {

/// Computes one sample in f64.
class Jacobian {
 public:
  Jacobian(const Op& op, const OpSample& sample, uint64_t seed, Device device)
      : op_(op), sample_(sample), device_(device) {
    SweepRandom random(seed);
    for (size_t i = 0; i < sample.shapes.size(); ++i) {
      operands_.push_back(operand_of(sample, i, seed));
      if (!is_floating(operands_[i].dtype)) continue;
      // Values off the grid of the sweep have neither ties nor corners.
      operands_[i].dtype = DType::f64;
      for (double& value : operands_[i].values) {
        value = sample.low + random.fraction() * (sample.high - sample.low);
      }
    }
  }

  JacobianReport check(uint64_t seed) {
    Tensors operands = tensors();
    for (Tensor& operand : operands) {
      if (is_floating(operand.dtype())) operand.set_requires_grad();
    }
    Tensor result = op_.call(operands, sample_.attributes)[0];
    if (result.dtype() != DType::f64) return {.skipped = "its result is no f64"};
    if (result.numel() == 0) return {.skipped = "its result has no elements"};
    cotangent_ = random_array(result.shape(), DType::f64, -2, 2, seed);
    backward({result}, {from_values(cotangent_.values, result.shape(),
                                    {.dtype = DType::f64, .device = device_})});
    JacobianReport report;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!operands[i].grad()) continue;
      ++report.operands;
      report.worst =
          std::max(report.worst, error_of(i, operands[i].grad().to(cpu).to_vector<double>()));
    }
    if (!report.operands) report.skipped = "no operand gets a gradient";
    return report;
  }

 private:
  Tensors tensors() const {
    Tensors tensors;
    for (const SweepArray& array : operands_) {
      tensors.push_back(
          from_values(array.values, array.shape, {.dtype = array.dtype, .device = device_}));
    }
    return tensors;
  }

  /// The sum of result 0 times the cotangent.
  double value() const {
    NoGrad no_grad;
    std::vector<double> result =
        op_.call(tensors(), sample_.attributes)[0].to(cpu).to_vector<double>();
    double sum = 0;
    for (size_t i = 0; i < result.size(); ++i) sum += result[i] * cotangent_.values[i];
    return sum;
  }

  double error_of(size_t operand, const std::vector<double>& gradient) {
    constexpr double kStep = 1e-5;
    double worst = 0, greatest = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      double& x = operands_[operand].values[i];
      const double before = x;
      x = before + kStep;
      const double above = value();
      x = before - kStep;
      const double below = value();
      x = before;
      const double quotient = (above - below) / (2 * kStep);
      greatest = std::max(greatest, std::abs(quotient));
      const double off = std::abs(quotient - gradient[i]);
      worst = std::isnan(off) ? INFINITY : std::max(worst, off);
    }
    return worst / std::max(greatest, 1e-3);
  }

  const Op& op_;
  const OpSample& sample_;
  const Device device_;
  std::vector<SweepArray> operands_;
  SweepArray cotangent_;
};

}  // namespace

JacobianReport check_jacobian(const Op& op, const OpSample& sample, uint64_t seed, Device device) {
  JacobianReport first = Jacobian(op, sample, seed, device).check(seed + 1);
  JacobianReport second = Jacobian(op, sample, seed + 2, device).check(seed + 3);
  first.worst = std::max(first.worst, second.worst);
  return first;
}

}  // namespace weft
