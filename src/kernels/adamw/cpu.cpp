// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/adamw/adamw.h"

#include <algorithm>
#include <cmath>

#include "src/base/parallel.h"
#include "src/kernels/iteration/iteration.h"
#include "weft/error.h"

namespace weft {

static void check_rates(const MemoryBlock& rates, const MemoryBlock& parameter) {
  if (rates.dtype == DType::f64 && rates.numel() == kAdamWRates && rates.is_dense() &&
      rates.device == parameter.device) {
    return;
  }
  fail("adamw: rates are ", rates.dtype, ' ', rates.shape, " on ", rates.device, ", expected ",
       kAdamWRates, " of f64 on ", parameter.device);
}

static void check_step(const char* what, const MemoryBlock& parameter, const MemoryBlock& other) {
  if (!parameter.is_dense() || !other.is_dense() || parameter.numel() != other.numel()) {
    fail(what, ": arrays are ", parameter.shape, " and ", other.shape,
         ", expected dense ones of one size");
  }
  if (!is_floating(other.dtype))
    fail(what, ": dtype is ", other.dtype, ", expected a floating one");
}

void check_adamw(const MemoryBlock& parameter, const MemoryBlock& m, const MemoryBlock& v,
                 const MemoryBlock& grad, const MemoryBlock* rates) {
  for (const MemoryBlock* block : {&parameter, &m, &v, &grad})
    check_step("adamw", parameter, *block);
  if (rates) check_rates(*rates, parameter);
}

void check_sgd(const MemoryBlock& parameter, const MemoryBlock& velocity, const MemoryBlock& grad,
               const Sgd& options) {
  check_step("sgd", parameter, grad);
  if (velocity.data) check_step("sgd", parameter, velocity);
  if (!velocity.data && options.momentum != 0)
    fail("sgd: velocity is missing, expected one for momentum");
}

std::array<double, kAdamWRates> rates_of(const AdamWNumbers& numbers) {
  const auto step = static_cast<double>(numbers.step);
  const double correction1 = 1 - std::pow(numbers.beta1, step);
  const double correction2 = 1 - std::pow(numbers.beta2, step);
  return {1 - numbers.learning_rate * numbers.weight_decay, numbers.learning_rate / correction1,
          1 / std::sqrt(correction2)};
}

}  // namespace weft

namespace weft::host {
namespace {

/// Elements of each array that are processed at a time.
constexpr int64_t kStepChunk = 1024;

/// A dense array that a step reads or changes, accessed as dense C.
template <class C> class StepArray {
 public:
  explicit StepArray(const MemoryBlock& block) : block_(block) {}
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
    return {block_.dtype, element_at(block_.data, block_.dtype, begin)};
  }
  const MemoryBlock& block_;
  C buffer_[kStepChunk];
};

/// Calls f(begin, n) on chunks of all elements.
template <class F> void for_each_chunk(int64_t begin, int64_t end, const F& f) {
  for (int64_t i = begin; i < end; i += kStepChunk) f(i, std::min(kStepChunk, end - i));
}

template <class C> C factor_of(const MemoryBlock* factor) {
  return factor ? load_element<C>(factor->dtype, factor->data) : C(1);
}

}  // namespace

void adamw(const MemoryBlock& parameter, const MemoryBlock& m, const MemoryBlock& v,
           const MemoryBlock& grad, const AdamWNumbers& options, const MemoryBlock* grad_factor,
           const MemoryBlock* rates) {
  check_adamw(parameter, m, v, grad, rates);
  visit_compute_floating("adamw", parameter.dtype, [&]<class C>(Type<C>) {
    auto f = element_of(options, factor_of<C>(grad_factor));
    if (rates) f.take_rates(rates->as<double>());
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

void sgd(const MemoryBlock& parameter, const MemoryBlock& velocity, const MemoryBlock& grad,
         const Sgd& options, const MemoryBlock* grad_factor) {
  check_sgd(parameter, velocity, grad, options);
  visit_compute_floating("sgd", parameter.dtype, [&]<class C>(Type<C>) {
    const auto f = element_of(options, factor_of<C>(grad_factor));
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

}  // namespace weft::host
