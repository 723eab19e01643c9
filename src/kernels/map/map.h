// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "src/kernels/kernel.h"
#include "src/kernels/map/loops.h"

namespace weft {

/// A functor applied to all elements of the results, which have one shape; the operands broadcast
/// to it (aligned from the right; missing dims have size 1).
struct MapCall {
  const MapLoops& loops;
  const void* functor;
  /// The results, then the operands.
  const MemoryBlock* const* blocks;
  int results, count;

  const Shape& shape() const { return blocks[0]->shape; }
  /// Returns the dtype that the operands are computed in: f32, f64, c64, c128, i64 or, with an
  /// operand of u64, u64.
  DType dtype() const;
};

inline bool is_on_gpu(const MapCall& call) { return is_on_gpu(*call.blocks[0]); }

/// Runs the loop for the operands' dtypes.
WEFT_KERNEL(void, run_map, (const MapCall& call), (call))

inline namespace WEFT_COMPILER {

/// Maps the operands that follow kResults results.
template <MapDomain kDomain, int kResults = 1, class F, class... Blocks>
void map_with(const F& f, const Blocks&... all) {
  constexpr int kCount = int{sizeof...(Blocks)};
  static_assert(kCount <= cuda::kMaxMapSides);
  static_assert(std::is_trivially_copyable_v<F>, "a functor goes to devices as it is");
  const MemoryBlock* const blocks[] = {&all...};
  static constexpr MapLoops loops =
      map_loops<F, kDomain>(std::make_integer_sequence<int, kCount - kResults>());
  run_map({loops, &f, blocks, kResults, kCount});
}

/// out[i] = f(in[i]...), element by element. `f` is a functor on scalars: a trivially copyable
/// struct with `template <class T> WEFT_FN T operator()(T...) const` (or a bool result). It is
/// called with float when the promoted dtype of the operands is f32, bf16 or f16, with double for
/// f64, and with int64_t for integers and bool (uint64_t if it has kWraps, or has kDependsOnSign
/// and an operand is u64); with kKeepsWidth also with narrower types. Operands are converted to
/// that type and broadcast to out's shape, the result is converted to out's dtype; any strides.
/// `out` may be an operand, at the same address.
template <class F, class... In> void map(const F& f, const MemoryBlock& out, const In&... in) {
  map_with<MapDomain::any>(f, out, in...);
}

/// The same for functors that support floating dtypes only; std::invalid_argument for integers.
template <class F, class... In>
void map_floating(const F& f, const MemoryBlock& out, const In&... in) {
  map_with<MapDomain::floating>(f, out, in...);
}

/// The same for functors of floating dtypes that return a Pair<T> of two results.
template <class F, class... In>
void map_pair(const F& f, const MemoryBlock& first, const MemoryBlock& second, const In&... in) {
  map_with<MapDomain::floating, 2>(f, first, second, in...);
}

}  // namespace WEFT_COMPILER
}  // namespace weft
