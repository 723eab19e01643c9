// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/take/take.h"

#include "src/device/cuda/runtime.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/reduce/reduce.h"
#include "src/kernels/rows/rows.h"
#include "src/kernels/sort/sort.h"

namespace weft::cuda {

namespace {

constexpr int kSearchThreads = 256;
constexpr int64_t kSearchBlocks = 264;
/// Elements of 16 bytes, copied in one access.
struct alignas(16) Bytes16 {
  uint64_t half[2];
};

/// Quotient and remainder of i / by, faster when both are small.
struct Divided {
  int64_t quotient, rest;

  WEFT_FN Divided(int64_t i, int64_t by) {
    if (static_cast<uint64_t>(i | by) >> 32 == 0) {
      const auto q = static_cast<uint32_t>(i) / static_cast<uint32_t>(by);
      quotient = q;
      rest = static_cast<uint32_t>(i) - q * static_cast<uint32_t>(by);
    } else {
      quotient = i / by;
      rest = i - quotient * by;
    }
  }
};

WEFT_FN inline int64_t load_index(const void* indices, DType dtype, int64_t at) {
  return dtype == DType::i32 ? static_cast<const int32_t*>(indices)[at]
                             : static_cast<const int64_t*>(indices)[at];
}

struct DeviceTaking : TakenShape {
  const void* indices;
  DType dtype;

  DeviceTaking(const MemoryBlock& whole, const MemoryBlock& taken, const MemoryBlock& where,
               int dim)
      : TakenShape(whole, taken, where, dim), indices(where.data), dtype(where.dtype) {}
  /// Returns index number `at`, converted to be at least 0.
  WEFT_FN int64_t index(int64_t at) const {
    const int64_t given = load_index(indices, dtype, at);
    return given < 0 ? given + size : given;
  }
};

template <class Word> struct TakeWords {
  DeviceTaking taking;
  Word* out;
  const Word* in;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    const int64_t count = taking.outer * taking.n * taking.inner;
    for (int64_t i = thread.index; i < count; i += thread.count) {
      const Divided slice(i, taking.inner), place(slice.quotient, taking.n);
      const int64_t index = taking.index(taking.slices ? place.rest : i);
      out[i] = in[(place.quotient * taking.size + index) * taking.inner + slice.rest];
    }
  }
};

/// Copies the indices, made non-negative: as [n], or per element as [outer, inner, n].
struct ListIndices {
  DeviceTaking taking;
  int64_t lists;
  int64_t* to;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < lists * taking.n; i += thread.count) {
      const Divided list(i, taking.n), column(list.quotient, taking.inner);
      const int64_t at = (column.quotient * taking.n + list.rest) * taking.inner + column.rest;
      to[i] = taking.index(taking.slices ? i : at);
    }
  }
};

/// A list's sorted indices determine which elements of a column are written where, and in which
/// order. The thread with the first of several equal indices writes all of them.
template <class C> struct WriteListed {
  DeviceTaking taking;
  const int64_t *sorted, *order;
  void* out;
  DType out_dtype;
  const void* in;
  DType in_dtype;
  WriteMode mode;

  WEFT_FN static bool is_nan(C value) { return value != value; }
  WEFT_FN C written(C place, C value) const {
    switch (mode) {
      case WriteMode::add:
      case WriteMode::accumulate: return place + value;
      case WriteMode::multiply: return place * value;
      case WriteMode::max: return is_nan(value) || value > place ? value : place;
      case WriteMode::min: return is_nan(value) || value < place ? value : place;
      default: return value;
    }
  }

  WEFT_DEVICE void operator()(const Thread& thread) const {
    const int64_t n = taking.n, inner = taking.inner;
    for (int64_t i = thread.index; i < taking.outer * n * inner; i += thread.count) {
      const Divided slice(i, inner), place(slice.quotient, n);
      const int64_t list = taking.slices ? 0 : place.quotient * inner + slice.rest;
      const int64_t *mine = sorted + list * n, *from = order + list * n;
      const int64_t first = place.rest, target = mine[first];
      if (first > 0 && mine[first - 1] == target) continue;
      const int64_t to = (place.quotient * taking.size + target) * inner + slice.rest;
      C made = mode == WriteMode::add ? C(0) : load_element<C>(out, out_dtype, to);
      for (int64_t j = first; j < n && mine[j] == target; ++j) {
        const int64_t at = (place.quotient * n + from[j]) * inner + slice.rest;
        made = written(made, load_element<C>(in, in_dtype, at));
      }
      store_element(out, out_dtype, to, made);
    }
  }
};

/// The ids that find_outside searches, one a row.
struct SearchedIds {
  Rows ids;
  int64_t low, high;
  bool allows;
  int64_t allowed;

  WEFT_FN int64_t id(int64_t i) const { return load_index(ids.data(), ids.dtype(), ids.at(i)); }
};

/// Stores, for each thread block, its first position of an id outside, or the number of ids.
struct SearchOutside {
  SearchedIds searched;
  int64_t* places;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    const int64_t count = searched.ids.count();
    int64_t place = count;
    for (int64_t i = block.index() * block.threads() + block.thread(); i < count && place == count;
         i += block.blocks() * block.threads()) {
      const int64_t id = searched.id(i);
      const bool inside = id >= searched.low && id < searched.high;
      if (!inside && !(searched.allows && id == searched.allowed)) place = i;
    }
    place = block.template reduce<LeastOf>(place);
    if (block.thread() == 0) places[block.index()] = place;
  }
};

/// Writes whether an id is outside, and the id.
struct TellOutside {
  SearchedIds searched;
  int64_t blocks;
  const int64_t* places;
  int64_t* result;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    if (thread.index != 0) return;
    const int64_t count = searched.ids.count();
    int64_t place = count;
    for (int64_t i = 0; i < blocks; ++i) place = LeastOf::combine(place, places[i]);
    result[0] = place < count ? 1 : 0;
    if (place == count) return;
    result[1] = searched.id(place);
  }
};

}  // namespace

std::optional<int64_t> find_outside(const MemoryBlock& ids, int64_t low, int64_t high,
                                    std::optional<int64_t> allowed) {
  check_indices("take", ids);
  const int64_t count = ids.numel();
  // The host cannot read results during a capture.
  if (count == 0 || is_capturing()) return std::nullopt;
  const SearchedIds searched{Rows(ids, ids.shape.ndim()), low, high, allowed.has_value(),
                             allowed.value_or(0)};
  const int64_t wanted = (count + kSearchThreads - 1) / kSearchThreads;
  const int64_t blocks = wanted < kSearchBlocks ? wanted : kSearchBlocks;
  const DenseMemory memory({2 + blocks}, DType::i64, ids.device);
  auto* result = memory.block.as<int64_t>();
  const Stream stream = current_stream(ids.device);
  launch_blocks<kSearchThreads>(SearchOutside{searched, result + 2}, blocks, 0, stream);
  launch(TellOutside{searched, blocks, result + 2, result}, 1, stream);
  int64_t told[2] = {0, 0};
  cuda::copy(dense_block(told, DType::i64, {2}), dense_block(result, DType::i64, {2}, ids.device));
  return told[0] != 0 ? std::optional(told[1]) : std::nullopt;
}

static void take(DeviceTaking taking, const MemoryBlock& out, const MemoryBlock& in) {
  if (out.numel() == 0) return;
  const auto take_words = [&]<class Word>(Type<Word>) {
    launch(TakeWords<Word>{taking, out.as<Word>(), in.as<Word>()},
           taking.outer * taking.n * taking.inner, current_stream(out.device));
  };
  const auto bytes = static_cast<int64_t>(size_of(in.dtype));
  const auto addresses =
      reinterpret_cast<uintptr_t>(out.data) | reinterpret_cast<uintptr_t>(in.data);
  if (taking.slices && taking.inner * bytes % 16 == 0 && addresses % 16 == 0) {
    taking.inner = taking.inner * bytes / 16;
    return take_words(Type<Bytes16>{});
  }
  visit_word(size_of(in.dtype), take_words);
}

std::optional<int64_t> take_along(const MemoryBlock& out, const MemoryBlock& in,
                                  const MemoryBlock& indices, int dim, bool checks) {
  const auto outside =
      checks ? cuda::find_outside(indices, -in.shape[dim], in.shape[dim]) : std::nullopt;
  if (!outside) take(DeviceTaking(in, out, indices, dim), out, in);
  return outside;
}

static void write(const DeviceTaking& taking, const MemoryBlock& out, const MemoryBlock& in,
                  WriteMode mode) {
  if (mode == WriteMode::add && out.numel() != 0) cuda::fill(out, 0);
  if (out.numel() == 0 || in.numel() == 0) return;
  const Device device = out.device;
  const int64_t lists = taking.slices ? 1 : taking.outer * taking.inner;
  const int64_t count = lists * taking.n;
  const DenseMemory memory({3 * count}, DType::i64, device);
  auto* listed = memory.block.as<int64_t>();
  const auto block = [&](int64_t* data) {
    return dense_block(data, DType::i64, {lists, taking.n}, device);
  };
  const MemoryBlock sorted = block(listed + count), order = block(listed + 2 * count);
  const Stream stream = current_stream(device);
  launch(ListIndices{taking, lists, listed}, count, stream);
  cuda::sort_rows(&sorted, order, block(listed), false, 0);
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    launch(WriteListed<C>{taking, sorted.as<int64_t>(), order.as<int64_t>(), out.data, out.dtype,
                          in.data, in.dtype, mode},
           in.numel(), stream);
  });
}

std::optional<int64_t> write_along(const MemoryBlock& out, const MemoryBlock& in,
                                   const MemoryBlock& indices, int dim, WriteMode mode,
                                   bool checks) {
  const auto outside =
      checks ? cuda::find_outside(indices, -out.shape[dim], out.shape[dim]) : std::nullopt;
  if (!outside) write(DeviceTaking(out, in, indices, dim), out, in, mode);
  return outside;
}

}  // namespace weft::cuda
