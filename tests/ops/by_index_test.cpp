// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"
#include "weft/context.h"
#include "weft/extend/op_log.h"
#include "weft/ranks.h"
#include "weft/storage.h"

namespace weft {

// Reads and writes by index of a cut dim: the cut stays, and ranks exchange the named rows only.

static Tensor rows_of(const Shape& shape, const Sharding& sharding) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.product(); ++i) values.push_back(static_cast<double>(i));
  return from_values(values, shape, {.sharding = sharding});
}

static Tensor modulo(const Tensor& a, int64_t by) { return remainder(a, number_like(a, by)); }

static Tensor of(const std::vector<int64_t>& values, const Sharding& sharding) {
  return from_values(values, {static_cast<int64_t>(values.size())},
                     {.dtype = i64, .sharding = sharding});
}

static bool is_cut(const Tensor& tensor) { return tensor.sharding()[0] == Placement(Shard(0)); }

/// Runs `body` on the ranks of a mesh, with a sharding by rows.
static void on_ranks(int ranks,
                     const std::function<void(const Communicator&, const Sharding&)>& body) {
  run_ranks(ranks, [&](Communicator world) {
    body(world, Sharding(DeviceMesh(world, {{"x", ranks}}), {Shard(0)}));
  });
}

TEST(ByIndex, TheCutStays) {
  for (int ranks : {1, 2, 3, 4}) {
    on_ranks(ranks, [](const Communicator&, const Sharding& cut) {
      const Sharding whole(cut.mesh(), {});
      Tensor a = ones({9, 2}, {.sharding = cut});
      a.set_requires_grad();
      for (const Sharding& lie : {cut, whole}) {
        const Tensor index = of({8, 0, -1, 3, 3}, lie), src = ones({5, 2}, {.sharding = lie});
        const Tensor places = expand(unsqueeze(index, 1), {5, 2});
        for (const Tensor& made :
             {index_add(a, 0, index, src), index_copy(a, 0, index, src), index_fill(a, 0, index, 2),
              scatter_add(a, 0, places, src), scatter_along_dim(a, 0, places, src),
              scatter_along_dim(a, 0, places, 2), index_put(a, {{0, index}}, src, true),
              index_put(a, {{0, index}}, src)}) {
          EXPECT_TRUE(is_cut(made)) << made.sharding();
        }
        for (const Tensor& taken : {take(a, index, 0), take_along_dim(a, places, 0)}) {
          EXPECT_EQ(taken.shape(), (Shape{5, 2}));
          a.set_grad(Tensor());
          sum(taken).backward();
          EXPECT_TRUE(is_cut(a.grad())) << a.grad().sharding();
          EXPECT_EQ(a.grad().full_tensor().to_vector<double>(),
                    (std::vector<double>{1, 1, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2}));
        }
      }
    });
  }
}

/// The distinct rows among `wanted` that this rank's part of `size` rows does not have.
static int64_t remote_rows(const Tensor& wanted, int64_t size, int rank, int ranks) {
  const Chunk own = chunk_of(size, ranks, rank);
  std::set<int64_t> remote;
  for (int64_t i = 0; i < wanted.block().numel(); ++i) {
    const int64_t row = wanted.block().as<int64_t>()[i];
    if (row < own.offset || row >= own.offset + own.length) remote.insert(row);
  }
  return static_cast<int64_t>(remote.size());
}

TEST(ByIndex, MovesTheNamedRowsOnly) {
  for (int ranks : {2, 3, 4}) {
    on_ranks(ranks, [](const Communicator& world, const Sharding& cut) {
      const Tensor a = rows_of({50, 3}, cut);
      for (const std::vector<int64_t>& wanted :
           {std::vector<int64_t>{0, 49, 0, 0, 25, 25, 7, 49, 1, 1, 1},
            std::vector<int64_t>{4, 4, 4, 4, 4, 4, 4, 4}, std::vector<int64_t>{}}) {
        const Tensor index = of(wanted, cut);
        OpLog log;
        const int64_t before = world.traffic().bytes;
        const Tensor taken = take(a, index, 0);
        const int64_t bytes = world.traffic().bytes - before;
        EXPECT_TRUE(is_cut(taken));
        EXPECT_EQ(bytes, 12 * remote_rows(index, 50, world.rank(), world.size()));
        ASSERT_EQ(log.movements.size(), 1u);
        EXPECT_EQ(log.movements[0].steps[0].bytes, bytes);
        const Tensor all = taken.full_tensor();
        for (size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_EQ(all.block().as<float>()[3 * i + 1], static_cast<float>(3 * wanted[i] + 1));
        }
      }
    });
  }
}

/// Bytes that a call allocates at its peak, in addition to those already allocated.
template <class F> static int64_t peak_of(const F& call) {
  reset_peak_memory();
  const int64_t before = memory_statistics().total.current;
  call();
  return memory_statistics().total.peak - before;
}

TEST(ByIndex, TakesMemoryOfItsPartOnly) {
  for (int ranks : {2, 3, 4}) {
    on_ranks(ranks, [](const Communicator& world, const Sharding& cut) {
      const int64_t rows = 4096 * world.size(), width = 64, part = 4096 * width * 4;
      const Tensor a = ones({rows, width}, {.sharding = cut});
      const Tensor few = of({5, rows - 1, rows / 2, 5}, cut);
      const Tensor few_rows = ones({4, width}, {.sharding = cut});
      // A rank's part of the indices for as many rows as the tensor has.
      const Tensor many = modulo(mul(arange(rows, {.dtype = i64, .sharding = cut}), 7), rows);
      const Tensor elements = expand(unsqueeze(many, 1), {rows, 2});
      const Tensor narrow = ones({rows, 2}, {.sharding = cut});
      EXPECT_LT(peak_of([&] { take(a, few, 0); }), part / 8);
      EXPECT_LT(peak_of([&] { take(a, many, 0); }), 3 * part);
      EXPECT_LT(peak_of([&] { index_add(a, 0, few, few_rows); }), 3 * part);
      EXPECT_LT(peak_of([&] { index_add(a, 0, many, a); }), 5 * part);
      EXPECT_LT(peak_of([&] { index_copy(a, 0, few, few_rows); }), 2 * part);
      EXPECT_LT(peak_of([&] { index_copy(a, 0, many, a); }), 5 * part);
      EXPECT_LT(peak_of([&] { take_along_dim(narrow, elements, 0); }), part / 2);
      EXPECT_LT(peak_of([&] { scatter_add(narrow, 0, elements, narrow); }), part / 2);
    });
  }
}

TEST(ByIndex, AgreesWithOneDevice) {
  const auto apply = [](const Tensors& t) {
    const Tensor places = expand(unsqueeze(t[1], 1), {4, 3});
    return Tensors{take(t[0], t[1], 0),
                   take_along_dim(t[0], places, 0),
                   index_add(t[0], 0, t[1], t[2], 2),
                   index_copy(t[0], 0, t[1], t[2]),
                   scatter_add(t[0], 0, places, t[2]),
                   scatter_along_dim(t[0], 0, slice(places, 1, 0, 2), t[2]),
                   index_fill(t[0], 0, t[1], 3),
                   scatter_reduce(t[0], 0, slice(places, 1, 0, 2), t[2], "prod"),
                   scatter_reduce(t[0], 0, places, t[2], "amax", false),
                   index_reduce(t[0], 0, t[1], t[2], "amin"),
                   index_reduce(t[0], 0, t[1], t[2], "mean", false),
                   index(t[0], {{0, t[1]}, {1, modulo(t[1], 3)}}),
                   index_put(t[0], {{0, t[1]}, {1, modulo(t[1], 3)}}, 1.5, true)};
  };
  const Placements rows = {Shard(0)}, columns = {Shard(1)}, whole = {Replicate()};
  std::vector<LaidOut> layouts;
  for (int ranks : {2, 3, 4}) {
    layouts.push_back({{{"x", ranks}}, {rows, rows, rows}});
    layouts.push_back({{{"x", ranks}}, {rows, whole, columns}});
    layouts.push_back({{{"x", ranks}}, {whole, rows, rows}});
    layouts.push_back({{{"x", ranks}}, {columns, rows, whole}});
  }
  const std::vector<MeshAxis> square = {{"x", 2}, {"y", 2}};
  layouts.push_back(
      {square, {{Shard(0), Shard(1)}, {Shard(0), Replicate()}, {Shard(0), Shard(1)}}});
  layouts.push_back(
      {square, {{Shard(0), Shard(0)}, {Replicate(), Shard(0)}, {Shard(1), Shard(0)}}});
  layouts.push_back(
      {square, {{Replicate(), Shard(0)}, {Shard(0), Shard(0)}, {Shard(0), Shard(0)}}});
  for (unsigned seed : {3u, 4u}) {
    expect_agreement(apply,
                     {random_array({7, 3}, -2, 2), random_array({4}, -7, 7, i64, seed),
                      random_array({4, 3}, -2, 2)},
                     layouts);
  }
}

TEST(ByIndex, TheLastOfEqualIndicesStays) {
  on_ranks(3, [](const Communicator&, const Sharding& cut) {
    Tensor a = zeros({4}, {.sharding = cut}), src = arange(1, 7, 1, {.sharding = cut});
    src.set_requires_grad();
    const Tensor put = index_copy(a, 0, of({2, 0, 2, 0, 0, 3}, cut), src);
    EXPECT_EQ(put.full_tensor().to_vector<double>(), (std::vector<double>{5, 0, 3, 6}));
    sum(put).backward();
    EXPECT_EQ(src.grad().full_tensor().to_vector<double>(),
              (std::vector<double>{0, 0, 1, 0, 1, 1}));
  });
}

TEST(ByIndex, AMistakeOfOneRankIsTheErrorOfAll) {
  on_ranks(3, [](const Communicator&, const Sharding& cut) {
    const Tensor a = ones({9, 2}, {.sharding = cut});
    const Tensor wrong = of({0, 1, 9}, cut), zero = of({0, 0, 0}, cut);
    EXPECT_EQ(error_of([&] { take(a, wrong, 0); }),
              "take: index is 9, expected one of the 9 elements of dim 0");
    EXPECT_EQ(error_of([&] {
                index_copy(a, 0, wrong, ones({3, 2}, {.sharding = cut}));
              }),
              "put_slices: index is 9, expected one of the 9 elements of dim 0");
    EXPECT_EQ(error_of([&] {
                index(a, {{0, wrong}, {1, zero}});
              }),
              "index: index of dim 0 of [9, 2] is 9, expected -9 to 8");
    EXPECT_EQ(error_of([&] {
                embedding(a, of({0, 1, -1}, cut));
              }),
              "embedding: id is -1, expected one below 9, the rows of the weight [9, 2]");
    EXPECT_EQ(take(a, zero, 0).full_tensor().to_vector<double>(), std::vector<double>(6, 1));
  });
}

TEST(ByIndex, ForbiddenTrafficIsRefused) {
  on_ranks(2, [](const Communicator&, const Sharding& cut) {
    const Tensor a = ones({4, 2}, {.sharding = cut}), index = of({0, 3}, cut);
    const TrafficScope scope(Traffic::free_only);
    EXPECT_NE(error_of([&] { take(a, index, 0); }).find("traffic policy demands"),
              std::string::npos);
  });
}

TEST(ByIndex, AnEmbeddingCutAsItsIdsExchangesRows) {
  on_ranks(4, [](const Communicator& world, const Sharding& cut) {
    Tensor weight = rows_of({101, 2}, cut);
    weight.set_requires_grad();
    const Tensor ids = reshape(of({100, 0, 0, 50, 50, 50, 3, 100}, cut), {4, 2});
    const int64_t before = world.traffic().bytes;
    const Tensor rows = embedding(weight, ids);
    EXPECT_EQ(world.traffic().bytes - before, 8 * remote_rows(ids, 101, world.rank(), 4));
    EXPECT_TRUE(is_cut(rows));
    EXPECT_EQ(
        rows.full_tensor().to_vector<double>(),
        (std::vector<double>{200, 201, 0, 1, 0, 1, 100, 101, 100, 101, 100, 101, 6, 7, 200, 201}));
    sum(rows).backward();
    EXPECT_TRUE(is_cut(weight.grad()));
    const std::vector<double> gradient = weight.grad().full_tensor().to_vector<double>();
    EXPECT_EQ(gradient[0], 2);
    EXPECT_EQ(gradient[100], 3);
    EXPECT_EQ(gradient[200], 2);
  });
}

TEST(ByIndex, AProductWithZerosHasItsGradients) {
  on_ranks(2, [](const Communicator&, const Sharding& cut) {
    Tensor a = from_values(std::vector<double>{2, 3, 0}, {3}, {.sharding = cut});
    Tensor src = from_values(std::vector<double>{0, 5, 0, 0, 7}, {5}, {.sharding = cut});
    a.set_requires_grad();
    src.set_requires_grad();
    sum(scatter_reduce(a, 0, of({0, 0, 1, 1, 2}, cut), src, "prod")).backward();
    EXPECT_EQ(a.grad().full_tensor().to_vector<double>(), (std::vector<double>{0, 0, 7}));
    EXPECT_EQ(src.grad().full_tensor().to_vector<double>(), (std::vector<double>{10, 0, 0, 0, 0}));
  });
}

TEST(ByIndex, HalvesAreAddedInF32) {
  on_ranks(2, [](const Communicator&, const Sharding& cut) {
    const Tensor a = zeros({2}, {.dtype = bf16, .sharding = cut});
    const Tensor all_of_one = zeros({1024}, {.dtype = i64, .sharding = cut});
    const Tensor made = index_add(a, 0, all_of_one, ones({1024}, {.dtype = bf16, .sharding = cut}));
    EXPECT_EQ(made.full_tensor().to_vector<double>(), (std::vector<double>{1024, 0}));
  });
}

}  // namespace weft
