// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/copy/copy.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "src/base/parallel.h"
#include "src/device/kernel/elements.h"
#include "src/kernels/copy/squares.h"
#include "src/kernels/iteration/iteration.h"
#include "src/kernels/map/map.h"

namespace weft::host {

/// Elements of a line that are copied at a time.
static constexpr int64_t kCopyChunk = 16384;
/// Tile of a transposition: the lines it reads, a power of two apart, must fit a cache set's ways.
static constexpr int64_t kTileLines = 64, kTileLength = 8;

/// Returns whether elements of this size are transposed in squares.
static constexpr bool in_squares(size_t bytes) { return kHasSquares && bytes == sizeof(uint32_t); }

template <class T>
static void transpose_tile(const Line& to, int64_t to_step, const Line& from, int64_t lines,
                           int64_t length) {
  auto* out = static_cast<T*>(to.data);
  const auto* in = static_cast<const T*>(from.data);
  if constexpr (in_squares(sizeof(T))) {
    if (length == kSquare && lines % kSquare == 0) {
      return transpose_squares(out, to_step, in, from.stride, lines);
    }
  }
  if (length == kTileLength) {
    for (int64_t j = 0; j < lines; ++j) {
      for (int64_t i = 0; i < kTileLength; ++i) out[j * to_step + i] = in[i * from.stride + j];
    }
  } else {
    for (int64_t j = 0; j < lines; ++j) {
      for (int64_t i = 0; i < length; ++i) out[j * to_step + i] = in[i * from.stride + j];
    }
  }
}

/// `in` is contiguous along the dim before the inner one, `out` along the inner one.
static void copy_transposed(const Iteration& loops) {
  const int last = loops.ndim() - 1;
  const int64_t lines = loops.size(last - 1), length = loops.size(last);
  const int64_t planes = loops.outer() / lines;
  const int64_t tall = in_squares(size_of(loops.block(0).dtype)) ? kSquare : kTileLines;
  const int64_t down = (lines + tall - 1) / tall;
  const int64_t grain = grain_of(tall * length);
  parallel_for(planes * down, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t line = i % down * tall;
      const int64_t tile = std::min(tall, lines - line);
      const int64_t outer = i / down * lines + line;
      visit_moved(size_of(loops.block(0).dtype), [&]<class T>(Type<T>) {
        constexpr int64_t kLength = in_squares(sizeof(T)) ? kSquare : kTileLength;
        for (int64_t j = 0; j < length; j += kLength) {
          transpose_tile<T>(loops.line(0, outer, j), loops.stride(0, last - 1),
                            loops.line(1, outer, j), tile, std::min(kLength, length - j));
        }
      });
    }
  });
}

static void copy_lines(const Iteration& loops) {
  const LineConverter convert = line_converter(loops.block(0).dtype, loops.block(1).dtype);
  const int64_t inner = loops.inner(), outer = loops.outer();
  const int64_t across = (inner + kCopyChunk - 1) / kCopyChunk;
  parallel_for(outer * across, grain_of(std::min(inner, kCopyChunk)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t j = 0; j < across; ++j) {
                   // The items of [begin, end) that are part j of a line.
                   const int64_t first = (begin - j + across - 1) / across,
                                 last = (end - j + across - 1) / across;
                   if (first >= last) continue;
                   const int64_t start = j * kCopyChunk, n = std::min(kCopyChunk, inner - start);
                   LineWalk walk(loops, first, start);
                   for (int64_t i = first; i < last; ++i, walk.next()) {
                     const Line &to = walk.line(0), &from = walk.line(1);
                     convert(to.data, to.stride, from.data, from.stride, n);
                   }
                 }
               });
}

/// Copies a few rows of elements of one dtype, which is too little for the preparations of threads.
static bool copy_few_rows(const Iteration& loops) {
  constexpr int64_t kFewBytes = 16384;
  const MemoryBlock &out = loops.block(0), &in = loops.block(1);
  const auto element = static_cast<int64_t>(size_of(out.dtype));
  const int64_t rows = loops.outer(), bytes = loops.inner() * element;
  if (loops.ndim() > 2 || rows * bytes > kFewBytes || out.dtype != in.dtype ||
      loops.inner_stride(0) != 1 || loops.inner_stride(1) != 1) {
    return false;
  }
  auto* to = out.as<char>();
  const auto* from = in.as<char>();
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    to += loops.stride(0, 0) * element;
    from += loops.stride(1, 0) * element;
  }
  return true;
}

void copy(const MemoryBlock& out, const MemoryBlock& in) {
  const Iteration loops("copy", out.shape, {&out, &in});
  if (loops.inner() * loops.outer() == 0 || copy_few_rows(loops)) return;
  if (out.dtype == in.dtype && loops.inner_stride(0) == 1 && loops.is_transposed(1)) {
    copy_transposed(loops);
  } else {
    copy_lines(loops);
  }
}

void fill(const MemoryBlock& out, Number value) {
  alignas(16) std::byte element[16];
  if (is_complex(out.dtype)) {
    const MemoryBlock parts = parts_of(MemoryBlock{element, out.dtype, out.device, {}, {}});
    store_element<double>(element, parts.dtype, 0, value.value);
    store_element<double>(element, parts.dtype, 1, value.imaginary);
  } else if (is_integer(out.dtype)) {
    store_element<int64_t>(element, out.dtype, 0, value.bits);
  } else {
    store_element<double>(element, out.dtype, 0, value.value);
  }
  host::copy(out, MemoryBlock{element, out.dtype, out.device, {}, {}});
}

void fill_range(const MemoryBlock& out, int64_t start) {
  std::vector<int64_t> values(static_cast<size_t>(out.numel()));
  std::iota(values.begin(), values.end(), start);
  host::copy(out, dense_block(values.data(), DType::i64, out.shape));
}

}  // namespace weft::host

namespace weft {
namespace {

struct AddScaled {
  static constexpr bool kTakesComplex = true;
  double factor;
  template <class T> WEFT_FN T operator()(T a, T b) const { return a + b * T(factor); }
};

struct AddPlain {
  static constexpr bool kWraps = true, kTakesComplex = true;
  template <class T> WEFT_FN T operator()(T a, T b) const { return a + b; }
};

}  // namespace

void accumulate(const MemoryBlock& out, const MemoryBlock& in, double factor) {
  if (factor == 1) return map(AddPlain{}, out, out, in);
  map_floating(AddScaled{factor}, out, out, in);
}

}  // namespace weft
