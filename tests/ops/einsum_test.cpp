// SPDX-License-Identifier: Apache-2.0
#include "weft/einsum.h"

#include <map>

#include "tests/ops/agreement.h"
#include "weft/error.h"

namespace weft {

// tests/python/einsum_test.py compares values with numpy.einsum; here are layouts, the order of
// contractions and errors.

/// An equation of labels without "...", and the sizes of its labels.
struct Equation {
  std::vector<std::string> operands;
  std::string result;
  std::map<char, int64_t> sizes;

  std::string text() const {
    std::string made;
    for (const std::string& labels : operands) made += (made.empty() ? "" : ",") + labels;
    return made + "->" + result;
  }
  std::vector<Array> arrays() const {
    std::vector<Array> made;
    for (size_t i = 0; i < operands.size(); ++i) {
      Shape shape;
      for (const char label : operands[i]) shape.push_back(sizes.at(label));
      made.push_back(random_array(shape, -1, 1, f64, static_cast<unsigned>(i) + 1));
    }
    return made;
  }
};

static const std::vector<Equation>& equations() {
  static const std::vector<Equation> all = {
      {{"ij", "jk", "kl"}, "il", {{'i', 7}, {'j', 5}, {'k', 6}, {'l', 3}}},
      {{"bij", "bjk", "k"}, "ib", {{'b', 3}, {'i', 5}, {'j', 6}, {'k', 4}}},
      {{"ab", "bc", "cd", "da"}, "", {{'a', 6}, {'b', 3}, {'c', 7}, {'d', 5}}},
      {{"ia", "jb", "kc", "abc"},
       "ijk",
       {{'i', 5}, {'j', 6}, {'k', 7}, {'a', 2}, {'b', 3}, {'c', 4}}},
      {{"ab", "bc", "cd", "de", "ef"},
       "af",
       {{'a', 4}, {'b', 9}, {'c', 2}, {'d', 8}, {'e', 3}, {'f', 5}}},
      {{"ab", "ac", "ad", "bc", "bd", "cd"}, "a", {{'a', 4}, {'b', 3}, {'c', 5}, {'d', 2}}},
  };
  return all;
}

/// A layout for each operand: axes cut different dims of different operands.
static LaidOut layout_of_operands(const Equation& equation, std::vector<MeshAxis> axes,
                                  unsigned seed) {
  std::mt19937 draw(seed);
  LaidOut made{std::move(axes), {}};
  for (const std::string& labels : equation.operands) {
    std::vector<Placement> own;
    for (size_t axis = 0; axis < made.axes.size(); ++axis) {
      const int choice = static_cast<int>(draw() % (labels.size() + 1));
      Placement placement =
          choice == static_cast<int>(labels.size()) ? Placement(Replicate()) : Shard(choice);
      if (axis > 0 && placement == own[0]) placement = Replicate();
      own.push_back(placement);
    }
    made.operands.push_back(Placements(own));
  }
  return made;
}

TEST(Einsum, EqualsOneDeviceInRandomLayouts) {
  for (const Equation& equation : equations()) {
    std::vector<LaidOut> layouts;
    for (unsigned seed = 0; seed < 3; ++seed) {
      layouts.push_back(layout_of_operands(equation, {{"a", 4}}, seed));
      layouts.push_back(layout_of_operands(equation, {{"a", 3}}, seed + 10));
      layouts.push_back(layout_of_operands(equation, {{"a", 2}, {"b", 2}}, seed + 20));
    }
    expect_agreement([&](const Tensors& x) { return Tensors{einsum(equation.text(), x)}; },
                     equation.arrays(), layouts, 1e-12);
  }
}

/// Results of operands that are contracted, in pairs.
struct Part {
  std::string labels;
  Tensor tensor;
};

static int64_t received(const DeviceMesh& mesh) { return mesh.body()->grid().traffic().bytes; }

/// Calls visit(seconds, bytes) for each order of contractions of pairs.
template <class Visit>
static void each_order(const DeviceMesh& mesh, const Equation& equation, std::vector<Part> parts,
                       double seconds, int64_t bytes, const Visit& visit) {
  if (parts.size() == 1) return visit(seconds, bytes);
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = i + 1; j < parts.size(); ++j) {
      std::vector<Part> left;
      std::string others = equation.result, labels;
      for (size_t k = 0; k < parts.size(); ++k) {
        if (k == i || k == j) continue;
        left.push_back(parts[k]);
        others += parts[k].labels;
      }
      for (const char label : parts[i].labels + parts[j].labels) {
        if (others.find(label) != others.npos && labels.find(label) == labels.npos) labels += label;
      }
      const std::string pair = parts[i].labels + "," + parts[j].labels + "->" + labels;
      const Tensors operands{parts[i].tensor, parts[j].tensor};
      const double own = einsum_path(pair, operands).seconds;
      const int64_t before = received(mesh);
      left.push_back({labels, einsum(pair, operands)});
      each_order(mesh, equation, left, seconds + own, bytes + received(mesh) - before, visit);
    }
  }
}

/// The order takes no more time, as predicted, and no more traffic than the best one of all.
TEST(Einsum, OrdersAreAsGoodAsTheBestOfAll) {
  for (const Equation& equation : equations()) {
    if (equation.operands.size() > 5) continue;
    for (const auto& axes : {std::vector<MeshAxis>{{"a", 4}}, {{"a", 2}, {"b", 2}}}) {
      const LaidOut laid_out = layout_of_operands(equation, axes, 7);
      on_mesh(axes, [&](const DeviceMesh& mesh) {
        const NoGrad no_grad;
        const std::vector<Array> arrays = equation.arrays();
        std::vector<Part> parts;
        Tensors operands;
        for (size_t i = 0; i < arrays.size(); ++i) {
          operands.push_back(arrays[i].on(Sharding(mesh, laid_out.operands[i])));
          parts.push_back({equation.operands[i], operands[i]});
        }
        double best = INFINITY;
        int64_t best_bytes = 0;
        each_order(mesh, equation, parts, 0, 0, [&](double seconds, int64_t bytes) {
          if (seconds < best * (1 - 1e-9)) best = seconds, best_bytes = bytes;
        });
        const EinsumPath path = einsum_path(equation.text(), operands);
        EXPECT_LE(path.seconds, best * (1 + 1e-9)) << path;
        const int64_t before = received(mesh);
        einsum(equation.text(), operands);
        EXPECT_LE(received(mesh) - before, best_bytes) << path;
        EXPECT_EQ(received(mesh) - before, path.bytes) << path;
      });
    }
  }
}

/// Cuts of labels that are not the first of a group stay: these products move nothing.
TEST(Einsum, CutsOfAnyLabelStay) {
  on_mesh({{"a", 4}}, [](const DeviceMesh& mesh) {
    const Array a = random_array({3, 5, 6}, -1, 1), b = random_array({6, 5, 4}, -1, 1);
    const TrafficScope forbidden(Traffic::forbid);
    const auto on = [&](const Array& array, const Placement& placement) {
      return array.on(Sharding(mesh, {placement}));
    };
    EXPECT_EQ(einsum("bij,jkl->bikl", {on(a, Shard(1)), on(b, Replicate())}).sharding()[0],
              Placement(Shard(1)));
    EXPECT_EQ(einsum("bij,jkl->bikl", {on(a, Replicate()), on(b, Shard(2))}).sharding()[0],
              Placement(Shard(3)));
    EXPECT_EQ(einsum("bij,jil->bl", {on(a, Shard(1)), on(b, Shard(1))}).sharding()[0],
              Placement(Partial()));
  });
}

TEST(Einsum, MemoryBoundsIntermediateResults) {
  const Tensors operands{ones({2, 100}), ones({100, 3}), ones({3, 50})};
  const EinsumPath path = einsum_path("ij,jk,kl->il", operands, 1000);
  EXPECT_EQ(concat(path).find("einsum ij,jk,kl->il: 0 bytes received, "), 0u) << path;
  EXPECT_EQ(path.steps[0].first, 0);
  EXPECT_EQ(path.steps[0].second, 1);
  EXPECT_EQ(path.steps[1].equation, "ik,kl->il");
  EXPECT_EQ(path.intermediate_bytes, 24);
  try {
    einsum("ij,jk,kl->il", operands, 20);
    ADD_FAILURE() << "nothing is thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "einsum: memory of the least intermediate result is 24 bytes on a rank, expected "
                 "at most 20");
  }
}

TEST(Einsum, ManyOperandsAreContractedInPairs) {
  Tensors operands;
  std::string equation;
  for (int i = 0; i < 12; ++i) {
    operands.push_back(random_array({3, 3}, -1, 1, f64, static_cast<unsigned>(i)).on());
    equation +=
        (i ? "," : "") + std::string{static_cast<char>('a' + i), static_cast<char>('b' + i)};
  }
  Tensor expected = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) expected = matmul(expected, operands[i]);
  expect_close(whole(einsum(equation + "->am", operands)), whole(expected), 1e-12, "chain");
  EXPECT_EQ(einsum_path(equation + "->am", operands).steps.size(), 11u);
  operands.assign(33, ones({}));
  try {
    einsum(std::string(32, ',') + "->", operands);
    ADD_FAILURE() << "nothing is thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "einsum: number of operands is 33, expected at most 32");
  }
}

}  // namespace weft
