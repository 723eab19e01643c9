// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/reduce/reduce.h"

#include <algorithm>
#include <limits>

#include "src/device/cuda/streams.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/rows/device_values.h"
#include "weft/storage.h"

namespace weft::cuda {

namespace {

constexpr int kSeekThreads = 256;
/// With fewer rows than this most of a GPU is idle: each row is split into parts.
constexpr int64_t kBusySeekBlocks = 512;
constexpr int64_t kLeastSeekPart = 4096;
/// Rows up to this length are processed by one thread each.
constexpr int64_t kShortRow = 32;
constexpr int64_t kNowhere = std::numeric_limits<int64_t>::max();

/// An element and its index in the row.
template <class C> struct Found {
  C value;
  int64_t index;
};

template <class C> WEFT_FN const Found<C>& earlier(const Found<C>& a, const Found<C>& b) {
  return a.index < b.index ? a : b;
}

/// The first of the greatest elements, or of the least; or of NaNs.
template <bool kGreatest> struct FirstExtreme {
  template <class C> WEFT_FN static Found<C> combine(const Found<C>& a, const Found<C>& b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (a_nan || a.value == b.value) return earlier(a, b);
    return (kGreatest ? a.value > b.value : a.value < b.value) ? a : b;
  }
};

/// The first of all elements.
struct FirstOfAll {
  template <class C> WEFT_FN static Found<C> combine(const Found<C>& a, const Found<C>& b) {
    return earlier(a, b);
  }
};

/// A search in rows, and where the index is written.
template <class R, class C> struct Seek {
  Rows in, out;
  /// Only elements equal to these values count; all count when there is no data.
  Rows wanted;
  int64_t parts, offset, none;

  /// The result for no elements: no element compares worse.
  WEFT_FN static Found<C> nothing() {
    constexpr bool kLeast = std::is_same_v<R, FirstExtreme<false>>;
    return {kLeast ? LeastOf::identity<C>() : GreatestOf::identity<C>(), kNowhere};
  }
  WEFT_FN int64_t begin(int64_t part) const { return in.size() * part / parts; }

  /// Searches every `step`-th element of [first, last).
  WEFT_DEVICE Found<C> seek(int64_t row, int64_t first, int64_t last, int64_t step) const {
    Found<C> found = nothing();
    const int64_t start = in.at(row);
    const bool any = wanted.data() == nullptr;
    const C value = any ? C(0) : value_of<C>(wanted, row);
    for (int64_t i = first; i < last; i += step) {
      const C x = load_element<C>(in.data(), in.dtype(), start + i * in.stride());
      if (any || x == value || (x != x && value != value)) {
        found = R::combine(found, Found<C>{x, i});
      }
    }
    return found;
  }
  WEFT_DEVICE void store(int64_t row, const Found<C>& found) const {
    const int64_t index = found.index == kNowhere ? none : found.index + offset;
    set_value(out, row, index);
  }
};

/// One thread per row.
template <class R, class C> struct SeekByThread {
  Seek<R, C> seek;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t row = thread.index; row < seek.in.count(); row += thread.count) {
      seek.store(row, seek.seek(row, 0, seek.in.size(), 1));
    }
  }
};

/// One thread block per row and part.
template <class R, class C> struct SeekByBlock {
  Seek<R, C> seek;
  /// Results of parts; null when there is one part.
  Found<C>* partial;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    const int64_t row = block.index() / seek.parts, part = block.index() % seek.parts;
    const Found<C> mine =
        seek.seek(row, seek.begin(part) + block.thread(), seek.begin(part + 1), block.threads());
    const Found<C> found = block.template reduce<R>(mine);
    if (block.thread() != 0) return;
    if (partial) {
      partial[block.index()] = found;
    } else {
      seek.store(row, found);
    }
  }
};

template <class R, class C> struct MergeFound {
  Seek<R, C> seek;
  const Found<C>* partial;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t row = thread.index; row < seek.in.count(); row += thread.count) {
      Found<C> found = partial[row * seek.parts];
      for (int64_t p = 1; p < seek.parts; ++p) {
        found = R::combine(found, partial[row * seek.parts + p]);
      }
      seek.store(row, found);
    }
  }
};

}  // namespace

/// Whether to use one thread per row: neighbours are in other rows, or rows are short.
static bool belongs_to_threads(const Rows& in) {
  if (in.size() <= kShortRow) return true;
  return in.side_by_side(0, 2) > 1 && in.count() >= kBusySeekBlocks * kSeekThreads / 8;
}

template <class R, class C>
static void run_seek(Seek<R, C> seek, const Stream& stream, Device device) {
  const int64_t rows = seek.in.count();
  if (rows == 0) return;
  if (belongs_to_threads(seek.in)) return launch(SeekByThread<R, C>{seek}, rows, stream);
  seek.parts = std::clamp<int64_t>(seek.in.size() / kLeastSeekPart, 1,
                                   std::max<int64_t>(1, kBusySeekBlocks / rows));
  if (seek.parts == 1) {
    return launch_blocks<kSeekThreads>(SeekByBlock<R, C>{seek, nullptr}, rows, 0, stream);
  }
  const auto count = static_cast<size_t>(rows * seek.parts);
  const Ref<Storage> memory = Storage::allocate(count * sizeof(Found<C>), device);
  auto* partial = static_cast<Found<C>*>(memory->data());
  launch_blocks<kSeekThreads>(SeekByBlock<R, C>{seek, partial}, rows * seek.parts, 0, stream);
  launch(MergeFound<R, C>{seek, partial}, rows, stream);
}

void arg_reduce(const MemoryBlock& out, const MemoryBlock& in, int dim, bool greatest,
                int64_t offset) {
  check_indices("arg_reduce", out);
  const Rows rows(in, dim), indices = Rows::values("arg_reduce", out, rows);
  const Stream stream = current_stream(out.device);
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    if (greatest) {
      run_seek(Seek<FirstExtreme<true>, C>{rows, indices, {}, 1, offset, -1}, stream, out.device);
    } else {
      run_seek(Seek<FirstExtreme<false>, C>{rows, indices, {}, 1, offset, -1}, stream, out.device);
    }
  });
}

void index_of(const MemoryBlock& out, const MemoryBlock& in, const MemoryBlock& value, int dim,
              int64_t offset) {
  check_indices("index_of", out);
  const Rows rows(in, dim), indices = Rows::values("index_of", out, rows);
  const Rows values = Rows::values("index_of", value, rows);
  const int64_t none = out.dtype == DType::i32 ? std::numeric_limits<int32_t>::max() : kNowhere;
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    run_seek(Seek<FirstOfAll, C>{rows, indices, values, 1, offset, none},
             current_stream(out.device), out.device);
  });
}

}  // namespace weft::cuda
