// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/iteration/iteration.h"

#if defined(__F16C__) || defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include <bit>
#include <cstring>
#include <utility>

#include "src/base/independent.h"
#include "weft/error.h"

namespace weft {

/// Stores bool as a byte: loops over bool do not vectorise.
template <class T> using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <class To, class From> static Stored<To> converted(Stored<From> x) {
  if constexpr (std::is_same_v<To, bool>) {
    return static_cast<Compute<From>>(x) != 0;
  } else if constexpr (is_half<To>) {
    return To(before_half(x));
  } else if constexpr (is_half<From>) {
    return converted<To, float>(static_cast<float>(x));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return truncated<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class To, class From>
static constexpr bool kSameBits = std::is_same_v<To, From> ||
                                  (std::is_integral_v<To> && std::is_integral_v<From> &&
                                   sizeof(To) == sizeof(From) && !std::is_same_v<To, bool>);

#ifdef __AVX512BF16__
/// Rounds 16 floats at a time while none is denormal, which the instruction takes for 0; returns
/// how many are done.
static int64_t round_to_bfloat16(bfloat16* to, const float* from, int64_t n) {
  constexpr int kDenormal = 0x20;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 floats = _mm512_loadu_ps(from + i);
    if (_mm512_fpclass_ps_mask(floats, kDenormal) != 0) break;
    const auto halves = std::bit_cast<__m256i>(_mm512_cvtneps_pbh(floats));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), halves);
  }
  return i;
}
#endif

/// Converts dense elements with dedicated instructions; returns how many are done.
template <class To, class From>
static int64_t convert_halves([[maybe_unused]] To* to, [[maybe_unused]] const From* from,
                              [[maybe_unused]] int64_t n) {
#ifdef __AVX512BF16__
  if constexpr (std::is_same_v<From, float> && std::is_same_v<To, bfloat16>) {
    return round_to_bfloat16(to, from, n);
  }
#endif
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    if constexpr (std::is_same_v<From, float16> && std::is_same_v<To, float>) {
      const auto* halves = reinterpret_cast<const __m128i*>(from + i);
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(halves)));
    } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, float16>) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
    } else {
      break;
    }
  }
#endif
  return i;
}

template <class To, class From>
static void convert_elements(void* to_data, int64_t to_stride, const void* from_data,
                             int64_t from_stride, int64_t n) {
  if (n <= 0) return;
  auto* to = static_cast<Stored<To>*>(to_data);
  const auto* from = static_cast<const Stored<From>*>(from_data);
  if (to_stride == 1 && from_stride == 1) {
    if constexpr (kSameBits<To, From>) {
      std::memmove(to, from, static_cast<size_t>(n) * sizeof(To));
    } else {
      int64_t i = convert_halves(to, from, n);
      WEFT_INDEPENDENT
      for (; i < n; ++i) to[i] = converted<To, From>(from[i]);
    }
  } else if (to_stride == 1 && from_stride == 0) {
    const Stored<To> value = converted<To, From>(from[0]);
    for (int64_t i = 0; i < n; ++i) to[i] = value;
  } else if (to_stride == 1 && from_stride == -1) {
    WEFT_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) to[i] = converted<To, From>(from[-i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * to_stride] = converted<To, From>(from[i * from_stride]);
  }
}

/// The dtype as which a conversion between two dtypes reads: bool as the byte that it is, and u64
/// as i64 where only bits count. With written_as, many conversions share an instance.
static constexpr DType read_as(DType from, DType to) {
  if (from == DType::boolean) return DType::u8;
  return from == DType::u64 && !is_floating(to) ? DType::i64 : from;
}

/// The dtype as which it writes: one without sign where that gives the same bits.
static constexpr DType written_as(DType to, DType from) {
  if (is_floating(to) || (to == DType::boolean && from != to)) return to;
  switch (size_of(to)) {
    case 1: return DType::u8;
    case 2: return DType::u16;
    case 4: return is_floating(from) ? to : DType::u32;
    default: return is_floating(from) ? to : DType::i64;
  }
}

/// True when a conversion is one that others share, or has none to share.
template <class To, class From>
static constexpr bool kIsMade = read_as(dtype_of<From>, dtype_of<To>) ==
                                dtype_of<From>&& written_as(dtype_of<To>,
                                                            dtype_of<From>) == dtype_of<To>;

/// Converts elements to Complex<R>; those of real ones have no imaginary part.
template <class R, class From>
static void convert_to_complex(void* to_data, int64_t to_stride, const void* from_data,
                               int64_t from_stride, int64_t n) {
  auto* to = static_cast<Complex<R>*>(to_data);
  const auto* from = static_cast<const From*>(from_data);
  for (int64_t i = 0; i < n; ++i) {
    const From x = from[i * from_stride];
    if constexpr (is_complex_type<From>) {
      to[i * to_stride] = {static_cast<R>(x.re), static_cast<R>(x.im)};
    } else {
      to[i * to_stride] = {static_cast<R>(static_cast<Compute<From>>(x)), R(0)};
    }
  }
}

template <class R> static LineConverter complex_converter(DType from) {
  if (is_complex(from)) {
    return visit_complex(
        from, []<class From>(Type<From>) -> LineConverter { return convert_to_complex<R, From>; });
  }
  return visit(from, []<class From>(Type<From>) -> LineConverter {
    using Read = std::conditional_t<std::is_same_v<From, bool>, uint8_t, From>;
    return convert_to_complex<R, Read>;
  });
}

static LineConverter converter_with_complex(DType to, DType from) {
  using Double = Complex<double>;
  if (to == from) {
    return to == DType::c64 ? convert_elements<int64_t, int64_t> : convert_elements<Double, Double>;
  }
  if (!is_complex(to)) fail("copy: dtype is ", from, ", expected a real one for ", to);
  return to == DType::c64 ? complex_converter<float>(from) : complex_converter<double>(from);
}

LineConverter line_converter(DType to, DType from) {
  if (is_complex(to) || is_complex(from)) return converter_with_complex(to, from);
  return visit(written_as(to, from), [&](auto target) -> LineConverter {
    return visit(read_as(from, to), [](auto source) -> LineConverter {
      using To = typename decltype(target)::type;
      using From = typename decltype(source)::type;
      if constexpr (kIsMade<To, From>) return convert_elements<To, From>;
      return nullptr;
    });
  });
}

/// Calls move(j, i) for element i of each line j. Prefetches line 0's elements, which start at
/// `at`, `stride` bytes apart, because each is on another cache line.
template <class Move>
static void for_side_by_side(int64_t lines, int64_t n, const void* at, int64_t stride,
                             const Move& move) {
  constexpr int64_t kAhead = 16;
  const char* fetched = static_cast<const char*>(at) + kAhead * stride;
  if (lines == kSideBySide) {
    for (int64_t i = 0; i < n; ++i, fetched += stride) {
      __builtin_prefetch(fetched);
      for (int64_t j = 0; j < kSideBySide; ++j) move(j, i);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < lines; ++j) move(j, i);
    }
  }
}

template <class C>
void load_side_by_side(C* to, int64_t pitch, const Line& from, int64_t lines, int64_t n) {
  visit(read_as(from.dtype, dtype_of<C>), [&]<class From>(Type<From>) {
    if constexpr (read_as(dtype_of<From>, dtype_of<C>) == dtype_of<From>) {
      const auto* in = static_cast<const From*>(from.data);
      const int64_t step = from.stride * int64_t{sizeof(From)};
      for_side_by_side(lines, n, in, step, [&](int64_t j, int64_t i) {
        to[j * pitch + i] = converted<C, From>(in[i * from.stride + j]);
      });
    }
  });
}

template <class C>
void store_side_by_side(const Line& to, const C* from, int64_t pitch, int64_t lines, int64_t n) {
  visit(written_as(to.dtype, dtype_of<C>), [&]<class To>(Type<To>) {
    if constexpr (written_as(dtype_of<To>, dtype_of<C>) == dtype_of<To>) {
      auto* out = static_cast<Stored<To>*>(to.data);
      const int64_t step = to.stride * int64_t{sizeof(To)};
      for_side_by_side(lines, n, out, step, [&](int64_t j, int64_t i) {
        out[i * to.stride + j] = converted<To, C>(from[j * pitch + i]);
      });
    }
  });
}

template void load_side_by_side(float*, int64_t, const Line&, int64_t, int64_t);
template void load_side_by_side(double*, int64_t, const Line&, int64_t, int64_t);
template void load_side_by_side(int64_t*, int64_t, const Line&, int64_t, int64_t);
template void store_side_by_side(const Line&, const float*, int64_t, int64_t, int64_t);
template void store_side_by_side(const Line&, const double*, int64_t, int64_t, int64_t);
template void store_side_by_side(const Line&, const int64_t*, int64_t, int64_t, int64_t);

Iteration::Iteration(const char* what, const Shape& shape, const MemoryBlock* const* blocks,
                     int count) {
  for (int i = 0; i < shape.ndim(); ++i) {
    if (shape[i] != 1) shape_[ndim_++] = shape[i];
  }
  for (int i = 0; i < count; ++i) add(what, shape, *blocks[i]);
  if (ndim_ > 1) {
    sort();
    merge();
  }
  if (ndim_ == 0) {
    shape_[0] = ndim_ = 1;
    for (int i = 0; i < count_; ++i) blocks_[i].strides[0] = 1;
  }
  for (int i = 0; i + 1 < ndim_; ++i) outer_ *= size(i);
}

void Iteration::add(const char* what, const Shape& shape, const MemoryBlock& block) {
  Strided& strided = blocks_[count_++];
  strided.block = &block;
  const int missing = shape.ndim() - block.shape.ndim();
  bool fits = missing >= 0;
  for (int i = 0, dim = 0; i < shape.ndim() && fits; ++i) {
    const bool here = i >= missing && block.shape[i - missing] != 1;
    fits = !here || block.shape[i - missing] == shape[i];
    if (shape[i] == 1) continue;
    strided.strides[dim++] = here ? block.strides[i - missing] : 0;
  }
  if (!fits)
    fail(what, ": an operand is ", block.shape, ", expected one that broadcasts to ", shape);
}

void Iteration::sort() {
  for (int i = 1; i < ndim_; ++i) {
    for (int j = i; j > 0 && stride(0, j - 1) < stride(0, j); --j) {
      std::swap(shape_[j], shape_[j - 1]);
      for (int k = 0; k < count_; ++k) {
        std::swap(blocks_[k].strides[j], blocks_[k].strides[j - 1]);
      }
    }
  }
}

void Iteration::merge() {
  int last = 0;
  for (int i = 1; i < ndim_; ++i) {
    bool one_run = true;
    for (int k = 0; k < count_; ++k) one_run &= stride(k, last) == stride(k, i) * size(i);
    if (!one_run) ++last;
    shape_[last] = one_run ? shape_[last] * shape_[i] : shape_[i];
    for (int k = 0; k < count_; ++k) blocks_[k].strides[last] = blocks_[k].strides[i];
  }
  ndim_ = last + 1;
}

bool Iteration::is_dense(int block) const {
  int64_t expected = 1;
  for (int i = ndim_ - 1; i >= 0; --i) {
    if (stride(block, i) != expected) return false;
    expected *= size(i);
  }
  return true;
}

int64_t Iteration::offset(int block, int64_t outer, int64_t inner) const {
  int64_t offset = inner * inner_stride(block);
  for (int i = ndim_ - 2; i > 0; --i) {
    const int64_t size_i = size(i), next = outer / size_i;
    offset += (outer - next * size_i) * stride(block, i);
    outer = next;
  }
  return ndim_ > 1 ? offset + outer * stride(block, 0) : offset;
}

LineWalk::LineWalk(const Iteration& loops, int64_t outer, int64_t inner) : loops_(loops) {
  for (int k = 0; k < loops.count(); ++k) {
    lines_[k] = loops.line(k, outer, inner);
    sizes_[k] = static_cast<int64_t>(size_of(lines_[k].dtype));
  }
  for (int i = loops.ndim() - 2; i >= 0; --i) {
    index_[i] = outer % loops.size(i);
    outer /= loops.size(i);
  }
}

void LineWalk::move(int dim, int64_t steps) {
  for (int k = 0; k < loops_.count(); ++k) {
    void*& data = lines_[k].data;
    data = static_cast<char*>(data) + steps * loops_.stride(k, dim) * sizes_[k];
  }
}

void LineWalk::next() {
  for (int i = loops_.ndim() - 2; i >= 0; --i) {
    auto& index = index_[i];
    move(i, 1);
    if (++index < loops_.size(i)) return;
    move(i, -index);
    index = 0;
  }
}

}  // namespace weft
