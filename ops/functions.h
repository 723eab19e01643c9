// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/kernels/map/map.h"
#include "weft/error.h"
#include "weft/extend/op.h"

namespace weft {

/// Describes a function of one or two numbers, apart from its functor. Without a backward no
/// gradient flows through it.
struct FunctionSpec {
  const char* name;
  std::function<void(const Grad&)> backward = nullptr;
  std::vector<int> saves_in = {};
  std::vector<int> saves_out = {};
  std::vector<std::vector<int>> linear = {};
  double low = -2, high = 2;
};

/// Returns the spec of a function's op, without forward and samples.
inline OpSpec op_spec_of(const FunctionSpec& spec) {
  return {.name = spec.name,
          .linear = spec.linear,
          .backward = spec.backward,
          .saves_in = spec.saves_in,
          .saves_out = spec.saves_out,
          .differentiable = spec.backward != nullptr};
}

inline DType bool_result(const Attributes&, std::span<const DType>, int) { return DType::boolean; }

inline namespace WEFT_COMPILER {

/// Registers a function of one number of any dtype.
template <class F> Op function(F functor, const FunctionSpec& spec) {
  OpSpec op = op_spec_of(spec);
  op.rule = "... -> ...";
  op.forward = [functor](const Call& c) { map(functor, c.out(), c.in(0)); };
  op.samples = {{.shapes = {{5, 7}}, .low = spec.low, .high = spec.high}};
  return register_op(std::move(op));
}

/// The same for functions that return floating values only.
template <class F> Op floating_function(F functor, const FunctionSpec& spec) {
  OpSpec op = op_spec_of(spec);
  op.rule = "... -> ...";
  op.forward = [functor](const Call& c) { map_floating(functor, c.out(), c.in(0)); };
  op.samples = {{.shapes = {{5, 7}}, .low = spec.low, .high = spec.high}};
  return register_op(std::move(op));
}

/// Registers a function of two floating numbers.
template <class F> Op floating_function_of_two(F functor, const FunctionSpec& spec) {
  OpSpec op = op_spec_of(spec);
  op.rule = "..., ... -> ...";
  op.forward = [functor](const Call& c) { map_floating(functor, c.out(), c.in(0), c.in(1)); };
  op.samples = {{.shapes = {{5, 7}, {5, 7}}, .low = spec.low, .high = spec.high},
                {.shapes = {{7}, {5, 1}}, .low = spec.low, .high = spec.high}};
  return register_op(std::move(op));
}

/// Registers a fused gradient: a function, linear in the result's gradient, of that and the
/// operand.
template <class F> Op gradient_of(const std::string& name, F functor) {
  return register_op({
      .name = name,
      .rule = "..., ... -> ...",
      .linear = {{0}},
      .forward = [functor](const Call& c) { map_floating(functor, c.out(), c.in(0), c.in(1)); },
      .samples = {{{{5, 7}, {5, 7}}}},
  });
}

/// Registers a floating function of one number and, before it, its fused gradient.
template <class F, class G> Op fused_function(const char* name, F functor, G gradient) {
  const Op gradient_op = gradient_of(concat(name, "_gradient"), gradient);
  return floating_function(functor, {.name = name,
                                     .backward =
                                         [gradient_op](const Grad& g) {
                                           g.give(0, gradient_op({g.grad(), g.in(0)}));
                                         },
                                     .saves_in = {0}});
}

}  // namespace WEFT_COMPILER
}  // namespace weft
