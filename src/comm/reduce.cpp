// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>
#include <vector>

#include "src/base/independent.h"
#include "src/base/numeric.h"
#include "src/comm/collective_parts.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/error.h"

namespace weft {

/// Elements reduced at a time: the sources, sums and result of a block stay in the L1 cache.
static constexpr int64_t kReduceBlock = 2048;

/// The type in which elements of T are reduced.
template <class T> using Summed = std::conditional_t<is_half<T>, float, T>;

/// Combines sums[i] (or the first source, when there are no sums yet) with K sources: four in the
/// tree (0 + 1) + (2 + 3).
template <int K, bool kFirst, class Op, class T>
[[gnu::noinline]] static void combine_sources(Summed<T>* sums, const T* const* from,
                                              int64_t count) {
  static_assert(K == 1 || (kFirst && (K == 2 || K == 4)));
  std::array<const T*, K> sources;
  std::copy_n(from, K, sources.begin());
  // The sums may be one of the sources, but never at an offset to it.
  WEFT_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) {
    const auto at = [&](size_t k) { return static_cast<Summed<T>>(sources[k][i]); };
    if constexpr (K == 1) {
      sums[i] = kFirst ? at(0) : Op::combine(sums[i], at(0));
    } else if constexpr (K == 2) {
      sums[i] = Op::combine(at(0), at(1));
    } else {
      sums[i] = Op::combine(Op::combine(at(0), at(1)), Op::combine(at(2), at(3)));
    }
  }
}

template <class Op, class S>
[[gnu::noinline]] static void combine_block(S* sums, const S* others, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] = Op::combine(sums[i], others[i]);
}

/// Reduces one block of all sources to `sums`, in a binary tree over their numbers that is filled
/// up to a power of two: (0 + 1) + 2, ((0 + 1) + (2 + 3)) + (4 + 5). Then the sum over
/// neighbouring groups of 2, 4, 8, ... ranks has the bits of the sum over all of them.
template <class Op, class T>
static void reduce_block(Summed<T>* sums, std::span<const T* const> sources, int64_t count) {
  const T* const* from = sources.data();
  const size_t n = sources.size();
  if constexpr (std::is_floating_point_v<Summed<T>>) {
    if (n == 4) return combine_sources<4, true, Op, T>(sums, from, count);
    if (n == 2) return combine_sources<2, true, Op, T>(sums, from, count);
    if (n > 2) {
      const size_t half = std::bit_ceil(n) / 2;
      reduce_block<Op, T>(sums, sources.first(half), count);
      if (n == half + 1) return combine_sources<1, false, Op, T>(sums, from + half, count);
      alignas(64) std::array<Summed<T>, kReduceBlock> others;
      reduce_block<Op, T>(others.data(), sources.subspan(half), count);
      return combine_block<Op>(sums, others.data(), count);
    }
  }
  combine_sources<1, true, Op, T>(sums, from, count);
  // The order of whole numbers does not matter.
  for (size_t s = 1; s < n; ++s) combine_sources<1, false, Op, T>(sums, from + s, count);
}

template <class S> [[gnu::noinline]] static void divide_block(S* sums, S divisor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] /= divisor;
}

/// Converts a sum to the stored type; a double becomes a half through float.
template <class Out, class S> static Out stored(S sum) {
  if constexpr (is_half<Out>) {
    return Out(static_cast<float>(sum));
  } else {
    return static_cast<Out>(sum);
  }
}

/// Writes the sums to the result, adding to its old value when asked. `into` may be `sums`.
template <class Out, class S>
[[gnu::noinline]] static void finish_block(Out* into, const S* sums, bool accumulate,
                                           int64_t count) {
  if (accumulate) {
    WEFT_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
      into[i] = stored<Out>(SumOf::combine(static_cast<S>(into[i]), sums[i]));
    }
  } else {
    WEFT_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) into[i] = stored<Out>(sums[i]);
  }
}

/// One reduction: the values that all its blocks share.
struct Reducing {
  std::span<const void* const> sources;
  ReduceInto into;
  int divisor;
  int64_t count;
};

template <class Op, class T, class Out> static void reduce_blocks(const Reducing& task) {
  using S = Summed<T>;
  alignas(64) std::array<S, kReduceBlock> scratch;
  const size_t n = task.sources.size();
  std::array<const T*, 32> few;
  std::vector<const T*> many(n > few.size() ? n : 0);
  const std::span<const T*> at(many.empty() ? few.data() : many.data(), n);
  const bool stays = std::is_same_v<Out, S> && !task.into.accumulate;
  const bool is_bulk = stays && static_cast<size_t>(task.count) * sizeof(Out) >= kBulkBytes;
  // One pass that reads all sources can write the result directly, even if it is one of the
  // sources.
  const bool direct =
      stays && !is_bulk && (n <= 2 || n == 4) && (n == 1 || std::is_floating_point_v<S>);
  for (int64_t begin = 0; begin < task.count; begin += kReduceBlock) {
    const int64_t length = std::min(kReduceBlock, task.count - begin);
    for (size_t s = 0; s < n; ++s) at[s] = static_cast<const T*>(task.sources[s]) + begin;
    Out* out = static_cast<Out*>(task.into.data) + begin;
    S* sums = direct ? reinterpret_cast<S*>(out) : scratch.data();
    reduce_block<Op, T>(sums, at, length);
    if (task.divisor != 1) divide_block(sums, static_cast<S>(task.divisor), length);
    if (is_bulk) {
      copy_around_caches(out, sums, static_cast<size_t>(length) * sizeof(Out));
    } else if (!direct) {
      finish_block(out, sums, task.into.accumulate, length);
    }
  }
  if (is_bulk) finish_bulk_writes();
}

template <class T, class Out> static void reduce_as(ReduceOp op, const Reducing& task) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: return reduce_blocks<SumOf, T, Out>(task);
    case ReduceOp::max: return reduce_blocks<GreatestOf, T, Out>(task);
    case ReduceOp::min: return reduce_blocks<LeastOf, T, Out>(task);
  }
}

void check_reduction(const char* what, ReduceOp op, DType dtype, DType into) {
  if (op == ReduceOp::avg && !is_floating(dtype)) {
    fail(what, ": dtype is ", dtype, ", expected a floating one for avg; cast it first");
  }
  if (is_float8(dtype) || is_float8(into)) {
    fail(what, ": dtype is ", is_float8(dtype) ? dtype : into,
         ", expected one with arithmetic; cast it first");
  }
  if (is_complex(dtype) && (op == ReduceOp::max || op == ReduceOp::min)) {
    fail(what, ": dtype is ", dtype, ", expected a real one; complex numbers have no order");
  }
  if (is_complex(dtype) != is_complex(into)) {
    fail(what, ": dtype of the result is ", into, ", expected ", dtype);
  }
  if (dtype != into && !(is_floating(dtype) && is_floating(into))) {
    fail(what, ": dtype of the result is ", into, ", expected ", dtype,
         "; only floating dtypes convert");
  }
}

void reduce_n(ReduceOp op, DType dtype, std::span<const void* const> sources,
              const ReduceInto& into, int64_t count) {
  check_reduction("reduction", op, dtype, into.dtype);
  if (count == 0 || sources.empty()) return;
  if (is_complex(dtype)) {
    ReduceInto parts = into;
    parts.dtype = real_dtype(into.dtype);
    return reduce_n(op, real_dtype(dtype), sources, parts, 2 * count);
  }
  if (cuda::kWithCuda && into.device.kind == DeviceKind::cuda) {
    std::vector<MemoryBlock> blocks;
    for (const void* source : sources) {
      blocks.push_back(dense_block(const_cast<void*>(source), dtype, {count}, into.device));
    }
    const MemoryBlock out = dense_block(into.data, into.dtype, {count}, into.device);
    return cuda::reduce_blocks(op, blocks, out, into.accumulate);
  }
  const int divisor = op == ReduceOp::avg ? static_cast<int>(sources.size()) : 1;
  const Reducing task{sources, into, divisor, count};
  visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_same_v<T, bool>) {
      // The sum of bools is "any", which is their maximum.
      reduce_as<uint8_t, bool>(op == ReduceOp::sum ? ReduceOp::max : op, task);
    } else if constexpr (!is_floating_type<T>) {
      reduce_as<T, T>(op, task);
    } else if constexpr (sizeof(T) > 1) {  // check_reduction refuses f8
      visit_floating("reduction", into.dtype,
                     [&]<class Out>(Type<Out>) { reduce_as<T, Out>(op, task); });
    }
  });
}

}  // namespace weft
