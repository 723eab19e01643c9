// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/margin_losses.h"

#include <cmath>
#include <numbers>
#include <span>

#include "ops/promotion.h"
#include "ops/take.h"
#include "weft/autograd.h"
#include "weft/ops.h"

namespace weft {

static Tensor reduced(const char* what, const Tensor& losses, std::string_view reduction) {
  if (reduction == "none") return losses;
  if (reduction == "mean") return mean(losses);
  if (reduction == "sum") return sum(losses);
  fail(what, ": reduction is ", in_quotes(std::string(reduction)), ", expected mean, sum or none");
}

static void expect_shape(const char* what, const char* name, const Tensor& tensor,
                         const Shape& shape) {
  check_tensor(what, tensor);
  if (tensor.shape() == shape) return;
  fail(what, ": ", name, " is ", tensor.shape(), ", expected ", shape);
}

/// The shape without its last dim.
static Shape of_rows(const char* what, const Tensor& x) {
  check_tensor(what, x);
  if (x.ndim() == 0) fail(what, ": input is ", x.shape(), ", expected vectors along the last dim");
  return Shape(std::span<const int64_t>(x.shape().begin(), x.shape().end() - 1));
}

static Tensor at_least_0(const Tensor& x) { return clip(x, 0, std::nullopt); }

Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin,
                           std::string_view reduction) {
  check_tensor("margin_ranking_loss", a, b, target);
  const Tensor losses = at_least_0(add(neg(mul(target, sub(a, b))), margin));
  return reduced("margin_ranking_loss", losses, reduction);
}

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin,
                            std::string_view reduction) {
  expect_shape("hinge_embedding_loss", "target", target, input.shape());
  const Tensor zero = zeros_like(input);
  const Tensor apart = where(equal(target, 1), zero, at_least_0(add(neg(input), margin)));
  const Tensor losses = add(apart, where(equal(target, -1), zero, input));
  return reduced("hinge_embedding_loss", losses, reduction);
}

Tensor soft_margin_loss(const Tensor& input, const Tensor& target, std::string_view reduction) {
  expect_shape("soft_margin_loss", "target", target, input.shape());
  const Tensor losses = logaddexp(zeros_like(input), neg(mul(cast(target, input.dtype()), input)));
  return reduced("soft_margin_loss", losses, reduction);
}

Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin,
                             std::string_view reduction) {
  const char* what = "cosine_embedding_loss";
  expect_shape(what, "the second input", b, a.shape());
  expect_shape(what, "target", target, of_rows(what, a));
  const auto squares = [](const Tensor& x) { return add(sum(square(x), {-1}), 1e-12); };
  const Tensor cosine = div(sum(mul(a, b), {-1}), sqrt(mul(squares(a), squares(b))));
  const Tensor zero = zeros_like(cosine);
  const Tensor equals = where(equal(target, 1), sub(ones_like(cosine), cosine), zero);
  const Tensor others = where(equal(target, -1), at_least_0(add(cosine, -margin)), zero);
  return reduced(what, add(equals, others), reduction);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           double margin, double p, double eps, bool swap,
                           std::string_view reduction) {
  const char* what = "triplet_margin_loss";
  (void)of_rows(what, anchor);
  expect_shape(what, "positive", positive, anchor.shape());
  expect_shape(what, "negative", negative, anchor.shape());
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return vector_norm(add(sub(a, b), eps), p, {-1});
  };
  Tensor apart = distance(anchor, negative);
  if (swap) apart = minimum(apart, distance(positive, negative));
  const Tensor losses = at_least_0(add(sub(distance(anchor, positive), apart), margin));
  return reduced(what, losses, reduction);
}

Tensor multi_margin_loss(const Tensor& input, const Tensor& target, int p, double margin,
                         const Tensor& weight, std::string_view reduction) {
  const char* what = "multi_margin_loss";
  check_tensor(what, input, target);
  if (input.ndim() != 2) fail(what, ": input is ", input.shape(), ", expected [rows, classes]");
  expect_shape(what, "target", target, {input.size(0)});
  if (p != 1 && p != 2) fail(what, ": p is ", p, ", expected 1 or 2");
  const Tensor own = take_along_dim(input, unsqueeze(target, 1), 1);
  Tensor losses = at_least_0(add(sub(input, own), margin));
  if (p == 2) losses = square(losses);
  const Tensor is_own = equal(one_hot(target, input.size(1)), 1);
  losses = masked_fill(losses, is_own, 0);
  losses = div(sum(losses, {1}), static_cast<double>(input.size(1)));
  if (weight) losses = mul(losses, take_along_dim(weight, target, 0));
  return reduced(what, losses, reduction);
}

Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target,
                              std::string_view reduction) {
  const char* what = "multilabel_margin_loss";
  check_tensor(what, input, target);
  if (input.ndim() != 2) fail(what, ": input is ", input.shape(), ", expected [rows, classes]");
  expect_shape(what, "target", target, input.shape());
  const int64_t classes = input.size(1);
  Tensor is_label, labels, others;
  {
    const NoGrad no_grad;
    // Labels end at the first -1.
    const Tensor ended = cumulative_sum(cast(less(target, 0), f32), 1);
    is_label = equal(ended, 0);
    labels = masked_fill(target, greater(ended, 0), 0);
    const Tensor marks =
        mul(cast(one_hot(labels, classes), f32), cast(unsqueeze(is_label, 2), f32));
    others = equal(sum(marks, {1}), 0);
  }
  const Tensor own = unsqueeze(take_along_dim(input, labels, 1), 2);
  const Tensor margins = at_least_0(add(sub(unsqueeze(input, 1), own), 1));
  const Tensor counts = logical_and(unsqueeze(is_label, 2), unsqueeze(others, 1));
  const Tensor kept = mul(margins, cast(counts, margins.dtype()));
  return reduced(what, div(sum(kept, {1, 2}), static_cast<double>(classes)), reduction);
}

Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target, const Tensor& weight,
                                   std::string_view reduction) {
  const char* what = "multilabel_soft_margin_loss";
  (void)of_rows(what, input);
  const Tensor losses = binary_cross_entropy_with_logits(input, target, weight, "none");
  return reduced(what, mean(losses, {-1}), reduction);
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input, bool full,
                        double eps, std::string_view reduction) {
  check_tensor("poisson_nll_loss", input, target);
  Tensor losses = log_input ? sub(exp(input), mul(target, input))
                            : sub(input, mul(target, log(add(input, eps))));
  if (full) {
    const Tensor t = clip(target, 1, std::nullopt);  // below it there is no term
    const Tensor rest = mul(log(mul(t, 2 * std::numbers::pi)), 0.5);
    const Tensor stirling = add(sub(mul(t, log(t)), t), rest);
    losses = add(losses, where(greater(target, 1), stirling, zeros_like(stirling)));
  }
  return reduced("poisson_nll_loss", losses, reduction);
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& variance,
                         bool full, double eps, std::string_view reduction) {
  check_tensor("gaussian_nll_loss", input, target, variance);
  Tensor raised;
  {
    const NoGrad no_grad;
    raised = sub(maximum(variance, add(zeros_like(variance), eps)), variance);
  }
  // The gradient passes where the variance is raised, as in PyTorch.
  const Tensor own = add(variance, raised);
  Tensor losses = mul(add(log(own), div(square(sub(input, target)), own)), 0.5);
  if (full) losses = add(losses, 0.5 * std::log(2 * std::numbers::pi));
  return reduced("gaussian_nll_loss", losses, reduction);
}

Tensor cross_entropy_of_classes(const Tensor& logits, const Tensor& targets,
                                const CrossEntropyOptions& options) {
  check_tensor("cross_entropy", logits, targets);
  const bool is_usual = logits.ndim() < 3 || targets.ndim() != logits.ndim() - 1;
  if (is_usual || targets.shape() == of_rows("cross_entropy", logits)) {
    return cross_entropy(logits, targets, options);
  }
  return cross_entropy(moveaxis(logits, {1}, {logits.ndim() - 1}), targets, options);
}

}  // namespace weft
