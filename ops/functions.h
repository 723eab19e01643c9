// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/definition.h"
#include "src/kernels/map/map.h"
#include "weft/error.h"
#include "weft/extend/op.h"

/// Defines a functor that calls the function of numbers with that name.
#define WEFT_FUNCTOR(Name, function)                                                        \
  struct Name {                                                                             \
    template <class T, class... Others> WEFT_FN T operator()(T a, Others... others) const { \
      return function(a, others...);                                                        \
    }                                                                                       \
  };

namespace weft {

// Bases of functors that say how `map` may call them.
struct Wraps {
  static constexpr bool kWraps = true;
};
struct KeepsWidth {
  static constexpr bool kKeepsWidth = true;
};
struct TakesComplex {
  static constexpr bool kTakesComplex = true;
};
struct DependsOnSign {
  static constexpr bool kDependsOnSign = true;
};

/// Returns an operand's gradient from that of the result and `value`: the operand, or the result.
using FunctionGradient = Tensor (*)(const Tensor& gradient, const Tensor& value);

/// Describes a function of one number, apart from its functor. Without a gradient, which reads the
/// operand or the result, none flows through it; a step function has the gradient 0.
struct FunctionSpec {
  FunctionGradient by_operand = nullptr, by_result = nullptr;
  /// Values of samples are from the first to below the second number.
  std::pair<double, double> range = {-2, 2};
  bool is_step = false;
  OpDefinition definition = {};
};

inline constexpr RuleLiteral kElementwiseRules[] = {
    "... -> ...", "..., ... -> ...", "..., ..., ... -> ...", "..., ..., ..., ... -> ..."};

inline DType bool_result(const Attributes&, std::span<const DType>, int) { return DType::boolean; }

/// Samples of a function of two numbers.
inline std::vector<OpSample> samples_of_two(double low = -2, double high = 2) {
  return {{.shapes = {{5, 7}, {5, 7}}, .low = low, .high = high},
          {.shapes = {{7}, {5, 1}}, .low = low, .high = high}};
}

inline namespace WEFT_COMPILER {

/// Returns the functor of a call. Its fields, if it has some, are the numbers in `values`, or the
/// integer in `structure`.
template <class F> F functor_of(const Call& c) {
  if constexpr (std::is_empty_v<F>) {
    return {};
  } else if constexpr (sizeof(F) > sizeof(double)) {
    return unpack<F>(c.attributes().values);
  } else if constexpr (requires { F{c.value(0)}; }) {
    return {c.value(0)};
  } else {
    return {c.attribute(0)};
  }
}

template <class F, MapDomain kDomain, int... kIn>
void map_operands(const Call& c, std::integer_sequence<int, kIn...>) {
  map_with<kDomain>(functor_of<F>(c), c.out(), c.in(kIn)...);
}

/// Registers an op that calls the functor F for each element; adds rule and forward to `spec`.
template <class F, int kOperands, MapDomain kDomain = MapDomain::any> Op elementwise(OpSpec spec) {
  spec.rule = kElementwiseRules[kOperands - 1];
  if (takes_complex<F> || spec.moves) spec.complex = takes_complex<F>;
  spec.forward = [](const Call& c) {
    map_operands<F, kDomain>(c, std::make_integer_sequence<int, kOperands>());
  };
  return register_op(std::move(spec));
}

/// The same for functors that return floating values only.
template <class F, int kOperands> Op floating_elementwise(OpSpec spec) {
  return elementwise<F, kOperands, MapDomain::floating>(std::move(spec));
}

/// The same for functors that return bool.
template <class F, int kOperands>
Op truth_function(const char* name, std::vector<OpSample> samples, bool moves = false) {
  return elementwise<F, kOperands>({.name = name,
                                    .moves = moves,
                                    .dtype = bool_result,
                                    .differentiable = false,
                                    .samples = std::move(samples)});
}

/// Registers a function of one number; of a floating one unless the domain says otherwise.
template <class F, MapDomain kDomain = MapDomain::floating>
Op function(const char* name, const FunctionSpec& spec = {}) {
  OpSpec op{.name = name,
            .definition = spec.definition,
            .saves_in = std::vector<int>{},
            .samples = {{.shapes = {{5, 7}}, .low = spec.range.first, .high = spec.range.second}}};
  if (spec.is_step) {
    op.backward = [](const Grad& g) { g.give(0, zeros_like(g.grad())); };
  } else if (spec.by_operand) {
    op.backward = [gradient = spec.by_operand](const Grad& g) {
      g.give(0, gradient(g.grad(), g.in(0)));
    };
    op.saves_in = std::vector<int>{0};
  } else if (spec.by_result) {
    op.backward = [gradient = spec.by_result](const Grad& g) {
      g.give(0, gradient(g.grad(), g.out()));
    };
    op.saves_out = {0};
  }
  op.differentiable = op.backward != nullptr;
  return elementwise<F, 1, kDomain>(std::move(op));
}

/// Registers a fused gradient: a function, linear in the result's gradient, of that and another
/// number.
template <class F> Op gradient_of(std::string name, OpDefinition definition) {
  return floating_elementwise<F, 2>({.name = std::move(name),
                                     .linear = {{0}},
                                     .definition = std::move(definition),
                                     .samples = {{{{5, 7}, {5, 7}}}}});
}

/// Registers a floating function of one number and, before it, its fused gradient.
template <class F, class G> Op fused_function(const char* name, const OpDefinition& definition) {
  static const Op gradient_op =
      gradient_of<G>(concat(name, "_gradient"), gradient_definition(definition, 1));
  return function<F>(name, {.by_operand =
                                [](const Tensor& gradient, const Tensor& a) {
                                  return gradient_op({gradient, a});
                                },
                            .definition = definition});
}

}  // namespace WEFT_COMPILER
}  // namespace weft
