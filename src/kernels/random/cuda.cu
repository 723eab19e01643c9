// SPDX-License-Identifier: Apache-2.0
// Compiled without contraction to FMA: the bits must be those of every other device.
#include "src/kernels/random/random.h"

#include "src/device/cuda/runtime.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/math/philox.h"
#include "src/kernels/rows/rows.h"

namespace weft::cuda {

namespace {

/// The Philox counters that a box needs: for each run of consecutive elements, those that cover it.
struct DeviceRuns {
  Nest<1> outer;
  int64_t count, length, start, counters;

  DeviceRuns(const Box& box, const Shape& shape) {
    const Runs runs(box, shape);
    count = runs.count, length = runs.length, start = runs.start;
    // A run that begins within a counter's four words may need one more counter.
    counters = (length + 3) / 4 + (count == 1 && start % 4 == 0 ? 0 : 1);
    for (int d = 0; d < runs.outer.ndim(); ++d) {
      outer.sizes[outer.ndim] = runs.outer[d];
      outer.strides[0][outer.ndim++] = runs.outer_strides[d];
    }
  }
  WEFT_FN int64_t first(int64_t run) const { return start + outer.offsets(run).of[0]; }
};

/// The elements of a block of any strides, in row-major order.
struct RandomSide : Rows {
  bool dense;

  explicit RandomSide(const MemoryBlock& block)
      : Rows(block, block.shape.ndim()), dense(block.is_dense()) {}
};

/// Stores the drawn values.
struct StoreDrawn {
  RandomSide out;

  /// Stores four elements of a dense block from `position` on, in one store if the type allows.
  WEFT_DEVICE bool store_four(int64_t position, const float* values) const {
    if (!out.dense || out.dtype() != DType::f32) return false;
    float* to = static_cast<float*>(out.data()) + position;
    if (reinterpret_cast<uintptr_t>(to) % sizeof(Chunk<float, 4>) != 0) return false;
    *reinterpret_cast<Chunk<float, 4>*>(to) = {{values[0], values[1], values[2], values[3]}};
    return true;
  }
  WEFT_DEVICE bool store_four(int64_t, const int64_t*) const { return false; }
  template <class T> WEFT_DEVICE void store(int64_t position, T value) const {
    set_value(out, position, value);
  }
};

/// Stores the drawn values times the elements of `in`.
template <class C> struct StoreDropped {
  RandomSide out, in;

  /// Stores four elements of dense blocks of one dtype at a time.
  WEFT_DEVICE bool store_four(int64_t position, const float* drawn) const {
    if constexpr (std::is_same_v<C, float>) {
      if (!out.dense || !in.dense || out.dtype() != in.dtype()) return false;
      if (in.dtype() == DType::f32) return store_four_of<float>(position, drawn);
      if (in.dtype() == DType::bf16) return store_four_of<bfloat16>(position, drawn);
      return store_four_of<float16>(position, drawn);
    } else {
      return false;
    }
  }
  WEFT_DEVICE void store(int64_t position, float drawn) const {
    set_value(out, position, Dropped<C>()(value_of<C>(in, position), drawn));
  }

 private:
  template <class S> WEFT_DEVICE bool store_four_of(int64_t position, const float* drawn) const {
    using Four = Chunk<S, 4>;
    const S* from = static_cast<const S*>(in.data()) + position;
    S* to = static_cast<S*>(out.data()) + position;
    const auto addresses = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
    if (addresses % sizeof(Four) != 0) return false;
    Four values = *reinterpret_cast<const Four*>(from);
    for (int j = 0; j < 4; ++j) {
      values.element[j] = S(Dropped<C>()(static_cast<C>(values.element[j]), drawn[j]));
    }
    *reinterpret_cast<Four*>(to) = values;
    return true;
  }
};

/// One counter at a time: four elements of the whole tensor, some of which may be outside the box.
template <class F, class Store> struct DrawRuns {
  F f;
  WordStream words;
  DeviceRuns runs;
  Store store;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < runs.count * runs.counters; i += thread.count) {
      const int64_t run = runs.count == 1 ? 0 : i / runs.counters;
      const int64_t first = runs.first(run);
      const int64_t counter = first / 4 + (i - run * runs.counters);
      uint32_t w[4];
      words(static_cast<uint64_t>(counter), w[0], w[1], w[2], w[3]);
      typename F::Value values[4];
      f.pair(w[0], w[1], values[0], values[1]);
      f.pair(w[2], w[3], values[2], values[3]);
      const int64_t skipped = counter * 4 - first, position = run * runs.length + skipped;
      if (skipped >= 0 && skipped + 4 <= runs.length && store.store_four(position, values)) {
        continue;
      }
      for (int j = 0; j < 4; ++j) {
        if (skipped + j < 0 || skipped + j >= runs.length) continue;
        store.store(position + j, values[j]);
      }
    }
  }
};

}  // namespace

template <class F, class Store>
static void draw(const Box& box, const Shape& shape, const WordStream& words, const F& f,
                 const Store& store, const Stream& stream) {
  const DeviceRuns runs(box, shape);
  if (runs.count * runs.length == 0) return;
  launch(DrawRuns<F, Store>{f, words, runs, store}, runs.count * runs.counters, stream);
}

void fill_random(const MemoryBlock& out, const Box& box, const Shape& shape,
                 const RandomState& state, const Distribution& distribution) {
  check_box(out, box, shape);
  std::visit(
      [&](const auto& f) {
        draw(box, shape, {state.seed, state.stream}, f, StoreDrawn{RandomSide(out)},
             current_stream(out.device));
      },
      distribution);
}

void dropout(const MemoryBlock& out, const MemoryBlock& in, const Box& box, const Shape& shape,
             const RandomState& state, double p) {
  check_box(out, box, shape);
  check_box(in, box, shape);
  visit_compute_floating("dropout", in.dtype, [&]<class C>(Type<C>) {
    draw(box, shape, {state.seed, state.stream}, kept_by_dropout(p),
         StoreDropped<C>{RandomSide(out), RandomSide(in)}, current_stream(out.device));
  });
}

}  // namespace weft::cuda
