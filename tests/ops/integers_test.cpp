// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "src/base/numeric.h"
#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"

// Every integer dtype against arithmetic in 128 bits, reduced to the dtype's bits.

namespace weft {

__extension__ typedef __int128 Wide;

static constexpr DType kIntegers[] = {i8, i16, i32, i64, u8, u16, u32, u64};
static constexpr DType kEach[] = {f32, bf16, f16, f64, i8,  i16,    i32,
                                  i64, u8,   u16, u32, u64, boolean};

static Wide least_of(DType dtype) {
  return is_unsigned(dtype) ? 0 : -(Wide{1} << (8 * size_of(dtype) - 1));
}
static Wide most_of(DType dtype) { return least_of(dtype) + (Wide{1} << 8 * size_of(dtype)) - 1; }

/// The value modulo 2^bits, in the range of the dtype.
static Wide wrapped(Wide value, DType dtype) {
  const Wide range = Wide{1} << 8 * size_of(dtype);
  const Wide rest = ((value - least_of(dtype)) % range + range) % range;
  return rest + least_of(dtype);
}

/// The values around the ends of a dtype and around 0.
static std::vector<Wide> edges_of(DType dtype) {
  const Wide least = least_of(dtype), most = most_of(dtype);
  std::vector<Wide> edges = {least, least + 1, most / 2, most - 1, most, 0, 1, 3, 7};
  if (!is_unsigned(dtype)) edges.insert(edges.end(), {-1, -3, -7});
  return edges;
}

static Tensor made(const std::vector<Wide>& values, DType dtype, const Sharding& sharding = {}) {
  std::vector<uint64_t> bits;
  for (const Wide value : values) bits.push_back(static_cast<uint64_t>(value));
  return from_values(bits, {static_cast<int64_t>(bits.size())},
                     {.dtype = dtype, .sharding = sharding});
}

static std::vector<Wide> values_of(const Tensor& tensor) {
  const Tensor here = tensor.is_sharded() ? tensor.full_tensor() : tensor;
  std::vector<Wide> values;
  if (is_unsigned(here.dtype())) {
    for (const uint64_t value : here.to_vector<uint64_t>()) values.push_back(value);
  } else {
    for (const int64_t value : here.to_vector<int64_t>()) values.push_back(value);
  }
  return values;
}

/// All pairs of edges: the first and the second operand.
struct Pairs {
  explicit Pairs(DType dtype) {
    for (const Wide x : edges_of(dtype)) {
      for (const Wide y : edges_of(dtype)) a.push_back(x), b.push_back(y);
    }
  }
  std::vector<Wide> a, b;
};

template <class F>
static std::vector<Wide> expected_of(const Pairs& pairs, DType dtype, const F& f) {
  std::vector<Wide> values;
  for (size_t i = 0; i < pairs.a.size(); ++i) {
    values.push_back(wrapped(f(pairs.a[i], pairs.b[i]), dtype));
  }
  return values;
}

static Wide floor_of(Wide a, Wide b) {
  if (b == 0) return 0;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/// Calls `test` with all pairs of edges of each dtype, also as tensors.
static void for_pairs(const std::function<void(DType dtype, const Pairs& pairs, const Tensor& a,
                                               const Tensor& b)>& test) {
  for (const DType dtype : kIntegers) {
    SCOPED_TRACE(name_of(dtype));
    const Pairs pairs(dtype);
    test(dtype, pairs, made(pairs.a, dtype), made(pairs.b, dtype));
  }
}

TEST(Integers, WrapInArithmetic) {
  for_pairs([](DType dtype, const Pairs& pairs, const Tensor& a, const Tensor& b) {
    const auto expect = [&](const Tensor& actual, const auto& f) {
      EXPECT_EQ(actual.dtype(), dtype);
      EXPECT_TRUE(values_of(actual) == expected_of(pairs, dtype, f));
    };
    expect(add(a, b), [](Wide x, Wide y) { return x + y; });
    expect(sub(a, b), [](Wide x, Wide y) { return x - y; });
    expect(mul(a, b), [](Wide x, Wide y) { return x * y; });
    expect(neg(a), [](Wide x, Wide) { return -x; });
    expect(abs(a), [](Wide x, Wide) { return x < 0 ? -x : x; });
    expect(square(a), [&](Wide x, Wide) { return wrapped(x, i64) * wrapped(x, i64); });
    expect(sign(a), [](Wide x, Wide) { return Wide{x > 0} - Wide{x < 0}; });
    expect(floor_divide(a, b), floor_of);
    expect(remainder(a, b), [](Wide x, Wide y) { return y == 0 ? 0 : x - y * floor_of(x, y); });
    expect(fmod(a, b), [](Wide x, Wide y) { return y == 0 ? 0 : x % y; });
    expect(maximum(a, b), [](Wide x, Wide y) { return std::max(x, y); });
    expect(minimum(a, b), [](Wide x, Wide y) { return std::min(x, y); });
    expect(bitwise_and(a, b), [](Wide x, Wide y) { return x & y; });
    expect(bitwise_or(a, b), [](Wide x, Wide y) { return x | y; });
    expect(bitwise_xor(a, b), [](Wide x, Wide y) { return x ^ y; });
    expect(bitwise_invert(a), [](Wide x, Wide) { return ~x; });
    expect(where(less(a, b), a, b), [](Wide x, Wide y) { return x < y ? x : y; });
    const int bits = static_cast<int>(8 * size_of(dtype));
    const Tensor shift = made(std::vector<Wide>(pairs.a.size(), bits - 1), dtype);
    expect(bitwise_right_shift(a, shift), [&](Wide x, Wide) { return x >> (bits - 1); });
    expect(bitwise_left_shift(a, shift), [&](Wide x, Wide) { return x * (Wide{1} << (bits - 1)); });
  });
}

TEST(Integers, CompareByValue) {
  for_pairs([](DType, const Pairs& pairs, const Tensor& a, const Tensor& b) {
    const auto expect = [&](const Tensor& actual, const auto& f) {
      EXPECT_TRUE(values_of(actual) == expected_of(pairs, u8, f));
    };
    expect(less(a, b), [](Wide x, Wide y) { return Wide{x < y}; });
    expect(less_equal(a, b), [](Wide x, Wide y) { return Wide{x <= y}; });
    expect(greater(a, b), [](Wide x, Wide y) { return Wide{x > y}; });
    expect(equal(a, b), [](Wide x, Wide y) { return Wide{x == y}; });
    expect(not_equal(a, b), [](Wide x, Wide y) { return Wide{x != y}; });
    expect(logical_and(a, b), [](Wide x, Wide y) { return Wide{x != 0 && y != 0}; });
    expect(signbit(a), [](Wide x, Wide) { return Wide{x < 0}; });
  });
}

TEST(Integers, RaiseToPowersAndMultiplyMatrices) {
  for (const DType dtype : kIntegers) {
    SCOPED_TRACE(name_of(dtype));
    const std::vector<Wide> edges = edges_of(dtype);
    const Tensor a = made(edges, dtype);
    std::vector<Wide> cubes, products;
    Wide total = 0;
    for (const Wide x : edges) {
      cubes.push_back(wrapped(wrapped(x * x, dtype) * x, dtype));
      total = wrapped(total + wrapped(x * x, dtype), dtype);
    }
    EXPECT_TRUE(values_of(pow(a, 3)) == cubes);
    EXPECT_TRUE(values_of(pow(a, made(std::vector<Wide>(edges.size(), 3), dtype))) == cubes);
    const int64_t n = a.numel();
    const Tensor product = matmul(reshape(a, {1, n}), reshape(a, {n, 1}));
    EXPECT_EQ(product.dtype(), dtype);
    EXPECT_TRUE(values_of(product)[0] == total);
  }
}

/// The value converted as C++ converts it, through the element types.
static double converted(double value, DType from, DType to) {
  return visit(from, [&](auto source) {
    using From = typename decltype(source)::type;
    From x;
    if constexpr (is_half<From>) {
      x = From(static_cast<float>(value));
    } else {
      x = static_cast<From>(value);
    }
    return visit(to, [&](auto target) -> double {
      using To = typename decltype(target)::type;
      if constexpr (std::is_same_v<To, bool>) return static_cast<double>(x) != 0;
      if constexpr (is_half<To>) return static_cast<float>(To(before_half(x)));
      if constexpr (is_half<From>) return static_cast<double>(static_cast<To>(float(x)));
      if constexpr (!is_half<To> && !is_half<From>) return static_cast<double>(static_cast<To>(x));
    });
  });
}

TEST(Integers, CastBetweenAllDTypes) {
  for (const DType from : kEach) {
    std::vector<double> values = {0, 1, 2, 100, 127};
    const bool is_signed = is_floating(from) || (is_integer(from) && !is_unsigned(from));
    if (is_signed) values.insert(values.end(), {-1, -2, -100, -128});
    if (from == boolean) values = {0, 1};
    if (is_integer(from) && size_of(from) > 1) values.insert(values.end(), {255, 256, 30000});
    if (is_integer(from) && size_of(from) > 2) values.insert(values.end(), {65536, 2147483000});
    const Tensor given =
        from_values(values, {static_cast<int64_t>(values.size())}, {.dtype = from});
    const Tensor column = expand(reshape(given, {given.numel(), 1}), {given.numel(), 3});
    for (const DType to : kEach) {
      // Negative floats are undefined in C++ where the target has no sign; ours wrap.
      std::vector<double> expected;
      for (const double value : values) {
        const DType middle = is_floating(from) && is_integer(to) ? i64 : from;
        expected.push_back(converted(value, middle, to));
      }
      EXPECT_EQ(cast(given, to).to_vector<double>(), expected) << from << " to " << to;
      const Tensor turned = cast(column.t(), to);
      EXPECT_EQ(slice(turned, 0, 1, 2).to_vector<double>(), expected) << from << " to " << to;
    }
  }
}

TEST(Integers, PromoteAsInTheArrayApi) {
  EXPECT_EQ(promote(i8, i16), i16);
  EXPECT_EQ(promote(i8, u8), i16);
  EXPECT_EQ(promote(u8, i16), i16);
  EXPECT_EQ(promote(u16, i8), i32);
  EXPECT_EQ(promote(u16, i16), i32);
  EXPECT_EQ(promote(u32, i8), i64);
  EXPECT_EQ(promote(u32, i64), i64);
  EXPECT_EQ(promote(u8, u64), u64);
  EXPECT_EQ(promote(boolean, i8), i8);
  EXPECT_EQ(promote(u64, f16), f16);
  EXPECT_EQ(error_of([] { promote(u64, i8); }),
            "promote: dtypes are u64 and i8, expected ones whose values an integer dtype holds; "
            "cast one first");
  const Tensor bytes = ones({2}, {.dtype = u8}), shorts = ones({2}, {.dtype = i8});
  EXPECT_EQ(add(bytes, shorts).dtype(), i16);
  EXPECT_EQ(add(bytes, 1).dtype(), u8);
  EXPECT_EQ(add(bytes, 1.5).dtype(), f32);
}

TEST(Integers, SumUpInTheSameSign) {
  for (const DType dtype : kIntegers) {
    SCOPED_TRACE(name_of(dtype));
    const DType total = is_unsigned(dtype) ? u64 : i64;
    Wide expected = 0;
    for (const Wide value : edges_of(dtype)) expected = wrapped(expected + value, total);
    const Tensor a = made(edges_of(dtype), dtype);
    EXPECT_EQ(sum(a).dtype(), total);
    EXPECT_TRUE(values_of(sum(a))[0] == expected);
    EXPECT_EQ(prod(a).dtype(), total);
    EXPECT_TRUE(values_of(cumulative_sum(a, 0)).back() == expected);
  }
}

/// The values are not gathered over the 3 ranks.
TEST(Integers, AreOrderedReducedAndMovedInShards) {
  run_ranks(3, [](const Communicator& world) {
    const DeviceMesh mesh(world, {{"x", 3}});
    for (const DType dtype : kIntegers) {
      SCOPED_TRACE(name_of(dtype));
      std::vector<Wide> edges = edges_of(dtype);
      const Tensor a = made(edges, dtype, Sharding(mesh, {Shard(0)}));
      const auto most = std::max_element(edges.begin(), edges.end());
      const auto least = std::min_element(edges.begin(), edges.end());
      EXPECT_TRUE(values_of(max(a))[0] == *most);
      EXPECT_TRUE(values_of(min(a))[0] == *least);
      EXPECT_TRUE(values_of(argmax(a, 0))[0] == most - edges.begin());
      EXPECT_TRUE(values_of(argmin(a, 0))[0] == least - edges.begin());
      EXPECT_TRUE(values_of(flip(a, {0})) == std::vector<Wide>(edges.rbegin(), edges.rend()));
      EXPECT_TRUE(values_of(take(a, made({2, 0}, dtype, Sharding(mesh, {})), 0)) ==
                  (std::vector<Wide>{edges[2], edges[0]}));
      std::sort(edges.begin(), edges.end());
      EXPECT_TRUE(values_of(sort(a, 0)) == edges);
      EXPECT_TRUE(values_of(take_along_dim(a, argsort(a, 0), 0)) == edges);
      std::reverse(edges.begin(), edges.end());
      EXPECT_TRUE(values_of(sort(a, 0, true)) == edges);
      EXPECT_EQ(max(a).dtype(), dtype);
      EXPECT_EQ(sort(a, 0).dtype(), dtype);
      // Each rank has the whole: a sum over ranks wraps, the greatest of them does not.
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
        const Tensor parts = made(edges, dtype, Sharding(mesh, {Partial(op)}));
        std::vector<Wide> expected;
        for (const Wide x : edges) {
          expected.push_back(op == ReduceOp::sum ? wrapped(3 * x, dtype) : x);
        }
        EXPECT_TRUE(values_of(parts) == expected);
      }
    }
  });
}

TEST(Integers, NextToNumbersOf64BitsAreExact) {
  constexpr int64_t kLarge = (int64_t{1} << 53) + 1;
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const Tensor a = made({1, kLarge}, i64);
  EXPECT_TRUE(values_of(a + kLarge) == (std::vector<Wide>{kLarge + 1, 2 * kLarge}));
  EXPECT_TRUE(values_of(a - kLarge) == (std::vector<Wide>{1 - kLarge, 0}));
  EXPECT_TRUE(values_of(kLarge - a) == (std::vector<Wide>{kLarge - 1, 0}));
  EXPECT_TRUE(values_of(a * kLarge)[0] == kLarge);
  EXPECT_TRUE(values_of(equal(a, kLarge)) == (std::vector<Wide>{0, 1}));
  EXPECT_TRUE(values_of(pow(kLarge, made({1}, i64)))[0] == kLarge);
  EXPECT_TRUE(values_of(clip(a, {}, kLarge - 1))[1] == kLarge - 1);
  EXPECT_TRUE(values_of(full({1}, kMost, {.dtype = u64}))[0] == kMost);
  EXPECT_TRUE(values_of(made({0}, u64) + kMost)[0] == kMost);
  Tensor b = made({1, 2}, u64);
  add_(b, kMost - 1);
  EXPECT_TRUE(values_of(b) == (std::vector<Wide>{kMost, 0}));
  fill_(b, kMost);
  EXPECT_TRUE(values_of(b)[1] == kMost);
  EXPECT_EQ(error_of([&] { return a + kMost; }),
            "add: number is 1.84467e+19, expected one that i64 holds; cast the tensor first");
}

TEST(Integers, AFactoryStatesTheRangeOfItsDtype) {
  EXPECT_EQ(error_of([] { full({2}, 300, {.dtype = u8}); }),
            "full: value is 300, expected 0 to 255 for u8");
  EXPECT_EQ(error_of([] { full({2}, -129, {.dtype = i8}); }),
            "full: value is -129, expected -128 to 127 for i8");
  EXPECT_EQ(error_of([] { fill_(made({1}, u64), -1); }),
            "fill_: value is -1, expected 0 to 18446744073709551615 for u64");
  EXPECT_EQ(error_of([] { full({}, 0x1p63, {.dtype = i64}); }),
            "full: value is 9.22337e+18, expected -9223372036854775808 to 9223372036854775807 for "
            "i64");
  EXPECT_EQ(error_of([] { arange(0, 40000, 1, {.dtype = i16}); }),
            "arange: value is 39999, expected -32768 to 32767 for i16");
}

TEST(Integers, ArePrinted) {
  std::ostringstream out;
  out << made({most_of(u64), 0}, u64) << made({-128, 5}, i8);
  EXPECT_EQ(out.str(),
            "Tensor([2], u64, cpu)\n[18446744073709551615,                    0]"
            "Tensor([2], i8, cpu)\n[-128,    5]");
}

TEST(Integers, AreMadeFromVectorsOfTheirType) {
  EXPECT_EQ(from_values(std::vector<int8_t>{-1}, {1}).dtype(), i8);
  EXPECT_EQ(from_values(std::vector<int16_t>{-1}, {1}).dtype(), i16);
  EXPECT_EQ(from_values(std::vector<uint16_t>{1}, {1}).dtype(), u16);
  EXPECT_EQ(from_values(std::vector<uint32_t>{1}, {1}).dtype(), u32);
  EXPECT_EQ(from_values(std::vector<uint64_t>{1}, {1}).dtype(), u64);
}

TEST(Integers, UnsignedOnesOf64BitsAreOrderedBeyondTheSignBit) {
  constexpr double kHalf = 0x1p63, kMore = 0x1p63 + 2048;
  const Tensor a = from_values(std::vector<double>{1, kMore, 3, kHalf, 2}, {5}, {.dtype = u64});
  EXPECT_EQ(cummax(a, 0).values.to_vector<double>(),
            (std::vector<double>{1, kMore, kMore, kMore, kMore}));
  EXPECT_EQ(topk(a, 2).values.to_vector<double>(), (std::vector<double>{kMore, kHalf}));
  EXPECT_EQ(kthvalue(a, 5).values.to_vector<double>(), std::vector<double>{kMore});
  EXPECT_EQ(median(a, 0).values.to_vector<double>(), std::vector<double>{3});
  EXPECT_EQ(searchsorted(sort(a, 0), a).to_vector<double>(), (std::vector<double>{0, 4, 2, 3, 1}));
  const Tensor zeros_of = zeros({2}, {.dtype = u64});
  const Tensor places = from_values(std::vector<double>{0, 1, 0, 0, 1}, {5}, {.dtype = i64});
  EXPECT_EQ(scatter_reduce(zeros_of, 0, places, a, "amax").to_vector<double>(),
            (std::vector<double>{kHalf, kMore}));
}

}  // namespace weft
