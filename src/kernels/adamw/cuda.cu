// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/adamw/adamw.h"

#include "src/device/cuda/runtime.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "weft/error.h"

namespace weft::cuda {

namespace {

/// Values that a step reads from device memory: the gradient's scale (1 without data), and the
/// step's rates if given.
struct StepNumbers {
  const void* factor;
  DType dtype;
  const double* rates;

  template <class C, class F> WEFT_DEVICE F in(F f) const {
    f.grad_factor = factor ? load_element<C>(factor, dtype, 0) : C(1);
    if constexpr (requires { f.take_rates(rates); }) {
      if (rates) f.take_rates(rates);
    }
    return f;
  }
};

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

template <class F, class C, int kStates>
static void take_step(const F& f, const MemoryBlock* const* blocks, const MemoryBlock* grad_factor,
                      const MemoryBlock* rates) {
  const MemoryBlock& parameter = *blocks[0];
  if (grad_factor && grad_factor->device != parameter.device) {
    fail("optimizer step: factor of the gradient is on ", grad_factor->device, ", expected ",
         parameter.device, ", where the parameter is");
  }
  const Stream stream = current_stream(parameter.device);
  StepNumbers numbers{nullptr, DType::f32, rates ? rates->as<double>() : nullptr};
  if (grad_factor) numbers.factor = grad_factor->data, numbers.dtype = grad_factor->dtype;
  if constexpr (std::is_same_v<C, float>) {
    if (step_by_vectors<F, kStates>(f, numbers, blocks, stream)) return;
  }
  const auto side = [](const MemoryBlock& block) { return StepSide{block.data, block.dtype}; };
  StepOfAny<F, C, kStates> kernel{
      f, numbers, parameter.numel(), side(parameter), {}, side(*blocks[kStates + 1])};
  for (int k = 0; k < kStates; ++k) kernel.states[k] = side(*blocks[1 + k]);
  launch(kernel, kernel.elements, stream);
}

void adamw(const MemoryBlock& parameter, const MemoryBlock& m, const MemoryBlock& v,
           const MemoryBlock& grad, const AdamWNumbers& options, const MemoryBlock* grad_factor,
           const MemoryBlock* rates) {
  check_adamw(parameter, m, v, grad, rates);
  const MemoryBlock* const blocks[] = {&parameter, &m, &v, &grad};
  visit_compute_floating("adamw", parameter.dtype, [&]<class C>(Type<C>) {
    take_step<AdamWElement<C>, C, 2>(element_of(options, C(1)), blocks, grad_factor, rates);
  });
}

void sgd(const MemoryBlock& parameter, const MemoryBlock& velocity, const MemoryBlock& grad,
         const Sgd& options, const MemoryBlock* grad_factor) {
  check_sgd(parameter, velocity, grad, options);
  const MemoryBlock* const blocks[] = {&parameter, &velocity, &grad};
  visit_compute_floating("sgd", parameter.dtype, [&]<class C>(Type<C>) {
    take_step<SgdElement<C>, C, 1>(element_of(options, C(1)), blocks, grad_factor, nullptr);
  });
}

}  // namespace weft::cuda
