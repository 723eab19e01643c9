// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/losses.h"

#include "ops/promotion.h"
#include "ops/take.h"
#include "weft/ops.h"

namespace weft {

static Tensor reduced_elements(const char* what, const Tensor& losses, std::string_view reduction) {
  if (reduction == "none") return losses;
  if (reduction == "mean") return mean(losses);
  if (reduction == "sum") return sum(losses);
  fail(what, ": reduction is ", in_quotes(reduction), ", expected mean, sum or none");
}

static void check_pair(const char* what, const Tensor& input, const Tensor& target) {
  check_tensor(what, input, target);
  if (input.shape() == target.shape()) return;
  fail(what, ": target is ", target.shape(), ", expected ", input.shape(), ", the shape of input");
}

static void check_above_zero(const char* what, const char* name, double value, bool or_zero) {
  if (value > 0 || (or_zero && value == 0)) return;
  fail(what, ": ", name, " is ", value, ", expected a number ", or_zero ? "of at least" : "above",
       " 0");
}

Tensor l1_loss(const Tensor& input, const Tensor& target, std::string_view reduction) {
  check_pair("l1_loss", input, target);
  return reduced_elements("l1_loss", abs(sub(input, target)), reduction);
}

/// factor * d^2 where d < bound, elsewhere 2 factor bound d - factor bound^2.
static Tensor rounded_distance(const Tensor& input, const Tensor& target, double bound,
                               double factor) {
  const Tensor d = abs(sub(input, target));
  const Tensor beyond = sub(mul(d, 2 * factor * bound), factor * bound * bound);
  return where(less(d, bound), mul(square(d), factor), beyond);
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, std::string_view reduction,
                      double beta) {
  check_pair("smooth_l1_loss", input, target);
  check_above_zero("smooth_l1_loss", "beta", beta, true);
  const Tensor losses =
      beta == 0 ? abs(sub(input, target)) : rounded_distance(input, target, beta, 0.5 / beta);
  return reduced_elements("smooth_l1_loss", losses, reduction);
}

Tensor huber_loss(const Tensor& input, const Tensor& target, std::string_view reduction,
                  double delta) {
  check_pair("huber_loss", input, target);
  check_above_zero("huber_loss", "delta", delta, false);
  return reduced_elements("huber_loss", rounded_distance(input, target, delta, 0.5), reduction);
}

static Tensor weighted(const Tensor& losses, const Tensor& weight) {
  return weight ? mul(losses, weight) : losses;
}

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight,
                            std::string_view reduction) {
  check_pair("binary_cross_entropy", input, target);
  // It is at least -100, as in PyTorch: log(1e-44) is below. Where x is 0 the gradient is 0.
  const auto log_of = [](const Tensor& x) {
    return clip(log(clip(x, 1e-44, std::nullopt)), -100, std::nullopt);
  };
  const Tensor ones = ones_like(target);
  const Tensor likelihood =
      add(mul(target, log_of(input)), mul(sub(ones, target), log_of(sub(ones_like(input), input))));
  return reduced_elements("binary_cross_entropy", weighted(neg(likelihood), weight), reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const Tensor& weight, std::string_view reduction,
                                        const Tensor& pos_weight) {
  const char* what = "binary_cross_entropy_with_logits";
  check_pair(what, input, target);
  const Tensor ones = ones_like(target);
  // softplus(-x), without overflow, and with its gradient at 0.
  Tensor positive = logaddexp(zeros_like(input), neg(input));
  if (pos_weight) {
    const Tensor more = mul(sub(pos_weight, ones_like(pos_weight)), target);
    positive = mul(add(ones, more), positive);
  }
  const Tensor losses = add(mul(sub(ones, target), input), positive);
  return reduced_elements(what, weighted(losses, weight), reduction);
}

Tensor kl_div(const Tensor& input, const Tensor& target, std::string_view reduction,
              bool log_target) {
  check_pair("kl_div", input, target);
  const Tensor losses = log_target ? mul(exp(target), sub(target, input))
                                   : sub(xlogy(target, target), mul(target, input));
  if (reduction != "batchmean") return reduced_elements("kl_div", losses, reduction);
  if (input.ndim() == 0) fail("kl_div: input is [], expected a batch for the reduction batchmean");
  return div(sum(losses), static_cast<double>(input.size(0)));
}

Tensor nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight,
                int64_t ignore_index, std::string_view reduction) {
  check_tensor("nll_loss", input, target);
  Shape rows = input.shape();
  if (rows.ndim() > 0) rows.erase(rows.ndim() - 1);
  if (input.ndim() == 0 || !(target.shape() == rows) || !is_integer(target.dtype())) {
    fail("nll_loss: target is ", target.dtype(), ' ', target.shape(), ", expected integers ", rows,
         ", one for each row of input ", input.shape());
  }
  if (weight && !(weight.shape() == Shape{input.size(-1)})) {
    fail("nll_loss: weight is ", weight.shape(), ", expected [", input.size(-1), "]");
  }
  const Tensor ids = as_dtype(target, i64);
  const Tensor counts = not_equal(ids, ignore_index);
  const Tensor safe = where(counts, ids, zeros_like(ids));
  const Tensor chosen = gather(input, input.ndim() - 1, unsqueeze(safe, -1));
  Tensor weights = cast(counts, input.dtype());
  if (weight) weights = mul(weights, reshape(gather(weight, 0, flatten(safe)), safe.shape()));
  // An element that does not count may be -inf.
  const Tensor picked = squeeze(chosen, -1);
  const Tensor losses = neg(mul(where(counts, picked, zeros_like(picked)), weights));
  if (reduction == "mean") return div(sum(losses), sum(weights));
  return reduced_elements("nll_loss", losses, reduction);
}

}  // namespace weft
