// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {

/// A whole tensor as plain numbers.
struct Array {
  Shape shape;
  std::vector<double> values;
  DType dtype = DType::f32;

  Tensor on(const Sharding& sharding = {}) const {
    return from_values(values, shape, {.dtype = dtype, .sharding = sharding});
  }
};

/// Uniform in [low, high); integers for integer dtypes. Floats are exact in f32.
inline Array random_array(const Shape& shape, double low, double high, DType dtype = DType::f32,
                          unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  Array array{shape, {}, dtype};
  for (int64_t i = 0; i < shape.product(); ++i) {
    double value = static_cast<float>(uniform(generator));
    array.values.push_back(is_floating(dtype) ? value : std::floor(value));
  }
  return array;
}

inline Array whole(const Tensor& tensor) {
  Tensor full = tensor.is_sharded() ? tensor.full_tensor() : tensor;
  return {full.shape(), full.to_vector<double>(), full.dtype()};
}

/// max|difference| / max|expected| <= bound; equal where the expected value is not finite.
inline void expect_close(const Array& actual, const Array& expected, double bound,
                         const std::string& what) {
  ASSERT_EQ(actual.shape, expected.shape) << what;
  double greatest = 0;
  for (double value : expected.values) {
    if (std::isfinite(value)) greatest = std::max(greatest, std::abs(value));
  }
  for (size_t i = 0; i < expected.values.size(); ++i) {
    double a = actual.values[i], e = expected.values[i];
    if (std::isnan(e)) {
      ASSERT_TRUE(std::isnan(a)) << what << " element " << i << ": " << a;
    } else if (std::isinf(e)) {
      ASSERT_EQ(a, e) << what << " element " << i;
    } else {
      ASSERT_LE(std::abs(a - e), bound * greatest)
          << what << " element " << i << ": " << a << " instead of " << e;
    }
  }
}

using Function = std::function<Tensors(const Tensors&)>;

/// Results of `function`, and the operands' gradients of the results' weighted sum (none for
/// integer operands).
struct Outcome {
  std::vector<Array> results;
  std::vector<Array> gradients;
};

inline Tensor weighted_sum(const Tensors& results, const DeviceMesh& mesh) {
  Tensor total;
  unsigned seed = 100;
  for (const Tensor& result : results) {
    if (!is_floating(result.dtype()) || !result.requires_grad()) continue;
    Array weights = random_array(result.shape(), -1, 1, result.dtype(), seed++);
    Tensor part = sum(result * weights.on(mesh ? Sharding(mesh, Placements{}) : Sharding()));
    total = total ? total + part : part;
  }
  return total;
}

/// `placements` of each operand, when there is a mesh.
inline Outcome outcome_of(const Function& function, const std::vector<Array>& operands,
                          const DeviceMesh& mesh = {},
                          const std::vector<Placements>& placements = {}) {
  Tensors tensors;
  for (size_t i = 0; i < operands.size(); ++i) {
    tensors.push_back(operands[i].on(mesh ? Sharding(mesh, placements[i]) : Sharding()));
    if (is_floating(operands[i].dtype)) tensors.back().set_requires_grad();
  }
  Outcome outcome;
  Tensors results = function(tensors);
  for (const Tensor& result : results) outcome.results.push_back(whole(result));
  Tensor total = weighted_sum(results, mesh);
  if (!total) return outcome;
  backward({total}, {});
  for (const Tensor& tensor : tensors) {
    if (tensor.requires_grad()) outcome.gradients.push_back(whole(tensor.grad()));
  }
  return outcome;
}

/// A mesh and the operands' placements on it.
struct LaidOut {
  std::vector<MeshAxis> axes;
  std::vector<Placements> operands;
};

/// Checks that results and gradients on each of the layouts equal those of one device.
inline void expect_agreement(const Function& function, const std::vector<Array>& operands,
                             const std::vector<LaidOut>& layouts, double bound = 1e-5) {
  const Outcome expected = outcome_of(function, operands);
  for (size_t number = 0; number < layouts.size(); ++number) {
    const LaidOut& laid_out = layouts[number];
    run_ranks(ranks_of(laid_out.axes),
              [&](Communicator world) {
                DeviceMesh mesh(world, laid_out.axes);
                Outcome actual = outcome_of(function, operands, mesh, laid_out.operands);
                const std::string where = "layout " + std::to_string(number);
                ASSERT_EQ(actual.gradients.size(), expected.gradients.size()) << where;
                for (size_t i = 0; i < expected.results.size(); ++i) {
                  expect_close(actual.results[i], expected.results[i], bound,
                               where + " result " + std::to_string(i));
                }
                for (size_t i = 0; i < expected.gradients.size(); ++i) {
                  expect_close(actual.gradients[i], expected.gradients[i], bound,
                               where + " gradient " + std::to_string(i));
                }
              },
              {.deadline = std::chrono::seconds(10)});
  }
}

}  // namespace weft
