// SPDX-License-Identifier: Apache-2.0
#include "weft/layers.h"

#include <cmath>

#include "nn/checks.h"
#include "weft/context.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/embedding.h"
#include "weft/ops/factories.h"
#include "weft/ops/networks.h"
#include "weft/ops/products.h"
#include "weft/ops/shapes.h"
#include "weft/torch.h"

namespace weft {

Parameter::Initializer uniform_values(double bound) {
  return [bound](const Tensor& tensor) { uniform_(tensor, -bound, bound); };
}

Parameter::Initializer normal_values(double deviation) {
  return [deviation](const Tensor& tensor) { normal_(tensor, 0, deviation); };
}

Parameter::Initializer constant_values(double value) {
  return [value](const Tensor& tensor) { fill_(tensor, value); };
}

Linear::Linear(int64_t in, int64_t out, bool bias, std::optional<double> deviation) {
  check_positive("linear", "in", in);
  check_positive("linear", "out", out);
  const auto by_fan_in = uniform_values(1 / std::sqrt(static_cast<double>(in)));
  declare("weight", {out, in}, deviation ? normal_values(*deviation) : by_fan_in);
  if (bias) declare("bias", {out}, deviation ? constant_values(0) : by_fan_in);
}

Tensors Linear::forward(const Tensors& inputs) {
  const Tensor& x = only_input("linear", inputs);
  const Tensor none, &bias = own_parameters().size() > 1 ? used(1) : none;
  if (product_ && !float8_) return {product_(x, used(0), bias)};
  if (!float8_) return {bias ? linear(x, used(0), bias) : linear(x, used(0))};
  const Tensor y = float8_linear(x, used(0));
  return {bias ? y + bias : y};
}

int convert_to_float8(Module& model,
                      const std::function<bool(const Linear&, const std::string& path)>& filter) {
  int count = 0;
  for (const auto& [path, module] : model.named_modules()) {
    auto* linear = dynamic_cast<Linear*>(module);
    if (!linear || (filter && !filter(*linear, path))) continue;
    linear->set_float8(true);
    ++count;
  }
  return count;
}

/// `values`, and zeros in a row, if there is one.
static Parameter::Initializer with_zero_row(Parameter::Initializer values,
                                            std::optional<int64_t> row) {
  if (!row) return values;
  return [values = std::move(values), row = *row](const Tensor& tensor) {
    values(tensor);
    if (tensor.is_sharded() && tensor.sharding().has_inner()) {
      const NoGrad no_grad;
      fill_(slice(tensor, 0, row, row + 1), 0);
      return;
    }
    const Box box = tensor.box();
    const int64_t own = row - box.offset[0];
    if (own >= 0 && own < box.shape[0]) fill_(slice(tensor.local(), 0, own, own + 1), 0);
  };
}

Embedding::Embedding(int64_t vocabulary, int64_t dim, double deviation,
                     std::optional<int64_t> padding)
    : padding_(padding) {
  check_positive("embedding", "vocabulary", vocabulary);
  check_positive("embedding", "dim", dim);
  if (padding_) padding_ = padding_row("embedding", *padding_, vocabulary);
  declare("weight", {vocabulary, dim}, with_zero_row(normal_values(deviation), padding_));
}

Tensors Embedding::forward(const Tensors& inputs) {
  return {embedding(used(0), only_input("embedding", inputs), padding_)};
}

static void check_normalized(const char* what, const Shape& shape) {
  if (shape.ndim() == 0) fail(what, ": number of dims is 0, expected at least 1");
  for (const int64_t size : shape) check_positive(what, "dim", size);
}

RMSNorm::RMSNorm(int64_t dim, double eps) : RMSNorm(Shape{dim}, eps) {}
RMSNorm::RMSNorm(const Shape& normalized, double eps) : normalized_(normalized), eps_(eps) {
  check_normalized("rms_norm", normalized);
  declare("weight", normalized, constant_values(1));
}

Tensors RMSNorm::forward(const Tensors& inputs) {
  return {torch::rms_norm(only_input("rms_norm", inputs), normalized_, used(0), eps_)};
}

LayerNorm::LayerNorm(int64_t dim, double eps, bool affine, bool bias)
    : LayerNorm(Shape{dim}, eps, affine, bias) {}
LayerNorm::LayerNorm(const Shape& normalized, double eps, bool affine, bool bias)
    : normalized_(normalized), eps_(eps) {
  check_normalized("layer_norm", normalized);
  if (affine) declare("weight", normalized, constant_values(1));
  if (affine && bias) declare("bias", normalized, constant_values(0));
}

Tensors LayerNorm::forward(const Tensors& inputs) {
  const size_t own = own_parameters().size();
  return {torch::layer_norm(only_input("layer_norm", inputs), normalized_,
                            own > 0 ? used(0) : Tensor(), own > 1 ? used(1) : Tensor(), eps_)};
}

Dropout::Dropout(double probability) : probability_(probability) {
  if (probability >= 0 && probability <= 1) return;
  fail("dropout: probability is ", probability, ", expected one in [0, 1]");
}

Tensors Dropout::forward(const Tensors& inputs) {
  const Tensor& x = only_input("dropout", inputs);
  return {is_training() ? dropout(x, probability_) : x};
}

void Sequential::append(std::shared_ptr<Module> child) {
  add(std::to_string(children().size()), std::move(child));
}

Tensors Sequential::forward(const Tensors& inputs) {
  Tensors passed = inputs;
  for (const auto& [name, child] : children()) passed = (*child)(passed);
  return passed;
}

}  // namespace weft
