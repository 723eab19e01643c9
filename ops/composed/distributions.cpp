// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/ops.h"
#include "weft/sharding.h"

namespace weft {

/// Shape, device and layout of `a`, whole where it is Partial.
static TensorOptions options_like(const Tensor& a, DType dtype) {
  TensorOptions options{.dtype = dtype, .device = a.device()};
  if (a.is_sharded()) options.sharding = reduced_sharding(a.sharding());
  return options;
}

/// Uniform values in (0, 1), f32 or f64: neither bound occurs.
static Tensor draw(const char* what, const Tensor& a) {
  check_tensor(what, a);
  const DType dtype = a.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return add(mul(uniform(a.shape(), 0, 1, options_like(a, dtype)), 1 - 0x1p-23), 0x1p-24);
}

Tensor rand_like(const Tensor& a) {
  check_tensor("rand_like", a);
  return uniform(a.shape(), 0, 1, options_like(a, a.dtype()));
}
Tensor randn_like(const Tensor& a) {
  check_tensor("randn_like", a);
  return normal(a.shape(), 0, 1, options_like(a, a.dtype()));
}
Tensor randint_like(const Tensor& a, int64_t low, int64_t high) {
  check_tensor("randint_like", a);
  const DType drawn = is_floating(a.dtype()) ? DType::i64 : a.dtype();
  return cast(randint(a.shape(), low, high, options_like(a, drawn)), a.dtype());
}

Tensor bernoulli(const Tensor& probabilities) {
  check_tensor("bernoulli", probabilities);
  if (!is_floating(probabilities.dtype())) {
    fail("bernoulli: dtype is ", probabilities.dtype(), ", expected a floating one");
  }
  const Tensor p = probabilities.detach();
  const Tensor outside = logical_not(logical_and(greater_equal(p, 0), less_equal(p, 1)));
  if (any(outside).full_tensor().item() != 0) {
    fail("bernoulli: a probability is outside the range, expected 0 to 1");
  }
  const Tensor u = draw("bernoulli", p);
  return cast(less(u, cast(p, u.dtype())), p.dtype());
}

Tensor bernoulli(const Tensor& a, double p) {
  if (!(p >= 0 && p <= 1)) fail("bernoulli: p is ", p, ", expected 0 to 1");
  return cast(less(draw("bernoulli", a), p), a.dtype());
}

Tensor normal(const Operand& mean, const Tensor& deviation) {
  check_tensor("normal", deviation);
  const Tensor at = next_to(deviation, mean).detach();
  const Tensor shape = add(zeros_like(at), zeros_like(deviation));
  if (any(less(deviation, 0)).full_tensor().item() != 0) {
    fail("normal: a standard deviation is negative, expected at least 0");
  }
  return add(mul(randn_like(shape), deviation.detach()), at);
}

Tensor normal(const Tensor& mean, double deviation) {
  if (!(deviation >= 0)) fail("normal: deviation is ", deviation, ", expected at least 0");
  return add(mul(randn_like(mean), deviation), mean.detach());
}

/// Index i has the largest weight / exponential value with probability weight i / sum.
Tensor multinomial(const Tensor& weights, int64_t count, bool replacement) {
  check_tensor("multinomial", weights);
  const Tensor w = weights.detach();
  if (w.ndim() < 1 || w.ndim() > 2 || w.size(-1) == 0 || !is_floating(w.dtype())) {
    fail("multinomial: weights are ", w.dtype(), " ", w.shape(),
         ", expected floating ones of 1 or 2 dims with elements");
  }
  constexpr int64_t kMost = int64_t{1} << 31;
  const int64_t most = replacement ? kMost : w.size(-1);
  if (count < 1 || count > most) {
    fail("multinomial: count is ", count, ", expected 1 to ", most);
  }
  const Tensor bad = logical_not(logical_and(greater_equal(w, 0), isfinite(w)));
  if (any(bad).full_tensor().item() != 0) {
    fail("multinomial: a weight is negative or not finite, expected at least 0");
  }
  const int64_t needed = replacement ? 1 : count;
  const Tensor positive = count_nonzero(w, {w.ndim() - 1});
  if (w.numel() > 0 && min(positive).full_tensor().item() < static_cast<double>(needed)) {
    fail("multinomial: number of positive weights is below ", needed, ", expected at least that");
  }
  const Tensor wide = w.dtype() == DType::f64 ? w : cast(w, DType::f32);
  const auto keys = [&](const Tensor& of) {
    return sub(log(of), log(neg(log(draw("multinomial", of)))));
  };
  if (!replacement) return slice(argsort(keys(wide), -1, true), w.ndim() - 1, 0, count);
  Shape shape = w.shape();
  shape.insert(shape.ndim() - 1, count);
  return argmax(keys(expand(unsqueeze(wide, -2), shape)), -1);
}

void bernoulli_(const Tensor& a, double p) { copy_(a, bernoulli(a.detach(), p)); }

void exponential_(const Tensor& a, double lambda) {
  if (!(lambda > 0)) fail("exponential_: lambda is ", lambda, ", expected above 0");
  copy_(a, div(neg(log(draw("exponential_", a))), lambda));
}
void cauchy_(const Tensor& a, double median, double sigma) {
  if (!(sigma > 0)) fail("cauchy_: sigma is ", sigma, ", expected above 0");
  const Tensor angle = mul(sub(draw("cauchy_", a), 0.5), std::numbers::pi);
  copy_(a, add(mul(tan(angle), sigma), median));
}
void geometric_(const Tensor& a, double p) {
  if (!(p > 0 && p < 1)) fail("geometric_: p is ", p, ", expected between 0 and 1");
  copy_(a, ceil(div(log(draw("geometric_", a)), std::log1p(-p))));
}
void log_normal_(const Tensor& a, double mean, double deviation) {
  check_tensor("log_normal_", a);
  if (!(deviation > 0)) fail("log_normal_: deviation is ", deviation, ", expected above 0");
  const DType dtype = is_floating(a.dtype()) ? a.dtype() : DType::f32;
  const TensorOptions options = options_like(a, dtype);
  copy_(a, exp(normal(a.shape(), mean, deviation, options)));
}
void random_(const Tensor& a, int64_t low, int64_t high) {
  check_tensor("random_", a);
  copy_(a, randint_like(a, low, high));
}

}  // namespace weft
