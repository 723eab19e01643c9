// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/linalg.h"
#include "weft/ops.h"

namespace weft::linalg {

/// The order of products with the fewest multiplications, by dynamic programming: the place where
/// matrices first to last are split.
static std::vector<std::vector<size_t>> chain_splits(const std::vector<int64_t>& sizes) {
  const size_t count = sizes.size() - 1;
  std::vector<std::vector<double>> cost(count, std::vector<double>(count, 0));
  std::vector<std::vector<size_t>> split(count, std::vector<size_t>(count, 0));
  for (size_t length = 1; length < count; ++length) {
    for (size_t i = 0; i + length < count; ++i) {
      const size_t j = i + length;
      cost[i][j] = INFINITY;
      for (size_t k = i; k < j; ++k) {
        const double own = static_cast<double>(sizes[i]) * static_cast<double>(sizes[k + 1]) *
                           static_cast<double>(sizes[j + 1]);
        const double all = cost[i][k] + cost[k + 1][j] + own;
        if (all < cost[i][j]) cost[i][j] = all, split[i][j] = k;
      }
    }
  }
  return split;
}

static Tensor chain_product(const Tensors& all, const std::vector<std::vector<size_t>>& split,
                            size_t first, size_t last) {
  if (first == last) return all[first];
  const size_t at = split[first][last];
  return matmul(chain_product(all, split, first, at), chain_product(all, split, at + 1, last));
}

Tensor multi_dot(const Tensors& given) {
  if (given.size() < 2)
    fail("multi_dot: number of matrices is ", given.size(), ", expected at least 2");
  Tensors all = given;
  for (size_t i = 0; i < all.size(); ++i) {
    check_tensor("multi_dot", all[i]);
    const bool may_be_vector = i == 0 || i + 1 == all.size();
    if (all[i].ndim() == 2 || (may_be_vector && all[i].ndim() == 1)) continue;
    fail("multi_dot: matrix ", i, " is ", all[i].shape(), ", expected 2 dims");
  }
  const bool from_row = all[0].ndim() == 1, to_column = all.back().ndim() == 1;
  if (from_row) all[0] = unsqueeze(all[0], 0);
  if (to_column) all.back() = unsqueeze(all.back(), 1);
  std::vector<int64_t> sizes{all[0].size(0)};
  for (const Tensor& a : all) {
    if (a.size(0) != sizes.back() && sizes.size() > 1) {
      fail("multi_dot: matrix ", sizes.size() - 1, " is ", a.shape(), ", expected ", sizes.back(),
           " rows as columns of the one before");
    }
    sizes.push_back(a.size(1));
  }
  Tensor product = chain_product(all, chain_splits(sizes), 0, all.size() - 1);
  if (to_column) product = squeeze(product, 1);
  return from_row ? squeeze(product, 0) : product;
}

}  // namespace weft::linalg
