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

  WEFT_FN Offsets<2> place(int64_t result) const { return kept.offsets(result); }
  WEFT_FN int64_t begin(int64_t part) const { return each * part / parts; }
};

/// The store of a result.
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

// A reduction or a search as all its threads see it: `combined` gives the value of some elements of
// the result at a place, R combines two values, `store` stores a result.

template <class Reducer, class C> struct DeviceReduction : ReduceShape {
  using R = Reducer;
  using Value = C;
  const void* in;
  DType dtype;
  ReduceStore to;

  WEFT_FN static C nothing() { return R::template identity<C>(); }
  /// Combines every `step`-th of elements [first, last) of the result at `base`.
  WEFT_DEVICE C combined(const Offsets<2>& base, int64_t first, int64_t last, int64_t step) const {
    C value = nothing();
#ifdef __CUDACC__
#pragma unroll 8
#endif
    for (int64_t i = first; i < last; i += step) {
      const int64_t at = base.of[0] + reduced.at(i);
      value = R::combine(value, R::element(load_element<C>(in, dtype, at)));
    }
    return value;
  }
  WEFT_DEVICE void store(const Offsets<2>& base, C value) const { to(base.of[1], value); }
};

/// One thread block per result and part. `partial` holds the results of parts; null when there is
/// one part.
template <class Task> struct ReduceByBlock {
  using Value = typename Task::Value;
  Task task;
  Value* partial;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    const int64_t result = block.index() / task.parts, part = block.index() % task.parts;
    const auto place = task.place(result);
    const Value own = task.combined(place, task.begin(part) + block.thread(), task.begin(part + 1),
                                    block.threads());
    const Value value = block.template reduce<typename Task::R>(own);
    if (block.thread() != 0) return;
    if (partial) {
      partial[block.index()] = value;
    } else {
      task.store(place, value);
    }
  }
};

/// One thread per result and part.
template <class Task> struct ReduceByThread {
  Task task;
  typename Task::Value* partial;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < task.results * task.parts; i += thread.count) {
      const int64_t part = task.parts == 1 ? 0 : i / task.results, result = i - part * task.results;
      const auto place = task.place(result);
      const auto value = task.combined(place, task.begin(part), task.begin(part + 1), 1);
      if (partial) {
        partial[result * task.parts + part] = value;
      } else {
        task.store(place, value);
      }
    }
  }
};

/// Combines the parts of each result, in order.
template <class Task> struct MergeParts {
  Task task;
  const typename Task::Value* partial;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < task.results; i += thread.count) {
      auto value = Task::nothing();
      for (int64_t p = 0; p < task.parts; ++p) {
        value = Task::R::combine(value, partial[i * task.parts + p]);
      }
      task.store(task.place(i), value);
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
template <class Finder, class C> struct Seek {
  using R = Finder;
  using Value = Found<C>;
  Rows in, out;
  /// Only elements equal to these values count; all count when there is no data.
  Rows wanted;
  int64_t offset, none, results, parts = 1;

  /// The result for no elements: no element compares worse.
  WEFT_FN static Found<C> nothing() {
    constexpr bool kLeast = std::is_same_v<R, FirstExtreme<false>>;
    return {kLeast ? LeastOf::identity<C>() : GreatestOf::identity<C>(), kNowhere};
  }
  WEFT_FN int64_t place(int64_t row) const { return row; }
  WEFT_FN int64_t begin(int64_t part) const { return in.size() * part / parts; }

  /// Searches every `step`-th element of [first, last).
  WEFT_DEVICE Found<C> combined(int64_t row, int64_t first, int64_t last, int64_t step) const {
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

template <class Task> static void run_task(const Task& task, bool by_threads, Device device) {
  using Value = typename Task::Value;
  const Stream stream = current_stream(device);
  const int64_t count = task.results * task.parts;
  Ref<Storage> memory;
  Value* partial = nullptr;
  if (task.parts > 1) {
    memory = Storage::allocate(static_cast<size_t>(count) * sizeof(Value), device);
    partial = static_cast<Value*>(memory->data());
  }
  if (by_threads) {
    launch(ReduceByThread<Task>{task, partial}, count, stream);
  } else {
    launch_blocks<kReduceThreads>(ReduceByBlock<Task>{task, partial}, count, 0, stream);
  }
  if (partial) launch(MergeParts<Task>{task, partial}, task.results, stream);
}

void reduce(Reduction reduction, const MemoryBlock& out, const MemoryBlock& in, const Dims& dims,
            double factor, bool accumulate) {
  if (fill_extreme(reduction, out, in)) return;
  const ReduceShape shape = reduce_shape(out, in, dims);
  if (shape.results == 0) return;
  const ReduceStore store{out.data, out.dtype, factor, accumulate};
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    visit_reduction(reduction, [&]<class R>(Type<R>) {
      run_task(DeviceReduction<R, C>{shape, in.data, in.dtype, store}, shape.columns, out.device);
    });
  });
}

/// True when each row gets one thread: neighbours are in other rows, or rows are short.
static bool belongs_to_threads(const Rows& in) {
  if (in.size() <= kShortRow) return true;
  return in.side_by_side(0, 2) > 1 && in.count() >= kBusyBlocks * kReduceThreads / 8;
}

template <class R, class C> static void run_seek(Seek<R, C> seek, Device device) {
  if (seek.results == 0) return;
  const bool by_threads = belongs_to_threads(seek.in);
  if (!by_threads) {
    seek.parts = std::clamp<int64_t>(seek.in.size() / kLeastPart, 1,
                                     std::max<int64_t>(1, kBusyBlocks / seek.results));
  }
  run_task(seek, by_threads, device);
}

void arg_reduce(const MemoryBlock& out, const MemoryBlock& in, int dim, bool greatest) {
  check_indices("arg_reduce", out);
  const Rows rows(in, dim), indices = Rows::values("arg_reduce", out, rows);
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    const auto seek = [&]<class R>(Type<R>) {
      run_seek(Seek<R, C>{rows, indices, {}, 0, -1, rows.count()}, out.device);
    };
    greatest ? seek(Type<FirstExtreme<true>>{}) : seek(Type<FirstExtreme<false>>{});
  });
}

void index_of(const MemoryBlock& out, const MemoryBlock& in, const MemoryBlock& value, int dim,
              int64_t offset) {
  check_indices("index_of", out);
  const Rows rows(in, dim), indices = Rows::values("index_of", out, rows);
  const Rows values = Rows::values("index_of", value, rows);
  const int64_t none = out.dtype == DType::i32 ? std::numeric_limits<int32_t>::max() : kNowhere;
  visit_compute(in.dtype, [&]<class C>(Type<C>) {
    run_seek(Seek<FirstOfAll, C>{rows, indices, values, offset, none, rows.count()}, out.device);
  });
}

void dot_rows(const MemoryBlock& out, const MemoryBlock& a, const MemoryBlock& b) {
  const DenseMemory products(a.shape, a.dtype, a.device);
  map_floating(DotProduct{}, products.block, a, b);
  cuda::reduce(Reduction::sum, out, products.block, {a.shape.ndim() - 1});
}

}  // namespace weft::cuda
