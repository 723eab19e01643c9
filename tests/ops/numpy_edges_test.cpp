// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <map>

#include "tests/ops/agreement.h"
#include "tests/ops/numpy_values.h"
#include "tests/support/scratch.h"

namespace weft {

// Edge cases of elementwise functions, against NumPy's results.

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);

/// A function of one tensor or of two.
struct Elementwise {
  Elementwise(Unary function) : of_one(function) {}
  Elementwise(Binary function) : of_two(function) {}
  Unary of_one = nullptr;
  Binary of_two = nullptr;
};

/// Functions by NumPy's names.
static const std::map<std::string, Elementwise>& functions() {
  static const std::map<std::string, Elementwise> all = {
      {"sin", sin},
      {"cos", cos},
      {"tan", tan},
      {"asin", asin},
      {"acos", acos},
      {"atan", atan},
      {"tanh", tanh},
      {"asinh", asinh},
      {"acosh", acosh},
      {"atanh", atanh},
      {"expm1", expm1},
      {"log", log},
      {"log1p", log1p},
      {"log2", log2},
      {"log10", log10},
      {"sqrt", sqrt},
      {"abs", abs},
      {"negative", neg},
      {"sign", sign},
      {"floor", floor},
      {"ceil", ceil},
      {"trunc", trunc},
      {"round", round},
      {"square", square},
      {"isfinite", isfinite},
      {"isinf", isinf},
      {"isnan", isnan},
      {"signbit", signbit},
      {"logical_not", logical_not},
      {"power", pow},
      {"floor_divide", floor_divide},
      {"remainder", remainder},
      {"atan2", atan2},
      {"hypot", hypot},
      {"copysign", copysign},
      {"logaddexp", logaddexp},
      {"nextafter", nextafter},
      {"maximum", maximum},
      {"minimum", minimum},
      {"logical_and", logical_and},
      {"logical_or", logical_or},
      {"logical_xor", logical_xor},
      {"bitwise_and", bitwise_and},
      {"bitwise_or", bitwise_or},
      {"bitwise_xor", bitwise_xor},
      {"bitwise_left_shift", bitwise_left_shift},
      {"bitwise_right_shift", bitwise_right_shift},
  };
  return all;
}

/// NumPy's values of floor_divide, but for infinite operands those of division, which the array API
/// asks for.
static std::vector<double> expected_values(const NumpyRow& row) {
  std::vector<double> values = row.values;
  if (row.name != std::string("floor_divide")) return values;
  const size_t n = kPairEdges.size();
  for (size_t i = 0; i < values.size(); ++i) {
    const double a = kPairEdges[i / n], b = kPairEdges[i % n];
    if (std::isinf(a) || std::isinf(b)) values[i] = a / b;
  }
  return values;
}

/// Compares finite values up to the relative bound; others, and the sign of zero, exactly.
static void expect_values(const Tensor& actual, const std::vector<double>& expected, double bound,
                          const std::string& what) {
  const std::vector<double> values = actual.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string where = what + " " + std::to_string(i);
    const double a = values[i], e = expected[i];
    if (std::isnan(e)) {
      EXPECT_TRUE(std::isnan(a)) << where << " is " << a;
    } else if (std::isinf(e)) {
      EXPECT_EQ(a, e) << where;
    } else {
      EXPECT_LE(std::abs(a - e), bound * std::abs(e)) << where << ": " << a << ", not " << e;
      EXPECT_TRUE(e != 0 || std::signbit(a) == std::signbit(e)) << where << " is " << a;
    }
  }
}

static double edge_bound(DType dtype) { return dtype == f32 ? 4e-7 : 1e-15; }

/// Operands [m, n] that contain all pairs.
static Tensors all_pairs(const std::vector<double>& left, const std::vector<double>& right,
                         DType dtype) {
  const auto m = static_cast<int64_t>(left.size()), n = static_cast<int64_t>(right.size());
  return {from_values(left, {m, 1}, {.dtype = dtype}),
          from_values(right, {1, n}, {.dtype = dtype})};
}

TEST(NumpyEdges, OfFunctionsOfOneNumber) {
  const auto n = static_cast<int64_t>(kEdges.size());
  for (DType dtype : {f32, f64}) {
    const Tensor x = from_values(kEdges, {n}, {.dtype = dtype});
    for (const NumpyRow& row : kNumpyUnary) {
      expect_values(functions().at(row.name).of_one(x), row.values, edge_bound(dtype),
                    row.name + std::string(" ") + std::string(name_of(dtype)));
    }
  }
}

TEST(NumpyEdges, OfFunctionsOfTwoNumbers) {
  for (DType dtype : {f32, f64}) {
    const Tensors x = all_pairs(kPairEdges, kPairEdges, dtype);
    for (const NumpyRow& row : kNumpyBinary) {
      if (dtype == f32 && row.name == std::string("nextafter")) continue;  // of f64
      expect_values(functions().at(row.name).of_two(x[0], x[1]), expected_values(row),
                    edge_bound(dtype), row.name + std::string(" ") + std::string(name_of(dtype)));
    }
  }
}

TEST(NumpyEdges, OfIntegers) {
  const Tensors x = all_pairs(kIntegerEdges, kIntegerEdges, i64);
  for (const NumpyRow& row : kNumpyInteger) {
    expect_values(functions().at(row.name).of_two(x[0], x[1]), row.values, 0, row.name);
  }
  const Tensors shifts = all_pairs(kIntegerEdges, kShiftEdges, i64);
  for (const NumpyRow& row : kNumpyShifts) {
    expect_values(functions().at(row.name).of_two(shifts[0], shifts[1]), row.values, 0, row.name);
  }
}

static Tensor of(DType dtype, const std::vector<double>& values) {
  return from_values(values, {static_cast<int64_t>(values.size())}, {.dtype = dtype});
}

static void expect_exactly(const Tensor& actual, DType dtype, const std::vector<double>& expected) {
  EXPECT_EQ(actual.dtype(), dtype);
  EXPECT_EQ(actual.to_vector<double>(), expected);
}

TEST(NumpyEdges, IntegersOfFewBitsKeepTheirDType) {
  expect_exactly(floor_divide(of(u8, {7, 200, 3}), of(u8, {2, 7, 0})), u8, {3, 28, 0});
  expect_exactly(remainder(of(u8, {7, 200, 3}), of(u8, {2, 7, 0})), u8, {1, 4, 0});
  expect_exactly(bitwise_invert(of(u8, {0, 1, 200})), u8, {255, 254, 55});
  expect_exactly(bitwise_invert(of(i32, {0, -1, 5})), i32, {-1, 0, -6});
  expect_exactly(bitwise_invert(of(boolean, {0, 1})), boolean, {1, 0});
  expect_exactly(bitwise_xor(of(boolean, {0, 1, 1}), of(boolean, {1, 1, 0})), boolean, {1, 0, 1});
  expect_exactly(bitwise_left_shift(of(u8, {3, 3, 3}), of(u8, {7, 1, 8})), u8, {128, 6, 0});
  expect_exactly(bitwise_left_shift(of(i32, {3, 1, 1}), of(i32, {30, 31, 32})), i32,
                 {-1073741824, -2147483648.0, 0});
  expect_exactly(bitwise_right_shift(of(i32, {-8, -8, 8}), of(i32, {1, 40, 40})), i32, {-4, -1, 0});
  expect_exactly(pow(of(u8, {2, 3, 0}), of(u8, {8, 5, 0})), u8, {0, 243, 1});
  expect_exactly(floor_divide(of(i32, {-2147483648.0}), of(i32, {-1})), i32, {-2147483648.0});
  expect_exactly(logical_and(of(i64, {0, 3, 4}), of(u8, {1, 1, 0})), boolean, {0, 1, 0});
}

TEST(NumpyEdges, TheLeastIntegerDividesByMinusOne) {
  const Tensor least = bitwise_left_shift(of(i64, {1}), of(i64, {63}));
  expect_exactly(floor_divide(least, of(i64, {-1})), i64, {-0x1p63});
  expect_exactly(remainder(least, of(i64, {-1})), i64, {0});
}

TEST(NumpyEdges, PowersOfIntegers) {
  // NumPy rejects negative exponents of integers; these are PyTorch's values.
  expect_exactly(pow(of(i64, {-3, 2, 1, -1, -1, 0, 5}), of(i64, {3, -1, -5, -3, -4, -2, 0})), i64,
                 {-27, 0, 1, -1, 1, 0, 1});
  expect_exactly(pow(of(i64, {3, -4}), 2), i64, {9, 16});
  expect_exactly(pow(of(i32, {4, 9}), 0.5), f32, {2, 3});
  expect_exactly(pow(2, of(i64, {0, 3, 62})), i64, {1, 8, 0x1p62});
  expect_exactly(pow(of(i64, {3}), of(i64, {39})), i64, {4052555153018976267.0});
}

TEST(NumpyEdges, ProductsOfMatricesOfIntegers) {
  const auto matrix = [](DType dtype, const std::vector<double>& values) {
    return from_values(values, {2, 2}, {.dtype = dtype});
  };
  // Values that a double cannot hold exactly.
  const Tensor large = matrix(i64, {0x1p53, 1, 3, 0x1p52}), ones = matrix(i64, {1, 0, 1, 1});
  expect_exactly(sub(matmul(large, ones), int64_t{1} << 53), i64,
                 {1, 1 - 0x1p53, 3 - 0x1p52, -0x1p52});
  expect_exactly(matmul(matrix(i32, {1, 2, 3, 4}), matrix(i64, {5, 6, 7, 8}).t()), i64,
                 {17, 23, 39, 53});
  expect_exactly(matmul(matrix(u8, {16, 1, 2, 3}), matrix(u8, {16, 1, 5, 7})), u8, {5, 23, 47, 23});
  expect_exactly(matmul(matrix(boolean, {1, 1, 0, 1}), matrix(boolean, {1, 0, 1, 0})), boolean,
                 {1, 0, 1, 0});
}

TEST(NumpyEdges, PowersOfANumber) {
  const std::vector<double> x = {kNan, kInf, -kInf, 0, -0.0, 4, 2.25};
  for (DType dtype : {f32, f64}) {
    for (double exponent : {2.0, 0.5, -1.0, 0.0, 3.0}) {
      std::vector<double> expected;
      for (double value : x) expected.push_back(std::pow(value, exponent));
      expect_values(pow(of(dtype, x), exponent), expected, edge_bound(dtype),
                    std::to_string(exponent));
    }
  }
}

TEST(NumpyEdges, GradientsOfPowersAtZero) {
  Tensor base = of(f64, {0, 0, 0, 2}), exponent = of(f64, {0, 1, 2, 0});
  base.set_requires_grad();
  exponent.set_requires_grad();
  sum(pow(base, exponent)).backward();
  EXPECT_EQ(base.grad().to_vector<double>(), (std::vector<double>{0, 1, 0, 0}));
  EXPECT_EQ(exponent.grad().to_vector<double>(), (std::vector<double>{0, 0, 0, std::log(2.0)}));
}

TEST(NumpyEdges, NextAfterIsOfTheDType) {
  const std::vector<double> from = {0, 0, 1, 1, -1, kInf, -0.0, kNan},
                            to = {1, -1, 2, 0, 0, 0, 0, 1};
  const auto steps = [&](DType dtype, double least, double ulp, double greatest) {
    expect_values(nextafter(of(dtype, from), of(dtype, to)),
                  {least, -least, 1 + ulp, 1 - ulp / 2, -1 + ulp / 2, greatest, 0, kNan}, 0,
                  std::string(name_of(dtype)));
  };
  steps(f64, 0x1p-1074, 0x1p-52, std::numeric_limits<double>::max());
  steps(f32, 0x1p-149, 0x1p-23, static_cast<double>(std::numeric_limits<float>::max()));
  steps(bf16, 0x1p-133, 0x1p-7, 0x1.fep127);
  steps(f16, 0x1p-24, 0x1p-10, 65504);
}

TEST(NumpyEdges, AnglesOfAnySize) {
  // Values of the C library in f64; the angles are exact in f32.
  const std::vector<double> x = {0x1p20, -0x1.8p30, 0x1.7p60, 0x1.fffffep127};
  for (DType dtype : {f32, f64}) {
    std::vector<double> sines, cosines, tangents;
    for (double value : x) {
      sines.push_back(std::sin(value));
      cosines.push_back(std::cos(value));
      tangents.push_back(std::tan(value));
    }
    expect_values(sin(of(dtype, x)), sines, edge_bound(dtype), "sin");
    expect_values(cos(of(dtype, x)), cosines, edge_bound(dtype), "cos");
    expect_values(tan(of(dtype, x)), tangents, edge_bound(dtype), "tan");
  }
}

TEST(NumpyEdges, IntegersAreRoundAlready) {
  for (Unary function : {floor, ceil, trunc, round}) {
    expect_exactly(function(of(i32, {-3, 7})), i32, {-3, 7});
  }
  EXPECT_EQ(sin(of(i64, {0})).dtype(), f32);
  EXPECT_EQ(atan2(of(i64, {1}), of(u8, {1})).dtype(), f32);
  EXPECT_EQ(hypot(of(i64, {1}), of(f64, {1})).dtype(), f64);
  expect_exactly(isfinite(of(i64, {0, 5})), boolean, {1, 1});
  expect_exactly(signbit(of(i32, {-1, 0})), boolean, {1, 0});
  expect_exactly(relu(of(i64, {-2, 3})), i64, {0, 3});
}

TEST(NumpyEdges, ADoubleDividesAnIntegerExactly) {
  const double large = 9007199254740991;  // beyond f32
  expect_exactly(div(of(i64, {large}), of(f64, {1})), f64, {large});
}

TEST(NumpyEdges, ReluHasNoGradientAtZero) {
  Tensor x = of(f32, {-1, 0, 2});
  x.set_requires_grad();
  sum(relu(x)).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 0, 1}));
  EXPECT_TRUE(std::isnan(relu(of(f32, {kNan})).item()));
}

TEST(NumpyEdges, SayWhatIsWrong) {
  const Tensor x = of(f32, {1, 2}), truth = of(boolean, {0, 1}), none;
  EXPECT_EQ(error_of([&] { bitwise_and(x, x); }),
            "bitwise_and: dtype of operand [2] is f32, expected an integer or bool");
  EXPECT_EQ(error_of([&] { bitwise_left_shift(truth, truth); }),
            "bitwise_left_shift: dtype of operand [2] is bool, expected an integer");
  EXPECT_EQ(error_of([&] { bitwise_invert(none); }),
            "bitwise_invert: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { floor(none); }), "floor: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { atan2(x, none); }), "atan2: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { pow(none, 2); }), "pow: no tensor is given, expected one");
}

}  // namespace weft
