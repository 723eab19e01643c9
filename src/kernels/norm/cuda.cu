// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/copy/copy.h"
#include "src/kernels/norm/norm_rows.h"
#include "src/kernels/reduce/reduce.h"

namespace weft::cuda {

namespace {

/// Sums over a row x with gradient g and weight w: of x^2, and of g w x.
template <class C> struct RowSums { C squares, dot; };
struct RowSumsOf {
  template <class C> WEFT_FN static RowSums<C> combine(const RowSums<C>& a, const RowSums<C>& b) {
    return {a.squares + b.squares, a.dot + b.dot};
  }
};

/// Computes dx, and each thread block's contribution to the gradients of weight and bias.
struct NormBackward {
  NormBackwardRows rows;
  /// One row of sums per thread block; those of the bias may be null.
  void *weight_sums, *bias_sums;

  /// The rows of x and dy in shared memory, before those of sums.
  WEFT_FN int held_rows() const { return rows.norm.cut ? 0 : 2; }

  template <class Walk> WEFT_DEVICE void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    using Line = typename Walk::Line;
    using Values = typename Line::Values;
    const auto& block = walk.block;
    const int64_t chunks = walk.chunks();
    Values* const weight_out = sums_of(walk, weight_sums);
    Values* const bias_out = sums_of(walk, bias_sums);
    Values* const for_weight = held_sums(walk, weight_out, 0);
    Values* const for_bias = held_sums(walk, bias_out, 1);
    const auto w = walk.vector(rows.weight, C(1));
    const int64_t end = walk.count * (block.index() + 1) / block.blocks();
    for (int64_t r = walk.count * block.index() / block.blocks(); r < end; ++r) {
      auto in = (rows.norm.cut ? walk.reader(rows.x) : walk.held_reader(rows.x, 0))(r);
      auto upper = (rows.norm.cut ? walk.reader(rows.dy) : walk.held_reader(rows.dy, 1))(r);
      const bool at_once = !rows.norm.cut && !rows.norm.centered;
      const NormGradient<C> f =
          at_once ? rms_gradient(walk, in, upper, w) : rows.gradient(walk, in, upper, w, r);
      for (int64_t c = block.thread(); c < chunks; c += block.threads()) {
        const Values xs = in.read(c), gs = upper.read(c);
        // Runs before dx is written, because dx may share memory with dy.
        for_weight[c] = map_chunk(WeightGradient<C>{f.mean, f.rstd}, for_weight[c], gs, xs);
        if (for_bias) for_bias[c] = map_chunk(Sum<C>{}, for_bias[c], gs);
        Line(rows.dx, r).write(c, map_chunk(f, gs, w.read(c), xs));
      }
    }
    store_sums(walk, weight_out, for_weight);
    store_sums(walk, bias_out, for_bias);
  }

  /// The means that the gradient of an rms_norm needs, from one pass over the row.
  template <class Walk, class Line, class Weight, class C = typename Walk::C>
  WEFT_DEVICE NormGradient<C> rms_gradient(const Walk& walk, Line& in, Line& upper,
                                           const Weight& w) const {
    RowSums<C> sums{C(0), C(0)};
    for (int64_t c = walk.block.thread(); c < walk.chunks(); c += walk.block.threads()) {
      const auto xs = in.read(c), gs = upper.read(c), ws = w.read(c);
      for (int i = 0; i < Walk::Line::kN; ++i) {
        const C x = xs.element[i];
        sums = {sums.squares + x * x, sums.dot + gs.element[i] * ws.element[i] * x};
      }
    }
    in.keep();
    upper.keep();
    sums = walk.block.template reduce<RowSumsOf>(sums);
    const C whole = static_cast<C>(rows.norm.size);
    const C rstd = rsqrt(sums.squares / whole + static_cast<C>(rows.norm.eps));
    return {C(0), rstd, C(0), sums.dot * rstd / whole};
  }

  template <class Walk>
  WEFT_DEVICE static typename Walk::Values* sums_of(const Walk& walk, void* sums) {
    if (!sums) return nullptr;
    return static_cast<typename Walk::Values*>(sums) + walk.block.index() * walk.chunks();
  }

  /// Returns the thread block's sums, zeroed: in shared memory, or in the result.
  template <class Walk, class Values = typename Walk::Values>
  WEFT_DEVICE Values* held_sums(const Walk& walk, Values* out, int row) const {
    if (!out) return nullptr;
    auto* const held = reinterpret_cast<Values*>(walk.held(held_rows()));
    Values* const sums = walk.holds ? held + row * walk.chunks() : out;
    for (int64_t c = walk.block.thread(); c < walk.chunks(); c += walk.block.threads()) {
      sums[c] = Values{};
    }
    return sums;
  }

  template <class Walk, class Values>
  WEFT_DEVICE static void store_sums(const Walk& walk, Values* out, const Values* sums) {
    if (out == sums) return;
    for (int64_t c = walk.block.thread(); c < walk.chunks(); c += walk.block.threads()) {
      out[c] = sums[c];
    }
  }
};

}  // namespace

void norm_backward(const NormBackwardRows& rows, const MemoryBlock& x, const MemoryBlock& dweight,
                   const MemoryBlock* dbias, bool accumulate) {
  NormBackward kernel{rows, nullptr, nullptr};
  RowPlan plan = plan_rows("norm_backward", x.device, rows.x.count(), rows.x.size(),
                           {{&kernel.rows.x, &kernel.rows.dy, &kernel.rows.dx},
                            {&kernel.rows.weight},
                            kernel.held_rows(),
                            dbias ? 2 : 1});
  // Half of what an H100 runs at once: more sums cost more than they hide.
  constexpr int64_t kProcessors = 132, kThreads = 1024;
  constexpr int64_t kSharedBytes = int64_t{227} << 10, kReservedBytes = 1 << 10;
  const int64_t of_memory = kSharedBytes / (static_cast<int64_t>(plan.held_bytes) + kReservedBytes);
  const int64_t at_once = std::min(kThreads / plan.threads, of_memory);
  plan.blocks = std::clamp<int64_t>(plan.count, 1, kProcessors * at_once);
  const DType computed = compute_dtype(plan.dtype);
  const DenseMemory weight_sums({plan.blocks, plan.size}, computed, x.device);
  const DenseMemory bias_sums({dbias ? plan.blocks : 0, plan.size}, computed, x.device);
  kernel.weight_sums = weight_sums.block.data;
  if (dbias) kernel.bias_sums = bias_sums.block.data;
  launch_rows(kernel, plan);
  cuda::reduce(Reduction::sum, dweight, weight_sums.block, {0}, 1, accumulate);
  if (dbias) cuda::reduce(Reduction::sum, *dbias, bias_sums.block, {0}, 1, accumulate);
}

}  // namespace weft::cuda
