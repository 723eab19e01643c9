// SPDX-License-Identifier: Apache-2.0
// Tensors whose parts along an axis have explicit sizes.
#include <numeric>

#include "tests/support/ranks.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/pattern.h"

namespace weft {

namespace {

/// Rows of each rank, by the number of ranks.
std::vector<int64_t> rows_of(int ranks) {
  std::vector<int64_t> rows = {3, 0, 1, 4, 2, 0};
  rows.resize(static_cast<size_t>(ranks));
  return rows;
}

/// A tensor of as many rows as `rows_of` says, from each rank's own ones.
Tensor from_rows(const DeviceMesh& mesh, const std::vector<double>& values, int64_t columns) {
  const std::vector<int64_t> rows = rows_of(mesh.size());
  const auto begin =
      std::accumulate(rows.begin(), rows.begin() + mesh.rank(), int64_t{0}) * columns;
  const int64_t mine = rows[static_cast<size_t>(mesh.rank())];
  const std::vector<double> own(values.begin() + begin, values.begin() + begin + mine * columns);
  Placements all(std::vector<Placement>(static_cast<size_t>(mesh.ndim()), Shard(0)));
  return from_local(from_values(own, {mine, columns}), mesh, all);
}

std::vector<std::vector<MeshAxis>> meshes() {
  return {{{"a", 1}}, {{"a", 3}}, {{"a", 4}}, {{"a", 2}, {"b", 2}}, {{"a", 2}, {"b", 1}, {"c", 3}}};
}

int64_t total_rows(const DeviceMesh& mesh) {
  const std::vector<int64_t> rows = rows_of(mesh.size());
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

}  // namespace

TEST(Parts, AreWhatEachRankGives) {
  for (const auto& axes : meshes()) {
    on_mesh(axes, [](const DeviceMesh& mesh) {
      const std::vector<double> values = small_numbers({total_rows(mesh), 2});
      const Tensor x = from_rows(mesh, values, 2);
      EXPECT_EQ(x.shape(), (Shape{total_rows(mesh), 2}));
      EXPECT_EQ(x.sharding().has_sizes(), mesh.size() > 1);
      EXPECT_EQ(x.box().shape[0], rows_of(mesh.size())[static_cast<size_t>(mesh.rank())]);
      expect_values(whole_values(x), values);
      // Chunks and back.
      const Tensor chunks = x.redistribute({Shard(0)});
      EXPECT_FALSE(chunks.sharding().has_sizes());
      expect_values(whole_values(chunks), values);
      const Tensor back = redistributed(chunks, x.sharding());
      EXPECT_EQ(back.to_vector<double>(), x.to_vector<double>());
    });
  }
}

TEST(Parts, OfChunkSizesAreChunks) {
  on_mesh({{"a", 3}}, [](const DeviceMesh& mesh) {
    const Sharding chunks(mesh, {Shard(0)});
    EXPECT_EQ(Sharding(mesh, {Shard{0, {2, 2, 1}}}), chunks);
    EXPECT_NE(Sharding(mesh, {Shard{0, {1, 2, 2}}}), chunks);
    const int64_t mine = mesh.rank() == 2 ? 1 : 2;
    EXPECT_EQ(from_local(numbers({mine}), mesh, {Shard(0)}).sharding(), chunks);
  });
}

TEST(Parts, StayWhereAnOpKeepsRows) {
  for (const auto& axes : meshes()) {
    on_mesh(axes, [](const DeviceMesh& mesh) {
      const int64_t rows = total_rows(mesh);
      const std::vector<double> values = small_numbers({rows, 4});
      const Tensor x = from_rows(mesh, values, 4), whole = from_values(values, {rows, 4});
      const Tensor w = distribute(numbers({4, 3}, 2), mesh, {}), w_whole = numbers({4, 3}, 2);
      Tensor y, normed, merged;
      const int64_t bytes = bytes_received(mesh, [&] {
        y = matmul(relu(x * 2.0 + x), w);
        normed = softmax(x);
        merged = reshape(x, {rows, 2, 2});
      });
      EXPECT_EQ(bytes, 0);
      EXPECT_EQ(y.sharding(), x.sharding());
      EXPECT_EQ(merged.sharding(), x.sharding());
      expect_values(whole_values(y), matmul(relu(whole * 3.0), w_whole).to_vector<double>());
      expect_values(whole_values(normed), softmax(whole).to_vector<double>());
      expect_values(whole_values(merged), values);
      expect_values(whole_values(sum(x, {0}, false)), sum(whole, {0}, false).to_vector<double>());
    });
  }
}

TEST(Parts, DivideMergedDims) {
  on_mesh({{"a", 3}}, [](const DeviceMesh& mesh) {
    const std::vector<double> values = small_numbers({4, 6});
    const Tensor x = from_rows(mesh, values, 6);
    const Tensor flat = reshape(x, {24});
    EXPECT_EQ(flat.sharding(), Sharding(mesh, {Shard{0, {18, 0, 6}}}));
    EXPECT_EQ(reshape(flat, {4, 6}).sharding(), x.sharding());
    // Parts that divide a row are redistributed first.
    const Tensor odd = redistributed(flat, Sharding(mesh, {Shard{0, {5, 0, 19}}}));
    expect_values(whole_values(reshape(odd, {4, 6})), values);
  });
}

TEST(Parts, OfTwoOperandsAreThoseOfOne) {
  on_mesh({{"a", 4}}, [](const DeviceMesh& mesh) {
    const std::vector<double> values = small_numbers({8, 2});
    const Tensor x = from_rows(mesh, values, 2);
    const Tensor y = distribute(numbers({8, 2}, 5), mesh, {Shard(0)});
    const Tensor z = distribute(numbers({8, 2}, 3), mesh, {Shard{0, {0, 0, 0, 8}}});
    const Tensor both = x + y, three = where(greater(z, 0.0), x, y);
    const Tensor expected = from_values(values, {8, 2}) + numbers({8, 2}, 5);
    expect_values(whole_values(both), expected.to_vector<double>());
    expect_values(whole_values(three), where(greater(numbers({8, 2}, 3), 0.0),
                                             from_values(values, {8, 2}), numbers({8, 2}, 5))
                                           .to_vector<double>());
  });
}

TEST(Parts, AreThoseOfTheGradient) {
  for (const auto& axes : meshes()) {
    on_mesh(axes, [](const DeviceMesh& mesh) {
      const int64_t rows = total_rows(mesh);
      const Tensor x = from_rows(mesh, small_numbers({rows, 4}), 4).set_requires_grad();
      const Tensor w = distribute(numbers({4, 3}, 2), mesh, {}).set_requires_grad();
      sum(square(matmul(x, w))).backward();
      const Tensor a = numbers({rows, 4}).set_requires_grad();
      const Tensor b = numbers({4, 3}, 2).set_requires_grad();
      sum(square(matmul(a, b))).backward();
      EXPECT_EQ(x.grad().sharding(), x.sharding());
      expect_values(whole_values(x.grad()), a.grad().to_vector<double>());
      expect_values(whole_values(w.grad()), b.grad().to_vector<double>());
    });
  }
}

/// The outer parts are chunks, the inner ones of explicit sizes.
TEST(Parts, OfTwoAxesMoveByIndex) {
  on_mesh({{"a", 2}, {"b", 2}}, [](const DeviceMesh& mesh) {
    const Sharding columns(mesh, {Shard(1), Shard{1, {0, 2, 0, 1}}});
    const Tensor x = numbers({8, 3}, 1, columns), whole = numbers({8, 3}, 1);
    const Tensor taken = take_along_dim(x, argsort(x, 0), 0);
    expect_values(whole_values(taken),
                  take_along_dim(whole, argsort(whole, 0), 0).to_vector<double>());
  });
}

TEST(Parts, OfIndicesAndValuesOverDifferentAxes) {
  on_mesh({{"a", 2}, {"b", 2}}, [](const DeviceMesh& mesh) {
    const std::vector<double> places = {4, 0, 1, 3};
    const Sharding sized(mesh, {Replicate(), Shard{0, {3, 1}}});
    const Tensor index = from_values(places, {4}, {.dtype = i64, .sharding = sized});
    const Tensor values = numbers({4, 2}, 3, Sharding(mesh, {Shard(0)}));
    const Tensor whole =
        index_add(numbers({5, 2}), 0, from_values(places, {4}, {.dtype = i64}), numbers({4, 2}, 3));
    for (const Placement& rows : {Placement(), Placement(Shard(0)), Placement(Shard(1))}) {
      const Tensor y = numbers({5, 2}, 0, Sharding(mesh, {rows}));
      expect_values(whole_values(index_add(y, 0, index, values)), whole.to_vector<double>());
    }
  });
}

TEST(Parts, OfOtherDimsStayInScans) {
  on_mesh({{"a", 2}, {"b", 2}, {"c", 2}}, [](const DeviceMesh& mesh) {
    const Sharding cut(mesh, {Shard{0, {3, 1}}, Shard(1), Shard(2)});
    const Tensor x = numbers({4, 4, 4}, 2, cut), whole = numbers({4, 4, 4}, 2);
    const Tensor sums = cumulative_sum(x, 2);
    EXPECT_EQ(sums.sharding(), cut);
    expect_values(whole_values(sums), cumulative_sum(whole, 2).to_vector<double>());
  });
}

TEST(Parts, OfAMaskedTensorAreMaskedAgain) {
  for (const auto& axes : meshes()) {
    on_mesh(axes, [](const DeviceMesh& mesh) {
      const int64_t n = total_rows(mesh);
      const std::vector<double> values = small_numbers({n, 1});
      const Tensor x = reshape(from_rows(mesh, values, 1), {n}), whole = from_values(values, {n});
      const Tensor once = masked_select(x, greater(x, -3.0));
      const Tensor twice = masked_select(once, less(once, 2.0));
      const Tensor first = masked_select(whole, greater(whole, -3.0));
      expect_values(whole_values(twice),
                    masked_select(first, less(first, 2.0)).to_vector<double>());
      expect_values(whole_values(nonzero(once)[0]), nonzero(first)[0].to_vector<double>());
      expect_values(whole_values(unique(once).values), unique(first).values.to_vector<double>());
    });
  }
}

TEST(Parts, ArePrintedAndExplained) {
  on_mesh({{"a", 4}}, [](const DeviceMesh& mesh) {
    const Tensor x = from_rows(mesh, small_numbers({8, 2}), 2);
    EXPECT_EQ(concat(x.sharding()), "mesh(a=4)[S(0: 3+0+1+4)]");
    const std::string text = explain(x, {Shard(0)});
    EXPECT_NE(text.find("S(0: 3+0+1+4) -> S(0)"), std::string::npos) << text;
  });
}

/// Sizes that depend on data are new in every step: nothing may grow with them.
TEST(Parts, AreForgottenWithTheirTensors) {
  on_mesh({{"a", 2}}, [](const DeviceMesh& mesh) {
    MeshGrid& grid = mesh.body()->grid();
    const size_t before = grid.shardings();
    const auto layouts = [&] { return mesh.body()->layouts.statistics(); };
    for (int64_t step = 3; step < 5000; ++step) {
      const Sharding sharding(mesh, {Shard{0, {step, 1}}});
      EXPECT_EQ(grid.shardings(), before + 1);
    }
    EXPECT_EQ(grid.shardings(), before);
    for (int64_t step = 0; step < 20000; ++step) {
      zeros({step + 4}, {.sharding = Sharding(mesh, {Shard{0, {step + 3, 1}}})});
    }
    // Cached layouts keep theirs.
    EXPECT_LE(grid.shardings(), before + static_cast<size_t>(layouts().entries));
  });
}

}  // namespace weft
