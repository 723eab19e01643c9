// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/map/device_map.h"

namespace weft {

template <class T> struct Pair;

namespace cuda {

inline constexpr int kVectorBytes = 16;

inline namespace WEFT_COMPILER {

/// True when a functor returns two results.
template <class T> inline constexpr bool is_pair = false;
template <class T> inline constexpr bool is_pair<Pair<T>> = true;

/// Sides of any dtype and strides, one element at a time.
template <class F, class C, int... kIn> struct StridedMap {
  F f;
  DeviceMap map;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < map.elements; i += thread.count) {
      int64_t offsets[kMaxMapSides];
      find_offsets(i, offsets);
      const auto value =
          f(load_element<C>(map.sides[map.results + kIn].data, map.sides[map.results + kIn].dtype,
                            offsets[map.results + kIn])...);
      if constexpr (is_pair<std::remove_const_t<decltype(value)>>) {
        store_element(map.sides[0].data, map.sides[0].dtype, offsets[0], value.first);
        store_element(map.sides[1].data, map.sides[1].dtype, offsets[1], value.second);
      } else {
        store_element(map.sides[0].data, map.sides[0].dtype, offsets[0], value);
      }
    }
  }

  WEFT_DEVICE void find_offsets(int64_t index, int64_t* offsets) const {
    for (int s = 0; s < map.count; ++s) offsets[s] = 0;
    for (int d = map.ndim - 1; d >= 0; --d) {
      const int64_t next = d > 0 ? index / map.sizes[d] : 0, at = index - next * map.sizes[d];
      for (int s = 0; s < map.count; ++s) offsets[s] += at * map.sides[s].strides[d];
      index = next;
    }
  }
};

/// The elements of one 16-byte load.
template <class S> struct alignas(kVectorBytes) Vector {
  static constexpr int kElements = kVectorBytes / static_cast<int>(sizeof(S));
  S element[kElements];
};

/// All sides dense and of type S, 16 bytes at a time.
template <class F, class C, class S, int... kIn> struct UniformMap {
  F f;
  int64_t elements;
  S* sides[kMaxMapSides];

  using Result = decltype(std::declval<const F&>()((static_cast<void>(kIn), C())...));
  static constexpr bool kPair = is_pair<Result>;
  static constexpr int kResults = kPair ? 2 : 1;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    constexpr int kN = Vector<S>::kElements;
    const int64_t vectors = elements / kN;
    for (int64_t v = thread.index; v < vectors; v += thread.count) {
      Vector<S> in[sizeof...(kIn) + 1];
      ((in[kIn] = reinterpret_cast<const Vector<S>*>(sides[kResults + kIn])[v]), ...);
      Vector<S> out[kResults];
      for (int i = 0; i < kN; ++i) compute(i, out, f(static_cast<C>(in[kIn].element[i])...));
      for (int r = 0; r < kResults; ++r) reinterpret_cast<Vector<S>*>(sides[r])[v] = out[r];
    }
    for (int64_t i = vectors * kN + thread.index; i < elements; i += thread.count) {
      Vector<S> out[kResults];
      compute(0, out, f(static_cast<C>(sides[kResults + kIn][i])...));
      for (int r = 0; r < kResults; ++r) sides[r][i] = out[r].element[0];
    }
  }

  WEFT_DEVICE static void compute(int i, Vector<S>* out, const Result& value) {
    if constexpr (kPair) {
      out[0].element[i] = static_cast<S>(value.first);
      out[1].element[i] = static_cast<S>(value.second);
    } else {
      out[0].element[i] = static_cast<S>(value);
    }
  }
};

template <class F, class C, class S, int... kIn>
void launch_uniform(const F& f, const DeviceMap& map, const Stream& stream) {
  UniformMap<F, C, S, kIn...> kernel{f, map.elements, {}};
  for (int s = 0; s < map.count; ++s) kernel.sides[s] = static_cast<S*>(map.sides[s].data);
  launch(kernel, (map.elements + Vector<S>::kElements - 1) / Vector<S>::kElements, stream);
}

/// True when elements of `dtype` can be read as C: as one type, or as integers of one size.
template <class C> bool has_type(DType dtype) {
  if constexpr (std::is_integral_v<C>) return is_integer(dtype) && size_of(dtype) == sizeof(C);
  return dtype == dtype_of<C>;
}

/// Launches the fastest kernel for these sides; `functor` is an F.
template <class F, class C, int... kIn>
void launch_map(const void* functor, const DeviceMap& map, const Stream& stream) {
  const F& f = *static_cast<const F*>(functor);
  using Result = decltype(f((static_cast<void>(kIn), C())...));
  if constexpr (!std::is_same_v<Result, bool>) {
    if (map.uniform && has_type<C>(map.dtype)) {
      return launch_uniform<F, C, C, kIn...>(f, map, stream);
    }
    if constexpr (std::is_same_v<C, float>) {
      if (map.uniform && map.dtype == DType::bf16) {
        return launch_uniform<F, C, bfloat16, kIn...>(f, map, stream);
      }
    }
  }
  launch(StridedMap<F, C, kIn...>{f, map}, map.elements, stream);
}

}  // namespace WEFT_COMPILER
}  // namespace cuda
}  // namespace weft
