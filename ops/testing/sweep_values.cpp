// SPDX-License-Identifier: Apache-2.0
#include "ops/testing/sweep.h"

#include <algorithm>
#include <cmath>

#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/ops/factories.h"

namespace weft {

uint64_t SweepRandom::next() {  // splitmix64
  uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

double SweepArray::greatest() const {
  double greatest = 0;
  for (double value : values) {
    if (std::isfinite(value)) greatest = std::max(greatest, std::abs(value));
  }
  return greatest;
}

Tensor tensor_of(const SweepArray& array, Device device, const Sharding& sharding) {
  return from_values(array.values, array.shape,
                     {.dtype = array.dtype, .device = device, .sharding = sharding});
}

/// Floating values are multiples of this step, so that sums of a few are exact.
static double step_of(DType dtype) {
  if (dtype == DType::bf16) return 0x1p-4;
  if (dtype == DType::f16) return 0x1p-6;
  return is_floating(dtype) ? 0x1p-10 : 1;
}

SweepArray random_array(const Shape& shape, DType dtype, double low, double high, uint64_t seed) {
  SweepRandom random(seed);
  SweepArray array{shape, dtype, {}};
  if (dtype == DType::boolean) low = 0, high = 2;
  if (is_unsigned(dtype)) low = std::max(low, 0.0);
  double step = step_of(dtype), first = std::ceil(low / step);
  auto steps = static_cast<int64_t>(std::ceil(high / step) - first);
  for (int64_t i = 0; i < shape.product(); ++i) {
    array.values.push_back((first + static_cast<double>(random.below(steps))) * step);
  }
  return array;
}

/// Element i of part `index`: all parts but one are random, and that one holds the remainder.
static double term_of(double total, double step, int parts, int index, uint64_t element) {
  SweepRandom random(element * 0x51ed27ull + 7);
  const auto last = static_cast<int>(random.below(parts));
  double rest = total;
  for (int part = 0; part < parts; ++part) {
    if (part == last) continue;
    double term = static_cast<double>(random.below(static_cast<int64_t>(6 / step)) -
                                      static_cast<int64_t>(3 / step)) *
                  step;
    if (part == index) return term;
    rest -= term;
  }
  return rest;
}

/// Element i of part `index`: the value on one part, values beyond it on the others.
static double extreme_of(double value, double step, bool max, bool truth, int parts, int index,
                         uint64_t element) {
  SweepRandom random(element * 0x2545f4ull + 3);
  if (random.below(parts) == index) return value;
  for (int skipped = 0; skipped < index; ++skipped) random.next();
  double beyond = static_cast<double>(random.below(static_cast<int64_t>(2 / step))) * step;
  if (truth) return max ? std::min(value, beyond) : std::max(value, beyond);
  return max ? value - beyond : value + beyond;
}

SweepArray part_of(const SweepArray& whole, ReduceOp op, int parts, int index) {
  SweepArray part{whole.shape, whole.dtype, {}};
  const double step = step_of(whole.dtype);
  for (size_t i = 0; i < whole.values.size(); ++i) {
    double value = whole.values[i];
    if (op == ReduceOp::sum) {
      value = term_of(value, step, parts, index, i);
    } else if (op == ReduceOp::avg) {
      value = term_of(value * parts, step, parts, index, i);
    } else {
      value = extreme_of(value, step, op == ReduceOp::max, whole.dtype == DType::boolean, parts,
                         index, i);
      if (is_unsigned(whole.dtype)) value = std::max(value, 0.0);
    }
    part.values.push_back(value);
  }
  return part;
}

std::vector<double> elements_of(const SweepArray& whole, const Box& box) {
  std::vector<double> values(static_cast<size_t>(box.shape.product()));
  const MemoryBlock all =
      dense_block(const_cast<double*>(whole.values.data()), DType::f64, whole.shape);
  copy(dense_block(values.data(), DType::f64, box.shape), all.part(box));
  return values;
}

/// A sample with the factor sizes 5, 7, 3, 2, repeated; `...` is one dim of 3.
static OpSample sample_from_rule(const Op& op) {
  const ParsedRule& rule = *op.body().fixed_rule;
  constexpr int64_t kSizes[] = {5, 7, 3, 2};
  OpSample sample;
  for (const RuleArray& array : rule.operands) {
    Shape shape;
    for (const RuleDim& dim : array) {
      int64_t size = dim.ellipsis ? 3 : 1;
      for (int factor : dim.factors) size *= kSizes[factor % 4];
      shape.push_back(size);
    }
    sample.shapes.push_back(shape);
  }
  return sample;
}

std::vector<OpSample> samples_of(const Op& op) {
  if (!op.spec().samples.empty()) return op.spec().samples;
  if (!op.body().fixed_rule)
    fail(op.spec().name, ": samples are missing, expected some for an op whose rule is a function");
  return {sample_from_rule(op)};
}

SweepArray operand_of(const OpSample& sample, size_t i, uint64_t seed) {
  DType dtype = i < sample.dtypes.size() ? sample.dtypes[i] : DType::f32;
  return random_array(sample.shapes[i], dtype, sample.low, sample.high, seed * 100 + i);
}

double bound_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 2e-5;
    case DType::f64: return 1e-12;
    case DType::bf16: return 3e-2;
    case DType::f16: return 4e-3;
    default: return 0;
  }
}

std::string difference(const std::vector<double>& actual, const std::vector<double>& expected,
                       double greatest, double bound) {
  if (actual.size() != expected.size()) {
    return concat("has ", actual.size(), " elements instead of ", expected.size());
  }
  const double allowed = bound * (greatest > 0 ? greatest : 1);
  double most = -1;
  size_t worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const bool same =
        actual[i] == expected[i] || (actual[i] != actual[i] && expected[i] != expected[i]);
    double off = same ? 0 : std::abs(actual[i] - expected[i]);
    if (!(off <= allowed) && !(off <= most)) {
      most = std::isnan(off) ? INFINITY : off;
      worst = i;
    }
  }
  if (most < 0) return "";
  return concat("element ", worst, " is ", actual[worst], " instead of ", expected[worst]);
}

}  // namespace weft
