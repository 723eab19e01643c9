// SPDX-License-Identifier: Apache-2.0
#include "weft/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/layers.h"
#include "weft/optimizers.h"

namespace weft {
namespace {

using Values = std::vector<double>;

/// A matrix in plain numbers.
struct Plain {
  int64_t rows, columns;
  Values values;
  double& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * columns + j)]; }
  double at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * columns + j)]; }
};

Plain transposed_plain(const Plain& a) {
  Plain t{a.columns, a.rows, Values(a.values.size())};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  }
  return t;
}

Plain product(const Plain& a, const Plain& b) {
  Plain c{a.rows, b.columns, Values(static_cast<size_t>(a.rows * b.columns))};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t k = 0; k < a.columns; ++k) {
      for (int64_t j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

/// _zeropower_via_newtonschulz of torch.optim.Muon, in double.
Plain zeropower(Plain x) {
  const bool is_tall = x.rows > x.columns;
  if (is_tall) x = transposed_plain(x);
  double squares = 0;
  for (const double value : x.values) squares += value * value;
  for (double& value : x.values) value /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < 5; ++step) {
    const Plain gram = product(x, transposed_plain(x)), square = product(gram, gram);
    Plain update = gram;
    for (size_t i = 0; i < update.values.size(); ++i) {
      update.values[i] = -4.7750 * gram.values[i] + 2.0315 * square.values[i];
    }
    const Plain moved = product(update, x);
    for (size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = 3.4445 * x.values[i] + moved.values[i];
    }
  }
  return is_tall ? transposed_plain(x) : x;
}

struct PlainParameter {
  Shape shape;
  Placements placements;
  std::string name;
  Values value = {}, m = {}, v = {};
};

/// Uneven matrices in several layouts and shapes, several of one kind, and what AdamW updates.
std::vector<PlainParameter> plain_parameters() {
  std::vector<PlainParameter> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back({{7, 5}, {Shard(0), Replicate()}, "w" + std::to_string(i)});
  }
  all.push_back({{3, 8}, {Shard(0), Shard(1)}, "both"});
  all.push_back({{6, 4}, {Shard(1), Shard(1)}, "columns"});
  all.push_back({{1, 6}, {Shard(0), Shard(0)}, "row"});
  all.push_back({{4, 4}, {Replicate(), Replicate()}, "replicated"});
  all.push_back({{9, 2}, {Shard(0), Shard(0)}, "tall"});
  all.push_back({{6, 3}, {Shard(0), Replicate()}, "embedding.weight"});
  all.push_back({{5}, {Shard(0), Replicate()}, "norm"});
  for (size_t i = 0; i < all.size(); ++i) {
    const auto count = static_cast<size_t>(all[i].shape.product());
    for (size_t j = 0; j < count; ++j) {
      all[i].value.push_back(std::sin(static_cast<double>(1 + j + 3 * i)));
    }
    all[i].m.resize(count);
    all[i].v.resize(count);
  }
  return all;
}

Values gradient_of(const PlainParameter& parameter, size_t i, int step) {
  Values gradient;
  for (int64_t j = 0; j < parameter.shape.product(); ++j) {
    gradient.push_back(
        std::cos(static_cast<double>(7 * j * j + 5 * j) + static_cast<double>(i) * step));
  }
  return gradient;
}

constexpr double kRate = 0.05, kDecay = 0.1, kMomentum = 0.9;

double rate_of(MuonRate rate, double a, double b) {
  if (rate == MuonRate::match_rms_adamw) return kRate * 0.2 * std::sqrt(std::max(a, b));
  return kRate * std::sqrt(rate == MuonRate::original ? std::max(1.0, a / b) : a / b);
}

void plain_muon(PlainParameter& p, const Values& gradient, MuonRate rate, bool nesterov) {
  Plain update{p.shape[0], p.shape[1], Values(gradient.size())};
  for (size_t j = 0; j < gradient.size(); ++j) {
    p.m[j] = kMomentum * p.m[j] + (1 - kMomentum) * gradient[j];
    update.values[j] = nesterov ? (1 - kMomentum) * gradient[j] + kMomentum * p.m[j] : p.m[j];
  }
  const Plain direction = zeropower(update);
  const double step =
      rate_of(rate, static_cast<double>(p.shape[0]), static_cast<double>(p.shape[1]));
  for (size_t j = 0; j < p.value.size(); ++j) {
    p.value[j] = p.value[j] * (1 - kRate * kDecay) - step * direction.values[j];
  }
}

void plain_adamw(PlainParameter& p, const Values& gradient, int step) {
  for (size_t j = 0; j < p.value.size(); ++j) {
    p.m[j] = 0.8 * p.m[j] + 0.2 * gradient[j];
    p.v[j] = 0.95 * p.v[j] + 0.05 * gradient[j] * gradient[j];
    const double m = p.m[j] / (1 - std::pow(0.8, step));
    const double v = p.v[j] / (1 - std::pow(0.95, step));
    p.value[j] = p.value[j] * (1 - kRate * kDecay) - kRate * m / (std::sqrt(v) + 1e-8);
  }
}

MuonOptions options(MuonRate rate = MuonRate::original, bool nesterov = true) {
  return {.learning_rate = kRate,
          .weight_decay = kDecay,
          .momentum = kMomentum,
          .nesterov = nesterov,
          .rate = rate,
          .iterates_in = f32,
          .beta1 = 0.8,
          .beta2 = 0.95};
}

std::vector<NamedParameter> laid_out(const std::vector<PlainParameter>& plain,
                                     const DeviceMesh& mesh) {
  std::vector<NamedParameter> parameters;
  for (const PlainParameter& p : plain) {
    auto parameter = std::make_shared<Parameter>(p.shape, f32, constant_values(0));
    const Tensor own = zeros(p.shape, {.sharding = Sharding(mesh, p.placements)});
    copy_(own, distribute(from_values(p.value, p.shape), mesh, {}));
    parameter->set_value(own);
    parameters.push_back({{p.name}, parameter});
  }
  return parameters;
}

void give_gradients(const std::vector<PlainParameter>& plain,
                    const std::vector<NamedParameter>& parameters, const DeviceMesh& mesh,
                    int step) {
  for (size_t i = 0; i < plain.size(); ++i) {
    const Tensor whole = from_values(gradient_of(plain[i], i, step), plain[i].shape);
    parameters[i].parameter->value().set_grad(distribute(whole, mesh, plain[i].placements));
  }
}

void step_plainly(std::vector<PlainParameter>& plain, int step, MuonRate rate, bool nesterov) {
  for (size_t i = 0; i < plain.size(); ++i) {
    const Values gradient = gradient_of(plain[i], i, step);
    const bool is_matrix = plain[i].shape.ndim() == 2 && plain[i].name != "embedding.weight";
    is_matrix ? plain_muon(plain[i], gradient, rate, nesterov)
              : plain_adamw(plain[i], gradient, step);
  }
}

TEST(Muon, StepsAsPyTorchsFormula) {
  const std::pair<MuonRate, bool> kinds[] = {{MuonRate::original, true},
                                             {MuonRate::match_rms_adamw, false},
                                             {MuonRate::spectral_unclamped, true}};
  for (const auto& [rate, nesterov] : kinds) {
    for (const auto& [first, second] : {std::pair{1, 1}, {3, 1}, {1, 3}, {2, 2}, {4, 1}}) {
      on_mesh({{"a", first}, {"b", second}}, [&, rate = rate, nesterov = nesterov](auto& mesh) {
        std::vector<PlainParameter> plain = plain_parameters();
        const auto parameters = laid_out(plain, mesh);
        Muon optimizer(parameters, options(rate, nesterov));
        for (int step = 1; step <= 3; ++step) {
          step_plainly(plain, step, rate, nesterov);
          give_gradients(plain, parameters, mesh, step);
          optimizer.step();
          for (size_t i = 0; i < plain.size(); ++i) {
            expect_values(whole_values(parameters[i].parameter->value()), plain[i].value, 1e-5);
            EXPECT_EQ(optimizer.steps(i), step);
          }
        }
      });
    }
  }
}

TEST(Muon, SharesMatricesAmongRanks) {
  on_mesh({{"a", 2}, {"b", 2}}, [](const DeviceMesh& mesh) {
    std::vector<PlainParameter> plain = plain_parameters();
    const auto parameters = laid_out(plain, mesh);
    Muon optimizer(parameters, options());
    give_gradients(plain, parameters, mesh, 1);
    const int64_t collectives = mesh.traffic().collectives;
    optimizer.step();
    // Two redistributions for each of the six kinds of matrices, of at most two collectives.
    EXPECT_LE(mesh.traffic().collectives - collectives, 24);
    // One of four ranks needs two of the five equal matrices.
    std::vector<int64_t> loads(4);
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(optimizer.is_matrix(i), optimizer.owners()[i] >= 0);
      EXPECT_EQ(optimizer.state(i).size(), optimizer.is_matrix(i) ? 1 : 2);
      if (!optimizer.is_matrix(i)) continue;
      loads[static_cast<size_t>(optimizer.owners()[i])] +=
          newton_schulz_work(plain[i].shape[0], plain[i].shape[1]);
    }
    EXPECT_EQ(loads, (std::vector<int64_t>{950, 731, 680, 726}));
  });
}

/// The least load of the most loaded rank, by trying all assignments.
int64_t best_load(const std::vector<int64_t>& work, size_t item, std::vector<int64_t>& loads,
                  int64_t best) {
  const int64_t most = *std::ranges::max_element(loads);
  if (most >= best) return best;
  if (item == work.size()) return most;
  for (size_t rank = 0; rank < loads.size(); ++rank) {
    loads[rank] += work[item];
    best = best_load(work, item + 1, loads, best);
    loads[rank] -= work[item];
    if (loads[rank] == 0) break;  // the other empty ranks are the same
  }
  return best;
}

TEST(Muon, BalancesWorkToATenthOfTheBest) {
  std::mt19937 random(3);
  const int64_t sizes[] = {64, 128, 192, 256, 512};
  double worst = 1;
  for (int trial = 0; trial < 400; ++trial) {
    const int ranks = 2 + trial % 4;
    std::vector<int64_t> work(3 + random() % 8);
    for (int64_t& one : work) {
      one = trial % 2 ? newton_schulz_work(sizes[random() % 5], sizes[random() % 5])
                      : static_cast<int64_t>(1 + random() % 9);
    }
    const std::vector<int> owners = balanced_owners(work, ranks);
    std::vector<int64_t> loads(static_cast<size_t>(ranks)), none(static_cast<size_t>(ranks));
    for (size_t i = 0; i < work.size(); ++i) loads[static_cast<size_t>(owners[i])] += work[i];
    const int64_t best = best_load(work, 0, none, INT64_MAX);
    const double ratio =
        static_cast<double>(*std::ranges::max_element(loads)) / static_cast<double>(best);
    worst = std::max(worst, ratio);
  }
  EXPECT_LE(worst, 1.1);
  EXPECT_EQ(balanced_owners(std::vector<int64_t>{3, 3, 2, 2, 2}, 2),
            (std::vector<int>{1, 1, 0, 0, 0}));
  EXPECT_TRUE(balanced_owners({}, 3).empty());
  EXPECT_EQ(error_of([] { balanced_owners({}, 0); }),
            "balanced_owners: number of ranks is 0, expected at least 1");
}

TEST(Muon, IteratesInBf16ByDefault) {
  const Tensor m = from_values(gradient_of({{6, 9}, {}, "w"}, 0, 1), {6, 9});
  const Plain exact = zeropower({6, 9, m.to_vector<double>()});
  expect_values(newton_schulz(m).to_vector<double>(), exact.values, 1e-5);
  expect_values(newton_schulz(m.to(bf16)).to_vector<double>(), exact.values, 0.1);
  EXPECT_EQ(newton_schulz(m.to(bf16)).dtype(), bf16);
  EXPECT_EQ(MuonOptions().iterates_in, bf16);
  const Tensor zero = newton_schulz(zeros({3, 2}));
  EXPECT_EQ(zero.to_vector<double>(), Values(6));
}

TEST(Muon, IsForMatricesInside) {
  const auto is_hidden = [](const std::string& name, const Shape& shape) {
    return is_hidden_matrix({{name}, std::make_shared<Parameter>(shape, f32, constant_values(0))});
  };
  EXPECT_TRUE(is_hidden("layers.0.attention.wq.weight", {4, 4}));
  EXPECT_TRUE(is_hidden("layers.0.attention.output.dense.weight", {4, 4}));
  EXPECT_TRUE(is_hidden("0", {4, 4}));
  EXPECT_FALSE(is_hidden("layers.0.norm.weight", {4}));
  EXPECT_FALSE(is_hidden("embedding.weight", {4, 4}));
  EXPECT_FALSE(is_hidden("transformer.wpe.weight", {4, 4}));
  EXPECT_FALSE(is_hidden("lm_head.weight", {4, 4}));
  EXPECT_FALSE(is_hidden("output.weight", {4, 4}));
  EXPECT_FALSE(is_hidden("experts", {2, 4, 4}));
}

TEST(Muon, NamesWhatDoesNotFit) {
  auto vector = std::make_shared<Parameter>(Shape{3}, f32, constant_values(0));
  const std::vector<NamedParameter> parameters{{{"p"}, vector}};
  const auto all = [](const NamedParameter&) { return true; };
  EXPECT_EQ(error_of([&] { Muon(parameters, {.is_matrix = all}); }),
            "muon: parameter p is [3], expected a matrix");
  EXPECT_EQ(
      error_of([&] { Muon(parameters, {.momentum = -1}); }),
      "muon: learning rate, momentum and weight decay are 0.001, -1 and 0.1, expected each at "
      "least 0");
  EXPECT_EQ(error_of([&] { Muon(parameters, {.beta2 = 1}); }),
            "muon: betas are 0.9 and 1, expected both in [0, 1)");
  EXPECT_EQ(error_of([&] { Muon(parameters, {.steps = 100}); }),
            "muon: steps are 100, expected 1 to 99");
  EXPECT_EQ(error_of([&] { Muon(parameters, {.iterates_in = f16}); }),
            "muon: dtype of the iteration is f16, expected bf16, f32 or f64");
  EXPECT_EQ(error_of([] { newton_schulz(zeros({3})); }),
            "newton_schulz: m is [3], expected a matrix");
  EXPECT_EQ(error_of([] {
              newton_schulz(zeros({3, 3}), 1'000'000);
            }),
            "newton_schulz: steps is 1000000, expected 0 to 1000");
}

}  // namespace
}  // namespace weft
