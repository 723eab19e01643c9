// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/adamw/adamw.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

/// A buffer for an array that a step reads or changes, which accesses it as dense C.
template <class C> struct StepBuffer {
  C elements[kStepChunk];

  C* load(const MemoryBlock& block, int64_t begin, int64_t n) {
    if (!block.data) {
      std::fill_n(elements, n, C(0));
      return elements;
    }
    const Line line = line_at(block, begin);
    if (block.dtype == dtype_of<C>) return static_cast<C*>(line.data);
    load_line(elements, line, n);
    return elements;
  }
  void store(const MemoryBlock& block, int64_t begin, int64_t n) const {
    if (block.data && block.dtype != dtype_of<C>) store_line(line_at(block, begin), elements, n);
  }
};

template <class F, class... C> void step_elements(const F& f, int64_t n, C*... arrays) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) f(arrays[i]...);
}

/// Takes a step by f(parameter, states ..., gradient) for each element of these blocks.
template <class C, class F, int kBlocks>
void take_step(const F& f, const MemoryBlock* const (&blocks)[kBlocks]) {
  parallel_for(blocks[0]->numel(), kParallelGrain, [&](int64_t begin, int64_t end) {
    StepBuffer<C> buffers[kBlocks];
    for (int64_t i = begin; i < end; i += kStepChunk) {
      const int64_t n = std::min(kStepChunk, end - i);
      [&]<int... k>(std::integer_sequence<int, k...>) {
        step_elements(f, n, buffers[k].load(*blocks[k], i, n)...);
      }
      (std::make_integer_sequence<int, kBlocks>());
      for (int k = 0; k + 1 < kBlocks; ++k) buffers[k].store(*blocks[k], i, n);
    }
  });
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
    take_step<C>(f, {&parameter, &m, &v, &grad});
  });
}

void sgd(const MemoryBlock& parameter, const MemoryBlock& velocity, const MemoryBlock& grad,
         const Sgd& options, const MemoryBlock* grad_factor) {
  check_sgd(parameter, velocity, grad, options);
  visit_compute_floating("sgd", parameter.dtype, [&]<class C>(Type<C>) {
    take_step<C>(element_of(options, factor_of<C>(grad_factor)), {&parameter, &velocity, &grad});
  });
}

}  // namespace weft::host
