// SPDX-License-Identifier: Apache-2.0
#include "weft/init.h"

#include <cmath>
#include <numbers>

#include "weft/context.h"
#include "weft/error.h"
#include "weft/layers.h"
#include "weft/ops/factories.h"

namespace weft::init {

Target::Target(Parameter& parameter) : shape_(parameter.shape()) {
  if (parameter.is_materialized()) {
    tensor_ = parameter.value();
  } else {
    later_ = &parameter;
  }
}

void Target::fill(const Parameter::Initializer& values) const {
  if (later_) return later_->set_initializer(values);
  NoGrad no_grad;
  values(tensor_);
}

void constant_(const Target& to, double value) { to.fill(constant_values(value)); }

void normal_(const Target& to, double mean, double std) {
  to.fill([=](const Tensor& values) { weft::normal_(values, mean, std); });
}

void uniform_(const Target& to, double a, double b) {
  to.fill([=](const Tensor& values) { weft::uniform_(values, a, b); });
}

/// Inputs and outputs of a weight [outputs, inputs, ...].
struct Fans {
  double in, out;
};

static Fans fans_of(const char* what, const Shape& shape) {
  if (shape.ndim() < 2) fail(what, ": shape is ", shape, ", expected at least 2 dims");
  double field = 1;
  for (int d = 2; d < shape.ndim(); ++d) field *= static_cast<double>(shape[d]);
  return {static_cast<double>(shape[1]) * field, static_cast<double>(shape[0]) * field};
}

void xavier_uniform_(const Target& to, double gain) {
  const auto [in, out] = fans_of("xavier_uniform_", to.shape());
  const double bound = gain * std::sqrt(6 / (in + out));
  uniform_(to, -bound, bound);
}

void xavier_normal_(const Target& to, double gain) {
  const auto [in, out] = fans_of("xavier_normal_", to.shape());
  normal_(to, 0, gain * std::sqrt(2 / (in + out)));
}

double calculate_gain(std::string_view nonlinearity, std::optional<double> param) {
  if (nonlinearity == "linear" || nonlinearity == "sigmoid") return 1;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::numbers::sqrt2;
  if (nonlinearity == "leaky_relu") return std::sqrt(2 / (1 + std::pow(param.value_or(0.01), 2)));
  fail("calculate_gain: nonlinearity is ", in_quotes(nonlinearity),
       ", expected one of linear, sigmoid, tanh, relu, leaky_relu");
}

static double kaiming_deviation(const char* what, const Target& to, double a, std::string_view mode,
                                std::string_view nonlinearity) {
  if (mode != "fan_in" && mode != "fan_out") {
    fail(what, ": mode is ", in_quotes(mode), ", expected fan_in or fan_out");
  }
  const auto [in, out] = fans_of(what, to.shape());
  return calculate_gain(nonlinearity, a) / std::sqrt(mode == "fan_in" ? in : out);
}

void kaiming_uniform_(const Target& to, double a, std::string_view mode,
                      std::string_view nonlinearity) {
  const double bound =
      std::numbers::sqrt3 * kaiming_deviation("kaiming_uniform_", to, a, mode, nonlinearity);
  uniform_(to, -bound, bound);
}

void kaiming_normal_(const Target& to, double a, std::string_view mode,
                     std::string_view nonlinearity) {
  normal_(to, 0, kaiming_deviation("kaiming_normal_", to, a, mode, nonlinearity));
}

}  // namespace weft::init
