// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "src/base/independent.h"
#include "src/base/numeric.h"
#include "src/kernels/kernel.h"
#include "src/kernels/map/device_map.h"
#include "src/kernels/map/elements.h"
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

/// Functors of two operands and up to that number have loops with a repeated operand.
inline constexpr int kMaxRepeated = 3;

/// A functor as run_map sees it: its loops on the CPU, its kernels (none in builds without CUDA),
/// and the dtypes of its results.
struct MapLoops {
  LoopsByType<MapLoop> on_cpu;
  LoopsByType<MapLaunch> on_cuda;
  /// The loops over f32 on the CPU that read one element of that operand for all results; null for
  /// functors that have none.
  MapLoop repeated[kMaxRepeated] = {};
  /// The functor returns bool, whatever type it computes in.
  bool gives_bool = false;
};

inline namespace WEFT_COMPILER {

template <class C, int> using Repeat = C;

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

/// A loop of floats over one element of operand kOne.
template <class F, int kOne, int... kIn>
void map_repeated(const void* functor, void* const* out, const void* const* in, int64_t n) {
  const F f = *static_cast<const F*>(functor);
  using R = decltype(f(Repeat<float, kIn>()...));
  using Result = std::conditional_t<std::is_same_v<R, bool>, bool, float>;
  map_repeated_elements<kOne, kIn...>(f, static_cast<Result*>(out[0]), n,
                                      *static_cast<const float*>(in[kOne]),
                                      static_cast<const float*>(in[kIn])...);
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

/// has_rare_operands for as many floats.
template <class F, int... kIn>
inline constexpr bool has_rare_floats = requires(const F& f, int& rare) {
  f.plain(static_cast<float>(kIn)..., rare);
};

/// Adds the loops with a repeated operand.
template <class F, int... kIn> constexpr void add_repeated_loops(MapLoops& loops) {
  using R = decltype(std::declval<const F&>()(Repeat<float, kIn>()...));
  constexpr bool kHasThem = sizeof...(kIn) > 1 && sizeof...(kIn) <= kMaxRepeated &&
                            !has_rare_floats<F, kIn...> && !std::is_same_v<R, Pair<float>>;
  if constexpr (kHasThem) ((loops.repeated[kIn] = map_repeated<F, kIn, kIn...>), ...);
}

template <class F, MapDomain kDomain, int... kIn>
constexpr MapLoops map_loops(std::integer_sequence<int, kIn...>) {
  MapLoops loops;
  if constexpr (kDomain == MapDomain::any || kDomain == MapDomain::floating) {
    add_loops<F, float, kIn...>(loops, DType::f32);
    add_loops<F, double, kIn...>(loops, DType::f64);
    add_repeated_loops<F, kIn...>(loops);
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

}  // namespace weft
