// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "weft/export.h"
#include "weft/parameter.h"

/// PyTorch's initializers (torch.nn.init). The bits are the same for any layout.
namespace weft::init {

/// The destination of an initializer: the elements of a tensor, or those of a parameter. A
/// parameter without memory gets them when it is materialized.
class WEFT_API Target {
 public:
  Target(const Tensor& tensor) : tensor_(tensor), shape_(tensor.shape()) {}
  Target(Parameter& parameter);
  Target(const ParameterPtr& parameter) : Target(*parameter) {}
  const Shape& shape() const { return shape_; }
  void fill(const Parameter::Initializer& values) const;

 private:
  Tensor tensor_;
  /// Null for a tensor and a parameter with memory.
  Parameter* later_ = nullptr;
  Shape shape_;
};

WEFT_API void constant_(const Target& to, double value);
inline void zeros_(const Target& to) { constant_(to, 0); }
inline void ones_(const Target& to) { constant_(to, 1); }
WEFT_API void normal_(const Target& to, double mean = 0, double std = 1);
/// Draws from [a, b).
WEFT_API void uniform_(const Target& to, double a = 0, double b = 1);

/// Draws within +-gain * sqrt(6 / (inputs + outputs)) of a weight [outputs, inputs, ...], or with
/// deviation gain * sqrt(2 / (inputs + outputs)) (Glorot and Bengio, 2010).
WEFT_API void xavier_uniform_(const Target& to, double gain = 1);
WEFT_API void xavier_normal_(const Target& to, double gain = 1);

/// The factor that keeps deviations constant through "linear", "sigmoid", "tanh", "relu" or
/// "leaky_relu" of slope `param`, 0.01 by default.
WEFT_API double calculate_gain(std::string_view nonlinearity, std::optional<double> param = {});
/// Draws with deviation gain / sqrt(inputs), or with `mode` "fan_out" gain / sqrt(outputs) (He et
/// al., 2015); uniform_ draws within sqrt(3) deviations. `a` is the slope of "leaky_relu".
WEFT_API void kaiming_uniform_(const Target& to, double a = 0, std::string_view mode = "fan_in",
                               std::string_view nonlinearity = "leaky_relu");
WEFT_API void kaiming_normal_(const Target& to, double a = 0, std::string_view mode = "fan_in",
                              std::string_view nonlinearity = "leaky_relu");

}  // namespace weft::init
