// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/norm/cuda.h"
#include "src/kernels/norm/cuda_rows.h"
#include "src/kernels/reduce/cuda.h"
#include "weft/storage.h"

namespace weft::cuda {

namespace {

/// Threads of the grid that sums over rows: as many as the largest GPU runs at once.
constexpr int64_t kSummingThreads = 132 * 2048;

/// Computes dx, and each thread block's contribution to the gradients of weight and bias.
struct NormBackward {
  NormStatisticsSide norm;
  RowSide x, dy, dx, weight, given_sum, given_dot;
  /// One row of sums per thread block; null when not needed.
  void *weight_sums, *bias_sums;
  /// The first of the rows in shared memory that hold sums.
  int held_x_rows;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    using Values = typename Line::Values;
    const int64_t chunks = work.size / Line::kN;
    Values* const weight_out = sums_of<Line>(team, weight_sums);
    Values* const bias_out = sums_of<Line>(team, bias_sums);
    Values* const for_weight = held_sums<Line>(team, weight_out, held_x_rows);
    Values* const for_bias = held_sums<Line>(team, bias_out, held_x_rows + (weight_out ? 1 : 0));
    const VectorLine<Line> w(weight, C(1));
    const int64_t end = work.count * (team.team() + 1) / team.teams();
    for (int64_t r = work.count * team.team() / team.teams(); r < end; ++r) {
      HeldLine<Line> in(x, r, norm.cut ? nullptr : work.template held<Line>(team, 0));
      HeldLine<Line> upper(dy, r, held_x_rows > 1 ? work.template held<Line>(team, 1) : nullptr);
      const NormGradient<C> f = gradient_of<C>(team, chunks, in, upper, w, r);
      for (int64_t c = team.thread(); c < chunks; c += team.threads()) {
        const Values xs = in.read(c), gs = upper.read(c);
        // Runs before dx is written, because dx may share memory with dy.
        if (for_weight) {
          for_weight[c] = map_chunk(WeightGradient<C>{f.mean, f.rstd}, for_weight[c], gs, xs);
        }
        if (for_bias) for_bias[c] = map_chunk(Sum<C>{}, for_bias[c], gs);
        if (dx.data) Line(dx, r).write(c, map_chunk(f, gs, w.read(c), xs));
      }
    }
    store_sums(team, chunks, weight_out, for_weight);
    store_sums(team, chunks, bias_out, for_bias);
  }

  /// Returns means over the row that its gradient needs: of dy * weight, and of dy * weight * xhat.
  template <class C, class Team, class Line, class Weight>
  WEFT_DEVICE NormGradient<C> gradient_of(const Team& team, int64_t chunks, Line& in, Line& upper,
                                          const Weight& w, int64_t r) const {
    const NormRow<C> row = norm.template of<C>(team, chunks, in, r);
    NormGradient<C> f{row.mean, row.rstd, C(0), C(0)};
    if (!dx.data) return f;
    const C whole = static_cast<C>(norm.size);
    if (norm.centered) {
      f.sum = (norm.cut ? value_of<C>(given_sum, r)
                        : reduce_line<SumOf>(team, chunks, ProductOfTwo<C>{}, upper, w)) /
              whole;
    }
    if (norm.cut) {
      // rms_norm_dot omits rstd, so that it does not need the sum of squares first.
      f.dot = value_of<C>(given_dot, r) * (norm.centered ? C(1) : row.rstd) / whole;
    } else {
      const NormDot<C> g{row.mean, row.rstd};
      f.dot = reduce_line<SumOf>(team, chunks, g, upper, w, in) / whole;
    }
    return f;
  }

  template <class Line, class Team>
  WEFT_DEVICE typename Line::Values* sums_of(const Team& team, void* sums) const {
    if (!sums) return nullptr;
    return static_cast<typename Line::Values*>(sums) + team.team() * (work.size / Line::kN);
  }

  /// Returns the thread block's sums, zeroed: in shared memory, or in the result.
  template <class Line, class Team>
  WEFT_DEVICE typename Line::Values* held_sums(const Team& team, typename Line::Values* out,
                                               int row) const {
    using Values = typename Line::Values;
    if (!out) return nullptr;
    Values* const sums = work.holds ? work.template held<Line>(team, row) : out;
    for (int64_t c = team.thread(); c < work.size / Line::kN; c += team.threads()) {
      sums[c] = Values{};
    }
    return sums;
  }

  template <class Team, class Values>
  WEFT_DEVICE void store_sums(const Team& team, int64_t chunks, Values* out,
                              const Values* sums) const {
    if (out == sums) return;
    for (int64_t c = team.thread(); c < chunks; c += team.threads()) out[c] = sums[c];
  }
};

/// Sums of thread blocks, one row each, and the result that they add up to.
class TeamSums {
 public:
  TeamSums(const Block* out, const RowPlan& plan, Device device) : out_(out) {
    if (!out) return;
    const DType dtype = compute_dtype(plan.dtype);
    const auto count = static_cast<size_t>(plan.teams * plan.size);
    memory_ = Storage::allocate(count * size_of(dtype), device);
    sums_ = dense_block(memory_->data(), dtype, {plan.teams, plan.size}, device);
  }
  void* data() const { return sums_.data; }
  void store(bool accumulate) const {
    if (out_) cuda::reduce(Reduction::sum, *out_, sums_, {0}, 1, accumulate);
  }

 private:
  const Block* out_;
  Ref<Storage> memory_;
  Block sums_;
};

}  // namespace

static void norm_backward(const char* what, const NormRows& norm, const Block* dx,
                          const Block* dweight, const Block* dbias, const Block& dy, const Block& x,
                          const Block& weight, bool accumulates) {
  const Rows in = last_rows(x);
  check_rows(what, in, last_rows(dy));
  if (dx) check_rows(what, in, last_rows(*dx));
  NormBackward body{{norm, in}, norm_side(x), norm_side(dy), {}, {}, {}, {}, nullptr, nullptr, 0};
  body.weight = norm_vector_side("norm: weight", weight, in.size());
  if (dx) body.dx = norm_side(*dx);
  if (norm.cut && dx) {
    if (norm.centered) body.given_sum = value_side(what, norm.cut->sums[2], in);
    body.given_dot = value_side(what, norm.cut->sums[norm.centered ? 3 : 1], in);
  }
  if (!norm.cut) body.held_x_rows = dx ? 2 : 1;
  const bool sums = dweight || dbias;
  RowPlan plan = plan_rows(what, x.device, in.count(), in.size(), {&body.x, &body.dy, &body.dx},
                           {&body.weight}, body.held_x_rows + (dweight ? 1 : 0) + (dbias ? 1 : 0));
  if (sums) plan.teams = std::clamp<int64_t>(plan.count, 1, kSummingThreads / plan.threads);
  const TeamSums for_weight(dweight, plan, x.device), for_bias(dbias, plan, x.device);
  body.weight_sums = for_weight.data(), body.bias_sums = for_bias.data();
  launch_rows(body, plan);
  for_weight.store(accumulates);
  for_bias.store(accumulates);
}

void rms_norm_backward(const Block* dx, const Block* dweight, const Block& dy, const Block& x,
                       const Block& weight, double eps, const CutRows* cut, bool accumulate) {
  norm_backward("rms_norm_backward", {false, eps, cut}, dx, dweight, nullptr, dy, x, weight,
                accumulate);
}

void layer_norm_backward(const Block* dx, const Block* dweight, const Block* dbias, const Block& dy,
                         const Block& x, const Block& weight, double eps, const CutRows* cut,
                         bool accumulate) {
  norm_backward("layer_norm_backward", {true, eps, cut}, dx, dweight, dbias, dy, x, weight,
                accumulate);
}

}  // namespace weft::cuda
