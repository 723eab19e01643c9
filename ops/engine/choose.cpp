// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/choose.h"

#include <algorithm>

#include "mesh/plan.h"
#include "ops/engine/by_index.h"
#include "weft/error.h"

namespace weft {

namespace {

/// Cost of a candidate: predicted time, then the operands that it changes (the first ones weigh
/// most), so that ties keep operands as they are.
struct CandidateCost {
  double seconds = 0;
  uint64_t changed = 0;
  auto operator<=>(const CandidateCost&) const = default;
};

/// Smaller differences of predicted times do not count.
constexpr double kSameSeconds = 1e-12;

class Chooser {
 public:
  Chooser(const ChoiceQuery& query, const DeviceMesh& mesh) : query_(query), mesh_(mesh) {}

  Choice choose() {
    std::vector<std::vector<AxisChoice>> choices;
    for (int axis = 0; axis < mesh_.ndim(); ++axis) {
      choices.push_back(choices_for_axis(query_, axis));
    }
    // Operands whose parts have explicit sizes, which the others can take over.
    for (size_t i = 0; i < query_.operands.size(); ++i) {
      if (query_.operands[i]->sharding.has_sizes()) sized_.push_back(static_cast<int>(i));
    }
    std::vector<size_t> at(choices.size(), 0);
    do {
      std::vector<AxisChoice> axes;
      for (size_t a = 0; a < at.size(); ++a) axes.push_back(choices[a][at[a]]);
      for (const int sized : sized_) consider(axes, sized);
    } while (advance(at, choices));
    if (!best_) refuse();
    return std::move(*best_);
  }

 private:
  static bool advance(std::vector<size_t>& at,
                      const std::vector<std::vector<AxisChoice>>& choices) {
    for (size_t a = 0; a < at.size(); ++a) {
      if (++at[a] < choices[a].size()) return true;
      at[a] = 0;
    }
    return false;
  }

  [[noreturn]] void refuse() const {
    std::string layouts;
    for (int operand : query_.pinned) {
      const Sharding& sharding = query_.operands[static_cast<size_t>(operand)]->sharding;
      layouts += concat(layouts.empty() ? "" : ", ", "operand ", operand, " ", sharding);
    }
    fail(query_.name, ": layouts of its operands are ", layouts,
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
    Ref<Layout> result =
        layout_of(choice.results[0], query_.binding.result_shapes[0], query_.result_dtypes[0]);
    if (const ByIndex* rows = query_.by_index) {
      if (rows->rows != static_cast<int>(operand)) return 0;
      return predicted_rows_seconds(*rows, fetched_dim(query_.binding, operand), used, *result);
    }
    return predicted_fetch_seconds(used, *result, [&](const Box& box) {
      return query_.needs(static_cast<int>(operand), box);
    });
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

}  // namespace weft
