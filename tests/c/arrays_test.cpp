// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>

#include "tests/c/calls.h"

namespace weft {

/// Meshes of 1, 2, 3 and 2x2 ranks, with the axis that cuts.
struct MeshCase {
  int ranks;
  const char* axes;
  const char* rows;
  const char* columns;
};
static constexpr MeshCase kCases[] = {{1, "all", "S(0)", "S(1)"},
                                      {2, "all=2", "S(0)", "S(1)"},
                                      {3, "all", "S(0)", "all=S(1)"},
                                      {4, "a=2,b", "S(0),S(1)", "b=S(0),a=S(1)"}};

TEST(Arrays, AreWholeAgainFromAnyLayout) {
  for (const MeshCase& c : kCases) {
    on_ranks(c.ranks, [&] {
      const weft_mesh mesh = mesh_of(c.axes);
      for (const Sizes& shape : {Sizes{7, 5}, Sizes{2, 3}, Sizes{1, 4}, Sizes{0, 3}}) {
        const auto values = some_numbers(shape);
        const weft_tensor x = tensor_of(values, shape, mesh, c.rows);
        EXPECT_EQ(values_of(x), values);
        weft_tensor y = {0};
        EXPECT_OK(weft_redistribute(x, c.columns, &y));
        EXPECT_EQ(shape_of(y), shape);
        EXPECT_EQ(values_of(y), values);
        int64_t sizes[2], offset[2];
        EXPECT_OK(weft_tensor_local_shape(y, 2, sizes));
        EXPECT_OK(weft_tensor_local_offset(y, 2, offset));
        std::vector<double> part(static_cast<size_t>(sizes[0] * sizes[1]));
        EXPECT_OK(weft_local_to_array(y, WEFT_F64, sizes[0] * sizes[1], part.data()));
        for (int64_t i = 0; i < sizes[0] * sizes[1]; ++i) {
          const int64_t row = offset[0] + i / sizes[1], column = offset[1] + i % sizes[1];
          EXPECT_EQ(part[static_cast<size_t>(i)],
                    values[static_cast<size_t>(row * shape[1] + column)]);
        }
        EXPECT_OK(weft_tensor_free(x));
        EXPECT_OK(weft_tensor_free(y));
      }
    });
  }
}

TEST(Arrays, AreMadeOfPartsOfAnySize) {
  on_ranks(3, [] {
    int rank = -1, size = 0;
    EXPECT_OK(weft_rank(&rank));
    EXPECT_OK(weft_size(&size));
    EXPECT_EQ(size, 3);
    const weft_mesh mesh = mesh_of("all=3");
    int along = 0, coordinate = -1;
    EXPECT_OK(weft_mesh_axis_size(mesh, "all", &along));
    EXPECT_OK(weft_mesh_coordinate(mesh, "all", &coordinate));
    EXPECT_EQ(along, 3);
    EXPECT_EQ(coordinate, rank);
    // 2, 0 and 3 rows.
    const int64_t rows[] = {2, 0, 3}, begin[] = {0, 2, 2};
    std::vector<int64_t> all(10);
    std::iota(all.begin(), all.end(), 5);
    const int64_t shape[] = {rows[rank], 2}, whole[] = {5, 2};
    weft_tensor x = {0};
    EXPECT_OK(weft_from_local(rows[rank] ? all.data() + 2 * begin[rank] : nullptr, WEFT_I64, 2,
                              shape, mesh, "S(0)", &x));
    EXPECT_EQ(shape_of(x), (Sizes{5, 2}));
    std::vector<int64_t> values(10);
    EXPECT_OK(weft_to_array(x, WEFT_I64, 10, values.data()));
    EXPECT_EQ(values, all);
    weft_dtype dtype = -1;
    EXPECT_OK(weft_tensor_dtype(x, &dtype));
    EXPECT_EQ(dtype, WEFT_I64);
    // The same layout by its text.
    weft_tensor y = {0}, z = {0};
    EXPECT_OK(weft_from_array(all.data(), WEFT_I64, 2, whole, mesh, " S(0: 2+0+3) ", &y));
    int64_t local[2];
    EXPECT_OK(weft_tensor_local_shape(y, 2, local));
    EXPECT_EQ(local[0], rows[rank]);
    // A sum whose addends the ranks hold.
    const double addend = rank + 1;
    EXPECT_OK(weft_from_local(&addend, WEFT_F64, 0, nullptr, mesh, "P(sum)", &z));
    double sum = 0;
    EXPECT_OK(weft_item(z, &sum));
    EXPECT_EQ(sum, 6);
  });
}

/// c = a b for plain arrays.
static std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b,
                                   size_t m, size_t k, size_t n) {
  std::vector<double> c(m * n);
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t l = 0; l < k; ++l) c[i * n + j] += a[i * k + l] * b[l * n + j];
    }
  }
  return c;
}

using Unary = weft_status (*)(weft_tensor, weft_tensor*);

TEST(Arrays, ElementwiseOpsEqualLoops) {
  const Sizes shape = {5, 3};
  const auto a = some_numbers(shape), b = some_numbers(shape, 3);
  const std::pair<Unary, double (*)(double)> unary[] = {
      {weft_abs, [](double x) { return std::abs(x); }},
      {weft_exp, [](double x) { return std::exp(x); }},
      {weft_tanh, [](double x) { return std::tanh(x); }},
      {weft_sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {weft_relu, [](double x) { return std::max(x, 0.0); }},
      {weft_gelu, [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }},
      {weft_silu, [](double x) { return x / (1 + std::exp(-x)); }}};
  using Binary = weft_status (*)(weft_tensor, weft_tensor, weft_tensor*);
  const std::pair<Binary, double (*)(double, double)> binary[] = {
      {weft_add, [](double x, double y) { return x + y; }},
      {weft_sub, [](double x, double y) { return x - y; }},
      {weft_mul, [](double x, double y) { return x * y; }},
      {weft_div, [](double x, double y) { return x / y; }},
      {weft_maximum, [](double x, double y) { return std::max(x, y); }},
      {weft_minimum, [](double x, double y) { return std::min(x, y); }}};
  for (const MeshCase& c : kCases) {
    on_ranks(c.ranks, [&] {
      const weft_mesh mesh = mesh_of(c.axes);
      const weft_tensor x = tensor_of(a, shape, mesh, c.rows);
      const weft_tensor y = tensor_of(b, shape, mesh, c.columns);
      weft_tensor z = {0};
      std::vector<double> expected(a.size());
      for (const auto& [op, loop] : unary) {
        std::transform(a.begin(), a.end(), expected.begin(), loop);
        EXPECT_OK(op(x, &z));
        expect_close(values_of(z), expected);
      }
      for (const auto& [op, loop] : binary) {
        std::transform(a.begin(), a.end(), b.begin(), expected.begin(), loop);
        EXPECT_OK(op(x, y, &z));
        expect_close(values_of(z), expected, 1e-9);
      }
      // log(sqrt(|x|^2 * 3 + 1)).
      weft_tensor w = {0};
      EXPECT_OK(weft_abs(x, &w));
      EXPECT_OK(weft_pow_number(w, 2, &w));
      EXPECT_OK(weft_mul_number(w, 3, &w));
      EXPECT_OK(weft_add_number(w, 1, &w));
      EXPECT_OK(weft_sqrt(w, &w));
      EXPECT_OK(weft_log(w, &w));
      std::transform(a.begin(), a.end(), expected.begin(),
                     [](double v) { return std::log(std::sqrt(v * v * 3 + 1)); });
      expect_close(values_of(w), expected);
      EXPECT_OK(weft_pow(w, w, &z));
      std::transform(expected.begin(), expected.end(), expected.begin(),
                     [](double v) { return std::pow(v, v); });
      expect_close(values_of(z), expected);
    });
  }
}

TEST(Arrays, ProductsAndReductionsEqualLoops) {
  const auto a = some_numbers({7, 5}), b = some_numbers({5, 3}, 1), bias = some_numbers({7}, 2);
  const auto ab = product(a, b, 7, 5, 3);
  for (const MeshCase& c : kCases) {
    on_ranks(c.ranks, [&] {
      const weft_mesh mesh = mesh_of(c.axes);
      const weft_tensor x = tensor_of(a, {7, 5}, mesh, c.rows);
      const weft_tensor y = tensor_of(b, {5, 3}, mesh, c.columns);
      weft_tensor z = {0}, t = {0}, w = {0};
      EXPECT_OK(weft_matmul(x, y, &z));
      expect_close(values_of(z), ab);
      const weft_tensor pair[] = {x, y};
      EXPECT_OK(weft_einsum("mk,kn->mn", 2, pair, &w));
      expect_close(values_of(w), ab);
      // y^T x^T + bias, by a layer whose weight is x.
      EXPECT_OK(weft_transpose(y, 0, 1, &t));
      EXPECT_OK(weft_linear(t, x, tensor_of(bias, {7}, mesh), &w));
      std::vector<double> expected(21);
      for (size_t i = 0; i < 21; ++i) expected[i] = ab[i % 7 * 3 + i / 7] + bias[i % 7];
      expect_close(values_of(w), expected);

      std::vector<double> sums(3), largest(3, -INFINITY), smallest(3, INFINITY);
      for (size_t i = 0; i < 21; ++i) {
        sums[i % 3] += ab[i];
        largest[i % 3] = std::max(largest[i % 3], ab[i]);
        smallest[i % 3] = std::min(smallest[i % 3], ab[i]);
      }
      const int dim = 0;
      EXPECT_OK(weft_sum(z, 1, &dim, 0, &w));
      expect_close(values_of(w), sums);
      EXPECT_OK(weft_max(z, 1, &dim, 1, &w));
      EXPECT_EQ(shape_of(w), (Sizes{1, 3}));
      expect_close(values_of(w), largest);
      EXPECT_OK(weft_min(z, 1, &dim, 0, &w));
      expect_close(values_of(w), smallest);
      EXPECT_OK(weft_mean(z, 0, nullptr, 0, &w));
      double mean = 0;
      EXPECT_OK(weft_item(w, &mean));
      EXPECT_NEAR(mean, (sums[0] + sums[1] + sums[2]) / 21, 1e-12);
      EXPECT_OK(weft_softmax(z, &w));
      EXPECT_OK(weft_argmax(w, -1, &t));
      std::vector<int64_t> places(7);
      EXPECT_OK(weft_to_array(t, WEFT_I64, 7, places.data()));
      for (size_t i = 0; i < 7; ++i) {
        EXPECT_EQ(places[i], std::max_element(&ab[3 * i], &ab[3 * i] + 3) - &ab[3 * i]);
      }
    });
  }
}

TEST(Arrays, ShapesChange) {
  const auto a = some_numbers({6, 4});
  for (const MeshCase& c : kCases) {
    on_ranks(c.ranks, [&] {
      const weft_mesh mesh = mesh_of(c.axes);
      const weft_tensor x = tensor_of(a, {6, 4}, mesh, c.rows);
      weft_tensor y = {0}, z = {0};
      const int64_t shape[] = {2, 3, 4};
      EXPECT_OK(weft_reshape(x, 3, shape, &y));
      EXPECT_EQ(values_of(y), a);
      EXPECT_OK(weft_slice(x, 0, 1, -1, 2, &y));
      EXPECT_EQ(values_of(y)[4], a[12]);
      const weft_tensor both[] = {y, x};
      EXPECT_OK(weft_cat(2, both, 0, &z));
      EXPECT_EQ(shape_of(z), (Sizes{8, 4}));
      EXPECT_EQ(values_of(z)[8], a[0]);
      EXPECT_OK(weft_cast(x, WEFT_I32, &z));
      std::vector<int32_t> whole(24);
      EXPECT_OK(weft_to_array(z, WEFT_I32, 24, whole.data()));
      EXPECT_EQ(whole[0], -1);
    });
  }
}

TEST(Arrays, LookUpsAndLossesEqualLoops) {
  const auto table = some_numbers({5, 3});
  const int64_t rows[] = {4, 0, 4, 2}, shape[] = {4};
  for (const MeshCase& c : kCases) {
    on_ranks(c.ranks, [&] {
      const weft_mesh mesh = mesh_of(c.axes);
      weft_tensor ids = {0}, x = {0}, loss = {0}, targets = {0};
      EXPECT_OK(weft_from_array(rows, WEFT_I64, 1, shape, mesh, nullptr, &ids));
      EXPECT_OK(weft_embedding(tensor_of(table, {5, 3}, mesh, c.rows), ids, &x));
      std::vector<double> expected;
      for (const int64_t row : rows) {
        expected.insert(expected.end(), &table[static_cast<size_t>(3 * row)],
                        &table[static_cast<size_t>(3 * row)] + 3);
      }
      expect_close(values_of(x), expected);
      const int64_t classes[] = {2, 1, -100, 0};
      EXPECT_OK(weft_from_array(classes, WEFT_I64, 1, shape, mesh, nullptr, &targets));
      EXPECT_OK(weft_cross_entropy(x, targets, &loss));
      double found = 0, sum = 0;
      EXPECT_OK(weft_item(loss, &found));
      for (const size_t row : {0, 1, 3}) {
        const double* logits = &expected[3 * row];
        const double total = std::exp(logits[0]) + std::exp(logits[1]) + std::exp(logits[2]);
        sum += std::log(total) - logits[classes[row]];
      }
      EXPECT_NEAR(found, sum / 3, 1e-6);
    });
  }
}

TEST(Arrays, SolveEqualsWhatWasMultiplied) {
  const auto x = some_numbers({4, 2}, 5);
  auto a = some_numbers({4, 4});
  for (size_t i = 0; i < 4; ++i) a[5 * i] += 4;
  const auto b = product(a, x, 4, 4, 2);
  on_ranks(3, [&] {
    const weft_mesh mesh = mesh_of("all");
    weft_tensor found = {0};
    EXPECT_OK(weft_solve(tensor_of(a, {4, 4}, mesh, "S(0)"), tensor_of(b, {4, 2}, mesh), &found));
    expect_close(values_of(found), x, 1e-12);
  });
}

TEST(Arrays, RandomNumbersDoNotDependOnTheLayout) {
  std::vector<double> alone(15), uniform(15);
  const int64_t shape[] = {5, 3};
  const auto draw = [&](const char* placements, std::vector<double>& a, std::vector<double>& b) {
    const weft_mesh mesh = mesh_of("all");
    EXPECT_OK(weft_manual_seed(7));
    EXPECT_OK(weft_set_num_threads(1));
    weft_tensor x = {0};
    EXPECT_OK(weft_normal(1, 2, WEFT_F64, 2, shape, mesh, placements, &x));
    a = values_of(x);
    EXPECT_OK(weft_uniform(-1, 1, WEFT_F64, 2, shape, mesh, placements, &x));
    b = values_of(x);
    EXPECT_OK(weft_full(0.5, WEFT_F64, 2, shape, mesh, placements, &x));
    EXPECT_EQ(values_of(x), std::vector<double>(15, 0.5));
  };
  on_ranks(1, [&] { draw("", alone, uniform); });
  EXPECT_NE(alone[0], alone[1]);
  on_ranks(3, [&] {
    std::vector<double> a, b;
    draw("S(0)", a, b);
    EXPECT_EQ(a, alone);
    EXPECT_EQ(b, uniform);
  });
}

/// The loss of y = tanh(x w) against t, by loops.
static double loss_of(const std::vector<double>& x, const std::vector<double>& w,
                      const std::vector<double>& t) {
  const auto y = product(x, w, 6, 3, 2);
  double loss = 0;
  for (size_t i = 0; i < 12; ++i) loss += std::pow(std::tanh(y[i]) - t[i], 2) / 12;
  return loss;
}

TEST(Arrays, GradientsEqualDifferencesAndDescend) {
  const auto x = some_numbers({6, 3}), w = some_numbers({3, 2}, 1), t = some_numbers({6, 2}, 2);
  for (const MeshCase& c : kCases) {
    on_ranks(c.ranks, [&] {
      const weft_mesh mesh = mesh_of(c.axes);
      const weft_tensor in = tensor_of(x, {6, 3}, mesh, c.rows),
                        weight = tensor_of(w, {3, 2}, mesh);
      const weft_tensor target = tensor_of(t, {6, 2}, mesh, c.rows);
      EXPECT_OK(weft_set_requires_grad(weight, 1));
      double before = 0, after = 0;
      for (int step = 0; step < 2; ++step) {
        weft_tensor y = {0}, loss = {0}, gradient = {0};
        EXPECT_OK(weft_matmul(in, weight, &y));
        EXPECT_OK(weft_tanh(y, &y));
        EXPECT_OK(weft_mse_loss(y, target, &loss));
        EXPECT_OK(weft_item(loss, step == 0 ? &before : &after));
        EXPECT_OK(weft_backward(loss));
        EXPECT_OK(weft_grad(weight, &gradient));
        const auto found = values_of(gradient);
        for (size_t i = 0; i < 6 && step == 0; ++i) {
          auto more = w, less = w;
          more[i] += 1e-6;
          less[i] -= 1e-6;
          EXPECT_NEAR(found[i], (loss_of(x, more, t) - loss_of(x, less, t)) / 2e-6, 1e-8);
        }
        EXPECT_OK(weft_mul_number(gradient, -0.1, &gradient));
        EXPECT_OK(weft_add(weight, gradient, &gradient));
        EXPECT_OK(weft_assign(weight, gradient));
        EXPECT_OK(weft_zero_grad(weight));
        expect_failure(weft_grad(weight, &gradient), WEFT_INVALID, "gradient is missing");
      }
      EXPECT_NEAR(before, loss_of(x, w, t), 1e-12);
      EXPECT_LT(after, before);
    });
  }
}

TEST(Arrays, ScopesFreeWhatIsNotKept) {
  on_ranks(1, [] {
    const weft_tensor x = tensor_of({1, 2}, {2});
    uint64_t scope = 0;
    EXPECT_OK(weft_scope_begin(&scope));
    weft_tensor y = {0}, z = {0}, kept = {0};
    EXPECT_OK(weft_exp(x, &y));
    EXPECT_OK(weft_log(y, &kept));
    expect_failure(weft_scope_end(scope, 1, &z), WEFT_INVALID, "kept[0] is an empty handle");
    EXPECT_OK(weft_scope_end(scope, 1, &kept));
    expect_close(values_of(kept), values_of(x));
    expect_failure(weft_exp(y, &z), WEFT_INVALID, "a is freed");
    EXPECT_OK(weft_scope_end(scope, 0, nullptr));
    expect_failure(weft_exp(kept, &z), WEFT_INVALID, "a is freed");
    EXPECT_OK(weft_exp(x, &z));
  });
}

TEST(Arrays, TextsDescribeAndExplain) {
  on_ranks(2, [] {
    const weft_tensor x = tensor_of(some_numbers({4, 2}), {4, 2}, mesh_of("rows"), "S(0)");
    const char* text = nullptr;
    EXPECT_OK(weft_tensor_describe(x, &text));
    EXPECT_NE(std::string(text).find("[4, 2], f64, cpu, mesh(rows=2)[S(0)]"), std::string::npos)
        << text;
    EXPECT_OK(weft_explain(x, "R", &text));
    EXPECT_NE(std::string(text).find("received 32 B"), std::string::npos) << text;
    EXPECT_OK(weft_barrier());
  });
}

}  // namespace weft
