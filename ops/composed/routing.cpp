// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "ops/dims.h"
#include "ops/engine/tensor_body.h"
#include "ops/take.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops.h"

namespace weft {

static void check_router(const Tensor& logits, const RouterOptions& options, const Tensor& bias) {
  check_tensor("route_tokens", logits);
  if (logits.ndim() != 2) {
    fail("route_tokens: logits are ", logits.shape(), ", expected [tokens, experts]");
  }
  const int64_t experts = logits.size(1);
  if (bias && bias.shape() != Shape{experts}) {
    fail("route_tokens: bias is ", bias.shape(), ", expected ", Shape{experts});
  }
  if (options.groups < 1 || experts % options.groups != 0) {
    fail("route_tokens: number of groups is ", options.groups, ", expected a divisor of ", experts,
         ", the experts");
  }
  if (options.top_groups < 1 || options.top_groups > options.groups) {
    fail("route_tokens: top_groups is ", options.top_groups, ", expected 1 to ", options.groups);
  }
  const int64_t most = experts / options.groups * options.top_groups;
  if (options.top_k < 1 || options.top_k > most) {
    fail("route_tokens: top_k is ", options.top_k, ", expected 1 to ", most,
         ", the experts to choose from");
  }
  if (options.groups > 1 && options.group_score == RouterOptions::GroupScore::best_two &&
      experts / options.groups < 2) {
    fail("route_tokens: groups have 1 expert, expected at least 2 for their best two");
  }
}

/// `scores` with -inf for the experts outside of each token's best groups.
static Tensor within_best_groups(const Tensor& scores, const RouterOptions& options) {
  const int64_t tokens = scores.size(0), experts = scores.size(1);
  const Tensor grouped = reshape(scores, {tokens, options.groups, experts / options.groups});
  const bool sums = options.group_score == RouterOptions::GroupScore::best_two;
  const Tensor of_groups = sums ? sum(topk(grouped, 2, 2).values, {2}) : max(grouped, {2});
  const Tensor best = topk(of_groups, options.top_groups, 1).indices;
  const Tensor is_best = scatter_along_dim(zeros_like(of_groups), 1, best, 1.0);
  const Tensor outside = expand(unsqueeze(equal(is_best, 0), 2), grouped.shape());
  return reshape(masked_fill(grouped, outside, -std::numeric_limits<double>::infinity()),
                 {tokens, experts});
}

Routing route_tokens(const Tensor& logits, const RouterOptions& options, const Tensor& bias) {
  check_router(logits, options, bias);
  const Tensor wide = logits.dtype() == DType::f64 ? logits : cast(logits, DType::f32);
  Routing routing;
  routing.scores = options.scores == RouterOptions::Scores::softmax ? softmax(wide) : sigmoid(wide);
  {
    NoGrad no_grad;
    Tensor ranked = routing.scores.detach();
    if (bias) ranked = add(ranked, cast(bias.detach(), ranked.dtype()));
    if (options.groups > 1) ranked = within_best_groups(ranked, options);
    routing.experts = topk(ranked, options.top_k, 1).indices;
  }
  Tensor weights = take_along_dim(routing.scores, routing.experts, 1);
  if (options.normalize) {
    // Sigmoids of one token's experts can all be 0.
    const double least = options.scores == RouterOptions::Scores::sigmoid ? 1e-20 : 0;
    weights = div(weights, add(sum(weights, {1}, true), least));
  }
  routing.weights = options.scale == 1 ? weights : mul(weights, options.scale);
  return routing;
}

Tensor balance_loss(const Routing& routing) {
  const auto experts = routing.scores.size(1);
  const int64_t tokens = routing.experts.size(0);
  Tensor chosen;
  {
    NoGrad no_grad;
    const Tensor ones = ones_like(cast(routing.experts, routing.scores.dtype()));
    chosen = sum(add_along_dim(ones, routing.experts, 1, experts), {0});
  }
  const Tensor share = mul(chosen, static_cast<double>(experts) / static_cast<double>(tokens));
  return sum(mul(share, mean(routing.scores, {0})));
}

Tensor router_z_loss(const Tensor& logits) {
  check_tensor("router_z_loss", logits);
  const Tensor wide = logits.dtype() == DType::f64 ? logits : cast(logits, DType::f32);
  const Tensor sums = logsumexp(wide, -1);
  return mean(mul(sums, sums));
}

Tensor balanced_bias(const Tensor& bias, const Tensor& counts, double rate) {
  check_tensor("balanced_bias", bias, counts);
  if (bias.ndim() != 1 || counts.ndim() < 1 || counts.size(counts.ndim() - 1) != bias.size(0)) {
    fail("balanced_bias: counts are ", counts.shape(), ", expected ", bias.size(0),
         " in the last dim, the experts of the bias ", bias.shape());
  }
  NoGrad no_grad;
  Tensor load = cast(counts, DType::f32);
  while (load.ndim() > 1) load = sum(load, {0});
  const Tensor error = sub(mean(load, {0}, true), load);
  return add(bias.detach(), cast(mul(sign(error), rate), bias.dtype()));
}

/// Not in `all_ops`: its gradient is not that of its values.
static const Op with_loss_op{OpSpec{
    .name = "with_loss",
    .rule = "..., . -> ...",
    .takes = {anything()},
    .linear = {{0}},
    .view =
        [](const Call& c) {
          return std::optional<View>(View{c.in(0).strides, 0});
        },
    .backward =
        [](const Grad& g) {
          g.give(0, g.grad());
          TensorOptions options{.dtype = g.in_dtype(1), .device = g.grad().device()};
          if (g.in_sharding(1)) options.sharding = Sharding(g.in_sharding(1).mesh(), {});
          if (g.wants(1)) g.give(1, full({}, g.value(0), options));
        },
    .saves_in = std::vector<int>{},
}};

Tensor with_loss(const Tensor& x, const Tensor& loss, double scale) {
  check_tensor("with_loss", x, loss);
  if (loss.numel() != 1) fail("with_loss: loss is ", loss.shape(), ", expected one element");
  return with_loss_op({x, reshape(loss, {})}, {.values = {scale}});
}

}  // namespace weft
