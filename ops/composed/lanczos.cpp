// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/composed/small_eigen.h"
#include "ops/composed/solvers.h"
#include "ops/engine/tensor_body.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft::linalg {

static double eps_of(DType dtype) {
  return dtype == f32 ? std::numeric_limits<float>::epsilon()
                      : std::numeric_limits<double>::epsilon();
}

/// The error of a pair relative to the operator's size.
static double tolerance_of(const LanczosOptions& options, DType dtype) {
  return options.tolerance > 0 ? options.tolerance : 100 * eps_of(dtype);
}

namespace {

/// An orthonormal basis that grows by products with the operator, and the operator in that basis.
class Lanczos {
 public:
  /// Vectors stay orthogonal to those of `locked`, rows of pairs that are known already.
  Lanczos(const LinearOperator& a, const Tensor& v0, int64_t most, Tensor locked)
      : a_(a), locked_(std::move(locked)), most_(most), small_(static_cast<size_t>(most * most)) {
    basis_ = {v0};
    take(v0, 0);
    if (norm_ == 0) fail("eigsh: v0 is 0, expected a vector with another element");
  }

  /// Extends the basis to `most` vectors, or to fewer that span an invariant space with all of n.
  void extend() {
    const int64_t n = basis_[0].size(0) - (locked_ ? locked_.size(0) : 0);
    while (size_ < most_) {
      const Tensor w = a_(basis_[static_cast<size_t>(size_)]);
      const std::vector<double> along = take(w, size_ + 1);
      for (int64_t i = 0; i <= size_; ++i)
        at(i, size_) = at(size_, i) = along[static_cast<size_t>(i)];
      scale_ = std::max(scale_, std::hypot(norm_, at(size_, size_)));
      ++size_;
      coupling_ = norm_;
      if (coupling_ > 10 * eps_of(basis_[0].dtype()) * scale_) continue;
      coupling_ = 0;
      if (size_ == n) return;
      take(randn_like(basis_[0]), size_);
    }
  }

  SmallEigen eigen() const { return small_eigen(small_, most_, size_); }
  double coupling() const { return coupling_; }
  int64_t size() const { return size_; }

  /// Returns the vectors of the eigenpairs `chosen`, as rows.
  Tensor rotated(const SmallEigen& eigen, const std::vector<int64_t>& chosen) const {
    std::vector<double> turn;
    for (const int64_t pair : chosen) {
      for (int64_t i = 0; i < size_; ++i) turn.push_back(eigen.vector(pair, i));
    }
    const Tensor rotation = from_values(turn, {static_cast<int64_t>(chosen.size()), size_},
                                        {.dtype = basis_[0].dtype(), .device = basis_[0].device()});
    return matmul(next_to_basis(rotation), stack(first(size_), 0));
  }

  /// Keeps the vectors of the eigenpairs `chosen`, and the one that couples them to the rest.
  void restart(const SmallEigen& eigen, const std::vector<int64_t>& chosen) {
    const Tensor kept = rotated(eigen, chosen);
    Tensor next = basis_[static_cast<size_t>(size_)];
    std::fill(small_.begin(), small_.end(), 0);
    basis_.clear();
    for (size_t i = 0; i < chosen.size(); ++i) {
      basis_.push_back(redistributed(kept[static_cast<int64_t>(i)], next.sharding()));
      at(static_cast<int64_t>(i), static_cast<int64_t>(i)) =
          eigen.values[static_cast<size_t>(chosen[i])];
    }
    size_ = static_cast<int64_t>(chosen.size());
    basis_.push_back(std::move(next));
  }

 private:
  double& at(int64_t row, int64_t column) {
    return small_[static_cast<size_t>(row * most_ + column)];
  }
  Tensors first(int64_t count) const { return {basis_.begin(), basis_.begin() + count}; }
  Tensor next_to_basis(const Tensor& small) const {
    const Tensor& like = basis_[0];
    return like.is_sharded() ? distribute(small, like.sharding().mesh(), {}) : small;
  }

  Tensor without(const Tensor& w, const Tensor& vectors, const Tensor& parts) const {
    const Tensor sum_of = squeeze(matmul(unsqueeze(parts, 0), vectors), 0);
    return redistributed(sub(w, sum_of), basis_[0].sharding());
  }

  /// Makes w orthogonal to the locked vectors and the first `count` own ones, twice is enough
  /// (Kahan), and appends it with length 1; returns its parts along them.
  std::vector<double> take(Tensor w, int64_t count) {
    std::vector<double> along(static_cast<size_t>(count));
    const double most = greatest("eigsh", "a vector", w);
    if (most > 0) w = div(w, most);
    for (int pass = 0; pass < 2; ++pass) {
      if (locked_) w = without(w, locked_, squeeze(matmul(locked_, unsqueeze(w, 1)), 1));
      if (count == 0) continue;
      const Tensor vectors = stack(first(count), 0);
      const Tensor parts = squeeze(matmul(vectors, unsqueeze(w, 1)), 1);
      w = without(w, vectors, parts);
      const std::vector<double> more = values_of(parts);
      for (size_t i = 0; i < along.size(); ++i) along[i] += more[i] * most;
    }
    const double size = std::sqrt(values_of(sum_squares(w))[0]);
    norm_ = size * most;
    basis_.resize(static_cast<size_t>(count));
    basis_.push_back(size > 0 ? div(w, size) : w);
    return along;
  }

  const LinearOperator& a_;
  Tensor locked_;
  int64_t most_, size_ = 0;
  Tensors basis_;
  std::vector<double> small_;
  double norm_ = 0, coupling_ = 0, scale_ = 0;
};

}  // namespace

static Tensor start_vector(const LinearOperator& a, const LanczosOptions& options) {
  if (options.v0) {
    if (options.v0.ndim() != 1) fail("eigsh: v0 is ", options.v0.shape(), ", expected a vector");
    return solvable("eigsh", "v0", options.v0);
  }
  if (!a.matrix()) fail("eigsh: v0 is none, expected a vector for an operator without a matrix");
  return randn_like(select(solvable("eigsh", "matrix", a.matrix()), 1, 0));
}

namespace {

/// Eigenvalues in ascending order, and eigenvectors.
struct Pairs {
  std::vector<double> values;
  Tensors vectors;

  void insert(double value, Tensor vector) {
    const auto at = std::ranges::lower_bound(values, value) - values.begin();
    values.insert(values.begin() + at, value);
    vectors.insert(vectors.begin() + at, std::move(vector));
  }
};

}  // namespace

/// Returns k extreme pairs of the operator whose vectors are orthogonal to the `locked` ones.
static Pairs extreme_pairs(const LinearOperator& a, const Tensor& v0, int64_t k, int64_t most,
                           const LanczosOptions& options, const Tensor& locked) {
  Lanczos lanczos(a, v0, most, locked);
  for (int64_t restart = 0;; ++restart) {
    lanczos.extend();
    const SmallEigen eigen = lanczos.eigen();
    const int64_t size = lanczos.size();
    const auto extremes = [&](int64_t count) {
      std::vector<int64_t> chosen(static_cast<size_t>(count));
      std::iota(chosen.begin(), chosen.end(), options.largest ? size - count : 0);
      return chosen;
    };
    const std::vector<int64_t> wanted = extremes(k);
    const double tolerance =
        tolerance_of(options, v0.dtype()) *
        std::max(std::abs(eigen.values.front()), std::abs(eigen.values.back()));
    const bool converged = std::ranges::all_of(wanted, [&](int64_t pair) {
      return lanczos.coupling() * std::abs(eigen.vector(pair, size - 1)) <= tolerance;
    });
    if (converged) {
      Pairs found;
      const Tensor rows = lanczos.rotated(eigen, wanted);
      for (int64_t i = 0; i < k; ++i) {
        const auto pair = static_cast<size_t>(wanted[static_cast<size_t>(i)]);
        found.insert(eigen.values[pair], redistributed(rows[i], v0.sharding()));
      }
      return found;
    }
    if (restart == options.most_restarts) {
      throw_runtime_error(concat("eigsh: ", k, " pairs did not converge in ", restart,
                                 " restarts; more vectors or a larger tolerance may help"));
    }
    lanczos.restart(eigen, extremes(std::min(size - 1, k + (size - k) / 2)));
  }
}

Eigh eigsh(const LinearOperator& a, int64_t k, const LanczosOptions& options) {
  check_operator("eigsh", a);
  const NoGrad no_grad;
  const Tensor v0 = start_vector(a, options);
  const int64_t n = v0.size(0);
  if (k < 1 || k > n) fail("eigsh: k is ", k, ", expected 1 to ", n);
  const int64_t usual = options.vectors > 0 ? options.vectors : std::max<int64_t>(2 * k + 1, 20);
  const int64_t most = std::min(n, usual);
  if (most <= k && most < n) fail("eigsh: vectors is ", most, ", expected more than k, ", k);
  Pairs found = extreme_pairs(a, v0, k, most, options, {});
  // The Krylov space of one vector has one direction of each eigenspace. The search goes on,
  // orthogonal to the known vectors, until no pair is more extreme than the last one asked for.
  for (int64_t known = k; known < n; ++known) {
    const Pairs next = extreme_pairs(a, randn_like(v0), 1, std::min(n - known, usual), options,
                                     stack(found.vectors, 0));
    const double norm = std::max(std::abs(found.values.front()), std::abs(found.values.back()));
    const double margin = 10 * tolerance_of(options, v0.dtype()) * norm;
    const double last = found.values[static_cast<size_t>(options.largest ? known - k : k - 1)];
    const double beyond = options.largest ? next.values[0] - last : last - next.values[0];
    if (!(beyond > margin)) break;
    found.insert(next.values[0], next.vectors[0]);
  }
  const size_t first = options.largest ? found.values.size() - static_cast<size_t>(k) : 0;
  std::vector<double> values;
  Tensors vectors;
  for (size_t i = first; i < first + static_cast<size_t>(k); ++i) {
    values.push_back(found.values[i]);
    vectors.push_back(found.vectors[i]);
  }
  const Tensor made = from_values(values, {k}, {.dtype = v0.dtype(), .device = v0.device()});
  return {v0.is_sharded() ? distribute(made, v0.sharding().mesh(), {}) : made, stack(vectors, 1)};
}

}  // namespace weft::linalg
