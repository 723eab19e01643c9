// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/ops/agreement.h"
#include "weft/error.h"
#include "weft/storage.h"

namespace weft {

// Scans, sorts and selections along dims that are sharded, compared with one device: for these
// that is exact but for sums and products.

static const double kNan = std::numeric_limits<double>::quiet_NaN();
static const double kInf = std::numeric_limits<double>::infinity();

/// All placements of a tensor of `ndim` dims on one to four ranks, and on two by two.
static std::vector<LaidOut> all_layouts(int ndim) {
  std::vector<Placement> placements{Replicate()};
  for (int d = 0; d < ndim; ++d) placements.push_back(Shard(d));
  std::vector<LaidOut> layouts;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Placement& placement : placements) {
      layouts.push_back({{{"x", ranks}}, {{placement}}});
    }
  }
  for (const Placement& x : placements) {
    for (const Placement& y : placements) {
      layouts.push_back({{{"x", 2}, {"y", 2}}, {{x, y}}});
    }
  }
  return layouts;
}

static void expect_everywhere(const Function& function, const std::vector<Array>& operands,
                              double bound = 0) {
  for (const Array& operand : operands) {
    SCOPED_TRACE(concat(operand.shape, ' ', operand.dtype));
    expect_agreement(function, {operand}, all_layouts(operand.shape.ndim()), bound);
  }
}

/// Rows with equal elements, infinities and NaNs; fewer elements than ranks; none.
static std::vector<Array> difficult_rows() {
  Array special = random_array({3, 7}, -3, 3);
  for (double& value : special.values) value = std::floor(value);
  special.values[2] = special.values[5] = special.values[9] = kNan;
  special.values[3] = special.values[16] = kInf;
  special.values[10] = special.values[18] = -kInf;
  Array equal{{2, 6}, std::vector<double>(12, 2.5)}, infinite{{7}, std::vector<double>(7, -kInf)};
  return {special,
          equal,
          infinite,
          random_array({13}, -1, 1, f64),
          random_array({2, 9}, -4, 4, i32),
          random_array({11}, -100, 100, i64),
          random_array({9}, 0, 2, boolean),
          random_array({5}, 0, 255, u8),
          random_array({7, 2}, -1, 1, bf16),
          {{2, 0}, {}},
          {{1}, {3}}};
}

TEST(ShardedRows, Sort) {
  for (const bool descending : {false, true}) {
    expect_everywhere(
        [=](const Tensors& t) {
          const ValuesAndIndices sorted = sort_along(t[0], -1, descending);
          return Tensors{sorted.values, sorted.indices, argsort(t[0], 0, descending)};
        },
        difficult_rows());
  }
}

TEST(ShardedRows, FirstElements) {
  for (const bool largest : {false, true}) {
    expect_everywhere(
        [=](const Tensors& t) {
          Tensors results;
          for (const int64_t k : {int64_t{1}, t[0].size(-1) / 2, t[0].size(-1)}) {
            if (k > t[0].size(-1)) continue;
            const ValuesAndIndices found = topk(t[0], k, -1, largest);
            results.insert(results.end(), {found.values, found.indices});
          }
          return results;
        },
        difficult_rows());
  }
}

TEST(ShardedRows, Medians) {
  std::vector<Array> operands = difficult_rows();
  std::erase_if(operands, [](const Array& a) { return a.values.empty(); });
  expect_everywhere(
      [](const Tensors& t) {
        const ValuesAndIndices middle = median(t[0], -1), numbers = nanmedian(t[0], -1, true),
                               first = kthvalue(t[0], 1, -1),
                               last = kthvalue(t[0], t[0].size(0), 0);
        return Tensors{middle.values, middle.indices, numbers.values, numbers.indices,
                       first.values,  first.indices,  last.values,    last.indices};
      },
      operands);
}

TEST(ShardedRows, Quantiles) {
  const Array a = difficult_rows()[0], b = random_array({13}, -1, 1, f64);
  for (const char* between : {"linear", "lower", "higher", "nearest", "midpoint"}) {
    expect_everywhere(
        [=](const Tensors& t) {
          const std::vector<double> q{0, 0.3, 0.75, 1};
          return Tensors{quantile(t[0], q, -1, false, between),
                         quantile(t[0], 0.5, {}, true, between),
                         nanquantile(t[0], q, 0, true, between), nanquantile(t[0], 0.4)};
        },
        {a, b}, 1e-6);
  }
}

TEST(ShardedRows, Extremes) {
  expect_everywhere(
      [](const Tensors& t) {
        const ValuesAndIndices most = cummax(t[0], -1), least = cummin(t[0], 0);
        return Tensors{most.values, most.indices, least.values, least.indices};
      },
      difficult_rows(), 1e-6);
}

TEST(ShardedRows, Totals) {
  const Array a = random_array({3, 7}, -1.5, 1.5);
  Array zeros = a, wide = a;
  zeros.values[3] = zeros.values[10] = zeros.values[12] = 0;
  for (double& value : wide.values) value *= 60;
  wide.values[7] = -kInf;
  const auto totals = [](const Tensors& t) {
    Tensors results;
    for (const int dim : {0, t[0].ndim() - 1}) {
      results.push_back(cumulative_sum(t[0], dim, dim == 0));
      results.push_back(cumulative_prod(t[0], dim, dim == 0));
    }
    return results;
  };
  expect_everywhere(totals,
                    {a,
                     zeros,
                     random_array({2, 9}, -4, 4, i32),
                     random_array({9}, 0, 2, boolean),
                     random_array({7, 2}, -1, 1, f64),
                     {{2, 0}, {}},
                     {{1}, {3}}},
                    1e-5);
  expect_everywhere(
      [](const Tensors& t) {
        return Tensors{logcumsumexp(t[0], 0), logcumsumexp(t[0], -1)};
      },
      {a, wide, random_array({11}, -1, 1, f64), {{2, 0}, {}}}, 1e-5);
}

TEST(ShardedRows, DistinctElements) {
  std::vector<Array> operands = difficult_rows();
  expect_everywhere(
      [](const Tensors& t) {
        const Unique found = unique(t[0]);
        Tensors results = nonzero(t[0]);
        const Tensor values = unique_values(t[0]);
        EXPECT_EQ(values.numel(), found.values.numel());
        results.insert(results.end(),
                       {values, found.values, found.indices, found.inverse, found.counts});
        return results;
      },
      operands);
}

TEST(ShardedRows, Searches) {
  expect_everywhere(
      [](const Tensors& t) {
        const Tensor row = reshape(t[0], {t[0].numel()});
        const Tensor values = from_values(
            std::vector<double>{-2, 0, kNan, 1, 0.5, 3, kInf, -kInf}, {2, 4},
            {.dtype = is_floating(t[0].dtype()) ? t[0].dtype() : f32,
             .sharding = t[0].is_sharded() ? Sharding(t[0].sharding().mesh(), {}) : Sharding()});
        const Tensor rows = sort(t[0], -1), one = sort(row, 0);
        return Tensors{searchsorted(one, values), searchsorted(one, t[0], true),
                       searchsorted(rows, t[0]), searchsorted(row, values, false, argsort(row)),
                       bucketize(values, one, true)};
      },
      difficult_rows());
}

namespace {

/// A function of a tensor, and the bytes that a rank receives from others in it at most, where a
/// part of one row has `n` f32 elements and there are `k` parts.
struct Measured {
  const char* name;
  Function run;
  std::function<int64_t(int64_t n, int64_t k)> bytes;
};

/// Bytes to find boundaries: 8 rounds of 15 counts, two counts, and small results, from each part.
int64_t boundary_bytes(int64_t boundaries, int64_t k) {
  return (8 * 15 * 8 + 48) * boundaries * (k - 1);
}

std::vector<Measured> measured() {
  const auto totals = [](int64_t, int64_t k) { return 8 * (k - 1); };
  const auto extremes = [](int64_t, int64_t k) { return 16 * (k - 1); };
  const auto sorted = [](int64_t n, int64_t k) {
    return 12 * n + boundary_bytes(k - 1, k) + 32 * k;
  };
  const auto found = [](int64_t, int64_t k) { return boundary_bytes(2, k) + 256 * k; };
  return {
      {"cumulative_sum", [](const Tensors& t) { return Tensors{cumulative_sum(t[0], 0)}; }, totals},
      {"cumulative_prod", [](const Tensors& t) { return Tensors{cumulative_prod(t[0], 0)}; },
       totals},
      {"logcumsumexp", [](const Tensors& t) { return Tensors{logcumsumexp(t[0], 0)}; }, totals},
      {"cummax", [](const Tensors& t) { return Tensors{cummax(t[0], 0).values}; }, extremes},
      {"cummin", [](const Tensors& t) { return Tensors{cummin(t[0], 0).values}; }, extremes},
      {"sort", [](const Tensors& t) { return Tensors{sort(t[0], 0)}; }, sorted},
      {"argsort", [](const Tensors& t) { return Tensors{argsort(t[0], 0, true)}; }, sorted},
      {"topk", [](const Tensors& t) { return Tensors{topk(t[0], 10, 0).values}; },
       [](int64_t, int64_t k) { return (k - 1) * (8 + 8 + 10 * 12 + 8); }},
      {"topk of many",
       [](const Tensors& t) { return Tensors{topk(t[0], t[0].numel() / 5, 0).values}; },
       [](int64_t n, int64_t k) { return 12 * n * k / 5 + boundary_bytes(1, k) + 64 * k; }},
      {"kthvalue", [](const Tensors& t) { return Tensors{kthvalue(t[0], 100, 0).values}; }, found},
      {"median", [](const Tensors& t) { return Tensors{median(t[0], 0).values}; }, found},
      {"nanmedian", [](const Tensors& t) { return Tensors{nanmedian(t[0], 0).values}; }, found},
      {"quantile", [](const Tensors& t) { return Tensors{quantile(t[0], 0.3, 0)}; }, found},
      {"nanquantile", [](const Tensors& t) { return Tensors{nanquantile(t[0], 0.3, 0)}; }, found},
      {"searchsorted",
       [](const Tensors& t) {
         const Tensor values = zeros({10}, {.sharding = Sharding(t[0].sharding().mesh(), {})});
         return Tensors{searchsorted(t[0], values)};
       },
       [](int64_t, int64_t) { return 0; }},
      {"unique", [](const Tensors& t) { return Tensors{unique(t[0]).counts}; },
       [](int64_t n, int64_t k) { return 80 * n + boundary_bytes(k - 1, k) + 1024 * k; }},
      {"nonzero", [](const Tensors& t) { return nonzero(t[0]); },
       [](int64_t n, int64_t k) { return 16 * n + 512 * k; }},
      {"flip", [](const Tensors& t) { return Tensors{flip(t[0], {0})}; },
       [](int64_t n, int64_t) { return 4 * n; }},
      {"roll", [](const Tensors& t) { return Tensors{roll(t[0], {100}, {0})}; },
       [](int64_t n, int64_t) { return 8 * n; }},
  };
}

}  // namespace

/// Peak bytes of a rank in addition to the operand, and the bytes that it receives, at most over
/// the ranks.
static std::pair<int64_t, int64_t> cost_of(const Measured& what, int ranks, int64_t n) {
  const Array whole = random_array({n * ranks}, -1, 1);
  std::vector<std::pair<int64_t, int64_t>> costs(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator world) {
    DeviceMesh mesh(world, {{"x", ranks}});
    const Tensor a = whole.on(Sharding(mesh, {Shard(0)}));
    what.run({a});
    release_cached_memory();
    const int64_t bytes = engine_statistics().implicit_bytes;
    const int64_t before = memory_statistics().total.current;
    reset_peak_memory();
    what.run({a});
    costs[static_cast<size_t>(world.rank())] = {memory_statistics().total.peak - before,
                                                engine_statistics().implicit_bytes - bytes};
  });
  std::pair<int64_t, int64_t> most;
  for (const auto& [peak, bytes] : costs) {
    most = {std::max(most.first, peak), std::max(most.second, bytes)};
  }
  return most;
}

TEST(ShardedRows, NeedsMemoryForAPartAndTheStatedTraffic) {
  constexpr int64_t kPart = 1 << 14, kSmall = 1 << 14;
  for (const Measured& what : measured()) {
    const int64_t alone = cost_of(what, 2, kPart).first;
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(concat(what.name, " on ", ranks));
      const auto [peak, bytes] = cost_of(what, ranks, kPart);
      EXPECT_LE(peak, alone + alone / 4 + kSmall);
      EXPECT_LE(peak, 24 * kPart * 4 + kSmall);
      EXPECT_LE(bytes, what.bytes(kPart, ranks));
    }
  }
}

TEST(ShardedRows, GradientsNeedMemoryForAPart) {
  constexpr int64_t kPart = 1 << 14, kSmall = 1 << 14;
  for (Measured what : measured()) {
    const std::string name = what.name;
    if (name != "sort" && !name.starts_with("cum") && name != "logcumsumexp" && name != "flip") {
      continue;
    }
    what.run = [run = what.run](const Tensors& t) {
      const Tensor x = t[0].detach().set_requires_grad();
      backward({sum(run({x})[0])}, {});
      return Tensors{x.grad()};
    };
    const int64_t alone = cost_of(what, 2, kPart).first;
    for (const int ranks : {3, 4}) {
      SCOPED_TRACE(concat(what.name, " on ", ranks));
      EXPECT_LE(cost_of(what, ranks, kPart).first, alone + alone / 4 + kSmall);
    }
  }
}

}  // namespace weft
