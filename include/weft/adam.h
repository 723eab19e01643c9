// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/grouped_optimizer.h"
#include "weft/ops/in_place.h"

namespace weft {

struct ParameterState;

enum class WEFT_API AdamKind : uint8_t { adam, adamw, adamw8bit, lamb };

/// Options of Adam and its variants.
template <AdamKind kKind> struct WEFT_API AdamKindOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = kKind == AdamKind::lamb ? 1e-6 : 1e-8;
  double weight_decay = kKind == AdamKind::adam ? 0 : 0.01;
  /// All parameters unless given.
  DecayPredicate decays = {};
  /// Dtype of m and v, of Adam and AdamW. bf16 halves their memory; v then decays only while
  /// 1 - beta2 is above 2^-9.
  DType moments = f32;
  /// The memory of the state: with the parameters, in pinned host memory (`true`: each step passes
  /// it through the GPU), or on disk (`Tier::disk`: each step passes it through bounded buffers).
  /// AdamW8bit has none.
  Tier offload = {};
  /// AdamW8bit keeps moments of f32 for parameters with fewer elements, and for those of fewer than
  /// 2 dims.
  double least_elements = 4096;
};
using AdamOptions = AdamKindOptions<AdamKind::adam>;
using AdamWOptions = AdamKindOptions<AdamKind::adamw>;
using AdamW8bitOptions = AdamKindOptions<AdamKind::adamw8bit>;
using LambOptions = AdamKindOptions<AdamKind::lamb>;

/// The common base of the variants of Adam. State: "m", "v".
template <class Self, AdamKind kKind>
class WEFT_API AdamFamily : public GroupedOptimizer<Self, AdamKindOptions<kKind>> {
 public:
  using GroupedOptimizer<Self, AdamKindOptions<kKind>>::GroupedOptimizer;
  std::string_view name() const override;
  std::vector<std::string> moments() const override { return {"m", "v"}; }

 protected:
  using Update = Optimizer::Update;
  void update(const Update& update) override;
  DType moment_dtype() const override { return this->options_[0].moments; }
  std::vector<double> rates(size_t parameter, int64_t step) const override;
  AdamWStep numbers_of(size_t parameter, int64_t step) const;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): `adamw_`.
class WEFT_API AdamW final : public AdamFamily<AdamW, AdamKind::adamw> {
 public:
  using AdamFamily::AdamFamily;
};

/// Adam (Kingma and Ba, 2015), whose weight decay is part of the gradient, unlike AdamW's. With
/// weight decay a step needs a copy of the gradients that one call updates.
class WEFT_API Adam final : public AdamFamily<Adam, AdamKind::adam> {
 public:
  using AdamFamily::AdamFamily;
};

/// AdamW whose moments have 8 bits an element and a scale for 128 elements of a row (`adamw8_`):
/// 2.06 bytes an element instead of 8. The bits of the state depend on neither mesh nor layout. A
/// step of a parameter whose last dim is cut has one all-reduce of its scales. State: "m", "v" and
/// "m_scale", "v_scale", which are whole along the last dim.
class WEFT_API AdamW8bit final : public AdamFamily<AdamW8bit, AdamKind::adamw8bit> {
 public:
  using AdamFamily::AdamFamily;
  std::vector<std::string> moments() const override { return {"m", "v", "m_scale", "v_scale"}; }

 protected:
  void update_all(std::span<const Update> updates) override;
  int kind_of(size_t parameter) const override;
  std::optional<StateSpec> state_spec(size_t parameter, size_t moment) const override;

 private:
  bool has_8_bits(size_t parameter) const;
  void update_whole(size_t parameter, const Tensor& gradient_scale);
};

/// Layer-wise adapted Adam (You et al., 2020): with u = m / (1 - beta1^step) / (sqrt(v / (1 -
/// beta2^step)) + eps) + weight_decay p of a whole parameter p, p -= lr |p| / |u| u (lr u where one
/// of the norms is 0). One all-reduce computes the norms of all parameters; all ranks of their
/// meshes must take part. A step needs extra memory for the directions u, in f32 (f64 for f64
/// parameters); they rest on disk if the state does, else where the parameter is used.
class WEFT_API Lamb final : public AdamFamily<Lamb, AdamKind::lamb> {
 public:
  using AdamFamily::AdamFamily;

 protected:
  void update(const Update& update) override;
  void update_all(std::span<const Update> updates) override;
  /// Each parameter has its own norms and needs its own update.
  int kind_of(size_t parameter) const override { return static_cast<int>(parameter); }

 private:
  Tensor new_direction(const Update& update);
  void add_squares(const Update& part, const Tensor& squares) const;

  /// The directions of a step, if the state rests on disk.
  std::shared_ptr<ParameterState> directions_;
};

/// All numbers among the options, "lr" first.
WEFT_API std::vector<Hyperparameter> hyperparameters(AdamOptions& options);
WEFT_API std::vector<Hyperparameter> hyperparameters(AdamWOptions& options);
WEFT_API std::vector<Hyperparameter> hyperparameters(AdamW8bitOptions& options);
WEFT_API std::vector<Hyperparameter> hyperparameters(LambOptions& options);

}  // namespace weft
