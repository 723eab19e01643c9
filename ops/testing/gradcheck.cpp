// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/testing.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "ops/testing/sweep.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/derivatives.h"
#include "weft/error.h"
#include "weft/ops.h"

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
      operands_[i].dtype = takes_f64(i) ? f64 : f32;
      in_f64_ = in_f64_ && takes_f64(i);
      for (double& value : operands_[i].values) {
        value = sample.low + random.fraction() * (sample.high - sample.low);
      }
    }
  }

  GradcheckReport check(uint64_t seed) {
    Tensors operands = tensors();
    for (Tensor& operand : operands) {
      if (is_floating(operand.dtype())) operand.set_requires_grad();
    }
    Tensor result = op_.call(operands, sample_.attributes)[0];
    if (!result.requires_grad()) return {.skipped = "no result requires a gradient"};
    if (in_f64_ && result.dtype() != f64) return {.skipped = "its result is not f64"};
    if (result.numel() == 0) return {.skipped = "its result has no elements"};
    cotangent_ = random_array(result.shape(), result.dtype(), -2, 2, seed);
    backward({result}, {tensor_of(cotangent_, device_)});
    GradcheckReport report;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!operands[i].grad()) continue;
      ++report.operands;
      if (operands_[i].dtype != f64) report.bound = 1e-2;
      report.worst =
          std::max(report.worst, error_of(i, operands[i].grad().to(cpu).to_vector<double>()));
    }
    if (!report.operands) report.skipped = "no operand gets a gradient";
    return report;
  }

 private:
  bool takes_f64(size_t operand) const {
    const std::vector<DType>& dtypes = taken(op_.spec(), operand).dtypes;
    return dtypes.empty() || std::ranges::find(dtypes, f64) != dtypes.end();
  }

  Tensors tensors() const {
    Tensors tensors;
    for (const SweepArray& array : operands_) tensors.push_back(tensor_of(array, device_));
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
    // The error is the third derivative times step^2, and the dtype's rounding divided by the step.
    const double step = in_f64_ ? 1e-5 : 1e-2;
    double worst = 0, greatest = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      double& x = operands_[operand].values[i];
      const double before = x;
      x = before + step;
      const double above = value();
      x = before - step;
      const double below = value();
      x = before;
      const double quotient = (above - below) / (2 * step);
      greatest = std::max(greatest, std::abs(quotient));
      const double off = std::abs(quotient - gradient[i]);
      worst = std::isnan(off) ? INFINITY : std::max(worst, off);
    }
    return worst / std::max(greatest, 1e-3);
  }

  const Op& op_;
  const OpSample& sample_;
  const Device device_;
  bool in_f64_ = true;
  std::vector<SweepArray> operands_;
  SweepArray cotangent_;
};

}  // namespace

GradcheckReport& GradcheckReport::operator+=(const GradcheckReport& other) {
  operands += other.operands;
  worst = std::max(worst, other.worst);
  bound = std::max(bound, other.bound);
  if (!other.skipped.empty()) skipped = other.skipped;
  return *this;
}

std::ostream& operator<<(std::ostream& out, const GradcheckReport& report) {
  if (!report.operands) return out << "nothing compared: " << report.skipped;
  return out << report.operands << (report.operands == 1 ? " operand" : " operands")
             << ", worst error " << report.worst << ", bound " << report.bound;
}

GradcheckReport gradcheck(const Op& op, uint64_t seed, Device device) {
  GradcheckReport report;
  for (const OpSample& sample : samples_of(op)) {
    GradcheckReport one = Jacobian(op, sample, seed, device).check(seed + 1);
    one.worst = std::max(one.worst, Jacobian(op, sample, seed + 2, device).check(seed + 3).worst);
    report += one;
  }
  return report;
}

/// A number that depends on all gradients of result 0 times the last input, the cotangent.
static Tensors weighted_gradients(const Op& op, const Attributes& attributes,
                                  const Tensors& operands, const std::vector<size_t>& places,
                                  const Tensors& given) {
  const auto result = [&](const Tensors& floating) {
    Tensors all = operands;
    for (size_t i = 0; i < places.size(); ++i) all[places[i]] = floating[i];
    return Tensors{op.call(all, attributes)[0]};
  };
  const Tensors own(given.begin(), given.end() - 1);
  const Tensors gradients = vjp(result, own, {given.back()}, given.back().requires_grad()).products;
  Tensor total;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Tensor phase =
        reshape(arange(gradients[i].numel(), {.dtype = f64}), gradients[i].shape());
    const Tensor part = sum(mul(gradients[i], cos(add(phase, static_cast<double>(i)))));
    total = total ? add(total, part) : part;
  }
  return {total};
}

static std::string gradgradcheck_sample(const Op& op, const OpSample& sample, uint64_t seed,
                                        Device device) {
  SweepRandom random(seed);
  Tensors operands, given;
  std::vector<size_t> places;
  for (size_t i = 0; i < sample.shapes.size(); ++i) {
    SweepArray array = operand_of(sample, i, seed);
    const std::vector<DType>& dtypes = taken(op.spec(), i).dtypes;
    const bool takes_f64 = dtypes.empty() || std::ranges::find(dtypes, f64) != dtypes.end();
    const bool varies = is_floating(array.dtype) && takes_f64;
    if (varies) {
      array.dtype = f64;
      for (double& value : array.values) {
        value = sample.low + random.fraction() * (sample.high - sample.low);
      }
      places.push_back(i);
    }
    operands.push_back(tensor_of(array, device));
  }
  if (places.empty()) return "skipped: no operand may be f64";
  Tensors leaves = operands, roots;
  for (const size_t i : places) {
    leaves[i] = leaves[i].detach().set_requires_grad();
    roots.push_back(leaves[i]);
  }
  const Tensor result = op.call(leaves, sample.attributes)[0];
  if (!result.requires_grad()) return "skipped: no result requires a gradient";
  if (result.dtype() != f64) return "skipped: its result is not f64";
  if (result.numel() == 0) return "skipped: its result has no elements";
  // Operands that get no gradient are constants.
  const Tensors first =
      grad({result}, roots, {.grad_outputs = {ones_like(result)}, .allow_unused = true});
  std::vector<size_t> differentiable;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!first[i]) continue;
    differentiable.push_back(places[i]);
    given.push_back(operands[places[i]]);
  }
  places = std::move(differentiable);
  if (given.empty()) return "skipped: no operand gets a gradient";
  given.push_back(tensor_of(random_array(result.shape(), f64, -2, 2, seed + 1), device));
  return gradcheck(
      [&](const Tensors& all) {
        return weighted_gradients(op, sample.attributes, operands, places, all);
      },
      given);
}

std::string gradgradcheck(const Op& op, uint64_t seed, Device device) {
  std::string all;
  for (const OpSample& sample : samples_of(op)) {
    const std::string found = gradgradcheck_sample(op, sample, seed, device);
    if (!found.starts_with("skipped") && !found.empty()) return found;
    if (all.empty() || found.empty()) all = found.empty() ? "ok" : found;
  }
  return all == "ok" ? "" : all;
}

/// Returns the first difference above 1e-4 of the greatest element; "" without one.
static std::string difference_of(const Tensor& found, const Tensor& expected) {
  if (!(found.shape() == expected.shape())) {
    return concat("is ", found.shape(), ", expected ", expected.shape());
  }
  const std::vector<double> a = found.to(cpu).to(f64).to_vector<double>(),
                            b = expected.to(cpu).to(f64).to_vector<double>();
  double greatest = 1e-3;
  for (const double x : b) greatest = std::max(greatest, std::isfinite(x) ? std::abs(x) : 0);
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || std::abs(a[i] - b[i]) <= 1e-4 * greatest) continue;
    return concat("[", i, "] is ", a[i], ", expected ", b[i]);
  }
  return "";
}

std::string check_definition(const Op& op, uint64_t seed, Device device) {
  const NoGrad no_grad;
  for (const OpSample& sample : samples_of(op)) {
    Tensors operands;
    for (size_t i = 0; i < sample.shapes.size(); ++i) {
      operands.push_back(tensor_of(operand_of(sample, i, seed), device));
    }
    const Tensors found = op.call(operands, sample.attributes);
    const Tensors expected = op.spec().definition(operands, sample.attributes);
    for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
      const std::string wrong = difference_of(found[i], expected[i]);
      if (!wrong.empty()) return concat(op.spec().name, ": result ", i, ' ', wrong);
    }
  }
  return "";
}

}  // namespace weft
