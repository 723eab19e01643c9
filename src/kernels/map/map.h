// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "src/kernels/kernel.h"
#include "src/kernels/map/map_loops.h"

namespace weft {

inline constexpr int kMaxMapInputs = 6;
static_assert(kMaxMapInputs + 2 <= cuda::kMaxMapSides);

/// Runs the loop for the operands' dtypes over all elements of the results, which have one shape;
/// the operands broadcast to it (aligned from the right; missing dims have size 1).
WEFT_KERNEL(void, run_map,
            (const char* what, const MapLoops& loops, const void* functor,
             const MemoryBlock* const* outs, int results, const MemoryBlock* const* ins,
             int operands),
            (what, loops, functor, outs, results, ins, operands))

/// Returns the dtype that the operands are computed in: f32, f64, i64 or, with an operand of u64,
/// u64.
DType map_dtype(const MemoryBlock* const* ins, int operands, const MemoryBlock& out);

inline namespace WEFT_COMPILER {

template <MapDomain kDomain, class F, class... In>
void map_with(const char* what, const F& f, const MemoryBlock* const* outs, int results,
              const In&... in) {
  static_assert(sizeof...(In) <= kMaxMapInputs);
  static_assert(std::is_trivially_copyable_v<F>, "a functor goes to devices as it is");
  const MemoryBlock* const ins[] = {&in...};
  static constexpr MapLoops loops =
      map_loops<F, kDomain>(std::make_integer_sequence<int, int{sizeof...(In)}>());
  run_map(what, loops, &f, outs, results, ins, int{sizeof...(In)});
}

/// out[i] = f(in[i]...), element by element. `f` is a functor on scalars: a trivially copyable
/// struct with `template <class T> WEFT_FN T operator()(T...) const` (or a bool result). It is
/// called with float when the promoted dtype of the operands is f32, bf16 or f16, with double for
/// f64, and with int64_t for integers and bool (uint64_t if it has kWraps, or has kDependsOnSign
/// and an operand is u64); with kKeepsWidth also with narrower types. Operands are converted to
/// that type and broadcast to out's shape, the result is converted to out's dtype; any strides.
/// `out` may be an operand, at the same address.
template <class F, class... In> void map(const F& f, const MemoryBlock& out, const In&... in) {
  const MemoryBlock* const outs[] = {&out};
  map_with<MapDomain::any>("map", f, outs, 1, in...);
}

/// The same for functors that support floating dtypes only; std::invalid_argument for integers.
template <class F, class... In>
void map_floating(const F& f, const MemoryBlock& out, const In&... in) {
  const MemoryBlock* const outs[] = {&out};
  map_with<MapDomain::floating>("map", f, outs, 1, in...);
}

/// The same for functors of floating dtypes that return a Pair<T> of two results.
template <class F, class... In>
void map_pair(const F& f, const MemoryBlock& first, const MemoryBlock& second, const In&... in) {
  const MemoryBlock* const outs[] = {&first, &second};
  map_with<MapDomain::floating>("map", f, outs, 2, in...);
}

}  // namespace WEFT_COMPILER
}  // namespace weft
