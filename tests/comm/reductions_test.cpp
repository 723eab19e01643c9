// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "tests/comm/backends.h"

namespace weft {

class Reductions : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(All, Reductions, on_all_ranks(), case_name);

static constexpr ReduceOp kAllOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min};

static bool exists(ReduceOp op, DType dtype) { return op != ReduceOp::avg || is_floating(dtype); }

/// The reduction of all ranks' numbers at index i; exact, because the numbers are small.
static double reduced(ReduceOp op, DType dtype, int ranks, int64_t i) {
  double result = value_of(dtype, 0, i);
  for (int r = 1; r < ranks; ++r) {
    const double x = value_of(dtype, r, i);
    if (op == ReduceOp::max) {
      result = std::max(result, x);
    } else if (op == ReduceOp::min) {
      result = std::min(result, x);
    } else {
      result += x;
    }
  }
  if (op == ReduceOp::avg) result /= ranks;
  return dtype == boolean ? std::min(result, 1.0) : result;
}

static Numbers reduced_range(ReduceOp op, DType dtype, int ranks, int64_t begin, int64_t size) {
  Numbers numbers(dtype, size);
  for (int64_t i = 0; i < size; ++i) numbers.set(i, reduced(op, dtype, ranks, begin + i));
  return numbers;
}

TEST_P(Reductions, ReduceScatter) {
  run([&](Communicator world) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllOps) {
        if (!exists(op, dtype)) continue;
        for (const auto& counts : count_patterns(world.size())) {
          const int64_t own = count_of(counts, world.rank());
          Numbers whole = numbers_of(dtype, world.rank(), total_of(counts));
          Numbers part(dtype, own);
          const int64_t before = world.traffic().bytes;
          const Piece piece{
              .send = whole.data(), .recv = part.data(), .dtype = dtype, .counts = counts};
          world.reduce_scatter({&piece, 1}, op).wait();
          const int64_t offset = sum_of_first(counts, world.rank());
          ASSERT_EQ(part, reduced_range(op, dtype, world.size(), offset, own)) << op;
          ASSERT_EQ(world.traffic().bytes - before,
                    (world.size() - 1) * own * static_cast<int64_t>(size_of(dtype)));
        }
      }
    }
  });
}

TEST_P(Reductions, AllReduce) {
  run([&](Communicator world) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllOps) {
        if (!exists(op, dtype)) continue;
        for (const int64_t size : {0, 1, 3, 65, 9000}) {
          Numbers sent = numbers_of(dtype, world.rank(), size);
          Numbers got(dtype, size);
          const Piece piece{
              .send = sent.data(), .recv = got.data(), .dtype = dtype, .counts = {&size, 1}};
          world.all_reduce({&piece, 1}, op).wait();
          ASSERT_EQ(got, reduced_range(op, dtype, world.size(), 0, size)) << op;
          ASSERT_EQ(sent, numbers_of(dtype, world.rank(), size)) << "the source was written";
        }
      }
    }
  });
}

TEST_P(Reductions, InPlace) {
  run([&](Communicator world) {
    for (const DType dtype : {f32, bf16, i64}) {
      const int64_t size = 5000;
      Numbers numbers = numbers_of(dtype, world.rank(), size);
      const Piece piece{
          .send = numbers.data(), .recv = numbers.data(), .dtype = dtype, .counts = {&size, 1}};
      world.all_reduce({&piece, 1}, ReduceOp::sum).wait();
      ASSERT_EQ(numbers, reduced_range(ReduceOp::sum, dtype, world.size(), 0, size));

      for (const auto& counts : count_patterns(world.size())) {
        Numbers whole = numbers_of(dtype, world.rank(), total_of(counts));
        const int64_t offset = sum_of_first(counts, world.rank());
        const Piece part{
            .send = whole.data(), .recv = whole.at(offset), .dtype = dtype, .counts = counts};
        world.reduce_scatter({&part, 1}, ReduceOp::sum).wait();
        for (int64_t i = 0; i < total_of(counts); ++i) {
          const bool own = i >= offset && i < offset + count_of(counts, world.rank());
          ASSERT_EQ(whole.get(i), own ? reduced(ReduceOp::sum, dtype, world.size(), i)
                                      : value_of(dtype, world.rank(), i));
        }
      }
    }
  });
}

/// This rank's part of the ranks' sum, added to `part`.
static Numbers added_to(Numbers part, const Communicator& world, DType dtype,
                        const std::vector<int64_t>& counts) {
  Numbers whole = numbers_of(dtype, world.rank(), total_of(counts));
  const Piece piece{.send = whole.data(),
                    .recv = part.data(),
                    .dtype = dtype,
                    .counts = counts,
                    .recv_dtype = part.dtype(),
                    .accumulate = true};
  world.reduce_scatter({&piece, 1}, ReduceOp::sum).wait();
  return part;
}

TEST_P(Reductions, ResultOfAnotherDTypeAndAddedToWhatIsThere) {
  run([&](Communicator world) {
    for (const DType dtype : {f32, bf16, f16, f64}) {
      for (const DType into : {f32, bf16, f16, f64}) {
        for (const auto& counts : count_patterns(world.size())) {
          const int64_t own = count_of(counts, world.rank());
          const int64_t offset = sum_of_first(counts, world.rank());
          const Numbers part = added_to(Numbers(into, own, 3), world, dtype, counts);
          for (int64_t i = 0; i < own; ++i) {
            ASSERT_EQ(part.get(i), 3 + reduced(ReduceOp::sum, dtype, world.size(), offset + i));
          }
        }
        const int64_t size = 70;
        Numbers sent = numbers_of(dtype, world.rank(), size);
        Numbers got(into, size);
        const Piece piece{.send = sent.data(),
                          .recv = got.data(),
                          .dtype = dtype,
                          .counts = {&size, 1},
                          .recv_dtype = into};
        world.all_reduce({&piece, 1}, ReduceOp::max).wait();
        for (int64_t i = 0; i < size; ++i) {
          ASSERT_EQ(got.get(i), reduced(ReduceOp::max, dtype, world.size(), i));
        }
      }
    }
  });
}

TEST_P(Reductions, IntegersAndBoolsAddedToWhatIsThere) {
  run([&](Communicator world) {
    for (const DType dtype : {i8, u8, i32, u64, boolean}) {
      for (const auto& counts : count_patterns(world.size())) {
        const int64_t own = count_of(counts, world.rank());
        const int64_t offset = sum_of_first(counts, world.rank());
        const Numbers part = added_to(Numbers(dtype, own, 1), world, dtype, counts);
        for (int64_t i = 0; i < own; ++i) {
          const double sum = 1 + reduced(ReduceOp::sum, dtype, world.size(), offset + i);
          ASSERT_EQ(part.get(i), dtype == boolean ? 1 : sum) << dtype;
        }
      }
    }
  });
}

TEST_P(Reductions, GroupedPieces) {
  run([&](Communicator world) {
    const int64_t sizes[] = {5, 0, 700};
    Numbers a = numbers_of(f32, world.rank(), sizes[0]);
    Numbers b(bf16, 0);
    Numbers c = numbers_of(i32, world.rank(), sizes[2]);
    const Piece pieces[] = {
        {.send = a.data(), .recv = a.data(), .dtype = f32, .counts = {&sizes[0], 1}},
        {.send = b.data(), .recv = b.data(), .dtype = bf16, .counts = {&sizes[1], 1}},
        {.send = c.data(), .recv = c.data(), .dtype = i32, .counts = {&sizes[2], 1}}};
    world.all_reduce(pieces, ReduceOp::sum).wait();
    EXPECT_EQ(a, reduced_range(ReduceOp::sum, f32, world.size(), 0, sizes[0]));
    EXPECT_EQ(c, reduced_range(ReduceOp::sum, i32, world.size(), 0, sizes[2]));
  });
}

/// Numbers whose sum depends on the order and on the width of the additions.
static float rough(int rank, int64_t i) {
  return std::sin(static_cast<float>(rank * 31 + i)) * std::pow(10.0f, float((rank + i) % 5));
}

/// Adds the last sum to the one before.
static void join_last(std::vector<float>& sums) {
  const float last = sums.back();
  sums.pop_back();
  sums.back() += last;
}

TEST_P(Reductions, BitsAreThoseOfAdditionInATreeOverRanks) {
  if (!adds_in_tree()) GTEST_SKIP() << "it adds in another order";
  run([&](Communicator world) {
    for (const DType dtype : {f32, bf16, f16}) {
      const int64_t size = 3001;
      Numbers sent(dtype, size);
      for (int64_t i = 0; i < size; ++i) sent.set(i, rough(world.rank(), i));
      Numbers expected(dtype, size);
      for (int64_t i = 0; i < size; ++i) {
        Numbers term(dtype, 1);
        std::vector<float> sums;
        for (int r = 0; r < world.size(); ++r) {
          term.set(0, rough(r, i));
          sums.push_back(static_cast<float>(term.get(0)));
          for (int bits = r; bits % 2 == 1; bits /= 2) join_last(sums);
        }
        while (sums.size() > 1) join_last(sums);
        expected.set(i, sums[0]);
      }
      Numbers whole(dtype, size);
      const Piece piece{
          .send = sent.data(), .recv = whole.data(), .dtype = dtype, .counts = {&size, 1}};
      world.all_reduce({&piece, 1}, ReduceOp::sum).wait();
      EXPECT_EQ(whole, expected);

      std::vector<int64_t> counts(static_cast<size_t>(world.size()), 0);
      counts.back() = size - counts.size() + 1;
      for (size_t r = 0; r + 1 < counts.size(); ++r) counts[r] = 1;
      Numbers part(dtype, count_of(counts, world.rank()));
      const Piece cut{.send = sent.data(), .recv = part.data(), .dtype = dtype, .counts = counts};
      world.reduce_scatter({&cut, 1}, ReduceOp::sum).wait();
      for (int64_t i = 0; i < part.size(); ++i) {
        ASSERT_EQ(part.get(i), expected.get(sum_of_first(counts, world.rank()) + i));
      }
    }
  });
}

}  // namespace weft
