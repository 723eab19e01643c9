// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/adamw.h"

#include <cmath>

#include "src/kernels/lines.h"
#include "src/parallel.h"
#include "weft/error.h"

namespace weft {

namespace {

/// Numbers of a step as the loop needs them.
template <class C>
struct AdamWNumbers {
  C keep;  // 1 - lr * weight decay
  C beta1, beta2;
  C rate;  // lr / (1 - beta1^step)
  C root;  // 1 / sqrt(1 - beta2^step)
  C eps;
  C factor;  // of the gradient
};

template <class C>
AdamWNumbers<C> numbers_of(const AdamW& o, double factor) {
  const auto step = static_cast<double>(o.step);
  return {static_cast<C>(1 - o.learning_rate * o.weight_decay),
          static_cast<C>(o.beta1),
          static_cast<C>(o.beta2),
          static_cast<C>(o.learning_rate / (1 - std::pow(o.beta1, step))),
          static_cast<C>(1 / std::sqrt(1 - std::pow(o.beta2, step))),
          static_cast<C>(o.eps),
          static_cast<C>(factor)};
}

template <class P, class S, class G, class C>
void adamw_span(P* p, S* m, S* v, const G* g, int64_t n, const AdamWNumbers<C>& k) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const C gradient = static_cast<C>(g[i]) * k.factor;
    const C mean = k.beta1 * static_cast<C>(m[i]) + (C(1) - k.beta1) * gradient;
    const C square = k.beta2 * static_cast<C>(v[i]) + (C(1) - k.beta2) * gradient * gradient;
    m[i] = static_cast<S>(static_cast<Compute<S>>(mean));
    v[i] = static_cast<S>(static_cast<Compute<S>>(square));
    p[i] = static_cast<P>(static_cast<C>(p[i]) * k.keep -
                          k.rate * mean / (std::sqrt(square) * k.root + k.eps));
  }
}

template <class P, class G, class C>
void sgd_span(P* p, P* velocity, const G* g, int64_t n, const Sgd& o, C factor) {
  const C rate = static_cast<C>(o.learning_rate), momentum = static_cast<C>(o.momentum);
  const C decay = static_cast<C>(o.weight_decay);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    C step = static_cast<C>(g[i]) * factor + decay * static_cast<C>(p[i]);
    if (velocity) {
      const C moved = momentum * static_cast<C>(velocity[i]) + step;
      velocity[i] = static_cast<P>(moved);
      step = o.nesterov ? step + momentum * moved : moved;
    }
    p[i] = static_cast<P>(static_cast<C>(p[i]) - rate * step);
  }
}

}  // namespace

static void check_update(const char* what, const Block& parameter, const Block& other) {
  if (other.numel() != parameter.numel()) {
    fail(what, ": the parameter has ", parameter.numel(), " elements but one of its blocks ",
         other.numel());
  }
  if (!other.is_dense() || !parameter.is_dense()) fail(what, ": the blocks must be dense");
}

static double factor_of(const Block* grad_factor) {
  return grad_factor ? load_element<double>(grad_factor->dtype, grad_factor->data) : 1.0;
}

void adamw(const Block& parameter, const Block& m, const Block& v, const Block& grad,
           const AdamW& options, const Block* grad_factor) {
  for (const Block* block : {&m, &v, &grad}) check_update("adamw", parameter, *block);
  if (m.dtype != v.dtype) fail("adamw: m is ", m.dtype, " but v ", v.dtype);
  const double factor = factor_of(grad_factor);
  visit_floating("adamw", parameter.dtype, [&](auto parameter_type) {
    visit_floating("adamw", m.dtype, [&](auto state_type) {
      visit_floating("adamw", grad.dtype, [&](auto grad_type) {
        using P = typename decltype(parameter_type)::type;
        using S = typename decltype(state_type)::type;
        using G = typename decltype(grad_type)::type;
        const auto numbers = numbers_of<Compute<P>>(options, factor);
        parallel_for(parameter.numel(), kParallelGrain, [&](int64_t begin, int64_t end) {
          adamw_span(parameter.as<P>() + begin, m.as<S>() + begin, v.as<S>() + begin,
                     grad.as<const G>() + begin, end - begin, numbers);
        });
      });
    });
  });
}

void sgd(const Block& parameter, const Block& velocity, const Block& grad, const Sgd& options,
         const Block* grad_factor) {
  check_update("sgd", parameter, grad);
  const bool moves = options.momentum != 0;
  if (moves) check_update("sgd", parameter, velocity);
  if (moves && velocity.dtype != parameter.dtype) {
    fail("sgd: the velocity is ", velocity.dtype, " but the parameter ", parameter.dtype);
  }
  const double factor = factor_of(grad_factor);
  visit_floating("sgd", parameter.dtype, [&](auto parameter_type) {
    visit_floating("sgd", grad.dtype, [&](auto grad_type) {
      using P = typename decltype(parameter_type)::type;
      using G = typename decltype(grad_type)::type;
      parallel_for(parameter.numel(), kParallelGrain, [&](int64_t begin, int64_t end) {
        sgd_span(parameter.as<P>() + begin, moves ? velocity.as<P>() + begin : nullptr,
                 grad.as<const G>() + begin, end - begin, options, static_cast<Compute<P>>(factor));
      });
    });
  });
}

}  // namespace weft
