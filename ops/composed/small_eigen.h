// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace weft::linalg {

/// Eigenvalues in ascending order, and eigenvectors.
struct SmallEigen {
  std::vector<double> values;
  std::vector<double> rows;
  double vector(int64_t pair, int64_t element) const {
    return rows[static_cast<size_t>(pair) * values.size() + static_cast<size_t>(element)];
  }
};

/// The eigenpairs of the leading `n` rows and columns of a symmetric matrix of `stride` columns, by
/// Jacobi's rotations. The order of the arithmetic does not depend on threads, so that ranks which
/// have the same matrix take the same decisions.
inline SmallEigen small_eigen(const std::vector<double>& matrix, int64_t stride, int64_t n) {
  const auto count = static_cast<size_t>(n);
  std::vector<double> a(count * count), v(count * count, 0);
  double most = 0;
  for (const double x : matrix) most = std::max(most, std::abs(x));
  if (most == 0) most = 1;
  for (size_t i = 0; i < count; ++i) {
    v[i * count + i] = 1;
    for (size_t j = 0; j < count; ++j) {
      a[i * count + j] = matrix[i * static_cast<size_t>(stride) + j] / most;
    }
  }
  const auto off_diagonal = [&] {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < i; ++j) sum += a[i * count + j] * a[i * count + j];
    }
    return sum;
  };
  const double all = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
  for (int sweep = 0; sweep < 60 && off_diagonal() > 1e-34 * all; ++sweep) {
    for (size_t p = 0; p < count; ++p) {
      for (size_t q = p + 1; q < count; ++q) {
        const double apq = a[p * count + q];
        if (apq == 0) continue;
        const double theta = (a[q * count + q] - a[p * count + p]) / (2 * apq);
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::hypot(theta, 1));
        const double c = 1 / std::hypot(t, 1), s = t * c;
        const auto turn = [&](double& x, double& y) {
          const double before = x;
          x = c * before - s * y;
          y = s * before + c * y;
        };
        for (size_t i = 0; i < count; ++i) turn(a[i * count + p], a[i * count + q]);
        for (size_t i = 0; i < count; ++i) turn(a[p * count + i], a[q * count + i]);
        for (size_t i = 0; i < count; ++i) turn(v[p * count + i], v[q * count + i]);
      }
    }
  }
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return a[i * count + i]; });
  SmallEigen eigen;
  for (const size_t i : order) {
    eigen.values.push_back(a[i * count + i] * most);
    eigen.rows.insert(eigen.rows.end(), v.begin() + static_cast<int64_t>(i * count),
                      v.begin() + static_cast<int64_t>((i + 1) * count));
  }
  return eigen;
}

}  // namespace weft::linalg
