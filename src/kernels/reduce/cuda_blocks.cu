// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/reduce/reduce.h"

#include <algorithm>
#include <vector>

#include "src/device/cuda/runtime.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/math/reducers.h"
#include "weft/error.h"

namespace weft::cuda {

namespace {

/// Sources of 264 bytes each among a kernel's arguments, which may have 32,764 bytes: a power of
/// two, so that groups of them are parts of the tree in which reduce_n of src/comm/reduce.cpp adds.
constexpr int kMostSources = 32;
/// The most sums of a tree over so many sources that wait for their neighbours.
constexpr int kMostWaiting = 6;

struct SourceSide {
  const void* data;
  int64_t strides[kMaxDims];
};

template <class R, class C> struct CombineSources {
  int64_t elements;
  int ndim, count;
  int64_t sizes[kMaxDims], out_strides[kMaxDims];
  SourceSide sources[kMostSources];
  DType dtype;
  void* out;
  DType out_dtype;
  /// The sum is divided by this number unless it is 0.
  int divisor;
  bool accumulate;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < elements; i += thread.count) {
      C value = combined(i);
      if (divisor) value = value / static_cast<C>(divisor);
      const int64_t at = offset(i, out_strides);
      if (accumulate) value = SumOf::combine(load_element<C>(out, out_dtype, at), value);
      store_element(out, out_dtype, at, value);
    }
  }

  /// Combines the sources' elements in a binary tree over their numbers.
  WEFT_DEVICE C combined(int64_t i) const {
    C waiting[kMostWaiting];
    int depth = 0;
    for (int s = 0; s < count; ++s) {
      C value = load_element<C>(sources[s].data, dtype, offset(i, sources[s].strides));
      for (int bits = s; bits & 1; bits >>= 1) value = R::combine(waiting[--depth], value);
      waiting[depth++] = value;
    }
    C value = waiting[--depth];
    while (depth > 0) value = R::combine(waiting[--depth], value);
    return value;
  }

  WEFT_DEVICE int64_t offset(int64_t index, const int64_t* strides) const {
    int64_t result = 0;
    for (int d = ndim - 1; d > 0; --d) {
      const int64_t next = index / sizes[d];
      result += (index - next * sizes[d]) * strides[d];
      index = next;
    }
    return ndim > 0 ? result + index * strides[0] : 0;
  }
};

}  // namespace

/// Returns whether dims `d` and `d + 1` can be merged in all blocks.
static bool merges(std::span<const MemoryBlock> sources, const MemoryBlock& out, int d) {
  bool one_run = out.strides[d] == out.strides[d + 1] * out.shape[d + 1];
  for (const MemoryBlock& block : sources) {
    one_run &= block.strides[d] == block.strides[d + 1] * block.shape[d + 1];
  }
  return one_run;
}

template <class R, class C>
static void combine(std::span<const MemoryBlock> sources, const MemoryBlock& out, int divisor,
                    bool accumulate) {
  CombineSources<R, C> kernel{};
  kernel.elements = out.numel();
  kernel.count = static_cast<int>(sources.size());
  kernel.dtype = sources[0].dtype;
  kernel.out = out.data, kernel.out_dtype = out.dtype;
  kernel.divisor = divisor, kernel.accumulate = accumulate;
  for (size_t s = 0; s < sources.size(); ++s) kernel.sources[s].data = sources[s].data;
  int64_t run = 1;
  for (int d = 0; d < out.shape.ndim(); ++d) {
    run *= out.shape[d];
    if (d + 1 < out.shape.ndim() && merges(sources, out, d)) continue;
    kernel.sizes[kernel.ndim] = run;
    kernel.out_strides[kernel.ndim] = out.strides[d];
    for (size_t s = 0; s < sources.size(); ++s) {
      kernel.sources[s].strides[kernel.ndim] = sources[s].strides[d];
    }
    ++kernel.ndim;
    run = 1;
  }
  launch(kernel, kernel.elements, current_stream(out.device));
}

/// The dtype that parts are combined in: u64 compares unlike i64.
static DType summed_in(DType dtype) { return dtype == DType::u64 ? dtype : compute_dtype(dtype); }

static void reduce_few(ReduceOp op, std::span<const MemoryBlock> sources, const MemoryBlock& out,
                       int divisor, bool accumulate) {
  const auto reduce_as = [&]<class C>(Type<C>) {
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg: return combine<SumOf, C>(sources, out, divisor, accumulate);
      case ReduceOp::max: return combine<GreatestOf, C>(sources, out, 0, accumulate);
      case ReduceOp::min: return combine<LeastOf, C>(sources, out, 0, accumulate);
    }
  };
  const DType dtype = sources[0].dtype;
  dtype == DType::u64 ? reduce_as(Type<uint64_t>{}) : visit_compute(dtype, reduce_as);
}

/// Reduces groups of neighbours first, into the compute type, then the groups' results.
static void reduce_many(ReduceOp op, std::span<const MemoryBlock> sources, const MemoryBlock& out,
                        int divisor, bool accumulate) {
  const DType dtype = summed_in(sources[0].dtype);
  std::vector<DenseMemory> memory;
  std::vector<MemoryBlock> groups;
  for (size_t first = 0; first < sources.size(); first += kMostSources) {
    const size_t count = std::min<size_t>(kMostSources, sources.size() - first);
    groups.push_back(memory.emplace_back(out.shape, dtype, out.device).block);
    reduce_few(op, sources.subspan(first, count), groups.back(), 0, false);
  }
  reduce_few(op, groups, out, divisor, accumulate);
}

void reduce_blocks(ReduceOp op, std::span<const MemoryBlock> sources, const MemoryBlock& out,
                   bool accumulate) {
  if (out.numel() == 0 || sources.empty()) return;
  const int divisor = op == ReduceOp::avg ? static_cast<int>(sources.size()) : 0;
  constexpr size_t most = size_t{kMostSources} * kMostSources;
  if (sources.size() > most) {
    fail("reduction: number of ranks on ", out.device, " is ", sources.size(),
         ", expected at most ", most);
  }
  const bool few = sources.size() <= kMostSources;
  (few ? reduce_few : reduce_many)(op, sources, out, divisor, accumulate);
}

}  // namespace weft::cuda
