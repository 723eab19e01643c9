// SPDX-License-Identifier: Apache-2.0
#include "weft/linalg.h"

#include "tests/ops/agreement.h"
#include "tests/support/processes.h"
#include "weft/derivatives.h"
#include "weft/error.h"
#include "weft/threads.h"

namespace weft {

// tests/python/linalg_test.py compares values with NumPy and SciPy; here are layouts, derivatives
// and errors.

using linalg::FactorAndInfo;

static Tensor t(const Tensor& a) { return matrix_transpose(a); }
static Tensor identity_like(const Tensor& a) {
  TensorOptions options{.dtype = a.dtype()};
  if (a.is_sharded()) options.sharding = Sharding(a.sharding().mesh(), Placements{});
  return eye(a.size(-1), a.size(-1), 0, options);
}
/// A positive definite matrix, and a symmetric one, of any square one.
static Tensor definite(const Tensor& a) { return add(matmul(a, t(a)), identity_like(a)); }
static Tensor symmetric(const Tensor& a) { return add(a, t(a)); }

struct Case {
  const char* name;
  Function function;
  std::vector<Shape> shapes;
};

/// Results that do not depend on the signs of vectors, of operands of a batch of 5.
static std::vector<Case> cases() {
  const Shape square{5, 4, 4}, right{5, 4, 3}, tall{5, 4, 3}, wide{5, 3, 4};
  return {
      {"cholesky", [](auto& x) { return Tensors{linalg::cholesky(definite(x[0]))}; }, {square}},
      {"upper", [](auto& x) { return Tensors{linalg::cholesky(definite(x[0]), true)}; }, {square}},
      {"cholesky_solve",
       [](auto& x) {
         return Tensors{linalg::cholesky_solve(x[1], linalg::cholesky(definite(x[0])))};
       },
       {square, right}},
      {"lu",
       [](auto& x) {
         const linalg::Lu f = linalg::lu(x[0]);
         return Tensors{f.p, f.l, f.u};
       },
       {square}},
      {"lu of tall",
       [](auto& x) {
         const linalg::Lu f = linalg::lu(x[0]);
         return Tensors{f.l, f.u};
       },
       {tall}},
      {"lu of wide",
       [](auto& x) {
         const linalg::Lu f = linalg::lu(x[0]);
         return Tensors{f.l, f.u};
       },
       {wide}},
      {"lu_solve",
       [](auto& x) {
         const linalg::LuFactors f = linalg::lu_factor(x[0]);
         return Tensors{linalg::lu_solve(f.lu, f.pivots, x[1]),
                        linalg::lu_solve(f.lu, f.pivots, x[1], true)};
       },
       {square, right}},
      {"qr",
       [](auto& x) {
         const linalg::Qr f = linalg::qr(x[0]);
         return Tensors{f.q, f.r};
       },
       {tall}},
      {"qr of wide",
       [](auto& x) {
         const linalg::Qr f = linalg::qr(x[0]);
         return Tensors{f.q, f.r};
       },
       {wide}},
      {"svd",
       [](auto& x) {
         const linalg::Svd f = linalg::svd(x[0], false);
         return Tensors{mul(f.u, f.u), f.s, matmul(mul(f.u, unsqueeze(f.s, -2) + 1), f.vh)};
       },
       {tall}},
      {"svd of wide",
       [](auto& x) {
         const linalg::Svd f = linalg::svd(x[0], false);
         return Tensors{mul(f.vh, f.vh), f.s, matmul(mul(f.u, exp(unsqueeze(f.s, -2))), f.vh)};
       },
       {wide}},
      {"svdvals", [](auto& x) { return Tensors{linalg::svdvals(x[0])}; }, {wide}},
      {"eigh",
       [](auto& x) {
         const linalg::Eigh f = linalg::eigh(symmetric(x[0]));
         const Tensor scaled = mul(f.eigenvectors, unsqueeze(sin(f.eigenvalues), -2));
         return Tensors{f.eigenvalues, matmul(scaled, t(f.eigenvectors)),
                        mul(f.eigenvectors, f.eigenvectors)};
       },
       {square}},
      {"eigvalsh",
       [](auto& x) { return Tensors{linalg::eigvalsh(symmetric(x[0]), true)}; },
       {square}},
      {"solve", [](auto& x) { return Tensors{linalg::solve(x[0], x[1])}; }, {square, right}},
      {"solve one matrix",
       [](auto& x) { return Tensors{linalg::solve(x[0], x[1])}; },
       {{4, 4}, right}},
      {"solve a vector", [](auto& x) { return Tensors{linalg::solve(x[0], x[1])}; }, {square, {4}}},
      {"solve from the right",
       [](auto& x) { return Tensors{linalg::solve(x[0], x[1], false)}; },
       {square, wide}},
      {"solve_triangular",
       [](auto& x) {
         return Tensors{linalg::solve_triangular(definite(x[0]), x[1], true),
                        linalg::solve_triangular(definite(x[0]), t(x[1]), false, false),
                        linalg::solve_triangular(x[0], x[1], false, true, true)};
       },
       {square, right}},
      {"inv", [](auto& x) { return Tensors{linalg::inv(x[0])}; }, {square}},
      {"det", [](auto& x) { return Tensors{linalg::det(x[0])}; }, {square}},
      {"slogdet",
       [](auto& x) {
         const auto f = linalg::slogdet(x[0]);
         return Tensors{f.logabsdet, f.sign};
       },
       {square}},
      {"pinv", [](auto& x) { return Tensors{linalg::pinv(x[0])}; }, {tall}},
      {"lstsq", [](auto& x) { return Tensors{linalg::lstsq(x[0], x[1])}; }, {wide, {5, 3, 2}}},
      {"matrix_power",
       [](auto& x) {
         return Tensors{linalg::matrix_power(x[0], 5), linalg::matrix_power(x[0], -3)};
       },
       {square}},
      {"cond",
       [](auto& x) {
         return Tensors{linalg::cond(x[0]), linalg::cond(x[0], 1)};
       },
       {square}},
      {"norms",
       [](auto& x) {
         return Tensors{matrix_norm(x[0], 2.0), matrix_norm(x[0], -2.0, true),
                        linalg::nuclear_norm(x[0])};
       },
       {tall}},
  };
}

/// Random matrices plus twice the identity: well conditioned.
static std::vector<Array> operands_of(const Case& one, DType dtype) {
  std::vector<Array> operands;
  for (size_t i = 0; i < one.shapes.size(); ++i) {
    const Shape& shape = one.shapes[i];
    operands.push_back(random_array(shape, -1, 1, dtype, static_cast<unsigned>(i) + 3));
    if (i > 0 || shape.ndim() < 2) continue;
    const int64_t columns = shape.back(), rows = shape[shape.ndim() - 2];
    for (size_t e = 0; e < operands[0].values.size(); ++e) {
      const int64_t at = static_cast<int64_t>(e) % (rows * columns);
      if (at / columns == at % columns) operands[0].values[e] += 2;
    }
  }
  return operands;
}

class Linalg : public testing::TestWithParam<size_t> {};

TEST_P(Linalg, EqualsOneDeviceInEveryLayout) {
  const Case one = cases()[GetParam()];
  std::vector<LaidOut> layouts;
  // The sweep has Partial operands.
  const std::vector<Placement> choices = {Replicate(), Shard(0), Shard(1), Shard(2)};
  const auto fits = [](const Placement& placement, const Shape& shape) {
    return !placement.is_shard() || placement.dim() < shape.ndim();
  };
  const auto add_all = [&](std::vector<MeshAxis> axes, size_t a, size_t b) {
    std::vector<Placements> operands;
    for (size_t i = 0; i < one.shapes.size(); ++i) {
      std::vector<Placement> own;
      for (size_t axis = 0; axis < axes.size(); ++axis) {
        Placement placement = choices[(a + axis * b + i) % choices.size()];
        if (!fits(placement, one.shapes[i])) placement = Shard(0);
        if (axis > 0 && placement == own[0]) placement = Replicate();
        own.push_back(placement);
      }
      operands.push_back(Placements(own));
    }
    layouts.push_back({axes, operands});
  };
  for (size_t a = 0; a < choices.size(); ++a) {
    add_all({{"a", 4}}, a, 0);
    add_all({{"a", 3}}, a, 0);
    add_all({{"a", 2}, {"b", 2}}, a, 1 + a % 3);
  }
  add_all({{"a", 1}}, 0, 0);
  expect_agreement(one.function, operands_of(one, f64), layouts, 1e-9);
}

TEST_P(Linalg, HasFirstAndSecondDerivatives) {
  const Case one = cases()[GetParam()];
  Tensors inputs;
  for (const Array& operand : operands_of(one, f64)) {
    const Tensor input = operand.on();
    inputs.push_back(input.ndim() > 2 ? slice(input, 0, 0, 2) : input);
  }
  Tensors leaves;
  for (const Tensor& input : inputs) leaves.push_back(input.detach().set_requires_grad());
  std::vector<size_t> differentiable;
  const Tensors all = one.function(leaves);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].requires_grad()) differentiable.push_back(i);
  }
  const auto function = [&](const Tensors& given) {
    const Tensors found = one.function(given);
    Tensors results;
    for (const size_t i : differentiable) results.push_back(found[i]);
    return results;
  };
  EXPECT_EQ(gradcheck(function, inputs), "") << one.name;
  EXPECT_EQ(gradgradcheck(function, inputs), "") << one.name;
}

INSTANTIATE_TEST_SUITE_P(Cases, Linalg, testing::Range(size_t{0}, cases().size()));

/// A cut of the batch, or of the columns of the right-hand side, moves nothing.
TEST(Linalg, CutsOfTheBatchStay) {
  on_mesh({{"a", 4}}, [](const DeviceMesh& mesh) {
    const Case one{"", {}, {{5, 4, 4}, {5, 4, 3}}};
    const std::vector<Array> operands = operands_of(one, f64);
    const Tensor a = operands[0].on(Sharding(mesh, {Shard(0)}));
    const Tensor b = operands[1].on(Sharding(mesh, {Shard(0)}));
    const Tensor whole_a = operands[0].on(Sharding(mesh, {Replicate()}));
    const Tensor columns = operands[1].on(Sharding(mesh, {Shard(2)}));
    const TrafficScope forbidden(Traffic::forbid);
    EXPECT_EQ(linalg::cholesky_ex(a).factor.sharding()[0], Placement(Shard(0)));
    EXPECT_EQ(linalg::inv_ex(a).factor.sharding()[0], Placement(Shard(0)));
    EXPECT_EQ(linalg::qr(a).q.sharding()[0], Placement(Shard(0)));
    EXPECT_EQ(linalg::solve_triangular(a, b, true).sharding()[0], Placement(Shard(0)));
    EXPECT_EQ(linalg::solve_triangular(whole_a, columns, true).sharding()[0], Placement(Shard(2)));
  });
}

/// The rows of a tall matrix stay where they are; ranks receive triangles.
TEST(Linalg, TallMatricesStayCut) {
  for (const auto& [axes, rows] : {std::pair<std::vector<MeshAxis>, int64_t>{{{"a", 4}}, 43},
                                   {{{"a", 3}}, 30},
                                   {{{"a", 2}, {"b", 2}}, 41}}) {
    const Array a = random_array({rows, 5}, -1, 1, f64);
    const linalg::Svd expected = linalg::svd(a.on(), false);
    on_mesh(axes, [&](const DeviceMesh& mesh) {
      std::vector<Placement> cuts(axes.size(), Shard(0));
      const Tensor x = a.on(Sharding(mesh, Placements(cuts)));
      const auto received = [&] { return mesh.body()->grid().traffic().bytes; };
      const int64_t before = received();
      const linalg::Qr f = linalg::qr(x);
      // The triangles, and sums by which ranks agree on the factors.
      EXPECT_LE(received() - before,
                8 * (5 * (5 * (ranks_of(axes) - 1) + ranks_of(axes)) + 9 * ranks_of(axes)));
      EXPECT_EQ(f.q.sharding(), x.sharding());
      expect_close(whole(matmul(f.q, f.r)), a, 1e-13, "q r");
      expect_close(whole(matmul(t(f.q), f.q)), whole(eye(5, 5, 0, {.dtype = f64})), 1e-13, "q");
      EXPECT_FALSE(linalg::qr(x, "r").q);
      const linalg::Svd parts = linalg::svd(x, false);
      expect_close(whole(parts.s), whole(expected.s), 1e-13, "singular values");
      expect_close(whole(linalg::svdvals(x)), whole(expected.s), 1e-13, "svdvals");
      expect_close(whole(matmul(mul(parts.u, parts.s), parts.vh)), a, 1e-13, "svd");
    });
    expect_agreement(
        [](const Tensors& x) {
          const linalg::Svd f = linalg::svd(x[0], false);
          return Tensors{matmul(mul(f.u, sin(f.s)), f.vh), linalg::lstsq(x[0], x[1])};
        },
        {a, random_array({rows, 2}, -1, 1, f64, 5)},
        {{axes, std::vector(2, Placements(std::vector<Placement>(axes.size(), Shard(0))))}}, 1e-10);
  }
}

/// A large matrix that is cut by rows is factored and solved where its rows are.
TEST(Linalg, LargeMatricesStayCut) {
  constexpr int64_t n = 563, k = 3;
  const Array x = random_array({n, n}, -1, 1, f64), b = random_array({n, k}, -1, 1, f64, 2);
  const Tensor whole_a = add(matmul(x.on(), t(x.on())), mul(identity_like(x.on()), 9));
  const Array definite_a = whole(whole_a), lower = whole(linalg::cholesky(whole_a));
  const Array solution = whole(linalg::solve(x.on(), b.on()));
  for (const auto& axes :
       {std::vector<MeshAxis>{{"a", 4}}, {{"a", 3}}, {{"a", 2}, {"b", 2}}, {{"a", 1}}}) {
    on_mesh(axes, [&](const DeviceMesh& mesh) {
      const Sharding rows(mesh, Placements(std::vector<Placement>(axes.size(), Shard(0))));
      const auto received = [&] { return mesh.body()->grid().traffic().bytes; };
      int64_t before = received();
      const Tensor a = definite_a.on(rows), l = linalg::cholesky(a);
      EXPECT_LE(received() - before, 8 * n * (n / 2 + 128));
      expect_close(whole(l), lower, 1e-12, "cholesky");
      before = received();
      const Tensor right = b.on(rows);
      for (const bool upper : {false, true}) {
        const Tensor from = upper ? triu(a) : l, own = linalg::solve_triangular(from, right, upper);
        if (mesh.size() > 1) {
          EXPECT_EQ(own.sharding(), rows);
        }
        expect_close(whole(matmul(from, own)), b, 1e-10, "triangle");
      }
      EXPECT_LE(received() - before, 2 * 8 * n * (n + 128 + 2 * k + 128)) << "with the comparison";
      expect_close(whole(matmul(a, linalg::cholesky_solve(right, l))), b, 1e-10, "cholesky_solve");
      before = received();
      const Tensor found = linalg::solve(x.on(rows), right);
      EXPECT_LE(received() - before, 8 * n * (4 * n + 512)) << "with exchanged rows";
      expect_close(whole(found), solution, 1e-8, "solve");
      Array wrong = definite_a;
      wrong.values[static_cast<size_t>(300 * n + 300)] = -1;
      EXPECT_THROW(linalg::cholesky(wrong.on(rows)), std::invalid_argument);
      EXPECT_EQ(whole(linalg::cholesky_ex(wrong.on(rows)).info).values[0], 301);
      EXPECT_THROW(linalg::solve(zeros_like(a), right), std::invalid_argument);
    });
  }
}

/// Layouts over two axes, and the gradients; a rank has its part of the factor, and panels.
TEST(Linalg, LargeMatricesStayCutInAnyLayout) {
  constexpr int64_t n = 564, k = 3;
  const Array x = random_array({n, n}, -1, 1, f64), b = random_array({n, k}, -1, 1, f64, 2);
  const Tensor whole_x = x.on(),
               whole_a = add(matmul(x.on(), t(x.on())), mul(identity_like(x.on()), 9));
  const Array positive = whole(whole_a), inverse = whole(linalg::inv(whole_x));
  const Array packed = whole(linalg::lu_factor(whole_x).lu);
  const auto gradients = [&](const Tensor& a, const Tensor& right) {
    Tensor of = a.detach(), by = right.detach();
    of.set_requires_grad(true), by.set_requires_grad(true);
    const Tensor found = linalg::solve(linalg::cholesky(of, true), by);
    const Tensors given = grad({sum(mul(found, found))}, {of, by});
    return std::vector{whole(given[0]), whole(given[1])};
  };
  const std::vector<Array> expected = gradients(whole_a, b.on());
  std::vector<std::vector<Placement>> layouts = {
      {Shard(0), Shard(1)},    {Shard(1), Shard(0)},        {Replicate(), Shard(0)},
      {Shard(1), Replicate()}, {Shard(0, {}, 4), Shard(0)}, {Shard(0, {}, 4), Replicate()}};
  if (kSanitized) layouts.resize(1);
  on_mesh({{"a", 2}, {"b", 2}}, [&](const DeviceMesh& mesh) {
    for (const std::vector<Placement>& layout : layouts) {
      const Sharding cuts(mesh, Placements(layout));
      const Tensor a = positive.on(cuts), right = b.on(Sharding(mesh, {}));
      const Tensor u = linalg::cholesky(a, true);
      EXPECT_EQ(u.sharding(), cuts);
      expect_close(whole(matmul(t(u), u)), positive, 1e-12, "cholesky");
      expect_close(whole(linalg::inv(x.on(cuts))), inverse, 1e-8, "inv");
      const linalg::LuFactors factors = linalg::lu_factor(x.on(cuts));
      EXPECT_EQ(factors.lu.sharding(), cuts);
      expect_close(whole(factors.lu), packed, 1e-9, "lu_factor");
      for (const bool transposed : {false, true}) {
        const Tensor found = linalg::lu_solve(factors.lu, factors.pivots, right, transposed);
        const Tensor of = transposed ? t(x.on(cuts)) : x.on(cuts);
        expect_close(whole(matmul(of, found)), b, 1e-9, "lu_solve");
      }
      const std::vector<Array> found = gradients(a, right);
      for (size_t i = 0; i < 2; ++i) expect_close(found[i], expected[i], 1e-8, "gradient");
    }
    const Tensor a = positive.on(Sharding(mesh, {Shard(0), Shard(0)}));
    reset_peak_memory();
    const int64_t before = memory_statistics().total.current;
    const Tensor l = linalg::cholesky(a);
    const int64_t part = 8 * n * n / 4, panels = 8 * n * (128 + 128);
    EXPECT_LE(memory_statistics().total.peak - before, part * 13 / 10 + panels);
  });
}

/// One rank has a matrix that fails: all throw the same sentence.
TEST(Linalg, AllRanksThrowAlike) {
  on_mesh({{"a", 4}}, [](const DeviceMesh& mesh) {
    Array a{{5, 2, 2}, std::vector<double>(20, 0), f64};
    for (size_t i = 0; i < 5; ++i) a.values[4 * i] = a.values[4 * i + 3] = 1;
    a.values[4 * 3 + 3] = -1;
    const auto message = [](const auto& function) {
      try {
        function();
      } catch (const std::invalid_argument& error) {
        return std::string(error.what());
      }
      return std::string("nothing is thrown");
    };
    for (const Placement& placement : {Placement(Shard(0)), Placement(Replicate())}) {
      const Tensor x = a.on(Sharding(mesh, {placement}));
      EXPECT_EQ(message([&] { linalg::cholesky(x); }),
                "cholesky: matrix 3 of [5, 2, 2] is not positive definite: its leading minor of "
                "order 2 is not positive, expected a positive one");
      const FactorAndInfo found = linalg::cholesky_ex(x);
      EXPECT_EQ(whole(found.info).values, (std::vector<double>{0, 0, 0, 2, 0}));
      EXPECT_TRUE(std::isnan(whole(found.factor).values[12]));
      EXPECT_EQ(whole(found.factor).values[0], 1);
      const Tensor singular = add(x, identity_like(x));
      EXPECT_EQ(message([&] { linalg::inv(singular); }),
                "inv: matrix 3 of [5, 2, 2] is singular: U[1, 1] of its LU factors is 0, expected "
                "a number that is not; lstsq and pinv take singular matrices");
      EXPECT_EQ(message([&] { linalg::solve(singular, x); }).substr(0, 40),
                "solve: matrix 3 of [5, 2, 2] is singular");
      EXPECT_EQ(message([&] { linalg::eigh(div(x, zeros_like(x))); }),
                "eigh: matrix 0 of [5, 2, 2] has an infinity or a NaN, expected finite numbers");
    }
  });
}

TEST(Linalg, NameWhatIsWrong) {
  const auto expect = [](const std::string& text, const auto& function) {
    try {
      function();
      ADD_FAILURE() << "nothing is thrown instead of " << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), text);
    }
  };
  const Tensor a = eye(3, 3), tall = zeros({3, 2}), vector = zeros({3});
  expect("cholesky: tensor is [3], expected at least 2 dims", [&] { linalg::cholesky(vector); });
  expect("det: matrices of [3, 2] have 3 rows and 2 columns, expected square ones",
         [&] { linalg::det(tall); });
  expect("eigh: dtype is bool, expected f32, f64, c64, c128 or integers; cast the tensor", [&] {
    linalg::eigh(zeros({2, 2}, {.dtype = boolean}));
  });
  expect("svd: dtype is bf16, expected f32, f64, c64, c128 or integers; cast the tensor", [&] {
    linalg::svd(zeros({2, 2}, {.dtype = bf16}));
  });
  expect("solve: matrices of the right-hand side [2, 3] have 2 rows, expected 3 as those of [3, 3]",
         [&] {
           linalg::solve(a, zeros({2, 3}));
         });
  expect("solve: dim 0 of the right-hand side [2, 3, 1] is 2, expected 4 as dim 0 of [4, 3, 3]",
         [&] {
           linalg::solve(zeros({4, 3, 3}), zeros({2, 3, 1}));
         });
  expect("qr: mode is \"full\", expected \"reduced\", \"complete\" or \"r\"",
         [&] { linalg::qr(a, "full"); });
  expect(
      "qr: the gradient is required of mode \"complete\" with more rows than columns [3, 2], "
      "expected mode \"reduced\"",
      [&] {
        linalg::qr(zeros({3, 2}).set_requires_grad(), "complete");
      });
  expect("multi_dot: number of matrices is 1, expected at least 2",
         [&] { linalg::multi_dot({a}); });
  expect("multi_dot: matrix 1 is [2, 3, 3], expected 2 dims", [&] {
    linalg::multi_dot({a, zeros({2, 3, 3}), a});
  });
  expect("multi_dot: matrix 1 is [2, 3], expected 3 rows as columns of the one before", [&] {
    linalg::multi_dot({a, zeros({2, 3})});
  });
  expect("lu_solve: pivots are f32 [3], expected i32 and the dims of [3, 3] but the last one",
         [&] { linalg::lu_solve(a, vector, a); });
}

/// Ranks of one process call LAPACK at the same time, with one thread and with several each.
TEST(Linalg, RanksComputeAtTheSameTime) {
  const Array a = random_array({3, 120, 120}, -1, 1, f64);
  const Tensor expected = linalg::inv(a.on());
  run_ranks(4, [&](Communicator world) {
    set_num_threads(1 + world.rank() % 3);
    for (int repeat = 0; repeat < 3; ++repeat) {
      expect_close(whole(linalg::inv(a.on())), whole(expected), 1e-9, "inv");
      expect_close(whole(linalg::svdvals(a.on())), whole(linalg::svdvals(a.on())), 1e-12, "svd");
    }
  });
}

TEST(Linalg, OfF64AreExactEnough) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{65, 70, 33}, {1, 300, 200}, {200, 1, 300}}) {
    const Array a = random_array({m, k}, -4, 4, f64, 1), b = random_array({k, n}, -4, 4, f64, 2);
    std::vector<double> expected(static_cast<size_t>(m * n), 0);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t l = 0; l < k; ++l) {
          expected[static_cast<size_t>(i * n + j)] +=
              a.values[static_cast<size_t>(i * k + l)] * b.values[static_cast<size_t>(l * n + j)];
        }
      }
    }
    const Array wanted{{m, n}, expected, f64};
    const Tensor x = a.on(), y = b.on();
    expect_close(whole(matmul(x, y)), wanted, 1e-14, "plain");
    expect_close(whole(matmul(t(mul(t(x), 1)), y)), wanted, 1e-14, "a transposed");
    expect_close(whole(matmul(x, t(mul(t(y), 1)))), wanted, 1e-14, "b transposed");
    const Tensor bias = ones({n}, {.dtype = f64});
    expect_close(whole(sub(linear(x, t(y), bias), 1)), wanted, 1e-13, "bias");
  }
}

}  // namespace weft
