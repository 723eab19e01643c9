// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "src/base/numeric.h"
#include "src/kernels/map/device_map.h"
#include "weft/error.h"
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

/// Returns the loop for operands of `dtype`; std::invalid_argument when the functor has none.
template <class Loop> Loop loop_for(const LoopsByType<Loop>& loops, DType dtype) {
  if (dtype == DType::u64 && loops[dtype]) return loops[dtype];
  const Loop loop = loops[compute_dtype(dtype)];
  if (!loop && is_floating(dtype)) fail("map: operands are ", dtype, ", expected integers");
  if (!loop) fail("map: operands are integers, expected floating ones");
  return loop;
}

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
#pragma GCC ivdep
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
#pragma GCC ivdep
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

/// Whether overflow of integers must wrap: they are computed as uint64_t, in which it is defined.
template <class F> inline constexpr bool wraps = requires { F::kWraps; };
/// Whether the result for u64 differs from the result for the same bits as i64.
template <class F> inline constexpr bool depends_on_sign = requires { F::kDependsOnSign; };

/// Whether the result for narrow integers is that for the same numbers in 64 bits, truncated.
template <class F> inline constexpr bool keeps_width = requires { F::kKeepsWidth; };

/// The dtypes that a functor supports.
enum class MapDomain { any, floating, integer };

/// Adds loops over narrow integers, for both signs where the result depends on it.
template <class F, int... kIn, class... Narrow>
constexpr void add_narrow_loops(LoopsByType<MapLoop>& loops, Type<Narrow>...) {
  ((loops[dtype_of<Narrow>] =
        map_loop<F, std::conditional_t<depends_on_sign<F>, Narrow, std::make_unsigned_t<Narrow>>,
                 kIn...>),
   ...);
}

template <class F, MapDomain kDomain, int... kIn>
constexpr MapLoops map_loops(std::integer_sequence<int, kIn...>) {
  MapLoops loops;
  if constexpr (kDomain != MapDomain::integer) {
    loops.on_cpu[DType::f32] = map_loop<F, float, kIn...>;
    loops.on_cpu[DType::f64] = map_loop<F, double, kIn...>;
#ifdef WEFT_COMPILES_KERNELS
    loops.on_cuda[DType::f32] = cuda::launch_map<F, float, kIn...>;
    loops.on_cuda[DType::f64] = cuda::launch_map<F, double, kIn...>;
#endif
    loops.gives_bool =
        std::is_same_v<decltype(std::declval<const F&>()(Repeat<float, kIn>()...)), bool>;
  }
  if constexpr (kDomain != MapDomain::floating) {
    using Integer = std::conditional_t<wraps<F>, uint64_t, int64_t>;
    loops.on_cpu[DType::i64] = map_loop<F, Integer, kIn...>;
#ifdef WEFT_COMPILES_KERNELS
    loops.on_cuda[DType::i64] = cuda::launch_map<F, Integer, kIn...>;
#endif
    if constexpr (keeps_width<F>) {
      add_narrow_loops<F, kIn...>(loops.on_cpu, Type<int8_t>{}, Type<int16_t>{}, Type<int32_t>{},
                                  Type<uint8_t>{}, Type<uint16_t>{}, Type<uint32_t>{});
    }
    if constexpr (depends_on_sign<F>) {
      loops.on_cpu[DType::u64] = map_loop<F, uint64_t, kIn...>;
#ifdef WEFT_COMPILES_KERNELS
      loops.on_cuda[DType::u64] = cuda::launch_map<F, uint64_t, kIn...>;
#endif
    }
  }
  return loops;
}

}  // namespace WEFT_COMPILER
}  // namespace weft
