// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/device/cuda/runtime.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/map/map.h"
#include "src/kernels/reduce/plan.h"
#include "src/kernels/rows/rows.h"

namespace weft::cuda {

namespace {

constexpr int kReduceThreads = 256;
/// With fewer results than this most of a GPU is idle: each reduction is split into parts.
constexpr int64_t kBusyBlocks = 512, kBusyColumnBlocks = 2048;
constexpr int64_t kLeastPart = 4096, kLeastColumnPart = 16;

/// A reduction: each kept element combines all reduced ones, in `parts` parts.
struct ReduceShape {
  /// Sides: in, out.
  Nest<2> kept;
  Rows reduced;
  int64_t results, each, parts;
  /// Neighbours in memory belong to different results.
  bool columns;

  WEFT_FN int64_t begin(int64_t part) const { return each * part / parts; }
};

/// How a result is stored.
struct ReduceStore {
  void* data;
  DType dtype;
  double factor;
  bool accumulate;

  template <class C> WEFT_FN void operator()(int64_t offset, C value) const {
    if (factor != 1) value = static_cast<C>(static_cast<double>(value) * factor);
    if (accumulate) value = value + load_element<C>(data, dtype, offset);
    store_element(data, dtype, offset, value);
  }
};

/// A reduction as all its threads see it.
template <class R, class C> struct DeviceReduction {
  ReduceShape shape;
  const void* in;
  DType dtype;
  /// Results of parts; null when there is one part.
  C* partial;
  ReduceStore store;

  /// Combines every `step`-th of elements [first, last) of the result at `base`.
  WEFT_DEVICE C combined(const Offsets<2>& base, int64_t first, int64_t last, int64_t step) const {
    C value = R::template identity<C>();
#ifdef __CUDACC__
#pragma unroll 8
#endif
    for (int64_t i = first; i < last; i += step) {
      const int64_t at = base.of[0] + shape.reduced.at(i);
      value = R::combine(value, R::element(load_element<C>(in, dtype, at)));
    }
    return value;
  }
  WEFT_DEVICE void keep(const Offsets<2>& base, int64_t result, int64_t part, C value) const {
    if (partial) {
      partial[result * shape.parts + part] = value;
    } else {
      store(base.of[1], value);
    }
  }
};

/// One thread block per result and part.
template <class R, class C> struct ReduceRows {
  DeviceReduction<R, C> task;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    const ReduceShape& shape = task.shape;
    const int64_t result = block.index() / shape.parts, part = block.index() % shape.parts;
    const Offsets<2> base = shape.kept.offsets(result);
    const C own = task.combined(base, shape.begin(part) + block.thread(), shape.begin(part + 1),
                                block.threads());
    const C value = block.template reduce<R>(own);
    if (block.thread() == 0) task.keep(base, result, part, value);
  }
};

/// One thread per result and part.
template <class R, class C> struct ReduceColumns {
  DeviceReduction<R, C> task;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    const ReduceShape& shape = task.shape;
    for (int64_t i = thread.index; i < shape.results * shape.parts; i += thread.count) {
      const int64_t result = i % shape.results, part = i / shape.results;
      const Offsets<2> base = shape.kept.offsets(result);
      task.keep(base, result, part,
                task.combined(base, shape.begin(part), shape.begin(part + 1), 1));
    }
  }
};

/// Combines the parts of each result, in order.
template <class R, class C> struct MergeParts {
  ReduceShape shape;
  const C* partial;
  ReduceStore store;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < shape.results; i += thread.count) {
      C value = R::template identity<C>();
      for (int64_t p = 0; p < shape.parts; ++p) {
        value = R::combine(value, partial[i * shape.parts + p]);
      }
      store(shape.kept.offsets(i).of[1], value);
    }
  }
};

/// Rows up to this length are searched by one thread each.
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

struct DotProduct {
  template <class T> WEFT_FN T operator()(T a, T b) const { return a * b; }
};

}  // namespace

/// The least distance of neighbours along a dim.
static int64_t nearest_of(const MemoryBlock& view) {
  int64_t nearest = INT64_MAX;
  for (int d = 0; d < view.shape.ndim(); ++d) {
    if (view.shape[d] > 1 && view.strides[d] != 0) nearest = std::min(nearest, view.strides[d]);
  }
  return nearest;
}

static ReduceShape reduce_shape(const MemoryBlock& out, const MemoryBlock& in, const Dims& dims) {
  const ReduceViews views(out, in, dims);
  ReduceShape shape{};
  shape.kept = nest_of(views.in, views.out), shape.reduced = Rows(views.reduced, -1);
  shape.results = shape.kept.count();
  shape.each = shape.reduced.count();
  const bool columns = shape.columns = nearest_of(views.in) < nearest_of(views.reduced);
  const int64_t workers =
      columns ? (shape.results + kThreadsPerBlock - 1) / kThreadsPerBlock : shape.results;
  // A thread combines a part, and one combines all parts of a result: both take about as long.
  const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(shape.each)));
  const int64_t least = columns ? std::max(kLeastColumnPart, root) : kLeastPart;
  const int64_t wanted =
      (columns ? kBusyColumnBlocks : kBusyBlocks) / std::max<int64_t>(1, workers);
  shape.parts = std::clamp<int64_t>(shape.each / least, 1, std::max<int64_t>(1, wanted));
  return shape;
}

template <class R, class C>
static void run_reduction(const ReduceShape& shape, const MemoryBlock& in, const ReduceStore& store,
                          const Stream& stream) {
  Ref<Storage> memory;
  C* partial = nullptr;
  const int64_t count = shape.results * shape.parts;
  if (shape.parts > 1) {
    memory = Storage::allocate(static_cast<size_t>(count) * sizeof(C), in.device);
    partial = static_cast<C*>(memory->data());
  }
  const DeviceReduction<R, C> task{shape, in.data, in.dtype, partial, store};
  if (shape.columns) {
    launch(ReduceColumns<R, C>{task}, count, stream);
  } else {
    launch_blocks<kReduceThreads>(ReduceRows<R, C>{task}, count, 0, stream);
  }
  if (partial) launch(MergeParts<R, C>{shape, partial, store}, shape.results, stream);
}

void reduce(Reduction reduction, const MemoryBlock& out, const MemoryBlock& in, const Dims& dims,
            double factor, bool accumulate) {
  if (fill_extreme(reduction, out, in)) return;
  const ReduceShape shape = reduce_shape(out, in, dims);
  if (shape.results == 0) return;
  const ReduceStore store{out.data, out.dtype, factor, accumulate};
  const Stream stream = current_stream(out.device);
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    visit_reduction(reduction,
                    [&]<class R>(Type<R>) { run_reduction<R, C>(shape, in, store, stream); });
  });
}

/// Whether to use one thread per row: neighbours are in other rows, or rows are short.
static bool belongs_to_threads(const Rows& in) {
  if (in.size() <= kShortRow) return true;
  return in.side_by_side(0, 2) > 1 && in.count() >= kBusyBlocks * kReduceThreads / 8;
}

template <class R, class C>
static void run_seek(Seek<R, C> seek, const Stream& stream, Device device) {
  const int64_t rows = seek.in.count();
  if (rows == 0) return;
  if (belongs_to_threads(seek.in)) return launch(SeekByThread<R, C>{seek}, rows, stream);
  seek.parts =
      std::clamp<int64_t>(seek.in.size() / kLeastPart, 1, std::max<int64_t>(1, kBusyBlocks / rows));
  if (seek.parts == 1) {
    return launch_blocks<kReduceThreads>(SeekByBlock<R, C>{seek, nullptr}, rows, 0, stream);
  }
  const auto count = static_cast<size_t>(rows * seek.parts);
  const Ref<Storage> memory = Storage::allocate(count * sizeof(Found<C>), device);
  auto* partial = static_cast<Found<C>*>(memory->data());
  launch_blocks<kReduceThreads>(SeekByBlock<R, C>{seek, partial}, rows * seek.parts, 0, stream);
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

void dot_rows(const MemoryBlock& out, const MemoryBlock& a, const MemoryBlock& b) {
  const DenseMemory products(a.shape, a.dtype, a.device);
  map_floating(DotProduct{}, products.block, a, b);
  cuda::reduce(Reduction::sum, out, products.block, {a.shape.ndim() - 1});
}

}  // namespace weft::cuda
