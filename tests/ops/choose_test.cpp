// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/choose.h"

#include <gtest/gtest.h>

#include "ops/testing/sweep.h"
#include "weft/error.h"
#include "weft/extend/pattern.h"
#include "weft/extend/testing.h"
#include "weft/ranks.h"

namespace weft {

/// The layouts that the engine chooses for the operands of a sample.
class Chosen {
 public:
  Chosen(const Op& op, const OpSample& sample, const DeviceMesh& mesh)
      : op_(op), sample_(sample), mesh_(mesh), shapes_(sample.shapes) {
    for (size_t i = 0; i < shapes_.size(); ++i) dtypes_.push_back(operand_of(sample, i, 1).dtype);
    rule_ = rule_for(op.body(), sample.attributes, shapes_);
    binding_ = bind_rule(op.spec().name, rule_, shapes_);
    const auto& dtype_of = op.spec().dtype;
    for (int i = 0; i < std::ssize(binding_.results); ++i) {
      result_dtypes_.push_back(dtype_of          ? dtype_of(sample.attributes, dtypes_, i)
                               : dtypes_.empty() ? f32
                                                 : dtypes_[0]);
    }
  }

  const std::vector<Shape>& shapes() const { return shapes_; }
  DType dtype(size_t operand) const { return dtypes_[operand]; }

  /// nullopt when the call is refused.
  std::optional<Choice> by(ChoiceSearch search, std::span<const Sharding> given) const {
    std::vector<Ref<Layout>> layouts;
    for (size_t i = 0; i < given.size(); ++i) {
      layouts.push_back(layout_of(given[i], shapes_[i], dtypes_[i]));
    }
    const auto needs = [this](int operand) -> Needs {
      return [this, operand](const Box& box) {
        return op_.spec().needs(sample_.attributes, operand, shapes_, box);
      };
    };
    const ChoiceQuery query{op_.spec(),   binding_,     layouts, result_dtypes_,
                            rule_.staged, rule_.joined, needs};
    try {
      return choose_layouts(query, mesh_, search);
    } catch (const std::invalid_argument&) {
      return std::nullopt;
    }
  }

 private:
  const Op& op_;
  const OpSample& sample_;
  const DeviceMesh& mesh_;
  std::vector<Shape> shapes_;
  std::vector<DType> dtypes_, result_dtypes_;
  ParsedRule rule_;
  Binding binding_;
};

using LayoutsOf = std::function<std::vector<Sharding>(const Shape&, DType)>;
using VisitCase = std::function<void(const Op&, const Chosen&, std::span<const Sharding>)>;

/// Visits combinations of layouts of the operands of each sample of each op, on rank 0 of a mesh.
static void for_cases(const std::vector<MeshAxis>& axes, int64_t most,
                      const std::function<LayoutsOf(const DeviceMesh&)>& layouts_on,
                      const VisitCase& visit) {
  int ranks = 1;
  for (const MeshAxis& axis : axes) ranks *= axis.size;
  run_ranks(ranks, [&](Communicator world) {
    const DeviceMesh mesh(world, axes);
    if (world.rank() != 0) return;
    const LayoutsOf layouts = layouts_on(mesh);
    for (const Op& op : all_ops()) {
      for (const OpSample& sample : samples_of(op)) {
        const Chosen chosen(op, sample, mesh);
        SweepCombinations combinations{{}, most, sweep_percent(), 7};
        std::vector<std::vector<Sharding>> choices;
        for (size_t i = 0; i < chosen.shapes().size(); ++i) {
          choices.push_back(layouts(chosen.shapes()[i], chosen.dtype(i)));
          combinations.counts.push_back(choices.back().size());
        }
        if (choices.empty()) continue;
        combinations.visit([&](std::span<const size_t> at) {
          std::vector<Sharding> given;
          for (size_t i = 0; i < at.size(); ++i) given.push_back(choices[i][at[i]]);
          visit(op, chosen, given);
        });
      }
    }
  });
}

static std::vector<Sharding> joined(std::vector<Sharding> all, const std::vector<Sharding>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

static LayoutsOf every_layout(const DeviceMesh& mesh) {
  return [mesh](const Shape& shape, DType dtype) {
    std::vector<Sharding> all = all_shardings(mesh, shape.ndim(), dtype);
    return mesh.ndim() < 3 ? joined(all, sized_shardings(mesh, shape, dtype)) : all;
  };
}

/// Random cuts and sums on six axes.
static LayoutsOf random_layouts(const DeviceMesh& mesh) {
  return [mesh](const Shape& shape, DType dtype) {
    SweepRandom random(3);
    std::vector<Sharding> layouts;
    for (int i = 0; i < 40; ++i) {
      Pattern pattern(mesh.ndim());
      for (int axis = 0; axis < mesh.ndim(); ++axis) {
        const auto choice = static_cast<int>(random.below(shape.ndim() + 2));
        if (choice < shape.ndim()) pattern.set(axis, Shard{choice});
        if (choice == shape.ndim() && is_floating(dtype)) pattern.set(axis, Partial());
      }
      layouts.push_back(Sharding::of(mesh, pattern));
    }
    return layouts;
  };
}

static std::string words(const Op& op, std::span<const Sharding> given) {
  return op.spec().name + listed(given, [](const Sharding& s) { return placements_in_words(s); });
}

/// Covers up to three axes: as good as the best of all combinations, and the same layouts.
TEST(Choose, FindsWhatTheExhaustiveSearchFinds) {
  const std::vector<std::vector<MeshAxis>> meshes = {{{"a", 4}},
                                                     {{"a", 3}},
                                                     {{"a", 2}, {"b", 2}},
                                                     {{"a", 2}, {"b", 1}, {"c", 2}},
                                                     {{"a", 2}, {"b", 2}, {"c", 2}}};
  for (const auto& axes : meshes) {
    int64_t cases = 0;
    for_cases(axes, 50, every_layout, [&](const Op& op, const Chosen& chosen, auto given) {
      ++cases;
      const auto best = chosen.by(ChoiceSearch::exhaustive, given);
      const auto found = chosen.by(ChoiceSearch::by_axis, given);
      ASSERT_EQ(best.has_value(), found.has_value()) << words(op, given);
      if (!best) return;
      EXPECT_FALSE(best->cost.less_than(found->cost)) << words(op, given);
      EXPECT_EQ(best->operands, found->operands) << words(op, given);
      EXPECT_EQ(best->results, found->results) << words(op, given);
    });
    EXPECT_GT(cases, 0);
  }
}

/// Six axes, three of one device: a small part of all 15,625 or more combinations is tried.
TEST(Choose, TriesFewCombinationsOnSixAxes) {
  const std::vector<MeshAxis> axes = {{"a", 2}, {"b", 1}, {"c", 2}, {"d", 1}, {"e", 2}, {"f", 1}};
  int64_t cases = 0;
  size_t tried = 0, most = 0;
  for_cases(axes, 60, random_layouts, [&](const Op& op, const Chosen& chosen, auto given) {
    const auto found = chosen.by(ChoiceSearch::by_axis, given);
    if (!found || !op.spec().writes.empty()) return;
    ++cases;
    tried += found->tried;
    most = std::max(most, found->tried);
  });
  EXPECT_LT(tried / static_cast<size_t>(std::max<int64_t>(1, cases)), 150u);
  // A convolution has eight roles an axis.
  EXPECT_LT(most, 2000u);
}

}  // namespace weft
