// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// A mixture of experts: each token is computed by the experts that a router chooses for it. Experts
// are slices of stacked weights [experts, ...]; sharded along dim 0, each rank has its own experts.

/// Products of rows by expert. x [rows, k] is sorted: counts [groups, experts] (i64) states how
/// many rows each expert has, one group of experts after the other. Each row is multiplied by its
/// expert's matrix, of weights [experts, k, n]: [rows, n]. Rows after the last counted one become
/// 0.
///
/// Nothing moves along an axis that cuts both rows and experts if each rank has the rows of the
/// experts that it holds (`rows_by_expert`).
WEFT_API Tensor grouped_matmul(const Tensor& x, const Tensor& weights, const Tensor& counts);
/// The same with the transposes of weights [experts, n, k], as `linear`.
WEFT_API Tensor grouped_linear(const Tensor& x, const Tensor& weights, const Tensor& counts);

/// The rows that the ranks compute for their experts: one for each choice of each token that is not
/// dropped, sorted by group of ranks, expert, and token.
struct ExpertRows {
  /// [rows] i64: the token, and which of its choices.
  Tensor tokens, choices;
  /// [groups, experts] i64, equal on all ranks. A group is the tokens of ranks that differ only
  /// along the axes that cut the experts.
  Tensor counts;
  /// The number of choices that exceeded the capacity.
  int64_t dropped = 0;
};

/// Sorts the choices of tokens, experts [tokens, k] (i32 or i64), for stacked `weights` [experts,
/// ...]. The result is cut by the axes that cut tokens, then by those that cut dim 0 of `weights`,
/// so that each rank has the rows of its own experts. With a
/// `capacity_factor`, an expert computes at most ceil(factor * choices of the group / experts) rows
/// of a group: the first tokens keep their choice. Ranks exchange the choices along the experts'
/// axes, and the counts. A number that is not one of an expert fails on all ranks. On device
/// `meta`, choices are spread evenly over the experts, except that those of the first part have
/// `imbalance` times the mean.
WEFT_API ExpertRows rows_by_expert(const Tensor& experts, const Tensor& weights,
                                   std::optional<double> capacity_factor = {},
                                   double imbalance = 1);

/// The rows of x [tokens, d] that the ranks compute: [rows, d]. Ranks exchange each token at most
/// once.
WEFT_API Tensor dispatch_rows(const Tensor& x, const ExpertRows& rows);
/// The inverse: sums the rows of each token, times weights [tokens, k] of its choices, into
/// [tokens, d], laid out as the tokens of `weights`.
WEFT_API Tensor combine_rows(const Tensor& computed, const ExpertRows& rows, const Tensor& weights);

/// The rule by which a router's logits become choices and weights.
struct RouterOptions {
  /// Experts of a token.
  int64_t top_k = 2;
  enum class Scores { softmax, sigmoid } scores = Scores::softmax;
  /// Weights of a token's choices are divided by their sum.
  bool normalize = true;
  /// Multiplies the weights.
  double scale = 1;
  /// Choices come from the best `top_groups` of `groups` groups of neighbouring experts.
  int64_t groups = 1, top_groups = 1;
  /// The score of a group: that of its best expert, or the sum of the best two.
  enum class GroupScore { best, best_two } group_score = GroupScore::best;
  bool operator==(const RouterOptions&) const = default;
};

struct Routing {
  /// [tokens, k] and [tokens, k] i64: the weights of the experts, and their numbers.
  Tensor weights, experts;
  /// [tokens, experts]: softmax or sigmoid of the logits.
  Tensor scores;
};

/// Chooses experts by logits [tokens, experts], in f32. A `bias` [experts] is added to the scores
/// for the choice only.
WEFT_API Routing route_tokens(const Tensor& logits, const RouterOptions& options = {},
                              const Tensor& bias = {});

/// experts * sum over experts of (choices of the expert / tokens) * (mean of its scores): the
/// balance loss of Switch Transformers for k choices a token, as in Hugging Face's Mixtral.
WEFT_API Tensor balance_loss(const Routing& routing);
/// The mean over tokens of logsumexp(logits)^2 (ST-MoE).
WEFT_API Tensor router_z_loss(const Tensor& logits);
/// Balancing without a loss (DeepSeek-V3): `bias` [experts] plus `rate` for experts with fewer rows
/// than the mean of `counts` [.., experts], minus `rate` for those with more.
WEFT_API Tensor balanced_bias(const Tensor& bias, const Tensor& counts, double rate);

/// x, whose backward also sends the gradient `scale` to `loss` (of one element): adds scale * loss
/// to what is minimised without passing it through the model.
WEFT_API Tensor with_loss(const Tensor& x, const Tensor& loss, double scale = 1);

}  // namespace weft
