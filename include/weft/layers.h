// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "weft/export.h"
#include "weft/module.h"

namespace weft {

/// Draws initial values from a uniform distribution in [-bound, bound).
WEFT_API Parameter::Initializer uniform_values(double bound);
/// Draws initial values from a normal distribution with mean 0 and standard deviation `deviation`.
WEFT_API Parameter::Initializer normal_values(double deviation);
/// Sets all initial values to `value`.
WEFT_API Parameter::Initializer constant_values(double value);

/// x weight^T (+ bias): [..., in] -> [..., out]. Parameters: weight [out, in] and bias [out],
/// uniform in +-1 / sqrt(in) as in PyTorch; with a `deviation`, the weight is normal and the bias
/// 0.
class WEFT_API Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, bool bias = false, std::optional<double> deviation = {});
  /// Computes products by `float8_linear` from the next call on. Parameters stay as they are.
  void set_float8(bool float8) { float8_ = float8; }
  bool is_float8() const { return float8_; }
  /// Computes products, other than those of `float8_linear`, by `product(x, weight, bias)` from the
  /// next call on: x weight^T (+ bias, unless it is empty). Null: by `linear`.
  using Product = std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)>;
  void set_product(Product product) { product_ = std::move(product); }
  const Product& product() const { return product_; }

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  bool float8_ = false;
  Product product_;
};

/// A Linear that computes products by `float8_linear`.
class WEFT_API Float8Linear : public Linear {
 public:
  Float8Linear(int64_t in, int64_t out, bool bias = false, std::optional<double> deviation = {})
      : Linear(in, out, bias, deviation) {
    set_float8(true);
  }
};

/// Lets each Linear of the model, or those for which `filter(layer, path)` is true, compute by
/// `float8_linear`. Returns their number.
WEFT_API int convert_to_float8(
    Module& model, const std::function<bool(const Linear&, const std::string& path)>& filter = {});

/// Looks up rows of the weight: ids [...] -> [..., dim]. Parameter: weight [vocabulary, dim],
/// normal with standard deviation `deviation`.
class WEFT_API Embedding : public Module {
 public:
  /// Row `padding`, which counts from the end if it is negative, begins as zeros and gets no
  /// gradient from here.
  Embedding(int64_t vocabulary, int64_t dim, double deviation = 1,
            std::optional<int64_t> padding = {});
  std::optional<int64_t> padding() const { return padding_; }

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  std::optional<int64_t> padding_;
};

/// Applies `rms_norm` along the last dims, which have the sizes `normalized` (of one dim: its
/// size). Parameter: weight, ones of that shape.
class WEFT_API RMSNorm : public Module {
 public:
  explicit RMSNorm(int64_t dim, double eps = 1e-5);
  explicit RMSNorm(const Shape& normalized, double eps = 1e-5);
  const Shape& normalized() const { return normalized_; }
  double eps() const { return eps_; }

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  Shape normalized_;
  double eps_;
};

/// Applies `layer_norm` along the last dims, as RMSNorm. Parameters of that shape: weight, ones;
/// bias, zeros. Without `affine` it has neither, and without `bias` no bias.
class WEFT_API LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t dim, double eps = 1e-5, bool affine = true, bool bias = true);
  explicit LayerNorm(const Shape& normalized, double eps = 1e-5, bool affine = true,
                     bool bias = true);
  const Shape& normalized() const { return normalized_; }
  double eps() const { return eps_; }

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  Shape normalized_;
  double eps_;
};

/// Applies `dropout` while training; returns its input otherwise.
class WEFT_API Dropout : public Module {
 public:
  /// std::invalid_argument when the probability is not in [0, 1].
  explicit Dropout(double probability);
  double probability() const { return probability_; }

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  double probability_;
};

/// Calls the children "0", "1", ... in order, each with the outputs of the one before.
class WEFT_API Sequential : public Module {
 public:
  /// Adds a child at the end.
  void append(std::shared_ptr<Module> child);

 protected:
  Tensors forward(const Tensors& inputs) override;
};

}  // namespace weft
