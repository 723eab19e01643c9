// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/fft/plan.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <numbers>
#include <utility>

#include "src/base/independent.h"
#include "src/base/parallel.h"
#include "weft/export.h"

namespace weft {

/// Prime factors above this make a convolution cheaper than a pass, which takes radix^2 products.
static constexpr int64_t kMostRadix = 31;
/// Elements from which on one pass is divided among threads.
static constexpr int64_t kWorthThreads = 1 << 16;

/// One pass, or a part of it.
template <class R> struct FourierPass {
  Planes<R> x, y;
  const R *factor_re, *factor_im;
  /// Elements before the next part, and of the innermost dim.
  int64_t parts, inner;
};

namespace {

struct Angle {
  double re, im;
};

/// exp(-2 pi i k / n), by the angle within an eighth of the circle, so that multiples are exact.
Angle root(int64_t k, int64_t n) {
  k %= n;
  const int64_t eighth = 8 * k / n;
  const auto at = [n](int64_t part) {
    return 2 * std::numbers::pi * static_cast<double>(part) / static_cast<double>(n);
  };
  // Distances to the nearest multiple of a quarter are computed on integers, times 4.
  const int64_t quarter = (eighth + 1) / 2;
  const double rest = at(4 * k - quarter * n) / 4, c = std::cos(rest), s = std::sin(rest);
  switch (quarter % 4) {
    case 0: return {c, -s};
    case 1: return {-s, -c};
    case 2: return {-c, s};
    default: return {s, c};
  }
}

/// The radices of a length, or nothing if a prime factor is too large.
std::vector<int64_t> radices_of(int64_t n) {
  std::vector<int64_t> radices;
  for (const int64_t radix : {4, 2, 3, 5}) {
    for (; n % radix == 0; n /= radix) radices.push_back(radix);
  }
  for (int64_t radix = 7; radix <= kMostRadix; radix += 2) {
    for (; n % radix == 0; n /= radix) radices.push_back(radix);
  }
  if (n != 1) radices.clear();
  return radices;
}

/// A number in registers, or a vector of them: the same code for all radices.
template <class R> struct Value {
  R re, im;
  Value operator+(Value b) const { return {re + b.re, im + b.im}; }
  Value operator-(Value b) const { return {re - b.re, im - b.im}; }
  Value operator*(Value b) const { return {re * b.re - im * b.im, re * b.im + im * b.re}; }
  Value times(R b) const { return {re * b, im * b}; }
  /// Times -i.
  Value turned() const { return {im, -re}; }
};

template <int kRadix, class R> struct Butterfly;

template <class R> struct Butterfly<2, R> {
  static void run(Value<R>* a) {
    const Value<R> sum = a[0] + a[1];
    a[1] = a[0] - a[1];
    a[0] = sum;
  }
};
template <class R> struct Butterfly<3, R> {
  static void run(Value<R>* a) {
    constexpr R kSin = R(0.86602540378443864676);
    const Value<R> sum = a[1] + a[2], middle = a[0] - sum.times(R(0.5));
    const Value<R> side = (a[1] - a[2]).times(kSin).turned();
    a[0] = a[0] + sum;
    a[1] = middle + side;
    a[2] = middle - side;
  }
};
template <class R> struct Butterfly<4, R> {
  static void run(Value<R>* a) {
    const Value<R> even = a[0] + a[2], odd = a[1] + a[3];
    const Value<R> across = a[0] - a[2], side = (a[1] - a[3]).turned();
    a[0] = even + odd;
    a[1] = across + side;
    a[2] = even - odd;
    a[3] = across - side;
  }
};
template <class R> struct Butterfly<5, R> {
  static void run(Value<R>* a) {
    constexpr R kCos1 = R(0.30901699437494742410), kCos2 = R(-0.80901699437494742410);
    constexpr R kSin1 = R(0.95105651629515357212), kSin2 = R(0.58778525229247312917);
    const Value<R> s1 = a[1] + a[4], s2 = a[2] + a[3], d1 = a[1] - a[4], d2 = a[2] - a[3];
    const Value<R> m1 = a[0] + s1.times(kCos1) + s2.times(kCos2);
    const Value<R> m2 = a[0] + s1.times(kCos2) + s2.times(kCos1);
    const Value<R> n1 = (d1.times(kSin1) + d2.times(kSin2)).turned();
    const Value<R> n2 = (d1.times(kSin2) - d2.times(kSin1)).turned();
    a[0] = a[0] + s1 + s2;
    a[1] = m1 + n1;
    a[2] = m2 + n2;
    a[3] = m2 - n2;
    a[4] = m1 - n1;
  }
};

/// Transforms positions [begin, end) of `parts`, each for the elements [from, to) of `inner`.
template <int kRadix, class R>
void run_pass(const FourierPass<R>& pass, int64_t begin, int64_t end, int64_t from, int64_t to) {
  const auto [x, y, factor_re, factor_im, parts, inner] = pass;
  const auto one = [&](int64_t p, int64_t q, const Value<R>* factors) {
    Value<R> a[kRadix];
    for (int t = 0; t < kRadix; ++t) {
      const int64_t at = q + inner * (p + parts * t);
      a[t] = {x.re[at], x.im[at]};
    }
    Butterfly<kRadix, R>::run(a);
    for (int u = 0; u < kRadix; ++u) {
      const int64_t at = q + inner * (kRadix * p + u);
      const Value<R> b = u == 0 ? a[0] : a[u] * factors[u];
      y.re[at] = b.re;
      y.im[at] = b.im;
    }
  };
  const auto factors_at = [&](int64_t p, Value<R>* factors) {
    for (int u = 1; u < kRadix; ++u) {
      factors[u] = {factor_re[(u - 1) * parts + p], factor_im[(u - 1) * parts + p]};
    }
  };
  Value<R> factors[kRadix];
  if (inner == 1) {
    WEFT_INDEPENDENT
    for (int64_t p = begin; p < end; ++p) {
      Value<R> own[kRadix];
      factors_at(p, own);
      one(p, 0, own);
    }
    return;
  }
  for (int64_t p = begin; p < end; ++p) {
    factors_at(p, factors);
    WEFT_INDEPENDENT
    for (int64_t q = from; q < to; ++q) one(p, q, factors);
  }
}

/// The same for any radix, by its definition.
template <class R>
void run_any_pass(const FourierPass<R>& pass, int64_t radix, int64_t begin, int64_t end,
                  int64_t from, int64_t to) {
  std::vector<Value<R>> roots;
  for (int64_t t = 0; t < radix; ++t) {
    const Angle angle = root(t, radix);
    roots.push_back({static_cast<R>(angle.re), static_cast<R>(angle.im)});
  }
  const auto [x, y, factor_re, factor_im, parts, inner] = pass;
  for (int64_t p = begin; p < end; ++p) {
    for (int64_t u = 0; u < radix; ++u) {
      const Value<R> factor =
          u == 0 ? Value<R>{1, 0}
                 : Value<R>{factor_re[(u - 1) * parts + p], factor_im[(u - 1) * parts + p]};
      R *re = y.re + inner * (radix * p + u), *im = y.im + inner * (radix * p + u);
      std::fill(re + from, re + to, R(0));
      std::fill(im + from, im + to, R(0));
      for (int64_t t = 0; t < radix; ++t) {
        const Value<R> w = roots[static_cast<size_t>(t * u % radix)] * factor;
        const R *xr = x.re + inner * (p + parts * t), *xi = x.im + inner * (p + parts * t);
        WEFT_INDEPENDENT
        for (int64_t q = from; q < to; ++q) {
          re[q] += xr[q] * w.re - xi[q] * w.im;
          im[q] += xr[q] * w.im + xi[q] * w.re;
        }
      }
    }
  }
}

}  // namespace

template <class R> FourierPlan<R>::FourierPlan(int64_t n) : n_(n) {
  int64_t length = n;
  for (const int64_t radix : radices_of(n)) {
    add_stage(radix, length);
    length /= radix;
  }
  if (stages_.empty() && n > 1) prepare_convolution();
}

template <class R> void FourierPlan<R>::add_stage(int64_t radix, int64_t length) {
  Stage stage{radix, length, {}, {}};
  for (int64_t u = 1; u < radix; ++u) {
    for (int64_t p = 0; p < length / radix; ++p) {
      const Angle factor = root(u * p, length);
      stage.re.push_back(static_cast<R>(factor.re));
      stage.im.push_back(static_cast<R>(factor.im));
    }
  }
  stages_.push_back(std::move(stage));
}

/// x[j] w^(jk) is a convolution with w^(-(k - j)^2 / 2), because jk = (j^2 + k^2 - (k - j)^2) / 2.
template <class R> void FourierPlan<R>::prepare_convolution() {
  int64_t length = 2 * n_ - 1;
  while (radices_of(length).empty() || radices_of(length).back() > 5) ++length;
  inner_ = std::make_shared<const FourierPlan>(length);
  std::vector<R> kernel(static_cast<size_t>(4 * length));
  const Planes<R> x{kernel.data(), kernel.data() + length};
  for (int64_t k = 0; k < n_; ++k) {
    // k^2 modulo 2 n without overflow.
    const auto square =
        static_cast<int64_t>(static_cast<unsigned __int128>(k) * static_cast<unsigned __int128>(k) %
                             static_cast<unsigned __int128>(2 * n_));
    const Angle angle = root(square, 2 * n_);
    chirp_re_.push_back(static_cast<R>(angle.re));
    chirp_im_.push_back(static_cast<R>(angle.im));
    for (const int64_t at : {k, (length - k) % length}) {
      x.re[at] = static_cast<R>(angle.re);
      x.im[at] = static_cast<R>(-angle.im);
    }
  }
  const Planes<R> made = inner_->run(x, {x.im + length, x.im + 2 * length}, 1);
  kernel_re_.assign(made.re, made.re + length);
  kernel_im_.assign(made.im, made.im + length);
}

template <class R>
void FourierPlan<R>::run_stage(const Stage& stage, Planes<R> x, Planes<R> y, int64_t inner) const {
  const int64_t parts = stage.length / stage.radix;
  const FourierPass<R> pass{x, y, stage.re.data(), stage.im.data(), parts, inner};
  const auto run = [&](int64_t begin, int64_t end, int64_t from, int64_t to) {
    switch (stage.radix) {
      case 2: return run_pass<2>(pass, begin, end, from, to);
      case 3: return run_pass<3>(pass, begin, end, from, to);
      case 4: return run_pass<4>(pass, begin, end, from, to);
      case 5: return run_pass<5>(pass, begin, end, from, to);
      default: return run_any_pass(pass, stage.radix, begin, end, from, to);
    }
  };
  if (parts * inner * stage.radix < kWorthThreads) return run(0, parts, 0, inner);
  if (parts >= inner) {
    parallel_for(parts, grain_of(inner * stage.radix),
                 [&](int64_t begin, int64_t end) { run(begin, end, 0, inner); });
  } else {
    parallel_for(inner, grain_of(parts * stage.radix),
                 [&](int64_t from, int64_t to) { run(0, parts, from, to); });
  }
}

template <class R>
Planes<R> FourierPlan<R>::convolve(Planes<R> x, Planes<R> y, int64_t lanes) const {
  const int64_t length = inner_->n_;
  const auto multiply = [&](Planes<R> at, const std::vector<R>& by_re, const std::vector<R>& by_im,
                            int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      const Value<R> factor{by_re[static_cast<size_t>(k)], by_im[static_cast<size_t>(k)]};
      for (int64_t i = k * lanes; i < (k + 1) * lanes; ++i) {
        const Value<R> product = Value<R>{at.re[i], at.im[i]} * factor;
        at.re[i] = product.re;
        at.im[i] = product.im;
      }
    }
  };
  multiply(x, chirp_re_, chirp_im_, n_);
  std::fill(x.re + n_ * lanes, x.re + length * lanes, R(0));
  std::fill(x.im + n_ * lanes, x.im + length * lanes, R(0));
  const Planes<R> there = inner_->run(x, y, lanes), other = there.re == x.re ? y : x;
  multiply(there, kernel_re_, kernel_im_, length);
  // A transform with both parts exchanged is the inverse.
  const Planes<R> found = inner_->run({there.im, there.re}, {other.im, other.re}, lanes);
  const Planes<R> back{found.im, found.re};
  multiply(back, chirp_re_, chirp_im_, n_);
  const R share = R(1) / static_cast<R>(length);
  for (int64_t i = 0; i < n_ * lanes; ++i) {
    back.re[i] *= share;
    back.im[i] *= share;
  }
  return back;
}

template <class R> Planes<R> FourierPlan<R>::run(Planes<R> x, Planes<R> y, int64_t lanes) const {
  if (inner_) return convolve(x, y, lanes);
  int64_t inner = lanes;
  for (const Stage& stage : stages_) {
    run_stage(stage, x, y, inner);
    inner *= stage.radix;
    std::swap(x, y);
  }
  return x;
}

template <class R> std::shared_ptr<const FourierPlan<R>> FourierPlan<R>::of(int64_t n) {
  constexpr size_t kKept = 8;
  static thread_local std::list<std::shared_ptr<const FourierPlan>> kept;
  const auto found = std::ranges::find_if(kept, [&](const auto& plan) { return plan->n_ == n; });
  if (found != kept.end()) {
    kept.splice(kept.begin(), kept, found);
  } else {
    kept.push_front(std::make_shared<const FourierPlan>(n));
    if (kept.size() > kKept) kept.pop_back();
  }
  return kept.front();
}

template class FourierPlan<float>;
template class FourierPlan<double>;

}  // namespace weft
