// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "src/base/independent.h"
#include "src/base/numeric.h"
#include "src/kernels/kernel.h"
#include "src/kernels/map/device_map.h"
#include "weft/stream.h"

// Kernels are compiled by nvcc, or by this compiler for the emulated device.
#if defined(__CUDACC__) || defined(WEFT_CUDA_EMULATED)
#define WEFT_COMPILES_KERNELS
#include "src/kernels/map/cuda_kernel.h"
#endif

namespace weft {

/// The two results of a functor for map_pair.
template <class T> struct Pair { T first, second; };

/// A functor's loop over n dense elements of one compute type.
using MapLoop = void (*)(const void* functor, void* const* out, const void* const* in, int64_t n);

/// Queues a functor's kernel for one compute type.
using MapLaunch = void (*)(const void* functor, const cuda::DeviceMap& map, const Stream& stream);

/// A functor's loops by dtype: f32, f64 and i64 for what computes in them, null where it does not
/// support them; u64 where its result differs from that of i64; and on the CPU narrower integers,
/// where they need no conversion to i64.
template <class Loop> struct LoopsByType {
  Loop loops[std::tuple_size_v<ElementTypes>] = {};
  constexpr Loop& operator[](DType dtype) { return loops[static_cast<size_t>(dtype)]; }
  constexpr Loop operator[](DType dtype) const { return loops[static_cast<size_t>(dtype)]; }
};

/// A functor as run_map sees it: its loops on the CPU, its kernels (none in builds without CUDA),
/// and the dtypes of its results.
struct MapLoops {
  LoopsByType<MapLoop> on_cpu;
  LoopsByType<MapLaunch> on_cuda;
  /// The functor returns bool, whatever type it computes in.
  bool gives_bool = false;
};

inline namespace WEFT_COMPILER {

template <class C, int> using Repeat = C;

/// result[i] = f(in[i]...). The pointers are arguments because results of one byte may alias any
/// memory, that of an array of pointers too.
template <class Result, class F, class... In>
void map_elements(const F& f, Result* result, int64_t n, const In*... in) {
  WEFT_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) result[i] = static_cast<Result>(f(in[i]...));
}

/// Results go to `out[0]` or, for a Pair, to `out[0]` and `out[1]`.
template <class F, class C, int... kIn>
void map_loop(const void* functor, void* const* out, const void* const* in, int64_t n) {
  const F f = *static_cast<const F*>(functor);
  using R = decltype(f(Repeat<C, kIn>()...));
  if constexpr (std::is_same_v<R, Pair<C>>) {
    auto* first = static_cast<C*>(out[0]);
    auto* second = static_cast<C*>(out[1]);
    WEFT_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      const Pair<C> pair = f(static_cast<const C*>(in[kIn])[i]...);
      first[i] = pair.first;
      second[i] = pair.second;
    }
  } else {
    using Result = std::conditional_t<std::is_same_v<R, bool>, bool, C>;
    map_elements(f, static_cast<Result*>(out[0]), n, static_cast<const C*>(in[kIn])...);
  }
}

/// True when overflow of integers must wrap: they are computed as uint64_t, in which it is defined.
template <class F> inline constexpr bool wraps = requires { F::kWraps; };
/// True when the result for u64 differs from the result for the same bits as i64.
template <class F> inline constexpr bool depends_on_sign = requires { F::kDependsOnSign; };

/// True when the result for narrow integers is that for the same numbers in 64 bits, truncated.
template <class F> inline constexpr bool keeps_width = requires { F::kKeepsWidth; };

/// True when the functor is defined on complex numbers.
template <class F> inline constexpr bool takes_complex = requires { F::kTakesComplex; };

/// The dtypes that a functor supports; those with kTakesComplex support complex ones too.
enum class MapDomain { any, floating, integer, complex };

/// Adds loops over narrow integers, for both signs where the result depends on it.
template <class F, int... kIn, class... Narrow>
constexpr void add_narrow_loops(LoopsByType<MapLoop>& loops, Type<Narrow>...) {
  ((loops[dtype_of<Narrow>] =
        map_loop<F, std::conditional_t<depends_on_sign<F>, Narrow, std::make_unsigned_t<Narrow>>,
                 kIn...>),
   ...);
}

/// Sets the loops of both devices for a dtype that is computed as C.
template <class F, class C, int... kIn> constexpr void add_loops(MapLoops& loops, DType dtype) {
  loops.on_cpu[dtype] = map_loop<F, C, kIn...>;
#ifdef WEFT_COMPILES_KERNELS
  loops.on_cuda[dtype] = cuda::launch_map<F, C, kIn...>;
#endif
}

template <class F, MapDomain kDomain, int... kIn>
constexpr MapLoops map_loops(std::integer_sequence<int, kIn...>) {
  MapLoops loops;
  if constexpr (kDomain == MapDomain::any || kDomain == MapDomain::floating) {
    add_loops<F, float, kIn...>(loops, DType::f32);
    add_loops<F, double, kIn...>(loops, DType::f64);
    loops.gives_bool =
        std::is_same_v<decltype(std::declval<const F&>()(Repeat<float, kIn>()...)), bool>;
  }
  if constexpr (kDomain == MapDomain::any || kDomain == MapDomain::integer) {
    using Integer = std::conditional_t<wraps<F>, uint64_t, int64_t>;
    add_loops<F, Integer, kIn...>(loops, DType::i64);
    if constexpr (keeps_width<F>) {
      add_narrow_loops<F, kIn...>(loops.on_cpu, Type<int8_t>{}, Type<int16_t>{}, Type<int32_t>{},
                                  Type<uint8_t>{}, Type<uint16_t>{}, Type<uint32_t>{});
    }
    if constexpr (depends_on_sign<F>) add_loops<F, uint64_t, kIn...>(loops, DType::u64);
  }
  if constexpr (takes_complex<F>) {  // kernels of GPUs are real
    loops.on_cpu[DType::c64] = map_loop<F, Complex<float>, kIn...>;
    loops.on_cpu[DType::c128] = map_loop<F, Complex<double>, kIn...>;
  }
  return loops;
}

}  // namespace WEFT_COMPILER

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
