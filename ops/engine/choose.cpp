// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/choose.h"

#include <map>

#include "mesh/grid.h"
#include "mesh/plan.h"
#include "ops/engine/route.h"
#include "weft/error.h"

namespace weft {

using BoundArray = Binding::BoundArray;

int fetched_dim(const Binding& binding, size_t operand) {
  const BoundArray& array = binding.operands[operand];
  const auto found =
      std::ranges::find_if(array, [&](const auto& dim) { return binding.is_fetched(dim); });
  return found == array.end() ? -1 : static_cast<int>(found - array.begin());
}

/// True if a cut can pass to `factor`: within merged dims it must be the outermost that is longer
/// than 1.
static bool is_outermost(const Binding& binding, const BoundArray& array, int factor) {
  for (const auto& dim : array) {
    for (int inner : dim) {
      if (inner == factor) break;
      if (contains(dim, factor) && binding.factor(inner).size != 1) return false;
    }
  }
  return true;
}

static bool can_be_cut(const ChoiceQuery& query, int factor) {
  const Binding& binding = query.binding;
  const auto& bound = binding.factor(factor);
  const bool is_addend = query.spec.by_index && query.spec.by_index->into >= 0 &&
                         query.spec.by_index->written == ByIndex::Written::add;
  if (bound.whole || (bound.fetched && !is_addend)) return false;
  for (const auto* arrays : {&binding.operands, &binding.results, &binding.stages}) {
    for (const BoundArray& array : *arrays) {
      if (!is_outermost(binding, array, factor)) return false;
    }
  }
  return true;
}

/// The factor of a dim that is written by index, if the axis cuts it: it goes on to; else -1.
static int kept_factor(const ChoiceQuery& query, int axis) {
  if (!query.spec.by_index || query.spec.by_index->into < 0) return -1;
  const auto into = static_cast<size_t>(query.spec.by_index->into);
  const int dim = fetched_dim(query.binding, static_cast<size_t>(query.spec.by_index->rows));
  if (dim < 0 || !query.operands[into]->sharding[axis].is_shard(dim)) return -1;
  const auto& factors = query.binding.operands[into][static_cast<size_t>(dim)];
  return factors.size() == 1 ? factors[0] : -1;
}

/// True when the axis cuts the factor in all operands that have it.
static bool is_cut(const ChoiceQuery& query, int factor, int axis) {
  bool found = false;
  for (size_t i = 0; i < query.operands.size(); ++i) {
    const int d = Binding::dim_of(query.binding.operands[i], factor);
    if (d < 0) continue;
    if (!query.operands[i]->sharding[axis].is_shard(d)) return false;
    found = true;
  }
  return found;
}

/// Returns the roles that axis `axis` can have by itself, "none" first.
static std::vector<AxisChoice> choices_for_axis(const ChoiceQuery& query, int axis) {
  if (const int kept = kept_factor(query, axis); kept >= 0) {
    return {{AxisChoice::Kind::cut, kept}};
  }
  const auto [rows, entries] = query.joined;
  const bool joins = rows >= 0 && is_cut(query, rows, axis) && is_cut(query, entries, axis);
  // A factor that is joined with itself keeps its cuts.
  if (joins && rows == entries) return {{AxisChoice::Kind::cut, rows, entries}};
  const Binding& binding = query.binding;
  std::vector<AxisChoice> choices(1);
  for (size_t f = 0; f < binding.factors.size(); ++f) {
    if (!can_be_cut(query, static_cast<int>(f))) continue;
    choices.push_back({AxisChoice::Kind::cut, static_cast<int>(f)});
  }
  if (joins) choices.push_back({AxisChoice::Kind::cut, rows, entries});
  for (size_t s = 0; s < query.spec.linear.size(); ++s) {
    for (int operand : query.spec.linear[s]) {
      if (operand >= std::ssize(query.operands)) continue;  // the call lacks it
      const Placement& placement = query.operands[static_cast<size_t>(operand)]->sharding[axis];
      if (!placement.is_partial()) continue;
      ReduceOp op = placement.op();
      if (op != ReduceOp::sum && op != ReduceOp::avg) continue;
      choices.push_back({AxisChoice::Kind::partial, -1, -1, static_cast<int>(s), op});
      break;
    }
  }
  return choices;
}

/// Predicted time of fetching, for the bytes of the rank that needs most from others.
static double predicted_fetch_seconds(const Layout& operand, const Layout& result,
                                      const Needs& needs) {
  const int64_t most = most_missing(operand, needed_boxes(operand, result, needs));
  if (most == 0) return 0;
  return predicted_exchange_seconds(operand.sharding.mesh(),
                                    most * static_cast<int64_t>(size_of(operand.dtype)));
}

namespace {

/// Cost of a candidate: predicted time, then the operands that it changes (the first ones weigh
/// most), so that ties keep operands as they are.
struct CandidateCost {
  double seconds = 0;
  uint64_t changed = 0;
};

/// Smaller differences of predicted times do not count.
constexpr double kSameSeconds = 1e-12;

class Chooser {
 public:
  Chooser(const ChoiceQuery& query, const DeviceMesh& mesh) : query_(query), mesh_(mesh) {}

  Choice choose() {
    std::vector<std::vector<AxisChoice>> choices;
    std::vector<size_t> counts;
    for (int axis = 0; axis < mesh_.ndim(); ++axis) {
      counts.push_back(choices.emplace_back(choices_for_axis(query_, axis)).size());
    }
    // Operands whose parts have explicit sizes, which the others can take over.
    for (size_t i = 0; i < query_.operands.size(); ++i) {
      if (query_.operands[i]->sharding.has_sizes()) sized_.push_back(static_cast<int>(i));
    }
    each_combination(counts, [&](std::span<const size_t> at) {
      std::vector<AxisChoice> axes;
      for (size_t a = 0; a < at.size(); ++a) axes.push_back(choices[a][at[a]]);
      for (const int sized : sized_) consider(axes, sized);
    });
    if (!best_) refuse();
    return std::move(*best_);
  }

 private:
  [[noreturn]] void refuse() const {
    const auto layout = [&](int operand) {
      return concat("operand ", operand, " ",
                    query_.operands[static_cast<size_t>(operand)]->sharding);
    };
    fail(query_.spec.name, ": layouts of its operands are ", listed(query_.spec.writes, layout),
         ", expected ones that it can change in place");
  }

  void consider(std::span<const AxisChoice> axes, int sized) {
    std::optional<Choice> choice = combine(query_, mesh_, axes, sized);
    if (!choice) return;
    std::optional<CandidateCost> cost = cost_of(*choice);
    if (!cost) return;
    bool better =
        !best_ || cost->seconds < best_cost_.seconds - kSameSeconds ||
        (cost->seconds < best_cost_.seconds + kSameSeconds && cost->changed < best_cost_.changed);
    if (!better) return;
    best_ = std::move(choice);
    best_cost_ = *cost;
  }

  /// Returns nullopt when the choice is more expensive than the best so far.
  std::optional<CandidateCost> cost_of(const Choice& choice) const {
    CandidateCost cost;
    for (size_t i = 0; i < choice.operands.size(); ++i) {
      const Ref<Layout>& given = query_.operands[i];
      Ref<Layout> used = given;
      if (choice.operands[i] != given->sharding) {
        used = layout_of(choice.operands[i], given->shape, given->dtype);
        cost.seconds += plan_between(given, used)->cost.seconds;
        cost.changed |= uint64_t{1} << (63 - std::min<size_t>(i, 63));
      }
      if (is_fetched(query_.binding, i)) cost.seconds += fetch_seconds(choice, i, *used);
      if (best_ && cost.seconds > best_cost_.seconds + kSameSeconds) return std::nullopt;
    }
    return cost;
  }

  double fetch_seconds(const Choice& choice, size_t operand, const Layout& used) const {
    Ref<Layout> result = query_.operands[0];
    if (!choice.results.empty()) {
      result =
          layout_of(choice.results[0], query_.binding.result_shapes[0], query_.result_dtypes[0]);
    }
    if (const std::optional<ByIndex>& rows = query_.spec.by_index) {
      if (rows->rows != static_cast<int>(operand)) return 0;
      return predicted_rows_seconds(*rows, fetched_dim(query_.binding, operand), used, *result);
    }
    return predicted_fetch_seconds(used, *result, query_.needs(static_cast<int>(operand)));
  }

  const ChoiceQuery& query_;
  const DeviceMesh& mesh_;
  std::vector<int> sized_{-1};
  std::optional<Choice> best_;
  CandidateCost best_cost_;
};

}  // namespace

Choice choose_layouts(const ChoiceQuery& query, const DeviceMesh& mesh) {
  return Chooser(query, mesh).choose();
}

using FactorParts = std::vector<std::vector<int64_t>>;

/// The sizes of a dim's parts, in elements of the factor.
static FactorParts factor_parts(const Sharding& sharding, int d, int64_t size,
                                const Factor& factor) {
  FactorParts parts = sizes_of_parts(sharding.pattern(), sharding.body()->grid->sizes(), d, size);
  const int64_t inner = std::max<int64_t>(1, size / std::max<int64_t>(1, factor.size));
  for (auto& level : parts) {
    for (int64_t& part : level) part /= inner;
  }
  // A cut by an axis of one device is none.
  std::erase_if(parts, [](const auto& level) { return level.size() == 1; });
  return parts;
}

/// Compares the parts of each factor of an array with those that it was `seen` in before.
static bool agrees(const Binding& binding, const BoundArray& array, const Sharding& sharding,
                   const Shape& shape, std::map<int, FactorParts>& seen) {
  for (size_t d = 0; d < array.size(); ++d) {
    if (array[d].empty()) continue;
    // The factor that a cut of merged dims passes to: the first that is longer than 1.
    const auto found =
        std::ranges::find_if(array[d], [&](int f) { return binding.factor(f).size != 1; });
    const int factor = found == array[d].end() ? array[d].front() : *found;
    if (binding.factor(factor).fetched) continue;
    const auto dim = static_cast<int>(d);
    const FactorParts parts = factor_parts(sharding, dim, shape[dim], binding.factor(factor));
    if (seen.try_emplace(factor, parts).first->second != parts) return false;
  }
  return true;
}

bool parts_agree(const ChoiceQuery& query, const Choice& choice) {
  const auto is_sized = [](const Sharding& sharding) { return sharding.has_sizes(); };
  if (std::ranges::none_of(choice.operands, is_sized) &&
      std::ranges::none_of(choice.results, is_sized)) {
    return true;
  }
  const Binding& binding = query.binding;
  std::map<int, FactorParts> seen;
  for (size_t i = 0; i < choice.operands.size(); ++i) {
    const Shape& shape = query.operands[i]->shape;
    if (!agrees(binding, binding.operands[i], choice.operands[i], shape, seen)) return false;
  }
  for (size_t i = 0; i < choice.results.size(); ++i) {
    const Shape& shape = binding.result_shapes[i];
    if (!agrees(binding, binding.results[i], choice.results[i], shape, seen)) return false;
  }
  return true;
}

}  // namespace weft
