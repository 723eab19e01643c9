// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "src/kernels/copy/dense.h"
#include "src/kernels/norm/norm_rows.h"
#include "src/kernels/reduce/reduce.h"

namespace weft::cuda {

namespace {

/// Threads of the grid that sums over rows: as many as the largest GPU runs at once.
constexpr int64_t kSummingThreads = 132 * 2048;

/// Computes dx, and each thread block's contribution to the gradients of weight and bias.
struct NormBackward {
  NormBackwardRows rows;
  /// One row of sums per thread block; null when not needed.
  void *weight_sums, *bias_sums;
  /// The first of the rows in shared memory that hold sums.
  int held_x_rows;

  template <class Walk> WEFT_DEVICE void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    using Line = typename Walk::Line;
    using Values = typename Line::Values;
    const auto& block = walk.block;
    const int64_t chunks = walk.chunks();
    Values* const weight_out = sums_of(walk, weight_sums);
    Values* const bias_out = sums_of(walk, bias_sums);
    Values* const for_weight = held_sums(walk, weight_out, held_x_rows);
    Values* const for_bias = held_sums(walk, bias_out, held_x_rows + (weight_out ? 1 : 0));
    const auto w = walk.vector(rows.weight, C(1));
    const int64_t end = walk.count * (block.index() + 1) / block.blocks();
    for (int64_t r = walk.count * block.index() / block.blocks(); r < end; ++r) {
      auto in = (rows.norm.cut ? walk.reader(rows.x) : walk.held_reader(rows.x, 0))(r);
      auto upper = (held_x_rows > 1 ? walk.held_reader(rows.dy, 1) : walk.reader(rows.dy))(r);
      const NormGradient<C> f = rows.gradient(walk, in, upper, w, r);
      for (int64_t c = block.thread(); c < chunks; c += block.threads()) {
        const Values xs = in.read(c), gs = upper.read(c);
        // Runs before dx is written, because dx may share memory with dy.
        if (for_weight) {
          for_weight[c] = map_chunk(WeightGradient<C>{f.mean, f.rstd}, for_weight[c], gs, xs);
        }
        if (for_bias) for_bias[c] = map_chunk(Sum<C>{}, for_bias[c], gs);
        if (rows.dx.data()) Line(rows.dx, r).write(c, map_chunk(f, gs, w.read(c), xs));
      }
    }
    store_sums(walk, weight_out, for_weight);
    store_sums(walk, bias_out, for_bias);
  }

  template <class Walk>
  WEFT_DEVICE static typename Walk::Values* sums_of(const Walk& walk, void* sums) {
    if (!sums) return nullptr;
    return static_cast<typename Walk::Values*>(sums) + walk.block.index() * walk.chunks();
  }

  /// Returns the thread block's sums, zeroed: in shared memory, or in the result.
  template <class Walk, class Values = typename Walk::Values>
  WEFT_DEVICE static Values* held_sums(const Walk& walk, Values* out, int row) {
    if (!out) return nullptr;
    Values* const sums = walk.holds ? walk.held(row) : out;
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

/// Sums of thread blocks, one row each, and the result that they add up to.
class BlockSums {
 public:
  BlockSums(const MemoryBlock* out, const RowPlan& plan, Device device) : out_(out) {
    if (!out) return;
    sums_.emplace(Shape{plan.blocks, plan.size}, compute_dtype(plan.dtype), device);
  }
  void* data() const { return sums_ ? sums_->block.data : nullptr; }
  void store(bool accumulate) const {
    if (out_) cuda::reduce(Reduction::sum, *out_, sums_->block, {0}, 1, accumulate);
  }

 private:
  const MemoryBlock* out_;
  std::optional<DenseMemory> sums_;
};

}  // namespace

void norm_backward(const NormBackwardRows& rows, const MemoryBlock& x, const MemoryBlock* dweight,
                   const MemoryBlock* dbias, bool accumulate) {
  const bool has_dx = rows.dx.data() != nullptr;
  NormBackward kernel{rows, nullptr, nullptr, rows.norm.cut ? 0 : has_dx ? 2 : 1};
  RowPlan plan = plan_rows("norm_backward", x.device, rows.x.count(), rows.x.size(),
                           {{&kernel.rows.x, &kernel.rows.dy, &kernel.rows.dx},
                            {&kernel.rows.weight},
                            kernel.held_x_rows + (dweight ? 1 : 0) + (dbias ? 1 : 0)});
  if (dweight || dbias) {
    plan.blocks = std::clamp<int64_t>(plan.count, 1, kSummingThreads / plan.threads);
  }
  const BlockSums for_weight(dweight, plan, x.device), for_bias(dbias, plan, x.device);
  kernel.weight_sums = for_weight.data(), kernel.bias_sums = for_bias.data();
  launch_rows(kernel, plan);
  for_weight.store(accumulate);
  for_bias.store(accumulate);
}

}  // namespace weft::cuda
