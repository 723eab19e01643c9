// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "weft/layers.h"
#include "weft/parameter.h"

// Parameters and gradients of plain numbers, for tests of optimizers.

namespace weft {

using Values = std::vector<double>;

inline NamedParameter named_values(const std::string& name, const Shape& shape, double salt,
                                   const Sharding& sharding = {}) {
  Values values;
  for (int64_t i = 0; i < shape.product(); ++i) {
    values.push_back(std::sin(static_cast<double>(i) + salt));
  }
  auto parameter = std::make_shared<Parameter>(shape, f32, constant_values(0));
  parameter->set_value(from_values(values, shape, {.sharding = sharding}));
  return {{name}, parameter};
}

inline Values gradient_of(const Shape& shape, int step) {
  Values gradient;
  for (int64_t i = 0; i < shape.product(); ++i) {
    const auto at = static_cast<double>(i);
    gradient.push_back(std::cos(at * 7 + step) * std::exp(std::sin(at) * 4));
  }
  return gradient;
}

inline void give_gradient(const NamedParameter& named, int step, double times = 1) {
  const Tensor& value = named.parameter->value();
  Values gradient = gradient_of(value.shape(), step);
  for (double& one : gradient) one *= times;
  value.set_grad(from_values(gradient, value.shape(), {.sharding = value.sharding()}));
}

inline Values values_of(const NamedParameter& named) {
  return whole_values(named.parameter->value());
}

}  // namespace weft
