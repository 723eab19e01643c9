// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_entropy/cross_entropy.h"

#include <gtest/gtest.h>

#include "src/kernels/copy/copy.h"
#include "src/kernels/reduce/reduce.h"
#include "src/kernels/softmax/softmax.h"
#include "tests/kernels/array.h"

namespace weft {
namespace {

struct Losses {
  std::vector<double> loss, dlogits;
};

/// Computes -log softmax at each row's target, and gradients weighted by dloss.
Losses plain(const Array& logits, const std::vector<int64_t>& ids, const Array& dloss,
             int64_t ignored) {
  const int64_t n = logits.block.shape.back();
  Losses result{{}, std::vector<double>(static_cast<size_t>(logits.block.numel()))};
  for (size_t r = 0; r < ids.size(); ++r) {
    const auto row = static_cast<int64_t>(r);
    double sum = 0, max = -1e300;
    for (int64_t i = 0; i < n; ++i) max = std::max(max, logits[row * n + i]);
    for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[row * n + i] - max);
    const bool counts = ids[r] != ignored;
    result.loss.push_back(counts ? max + std::log(sum) - logits[row * n + ids[r]] : 0);
    for (int64_t i = 0; i < n && counts; ++i) {
      const double p = std::exp(logits[row * n + i] - max) / sum;
      result.dlogits[static_cast<size_t>(row * n + i)] = dloss[row] * (p - (i == ids[r] ? 1 : 0));
    }
  }
  return result;
}

/// The losses that these statistics give.
std::vector<double> losses(const Array& lse, const Array& picked, const std::vector<int64_t>& ids,
                           int64_t ignored) {
  std::vector<double> loss = lse.values();
  for (size_t r = 0; r < ids.size(); ++r) {
    loss[r] = ids[r] == ignored ? 0 : loss[r] - picked[static_cast<int64_t>(r)];
  }
  return loss;
}

Array array_of(DType dtype, const Shape& shape, const std::vector<int64_t>& ids) {
  return Array::of(dtype, shape, std::vector<double>(ids.begin(), ids.end()));
}

TEST(CrossEntropy, EqualsPlainLoops) {
  const std::vector<int64_t> ids = {3, 0, -100, 96, 50, 3};
  for (DType dtype : {f32, bf16, f64}) {
    for (DType id_dtype : {i32, i64}) {
      for (Lie lie : {Lie::dense, Lie::gaps, Lie::transposed}) {
        const Array logits = Array::random(dtype, {2, 3, 97}, lie, 1, -9, 9);
        const Array targets = array_of(id_dtype, {2, 3}, ids), dloss = Array::random(f32, {2, 3});
        const Losses expected = plain(logits, ids, dloss, -100);
        const Array lse(dtype == f64 ? f64 : f32, {2, 3}), picked(f64, {2, 3});
        const Array dlogits(dtype, {2, 3, 97});
        logsumexp(lse.block, logits.block, 2);
        pick(picked.block, logits.block, targets.block, 0);
        cross_entropy_backward(dlogits.block, dloss.block, logits.block, targets.block, lse.block);
        expect_near(losses(lse, picked, ids, -100), expected.loss, dtype == f64 ? 1e-14 : 1e-6);
        expect_near(dlogits.values(), expected.dlogits, 2 * rounding(dtype));
        cross_entropy_backward(logits.block, dloss.block, logits.block, targets.block, lse.block);
        expect_near(logits.values(), expected.dlogits, 2 * rounding(dtype));
      }
    }
  }
}

TEST(CrossEntropy, ASlicedVocabularyGivesTheSame) {
  const std::vector<int64_t> ids = {3, 0, 7, 96, 50}, cuts = {0, 40, 40, 80, 97};
  const Array logits = Array::random(f32, {5, 97}, Lie::dense, 1, -9, 9);
  const Array targets = array_of(i64, {5}, ids), dloss = Array::random(f32, {5});
  const Array max(f32, {5}), sum(f32, {5}), picked(f32, {5}), part(f32, {5});
  fill(max.block, -1e30);
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    reduce(Reduction::max, part.block, columns(logits, cuts[i], cuts[i + 1]), {1});
    for (int64_t r = 0; r < 5; ++r)
      max.block.as<float>()[r] = std::max(max.block.as<float>()[r], part.block.as<float>()[r]);
  }
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const MemoryBlock here = columns(logits, cuts[i], cuts[i + 1]);
    row_sum_exp(part.block, here, 1, max.block);
    accumulate(sum.block, part.block);
    pick(part.block, here, targets.block, cuts[i]);
    accumulate(picked.block, part.block);
  }
  const Losses expected = plain(logits, ids, dloss, 7);
  const Array lse(f32, {5}), dlogits(f32, {5, 97});
  logsumexp(lse.block, max.block, sum.block);
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    cross_entropy_backward(columns(dlogits, cuts[i], cuts[i + 1]), dloss.block,
                           columns(logits, cuts[i], cuts[i + 1]), targets.block, lse.block, cuts[i],
                           7);
  }
  expect_near(losses(lse, picked, ids, 7), expected.loss, 1e-6);
  expect_near(dlogits.values(), expected.dlogits, 2e-6);
}

TEST(CrossEntropy, OneGradientServesAllRows) {
  const Array logits = Array::random(f32, {4, 5}), one = Array::of(f32, {}, {0.25}), four(f32, {4});
  const Array targets = array_of(i32, {4}, {0, 1, 2, 3}), a(f32, {4, 5}), b(f32, {4, 5});
  const Array lse(f32, {4});
  logsumexp(lse.block, logits.block, 1);
  fill(four.block, 0.25);
  cross_entropy_backward(a.block, one.block, logits.block, targets.block, lse.block);
  cross_entropy_backward(b.block, four.block, logits.block, targets.block, lse.block);
  EXPECT_EQ(a.values(), b.values());
}

}  // namespace
}  // namespace weft
