// SPDX-License-Identifier: Apache-2.0
// The greatest error of each function of src/math.h, src/angles.h and src/logarithms.h, in units in
// the last place, against the C library in double: over floats of every exponent, and densely in
// the critical ranges. The bounds are those that the headers state.
#include "src/kernels/math/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "src/kernels/math/angles.h"
#include "src/kernels/math/logarithms.h"
#include "src/kernels/math/reducers.h"

namespace weft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// |got - exact| in units of the last place of the float nearest to `exact`.
double ulps(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e9;
  const auto nearest = static_cast<float>(exact);
  if (std::isinf(nearest)) {
    return got == nearest || std::fabs(got) == std::numeric_limits<float>::max() ? 0 : 1e9;
  }
  if (!std::isfinite(got)) return 1e9;
  const int exponent = std::max(std::ilogb(nearest == 0 ? 1e-45f : nearest), -126);
  return std::fabs(static_cast<double>(got) - exact) / std::ldexp(1.0, exponent - 23);
}

struct Function {
  const char* name;
  float (*ours)(float);
  double (*exact)(double);
  double bound;
  float high = kInfinity;
};

struct Worst {
  double error = 0;
  float at = 0;
};

/// The worst of every `step`-th float of [low, high] in the order of their bits, with both signs.
Worst worst_of(const Function& f, float low, float high, uint32_t step) {
  Worst worst;
  const auto first = std::bit_cast<uint32_t>(low), last = std::bit_cast<uint32_t>(high);
  for (uint64_t bits = first; bits <= last; bits += step) {
    for (float sign : {1.0f, -1.0f}) {
      const float x = sign * std::bit_cast<float>(static_cast<uint32_t>(bits));
      const double error = ulps(f.ours(x), f.exact(static_cast<double>(x)));
      if (error > worst.error) worst = {error, x};
    }
  }
  return worst;
}

double sigmoid_exact(double x) { return 1 / (1 + std::exp(-x)); }

const Function kFunctions[] = {
    {"exp", [](float x) { return weft::exp(x); }, [](double x) { return std::exp(x); }, 1.0},
    {"log", [](float x) { return weft::log(x); }, [](double x) { return std::log(x); }, 1.0},
    {"sigmoid", [](float x) { return weft::sigmoid(x); }, sigmoid_exact, 2.5},
    {"tanh", [](float x) { return weft::tanh(x); }, [](double x) { return std::tanh(x); }, 2.0},
    {"erf", [](float x) { return weft::erf(x); }, [](double x) { return std::erf(x); }, 2.0},
    {"sin", [](float x) { return weft::sin(x); }, [](double x) { return std::sin(x); }, 2.0, 1e6f},
    {"cos", [](float x) { return weft::cos(x); }, [](double x) { return std::cos(x); }, 2.0, 1e6f},
    {"rsqrt", [](float x) { return weft::rsqrt(x); }, [](double x) { return 1 / std::sqrt(x); },
     1.5},
    {"sine", [](float x) { return sine(x); }, [](double x) { return std::sin(x); }, 2.0},
    {"cosine", [](float x) { return cosine(x); }, [](double x) { return std::cos(x); }, 2.0},
    {"tangent", [](float x) { return tangent(x); }, [](double x) { return std::tan(x); }, 4.0},
    {"log2", [](float x) { return weft::log2(x); }, [](double x) { return std::log2(x); }, 0.51},
    {"log10", [](float x) { return weft::log10(x); }, [](double x) { return std::log10(x); }, 0.51},
    {"log1p", [](float x) { return weft::log1p(x); }, [](double x) { return std::log1p(x); }, 2.0},
    {"expm1", [](float x) { return weft::expm1(x); }, [](double x) { return std::expm1(x); }, 2.0},
};

TEST(Math, ErrorsAreWithinTheStatedBounds) {
  for (const Function& f : kFunctions) {
    const Worst all = worst_of(f, 0.0f, f.high, 6007);
    const Worst middle = worst_of(f, 0.0625f, 128.0f, 997);
    EXPECT_LE(all.error, f.bound) << f.name << " at " << all.at;
    EXPECT_LE(middle.error, f.bound) << f.name << " at " << middle.at;
    // A bound much larger than the error would be too loose.
    EXPECT_GT(std::max(all.error, middle.error), f.bound / 2) << f.name;
  }
}

TEST(Math, PowIsWithinOneUlp) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 70001) {
    const float x = std::bit_cast<float>(bits);
    for (float y : {-7.5f, -2.0f, -1.0f, -0.3f, 0.1f, 0.5f, 1.0f, 2.0f, 3.0f, 17.25f, 130.0f}) {
      worst = std::max(worst, ulps(weft::pow(x, y), std::pow(double{x}, double{y})));
      worst = std::max(worst, ulps(weft::pow(-x, y), std::pow(double{-x}, double{y})));
    }
  }
  EXPECT_LE(worst, 1.0);
}

TEST(Math, HypotIsWithinOneUlp) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 70001) {
    const float x = std::bit_cast<float>(bits);
    for (float y : {0.0f, 1e-44f, 1e-20f, 0.3f, 7.0f, 3e19f, 3e38f}) {
      worst = std::max(worst, ulps(weft::hypot(x, -y), std::hypot(double{x}, double{y})));
    }
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_EQ(weft::hypot(-kInfinity, std::nanf("")), kInfinity);
  EXPECT_TRUE(std::isnan(weft::hypot(1.0f, std::nanf(""))));
}

TEST(Math, PowersOfTheirBaseHaveExactLogarithms) {
  for (int n = -149; n < 128; ++n) EXPECT_EQ(weft::log2(std::ldexp(1.0f, n)), float(n));
  float power = 1;
  for (int n = 0; n <= 10; ++n, power *= 10) EXPECT_EQ(weft::log10(power), float(n));
}

TEST(Math, PowOfSpecialValues) {
  const float nan = std::nanf("");
  const float values[] = {0.0f, -0.0f, 1.0f,  -1.0f,     0.5f,       -0.5f, 2.0f,
                          -2.f, 3.0f,  -3.0f, kInfinity, -kInfinity, nan,   1e-42f};
  for (float x : values) {
    for (float y : values) {
      const float exact = std::pow(x, y), got = weft::pow(x, y);
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(got)) << x << " ^ " << y;
      } else {
        EXPECT_EQ(got, exact) << x << " ^ " << y;
        EXPECT_EQ(std::signbit(got), std::signbit(exact)) << x << " ^ " << y;
      }
    }
  }
}

TEST(Math, SpecialValues) {
  const float nan = std::nanf("");
  EXPECT_EQ(weft::exp(kInfinity), kInfinity);
  EXPECT_EQ(weft::exp(-kInfinity), 0.0f);
  EXPECT_EQ(weft::exp(0.0f), 1.0f);
  EXPECT_EQ(weft::log(0.0f), -kInfinity);
  EXPECT_EQ(weft::log(-0.0f), -kInfinity);
  EXPECT_EQ(weft::log(kInfinity), kInfinity);
  EXPECT_EQ(weft::log(1.0f), 0.0f);
  EXPECT_EQ(weft::tanh(kInfinity), 1.0f);
  EXPECT_EQ(weft::tanh(-kInfinity), -1.0f);
  EXPECT_EQ(weft::erf(kInfinity), 1.0f);
  EXPECT_EQ(weft::sigmoid(kInfinity), 1.0f);
  EXPECT_EQ(weft::sigmoid(-kInfinity), 0.0f);
  EXPECT_TRUE(std::signbit(weft::tanh(-0.0f)));
  EXPECT_TRUE(std::signbit(weft::erf(-0.0f)));
  for (float x : {nan, -nan}) {
    EXPECT_TRUE(std::isnan(weft::exp(x)));
    EXPECT_TRUE(std::isnan(weft::log(x)));
    EXPECT_TRUE(std::isnan(weft::tanh(x)));
    EXPECT_TRUE(std::isnan(weft::erf(x)));
    EXPECT_TRUE(std::isnan(weft::sigmoid(x)));
    EXPECT_TRUE(std::isnan(weft::sin(x)));
    EXPECT_TRUE(std::isnan(weft::cos(x)));
  }
  EXPECT_TRUE(std::isnan(weft::log(-1.0f)));
  EXPECT_TRUE(std::isnan(weft::sin(kInfinity)));
}

TEST(Math, TheGreaterAndTheLesserPassOnNaN) {
  const float nan = std::nanf("");
  EXPECT_EQ(maximum_of(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(minimum_of(1.0f, 2.0f), 1.0f);
  EXPECT_TRUE(std::isnan(maximum_of(nan, 2.0f)));
  EXPECT_TRUE(std::isnan(maximum_of(2.0f, nan)));
  EXPECT_TRUE(std::isnan(minimum_of(nan, 2.0f)));
  EXPECT_TRUE(std::isnan(minimum_of(2.0f, nan)));
  EXPECT_EQ(maximum_of(int64_t{3}, int64_t{-5}), 3);
}

TEST(Math, SpecialFunctionsOfFloats) {
  const Function above{"erfc", erfc_of, [](double x) { return std::erfc(x); }, 1};
  const Function gamma{"lgamma", lgamma_of, [](double x) { return std::lgamma(x); }, 2};
  for (const Function& f : {above, gamma}) {
    const float from = f.ours == lgamma_of ? 1e-30f : 1e-20f;
    for (const auto& [low, high, step] :
         {std::tuple(from, kInfinity, 9973u), std::tuple(0.3f, 11.0f, 101u)}) {
      double worst = 0;
      const auto first = std::bit_cast<uint32_t>(low), last = std::bit_cast<uint32_t>(high);
      for (uint64_t bits = first; bits <= last; bits += step) {
        const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
        worst = std::max(worst, ulps(f.ours(x), f.exact(static_cast<double>(x))));
        if (f.ours == lgamma_of) continue;
        worst = std::max(worst, ulps(f.ours(-x), f.exact(static_cast<double>(-x))));
      }
      EXPECT_LE(worst, f.bound) << f.name << " from " << low;
    }
  }
  for (float x = -30.25f; x < 0; x += 0.125f) {
    const double exact = std::lgamma(static_cast<double>(x));
    if (std::isinf(exact)) {
      EXPECT_EQ(lgamma_of(x), kInfinity);
    } else {
      EXPECT_NEAR(lgamma_of(x), exact, 1e-7 * std::fabs(exact) + 1e-11) << x;
    }
  }
  for (float y = 1e-3f; y < 3.8f; y += 1e-3f) {
    const auto x = static_cast<float>(std::erf(static_cast<double>(y)));
    if (x >= 1) break;
    // The slope carries the rounding of x to y.
    const double slope = 0.88622692545 * std::exp(static_cast<double>(y) * y);
    EXPECT_NEAR(erfinv_of(x), y, 4e-7 * y + 6e-8 * slope) << y;
    EXPECT_EQ(erfinv_of(-x), -erfinv_of(x));
  }
  EXPECT_EQ(erfinv_of(1), kInfinity);
  EXPECT_EQ(erfinv_of(-1), -kInfinity);
  EXPECT_TRUE(std::isnan(erfinv_of(1.5f)));
  EXPECT_EQ(lgamma_of(-kInfinity), kInfinity);
}

}  // namespace
}  // namespace weft
