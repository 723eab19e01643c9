// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/adamw.h"

#include <algorithm>
#include <cmath>

#include "src/kernels/lines.h"
#include "src/math.h"
#include "src/parallel.h"
#include "weft/error.h"

namespace weft {
namespace {

/// Elements of each array that are in work at once.
constexpr int64_t kStepChunk = 1024;

/// The factors of one step, for one element after the other.
template <class C>
struct AdamWElement {
  /// of_gradient and of_square are 1 - beta, rounded once.
  C decay, of_gradient, beta2, of_square, rate, root_correction, eps, grad_factor;

  WEFT_FN void operator()(C& p, C& m, C& v, C g) const {
    const C scaled = g * grad_factor;
    m = m + (scaled - m) * of_gradient;
    v = v * beta2 + scaled * scaled * of_square;
    p = p * decay - rate * m / (sqrt(v) * root_correction + eps);
  }
};

template <class C>
struct SgdElement {
  C rate, momentum, decay, grad_factor;

  /// Without momentum `velocity` is nothing but the gradient.
  WEFT_FN void operator()(C& p, C& velocity, C g) const {
    const C gradient = g * grad_factor + p * decay;
    velocity = velocity * momentum + gradient;
    p = p - rate * velocity;
  }
};

/// A dense array that a step reads, or changes, as dense C.
template <class C>
class StepArray {
 public:
  explicit StepArray(const Block& block) : block_(block) {}
  C* load(int64_t begin, int64_t n) {
    if (!block_.data) return buffer_;
    const Line line = at(begin);
    if (line.dtype == dtype_of<C>) return static_cast<C*>(line.data);
    load_line(buffer_, line, n);
    return buffer_;
  }
  void store(int64_t begin, int64_t n) {
    if (block_.data && block_.dtype != dtype_of<C>) store_line(at(begin), buffer_, n);
  }

 private:
  Line at(int64_t begin) const {
    return {block_.dtype, block_.as<char>() + begin * static_cast<int64_t>(size_of(block_.dtype))};
  }
  const Block& block_;
  C buffer_[kStepChunk];
};

void check_step(const char* what, const Block& parameter, const Block& other) {
  if (!parameter.is_dense() || !other.is_dense() || parameter.numel() != other.numel()) {
    fail(what, ": arrays of ", parameter.shape, " and ", other.shape,
         "; it needs dense ones of one size");
  }
  if (!is_floating(other.dtype))
    fail(what, ": dtype is ", other.dtype, "; it needs a floating one");
}

/// Calls f(begin, n) on chunks of all elements.
template <class F>
void for_each_chunk(int64_t begin, int64_t end, const F& f) {
  for (int64_t i = begin; i < end; i += kStepChunk) f(i, std::min(kStepChunk, end - i));
}

template <class C>
C factor_of(const Block* factor) {
  return factor ? load_element<C>(factor->dtype, factor->data) : C(1);
}

}  // namespace

void adamw(const Block& parameter, const Block& m, const Block& v, const Block& grad,
           const AdamWNumbers& options, const Block* grad_factor) {
  for (const Block* block : {&parameter, &m, &v, &grad}) check_step("adamw", parameter, *block);
  const auto step = static_cast<double>(options.step);
  const double correction1 = 1 - std::pow(options.beta1, step);
  const double correction2 = 1 - std::pow(options.beta2, step);
  visit_compute_floating("adamw", parameter.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    const AdamWElement<C> f{static_cast<C>(1 - options.learning_rate * options.weight_decay),
                            static_cast<C>(1 - options.beta1),
                            static_cast<C>(options.beta2),
                            static_cast<C>(1 - options.beta2),
                            static_cast<C>(options.learning_rate / correction1),
                            static_cast<C>(1 / std::sqrt(correction2)),
                            static_cast<C>(options.eps),
                            factor_of<C>(grad_factor)};
    parallel_for(parameter.numel(), kParallelGrain, [&](int64_t begin, int64_t end) {
      StepArray<C> ps(parameter), ms(m), vs(v), gs(grad);
      for_each_chunk(begin, end, [&](int64_t i, int64_t n) {
        C *p = ps.load(i, n), *m1 = ms.load(i, n), *v1 = vs.load(i, n);
        const C* g = gs.load(i, n);
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) f(p[j], m1[j], v1[j], g[j]);
        ps.store(i, n);
        ms.store(i, n);
        vs.store(i, n);
      });
    });
  });
}

void sgd(const Block& parameter, const Block& velocity, const Block& grad, const Sgd& options,
         const Block* grad_factor) {
  check_step("sgd", parameter, grad);
  if (velocity.data) check_step("sgd", parameter, velocity);
  if (!velocity.data && options.momentum != 0) fail("sgd: momentum needs a velocity");
  visit_compute_floating("sgd", parameter.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    const SgdElement<C> f{static_cast<C>(options.learning_rate), static_cast<C>(options.momentum),
                          static_cast<C>(options.weight_decay), factor_of<C>(grad_factor)};
    parallel_for(parameter.numel(), kParallelGrain, [&](int64_t begin, int64_t end) {
      StepArray<C> ps(parameter), vs(velocity), gs(grad);
      for_each_chunk(begin, end, [&](int64_t i, int64_t n) {
        C *p = ps.load(i, n), *v = vs.load(i, n);
        const C* g = gs.load(i, n);
        if (!velocity.data) std::fill_n(v, n, C(0));
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) f(p[j], v[j], g[j]);
        ps.store(i, n);
        vs.store(i, n);
      });
    });
  });
}

}  // namespace weft
