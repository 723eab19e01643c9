// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/reduce/reduce.h"

#include <algorithm>
#include <cmath>

#include "src/device/cuda/streams.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/reduce/plan.h"
#include "src/kernels/rows/rows.h"
#include "weft/storage.h"

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

}  // namespace weft::cuda
