// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weft/export.h"
#include "weft/layers.h"
#include "weft/module.h"
#include "weft/ops/experts.h"

namespace weft {

/// A feed-forward whose experts are chosen by token, as of Mixtral, Qwen-MoE and DeepSeek.
struct MoEConfig {
  /// `width` is that of an expert.
  int64_t dim = 0, width = 0, experts = 0;
  RouterOptions router = {};
  /// Computes the router's logits in f32 where tokens have a smaller dtype, as with sigmoid scores.
  bool f32_logits = false;
  /// Adds a buffer `gate.e_score_correction_bias` to the scores for the choice, which
  /// `update_balance` changes.
  bool balance_bias = false;
  /// Width of the expert that computes all tokens; 0 without one. With `shared_gate` its result is
  /// multiplied by the sigmoid of a Linear of the token.
  int64_t shared_width = 0;
  bool shared_gate = false;
  /// The names of the shared expert, "shared_experts" or, in Qwen2-MoE, "shared_expert".
  std::string shared_name = "shared_experts";
  /// Backward adds the gradients of these times `balance_loss` and `router_z_loss`.
  double balance_coefficient = 0, z_coefficient = 0;
  /// Also returns what the balance loss is made of.
  bool returns_balance = false;
  /// Drops choices beyond the capacity (`rows_by_expert`); none without.
  std::optional<double> capacity_factor = {};
  /// Weights are normal with it, otherwise as those of Linear.
  std::optional<double> deviation = {};
  /// Parts of the sequences that go through the experts one after the other: on GPUs, tokens of one
  /// part travel while those of another are computed. Results are the same; not with a capacity.
  int64_t chunks = 1;
};

/// Chooses experts: x [tokens, dim] -> weights, experts [tokens, k], scores and logits [tokens,
/// experts]. Parameter: weight [experts, dim]; with `balance_bias` the buffer
/// e_score_correction_bias [experts].
class WEFT_API Router : public Module {
 public:
  explicit Router(const MoEConfig& config);

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  RouterOptions options_;
  bool has_bias_, f32_logits_;
};

/// Computes down(silu(gate x) * up x) of each token for its experts, and sums them by weight: x
/// [tokens, dim], weights and experts [tokens, k] -> [tokens, dim] and counts [groups, experts].
/// Parameters: gate_proj and up_proj [experts, width, dim], down_proj [experts, dim, width]. Where
/// they are sharded along dim 0, each rank computes the rows of its own experts.
class WEFT_API Experts : public Module {
 public:
  explicit Experts(const MoEConfig& config);
  /// Choices dropped by the last call.
  int64_t dropped() const { return dropped_; }
  /// On device `meta`, the experts of the first ranks compute `imbalance` times the mean of rows.
  void plan_imbalance(double imbalance) { imbalance_ = imbalance; }
  /// The next call computes this part of the tokens: a trace shows its number.
  void begin_part(int64_t number) { part_ = number; }

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  std::optional<double> capacity_factor_;
  int64_t dropped_ = 0;
  double imbalance_ = 1;
  int64_t part_ = -1;
};

/// [..., dim] -> [..., dim] and, with `returns_balance`, the mean scores of the experts and the
/// choices of each a token, both [experts]. Children: gate (Router), experts (Experts), and the
/// shared expert with gate_proj, up_proj and down_proj, and its shared_expert_gate.
///
/// On a GPU whose ranks exchange tokens, the shared expert and every second part compute on a
/// second stream, StreamRole::side, in forward and in backward.
class WEFT_API MoE : public Module {
 public:
  /// std::invalid_argument for sizes below 1.
  explicit MoE(const MoEConfig& config);
  const MoEConfig& config() const { return config_; }
  Experts& experts() { return *experts_; }
  /// The next call counts tokens with 0 in `mask` [...], of the tokens' shape, neither in the mean
  /// scores nor in the choices that it returns.
  void count_only(Tensor mask) { mask_ = std::move(mask); }

  /// [experts] f32: rows that each expert computed in calls recorded for backward since
  /// `update_balance`, for all ranks; empty before the first.
  const Tensor& load() const { return load_; }
  /// Choices dropped in the same calls.
  int64_t dropped() const { return dropped_; }
  /// Losses of the last such call, without their coefficients; empty when the coefficient is 0.
  const Tensor& balance_loss() const { return balance_loss_; }
  const Tensor& z_loss() const { return z_loss_; }
  /// Moves the bias by `rate` towards an even load (`balanced_bias`), if there is one, and forgets
  /// the load. Call it after the optimizer's step.
  void update_balance(double rate = 1e-3);

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  Tensor shared_of(const Tensor& tokens);
  /// {y [tokens, dim], counts} of the experts, in `chunks` parts.
  Tensors in_chunks(const Tensor& x, const Tensors& routed, const class SideStream& side);
  Tensor with_losses(const Tensor& y, const Tensors& routed);
  void count(const Tensor& counts);
  /// The mean scores and choices of the tokens that a mask counts.
  Tensors masked_balance(const Tensors& routed, const Tensor& mask) const;

  MoEConfig config_;
  std::shared_ptr<Router> gate_;
  std::shared_ptr<Experts> experts_;
  std::shared_ptr<Module> shared_, shared_gate_;
  Tensor load_, balance_loss_, z_loss_, mask_;
  int64_t dropped_ = 0;
};

/// Returns all MoE of a model, in the order of its modules.
WEFT_API std::vector<MoE*> moe_layers(Module& model);

}  // namespace weft
