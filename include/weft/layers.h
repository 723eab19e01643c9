// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/module.h"

namespace weft {

/// Initial values of a normal distribution around 0.
WEFT_API Parameter::Initializer normal_values(double deviation);
/// All the same.
WEFT_API Parameter::Initializer constant_values(double value);

/// [..., in] -> [..., out]: x weight^T (+ bias). Parameters: weight [out, in], normal with
/// `deviation`; bias [out], zeros.
class WEFT_API Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, bool bias = false, double deviation = 0.02);

 protected:
  Tensors forward(const Tensors& inputs) override;
};

/// ids [...] -> [..., dim]. Parameter: weight [vocabulary, dim], normal with `deviation`.
class WEFT_API Embedding : public Module {
 public:
  Embedding(int64_t vocabulary, int64_t dim, double deviation = 0.02);

 protected:
  Tensors forward(const Tensors& inputs) override;
};

/// [..., dim] -> [..., dim]: `rms_norm`. Parameter: weight [dim], ones.
class WEFT_API RMSNorm : public Module {
 public:
  explicit RMSNorm(int64_t dim, double eps = 1e-5);

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  double eps_;
};

/// [..., dim] -> [..., dim]: `layer_norm`. Parameters: weight [dim], ones; bias [dim], zeros.
class WEFT_API LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t dim, double eps = 1e-5);

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  double eps_;
};

/// [...] -> [...]: `dropout` while training, what it gets otherwise.
class WEFT_API Dropout : public Module {
 public:
  /// std::invalid_argument when the probability is not in [0, 1).
  explicit Dropout(double probability);

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  double probability_;
};

/// Children "0", "1", ..., each called with what the one before gave.
class WEFT_API Sequential : public Module {
 public:
  /// Adds a child at the end.
  void append(std::shared_ptr<Module> child);

 protected:
  Tensors forward(const Tensors& inputs) override;
};

}  // namespace weft
