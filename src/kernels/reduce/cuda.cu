// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/reduce/reduce.h"

#include <algorithm>

#include "src/device/cuda/streams.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/reduce/plan.h"
#include "weft/error.h"
#include "weft/storage.h"

namespace weft::cuda {

namespace {

constexpr int kReduceThreads = 256;
/// With fewer results than this most of a GPU is idle: each reduction is split into parts.
constexpr int64_t kBusyBlocks = 512;
constexpr int64_t kLeastPart = 4096;

/// A reduction: each kept element combines all reduced ones, in `parts` parts.
struct ReduceShape {
  /// Sides: in, out.
  Nest<2> kept;
  Nest<1> reduced;
  int64_t results, each, parts;

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

/// One thread block per result and part: neighbours in memory are reduced together.
template <class R, class C> struct ReduceRows {
  ReduceShape shape;
  const void* in;
  DType dtype;
  /// Results of parts; null when there is one part.
  C* partial;
  ReduceStore store;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    const int64_t result = block.index() / shape.parts, part = block.index() % shape.parts;
    const Offsets<2> base = shape.kept.offsets(result);
    C value = R::template identity<C>();
    const int64_t end = shape.begin(part + 1);
    for (int64_t i = shape.begin(part) + block.thread(); i < end; i += block.threads()) {
      const int64_t at = base.of[0] + shape.reduced.offsets(i).of[0];
      value = R::combine(value, R::element(load_element<C>(in, dtype, at)));
    }
    value = block.template reduce<R>(value);
    if (block.thread() != 0) return;
    if (partial) {
      partial[result * shape.parts + part] = value;
    } else {
      store(base.of[1], value);
    }
  }
};

/// One thread per result and part: neighbours in memory belong to different results.
template <class R, class C> struct ReduceColumns {
  ReduceShape shape;
  const void* in;
  DType dtype;
  C* partial;
  ReduceStore store;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < shape.results * shape.parts; i += thread.count) {
      const int64_t result = i % shape.results, part = i / shape.results;
      const Offsets<2> base = shape.kept.offsets(result);
      C value = R::template identity<C>();
      for (int64_t j = shape.begin(part); j < shape.begin(part + 1); ++j) {
        const int64_t at = base.of[0] + shape.reduced.offsets(j).of[0];
        value = R::combine(value, R::element(load_element<C>(in, dtype, at)));
      }
      if (partial) {
        partial[result * shape.parts + part] = value;
      } else {
        store(base.of[1], value);
      }
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

static bool contains(const Dims& dims, int dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

static void add_dim(int64_t* sizes, int64_t* strides, int& ndim, int64_t size, int64_t stride) {
  if (size == 1) return;
  if (ndim > 0 && strides[ndim - 1] == stride * size) {
    sizes[ndim - 1] *= size;
    strides[ndim - 1] = stride;
    return;
  }
  sizes[ndim] = size;
  strides[ndim++] = stride;
}

/// Sets `columns` to true when neighbours in memory belong to different results.
static ReduceShape reduce_shape(const MemoryBlock& out, const MemoryBlock& in, const Dims& dims,
                                bool& columns) {
  ReduceShape shape{};
  const int ndim = in.shape.ndim();
  const bool keeps = out.shape.ndim() == ndim;
  if (!keeps && out.shape.ndim() != ndim - dims.ndim()) {
    fail("reduce: result is ", out.shape, ", expected that of ", in.shape, " over ", dims.ndim(),
         " dims");
  }
  int64_t nearest_kept = INT64_MAX, nearest_reduced = INT64_MAX;
  for (int d = 0, o = 0; d < ndim; ++d) {
    const bool reduced = contains(dims, d);
    const int64_t size = in.shape[d], stride = in.strides[d];
    if (size > 1 && stride != 0) {
      int64_t& nearest = reduced ? nearest_reduced : nearest_kept;
      nearest = std::min(nearest, stride);
    }
    if (reduced) {
      add_dim(shape.reduced.sizes, shape.reduced.strides[0], shape.reduced.ndim, size, stride);
      o += keeps ? 1 : 0;
      continue;
    }
    if (out.shape[o] != size)
      fail("reduce: result is ", out.shape, ", expected that of ", in.shape);
    Nest<2>& kept = shape.kept;
    kept.sizes[kept.ndim] = size;
    kept.strides[0][kept.ndim] = stride;
    kept.strides[1][kept.ndim++] = out.strides[o++];
  }
  shape.results = shape.kept.count();
  shape.each = shape.reduced.count();
  columns = nearest_kept < nearest_reduced;
  const int64_t workers =
      columns ? (shape.results + kThreadsPerBlock - 1) / kThreadsPerBlock : shape.results;
  const int64_t least = columns ? kLeastPart / 64 : kLeastPart;
  const int64_t wanted = kBusyBlocks / std::max<int64_t>(1, workers);
  shape.parts = std::clamp<int64_t>(shape.each / least, 1, std::max<int64_t>(1, wanted));
  return shape;
}

template <class R, class C>
static void run_reduction(const ReduceShape& shape, bool columns, const MemoryBlock& in,
                          const ReduceStore& store, const Stream& stream) {
  Ref<Storage> memory;
  C* partial = nullptr;
  if (shape.parts > 1) {
    const auto count = static_cast<size_t>(shape.results * shape.parts);
    memory = Storage::allocate(count * sizeof(C), in.device);
    partial = static_cast<C*>(memory->data());
  }
  if (columns) {
    launch(ReduceColumns<R, C>{shape, in.data, in.dtype, partial, store},
           shape.results * shape.parts, stream);
  } else {
    launch_blocks<kReduceThreads>(ReduceRows<R, C>{shape, in.data, in.dtype, partial, store},
                                  shape.results * shape.parts, 0, stream);
  }
  if (partial) launch(MergeParts<R, C>{shape, partial, store}, shape.results, stream);
}

template <class C>
static void reduce_as(Reduction reduction, const ReduceShape& shape, bool columns,
                      const MemoryBlock& in, const ReduceStore& store, const Stream& stream) {
  switch (reduction) {
    case Reduction::sum: return run_reduction<SumOf, C>(shape, columns, in, store, stream);
    case Reduction::product: return run_reduction<ProductOf, C>(shape, columns, in, store, stream);
    case Reduction::max: return run_reduction<GreatestOf, C>(shape, columns, in, store, stream);
    case Reduction::min: return run_reduction<LeastOf, C>(shape, columns, in, store, stream);
    case Reduction::sum_squares:
      return run_reduction<SquaresOf, C>(shape, columns, in, store, stream);
    case Reduction::sum_numbers:
      return run_reduction<NumbersOf, C>(shape, columns, in, store, stream);
    case Reduction::any: return run_reduction<AnyOf, C>(shape, columns, in, store, stream);
    default: return run_reduction<AllOf, C>(shape, columns, in, store, stream);
  }
}

void reduce(Reduction reduction, const MemoryBlock& out, const MemoryBlock& in, const Dims& dims,
            double factor, bool accumulate) {
  if (fill_extreme(reduction, out, in)) return;
  bool columns = false;
  const ReduceShape shape = reduce_shape(out, in, dims, columns);
  if (shape.results == 0) return;
  const ReduceStore store{out.data, out.dtype, factor, accumulate};
  const Stream stream = current_stream(out.device);
  switch (compute_dtype(in.dtype)) {
    case DType::f32: return reduce_as<float>(reduction, shape, columns, in, store, stream);
    case DType::f64: return reduce_as<double>(reduction, shape, columns, in, store, stream);
    default: return reduce_as<int64_t>(reduction, shape, columns, in, store, stream);
  }
}

}  // namespace weft::cuda
