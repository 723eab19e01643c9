// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace weft {

/// Real and imaginary parts in separate arrays. Element i of transform l is at i * lanes + l.
template <class R> struct Planes {
  R* re;
  R* im;
};

/// Transforms of one length: by radices 4, 2, 3, 5 and other small primes, each stage a pass that
/// leaves elements in order (Stockham); by a convolution of a greater length where n has a large
/// prime factor (Bluestein, 1970). The twiddle factors are computed in double.
template <class R> class FourierPlan {
 public:
  explicit FourierPlan(int64_t n);

  int64_t size() const { return n_; }
  /// The elements that each of the two buffers of `run` has for each lane.
  int64_t buffer() const { return inner_ ? inner_->n_ : n_; }
  /// Transforms `lanes` sequences, which are in `x`; returns the one of the two with the results.
  Planes<R> run(Planes<R> x, Planes<R> y, int64_t lanes) const;

  /// The plan of that length, which each thread keeps.
  static std::shared_ptr<const FourierPlan> of(int64_t n);

 private:
  /// A pass: `radix` parts of the current length, and factors of part t at p: (t - 1) * length /
  /// radix
  /// + p.
  struct Stage {
    int64_t radix, length;
    std::vector<R> re, im;
  };
  void add_stage(int64_t radix, int64_t length);
  void prepare_convolution();
  Planes<R> convolve(Planes<R> x, Planes<R> y, int64_t lanes) const;
  void run_stage(const Stage& stage, Planes<R> x, Planes<R> y, int64_t inner) const;

  int64_t n_;
  std::vector<Stage> stages_;
  std::shared_ptr<const FourierPlan> inner_;
  /// exp(-pi i k^2 / n), and the transform of its conjugate.
  std::vector<R> chirp_re_, chirp_im_, kernel_re_, kernel_im_;
};

}  // namespace weft
