// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/adamw/adamw.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/independent.h"
#include "src/base/parallel.h"
#include "src/device/cuda/runtime.h"
#include "src/device/kernel/elements.h"
#include "src/kernels/iteration/iteration.h"
#include "src/kernels/kernel.h"
#include "src/kernels/math/math.h"
#include "weft/error.h"

#ifdef WEFT_WITH_CUDA
#include "src/device/kernel/launch.h"
#endif

namespace weft {
namespace {

/// One AdamW step, applied element by element.
template <class C> struct AdamWElement {
  /// of_gradient and of_square are 1 - beta, rounded once.
  C decay, of_gradient, beta2, of_square, rate, root_correction, eps, grad_factor;

  WEFT_FN void take_rates(const double* rates) {
    decay = C(rates[0]), rate = C(rates[1]), root_correction = C(rates[2]);
  }

  WEFT_FN void operator()(C& p, C& m, C& v, C g) const {
    const C scaled = g * grad_factor;
    m = m + (scaled - m) * of_gradient;
    v = v * beta2 + scaled * scaled * of_square;
    p = p * decay - rate * m / (sqrt(v) * root_correction + eps);
  }
};

template <class C> struct SgdElement {
  /// The step is of_gradient times the gradient plus of_velocity times the new velocity.
  C rate, momentum, decay, of_gradient, of_velocity, grad_factor;

  /// `velocity` just receives the gradient if there is no momentum.
  WEFT_FN void operator()(C& p, C& velocity, C g) const {
    const C gradient = g * grad_factor + p * decay;
    velocity = velocity * momentum + gradient;
    p = p - rate * (velocity * of_velocity + gradient * of_gradient);
  }
};

template <class C> struct LionElement {
  C rate, decay, beta1, of_gradient1, beta2, of_gradient2, grad_factor;

  WEFT_FN void operator()(C& p, C& m, C g) const {
    const C scaled = g * grad_factor;
    const C way = m * beta1 + scaled * of_gradient1;
    const C sign = way > C(0) ? C(1) : way < C(0) ? C(-1) : way;  // NaN stays
    p = p * decay - rate * sign;
    m = m * beta2 + scaled * of_gradient2;
  }
};

template <class C> AdamWElement<C> element_of(const AdamWNumbers& options) {
  AdamWElement<C> element{};
  element.of_gradient = static_cast<C>(1 - options.beta1);
  element.beta2 = static_cast<C>(options.beta2);
  element.of_square = static_cast<C>(1 - options.beta2);
  element.eps = static_cast<C>(options.eps);
  element.take_rates(rates_of(options).data());
  return element;
}

template <class C> SgdElement<C> element_of(const Sgd& options) {
  return {static_cast<C>(options.learning_rate),
          static_cast<C>(options.momentum),
          static_cast<C>(options.weight_decay),
          static_cast<C>(options.nesterov),
          static_cast<C>(options.nesterov ? options.momentum : 1),
          C(1)};
}

template <class C> LionElement<C> element_of(const LionNumbers& options) {
  return {static_cast<C>(options.learning_rate),
          static_cast<C>(1 - options.learning_rate * options.weight_decay),
          static_cast<C>(options.beta1),
          static_cast<C>(1 - options.beta1),
          static_cast<C>(options.beta2),
          static_cast<C>(1 - options.beta2),
          C(1)};
}

/// Values that a step reads when it runs: the gradient's scale (1 without data), and the step's
/// rates if given.
struct StepNumbers {
  const void* factor;
  DType dtype;
  const double* rates;

  template <class C, class F> WEFT_FN F in(F f) const {
    f.grad_factor = factor ? load_element<C>(factor, dtype, 0) : C(1);
    if constexpr (requires { f.take_rates(rates); }) {
      if (rates) f.take_rates(rates);
    }
    return f;
  }
};

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
  WEFT_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) f(arrays[i]...);
}

/// Takes a step by f(parameter, states ..., gradient) for each element of these blocks.
template <class C, class F, int kBlocks>
void step_on_cpu(const F& f, const MemoryBlock* const (&blocks)[kBlocks]) {
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

}  // namespace

#ifdef WEFT_WITH_CUDA
namespace cuda {
namespace {

/// The arrays of a step: the parameter, its states, the gradient. A state without data starts from
/// zero and is not stored.
struct StepSide {
  void* data;
  DType dtype;
};

template <class C> WEFT_FN C load_side(const StepSide& side, int64_t i) {
  return side.data ? load_element<C>(side.data, side.dtype, i) : C(0);
}

template <class C> WEFT_FN void store_side(const StepSide& side, int64_t i, C value) {
  if (side.data) store_element(side.data, side.dtype, i, value);
}

/// kStates states of any dtype, one element at a time.
template <class F, class C, int kStates> struct StepOfAny {
  F f;
  StepNumbers numbers;
  int64_t elements;
  StepSide parameter, states[kStates], grad;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    const F step = numbers.template in<C>(f);
    for (int64_t i = thread.index; i < elements; i += thread.count) {
      C p = load_side<C>(parameter, i), s[kStates];
      for (int k = 0; k < kStates; ++k) s[k] = load_side<C>(states[k], i);
      const C g = load_side<C>(grad, i);
      if constexpr (kStates == 2) {
        step(p, s[0], s[1], g);
      } else {
        step(p, s[0], g);
      }
      store_side(parameter, i, p);
      for (int k = 0; k < kStates; ++k) store_side(states[k], i, s[k]);
    }
  }
};

/// Elements that a thread handles at a time: 16 bytes of bf16, twice 16 of f32.
constexpr int kStepElements = 8;

template <class T> struct alignas(16) StepVector { T element[kStepElements]; };

/// The parameter, its states and the gradient have these types and are aligned to 16 bytes. A null
/// state starts from zero and is not stored.
template <class F, int kStates, class P, class S, class G> struct StepOfVectors {
  F f;
  StepNumbers numbers;
  int64_t elements;
  P* parameter;
  S* states[kStates];
  const G* grad;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    const F step = numbers.template in<float>(f);
    const int64_t vectors = elements / kStepElements;
    for (int64_t i = thread.index; i < vectors; i += thread.count) take_vector(step, i);
    for (int64_t i = vectors * kStepElements + thread.index; i < elements; i += thread.count) {
      S* at[kStates];
      S none(0);
      for (int k = 0; k < kStates; ++k) at[k] = states[k] ? states[k] + i : &none;
      take(step, parameter[i], at, grad[i]);
    }
  }

  WEFT_DEVICE void take_vector(const F& step, int64_t i) const {
    StepVector<P> p = reinterpret_cast<const StepVector<P>*>(parameter)[i];
    StepVector<S> s[kStates] = {};
    for (int k = 0; k < kStates; ++k) {
      if (states[k]) s[k] = reinterpret_cast<const StepVector<S>*>(states[k])[i];
    }
    const StepVector<G> g = reinterpret_cast<const StepVector<G>*>(grad)[i];
    for (int j = 0; j < kStepElements; ++j) {
      S* at[kStates];
      for (int k = 0; k < kStates; ++k) at[k] = &s[k].element[j];
      take(step, p.element[j], at, g.element[j]);
    }
    reinterpret_cast<StepVector<P>*>(parameter)[i] = p;
    for (int k = 0; k < kStates; ++k) {
      if (states[k]) reinterpret_cast<StepVector<S>*>(states[k])[i] = s[k];
    }
  }

  WEFT_DEVICE static void take(const F& step, P& p, S* const* s, const G& g) {
    float value = static_cast<float>(p), state[kStates];
    for (int k = 0; k < kStates; ++k) state[k] = static_cast<float>(*s[k]);
    if constexpr (kStates == 2) {
      step(value, state[0], state[1], static_cast<float>(g));
    } else {
      step(value, state[0], static_cast<float>(g));
    }
    p = P(value);
    for (int k = 0; k < kStates; ++k) *s[k] = S(state[k]);
  }
};

}  // namespace

/// Returns false for parameters, gradients or states (of dtype `s`) of other types.
template <class P, class S, class G, int kStates, class F>
static bool launch_vectors(const F& f, const StepNumbers& numbers, DType s,
                           const MemoryBlock* const* blocks, const Stream& stream) {
  const MemoryBlock &parameter = *blocks[0], &grad = *blocks[kStates + 1];
  if (parameter.dtype != dtype_of<P> || s != dtype_of<S> || grad.dtype != dtype_of<G>) return false;
  const int64_t elements = parameter.numel();
  StepOfVectors<F, kStates, P, S, G> kernel{f,  numbers,     elements, parameter.as<P>(),
                                            {}, grad.as<G>()};
  for (int k = 0; k < kStates; ++k) kernel.states[k] = static_cast<S*>(blocks[1 + k]->data);
  launch(kernel, (elements + kStepElements - 1) / kStepElements, stream);
  return true;
}

/// Returns true when one of the vector kernels performed the step; `blocks` are the parameter, the
/// states, the gradient.
template <class F, int kStates>
static bool step_by_vectors(const F& f, const StepNumbers& numbers,
                            const MemoryBlock* const* blocks, const Stream& stream) {
  const DType s = blocks[1]->data ? blocks[1]->dtype : DType::f32;
  for (int i = 0; i < kStates + 2; ++i) {
    const bool is_state = i >= 1 && i <= kStates;
    if (!is_aligned(blocks[i]->data) || (!is_state && !blocks[i]->data)) return false;
    if (is_state && blocks[i]->data && blocks[i]->dtype != s) return false;
  }
  const auto launches = [&]<class P, class S, class G>(Type<P>, Type<S>, Type<G>) {
    return launch_vectors<P, S, G, kStates>(f, numbers, s, blocks, stream);
  };
  constexpr Type<float> whole{};
  constexpr Type<bfloat16> half{};
  return launches(whole, whole, whole) || launches(whole, whole, half) ||
         launches(half, whole, half) || launches(half, half, half);
}

template <class C, class F, int kBlocks>
static void take_step(const F& f, const StepNumbers& numbers,
                      const MemoryBlock* const (&blocks)[kBlocks]) {
  constexpr int kStates = kBlocks - 2;
  const MemoryBlock& parameter = *blocks[0];
  const Stream stream = current_stream(parameter.device);
  if constexpr (std::is_same_v<C, float>) {
    if (step_by_vectors<F, kStates>(f, numbers, blocks, stream)) return;
  }
  const auto side = [](const MemoryBlock& block) { return StepSide{block.data, block.dtype}; };
  StepOfAny<F, C, kStates> kernel{
      f, numbers, parameter.numel(), side(parameter), {}, side(*blocks[kStates + 1])};
  for (int k = 0; k < kStates; ++k) kernel.states[k] = side(*blocks[1 + k]);
  launch(kernel, kernel.elements, stream);
}

}  // namespace cuda
#endif

/// Takes a step by f(parameter, states ..., gradient) for each element of these blocks.
template <class C, class F, int kBlocks>
static void take_step(const F& f, const MemoryBlock* const (&blocks)[kBlocks],
                      const MemoryBlock* grad_factor, const MemoryBlock* rates) {
  const Device device = blocks[0]->device;
  if (grad_factor && grad_factor->device != device) {
    fail("optimizer step: factor of the gradient is on ", grad_factor->device, ", expected ",
         device, ", where the parameter is");
  }
  StepNumbers numbers{nullptr, DType::f32, rates ? rates->as<double>() : nullptr};
  if (grad_factor) numbers.factor = grad_factor->data, numbers.dtype = grad_factor->dtype;
#ifdef WEFT_WITH_CUDA
  if (std::any_of(blocks, blocks + kBlocks, [](const auto* block) { return is_on_gpu(*block); })) {
    return cuda::take_step<C>(f, numbers, blocks);
  }
#endif
  step_on_cpu<C>(numbers.in<C>(f), blocks);
}

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

std::array<double, kAdamWRates> rates_of(const AdamWNumbers& numbers) {
  const auto step = static_cast<double>(numbers.step);
  const double correction1 = 1 - std::pow(numbers.beta1, step);
  const double correction2 = 1 - std::pow(numbers.beta2, step);
  return {1 - numbers.learning_rate * numbers.weight_decay, numbers.learning_rate / correction1,
          1 / std::sqrt(correction2)};
}

void adamw(const MemoryBlock& parameter, const MemoryBlock& m, const MemoryBlock& v,
           const MemoryBlock& grad, const AdamWNumbers& options, const MemoryBlock* grad_factor,
           const MemoryBlock* rates) {
  for (const MemoryBlock* block : {&parameter, &m, &v, &grad})
    check_step("adamw", parameter, *block);
  if (rates) check_rates(*rates, parameter);
  visit_compute_floating("adamw", parameter.dtype, [&]<class C>(Type<C>) {
    take_step<C>(element_of<C>(options), {&parameter, &m, &v, &grad}, grad_factor, rates);
  });
}

void sgd(const MemoryBlock& parameter, const MemoryBlock& velocity, const MemoryBlock& grad,
         const Sgd& options, const MemoryBlock* grad_factor) {
  check_step("sgd", parameter, grad);
  if (velocity.data) check_step("sgd", parameter, velocity);
  if (!velocity.data && options.momentum != 0)
    fail("sgd: velocity is missing, expected one for momentum");
  visit_compute_floating("sgd", parameter.dtype, [&]<class C>(Type<C>) {
    take_step<C>(element_of<C>(options), {&parameter, &velocity, &grad}, grad_factor, nullptr);
  });
}

void lion(const MemoryBlock& parameter, const MemoryBlock& m, const MemoryBlock& grad,
          const LionNumbers& options, const MemoryBlock* grad_factor) {
  for (const MemoryBlock* block : {&m, &grad}) check_step("lion", parameter, *block);
  visit_compute_floating("lion", parameter.dtype, [&]<class C>(Type<C>) {
    take_step<C>(element_of<C>(options), {&parameter, &m, &grad}, grad_factor, nullptr);
  });
}

}  // namespace weft
