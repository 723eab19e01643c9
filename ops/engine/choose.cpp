// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/choose.h"

#include <set>

#include "mesh/grid.h"
#include "mesh/plan.h"
#include "mesh/steps.h"
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

bool follows_operand(const Binding& binding, size_t operand) {
  if (binding.results.empty()) return true;
  if (operand == 0 || is_fetched(binding, 0)) return false;
  const auto is_created = [&](const auto& dim) {
    return dim.size() == 1 && binding.factor(dim[0]).created && !binding.factor(dim[0]).whole;
  };
  const auto is_summed = [&](const auto& dim) {
    return dim.size() == 1 && std::ranges::none_of(binding.results, [&](const auto& result) {
             return Binding::has(result, dim.front());
           });
  };
  return std::ranges::none_of(binding.results[0], is_created) &&
         std::ranges::any_of(binding.operands[0], is_summed);
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

/// A role for each axis of the mesh, by index, after the operand whose explicit sizes the others
/// take over.
using Roles = std::vector<size_t>;

/// What roles cost; not allowed without an order. Of equally good ones, the first in order is
/// taken.
struct Trial {
  ChoiceCost cost;
  Roles order;
  bool better_than(const Trial& other) const {
    if (order.empty() || other.order.empty()) return !order.empty() && other.order.empty();
    if (cost.less_than(other.cost)) return true;
    return !other.cost.less_than(cost) && order < other.order;
  }
};

/// So many combinations are tried one by one: all those of ops with up to ten roles on three axes.
constexpr size_t few_on(int axes) { return axes <= 3 ? 1024 : 400; }

class Chooser {
 public:
  Chooser(const ChoiceQuery& query, const DeviceMesh& mesh) : query_(query), mesh_(mesh) {
    // Operands whose parts have explicit sizes, which the others can take over.
    for (size_t i = 0; i < query_.operands.size(); ++i) {
      if (query_.operands[i]->sharding.has_sizes()) sized_.push_back(static_cast<int>(i));
    }
    counts_.push_back(sized_.size());
    for (int axis = 0; axis < mesh_.ndim(); ++axis) {
      counts_.push_back(choices_.emplace_back(choices_for_axis(query_, axis)).size());
      has_trivial_axes_ |= mesh_.axis_size(axis) == 1;
    }
  }

  Choice choose(ChoiceSearch search) {
    prunes_ = search != ChoiceSearch::exhaustive;
    if (!prunes_) {
      try_all(Roles(counts_.size(), 0), all_places());
    } else if (!keep_operands()) {
      search_by_axis();
    }
    if (!best_) refuse();
    best_->tried = tried_.size();
    return std::move(*best_);
  }

 private:
  /// Tries the roles that leave all operands as they are. True when one of them costs nothing: no
  /// other choice is better.
  bool keep_operands() {
    std::vector<std::vector<size_t>> keeping(1);
    for (size_t sized = 0; sized < sized_.size(); ++sized) keeping[0].push_back(sized);
    std::vector<size_t> counts = {sized_.size()};
    size_t combinations = sized_.size();
    for (size_t a = 0; a < choices_.size(); ++a) {
      std::vector<size_t>& of_axis = keeping.emplace_back();
      for (size_t r = 0; r < choices_[a].size(); ++r) {
        if (changed(a, choices_[a][r]) == 0) of_axis.push_back(r);
      }
      counts.push_back(of_axis.size());
      combinations *= counts.back();
    }
    if (combinations > few_) return false;
    bool free = false;
    each_combination(counts, [&](std::span<const size_t> at) {
      if (free) return;
      Roles roles;
      for (size_t i = 0; i < at.size(); ++i) roles.push_back(keeping[i][at[i]]);
      consider(roles);
      free = best_ && best_->cost.seconds == 0 && best_->cost.changed == 0;
    });
    return free;
  }

  /// The operands that an axis with that role changes, but for fetched ones; the first ones are
  /// high bits.
  uint64_t changed(size_t axis, const AxisChoice& role) const {
    uint64_t mask = 0;
    for (size_t i = 0; i < query_.operands.size(); ++i) {
      if (is_fetched(query_.binding, i)) continue;
      const Placement& given = query_.operands[i]->sharding[static_cast<int>(axis)];
      const Placement wanted = placement_of(query_, role, static_cast<int>(i));
      const bool same = given.is_shard() ? wanted.cuts_with(given) : wanted == given;
      if (!same) mask |= bit_of(i);
    }
    return mask;
  }
  static uint64_t bit_of(size_t operand) {
    return uint64_t{1} << (63 - std::min<size_t>(operand, 63));
  }

  /// Starts from the roles that keep one operand and as many others as can be, for each operand,
  /// and from none. Tries all roles if they are few; all of the axes of more than one device if
  /// these are few; then changes the role of one axis, or of two, while that is better.
  void search_by_axis() {
    consider(Roles(counts_.size(), 0));
    for (size_t i = 0; i < query_.operands.size(); ++i) {
      Roles roles = {0};
      for (size_t a = 0; a < choices_.size(); ++a) roles.push_back(keeping_role(a, i));
      consider(roles);
    }
    Roles places = {0};
    for (size_t a = 0; a < choices_.size(); ++a) {
      if (mesh_.axis_size(static_cast<int>(a)) > 1) places.push_back(a + 1);
    }
    if (!best_ || combinations_of(all_places()) <= few_) {
      try_all(Roles(counts_.size(), 0), all_places());
    } else if (combinations_of(places) <= few_) {
      try_all(best_roles_, places);
      while (change(1)) {
      }
    } else {
      do {
        while (change(1)) {
        }
      } while (change(2));
    }
  }

  size_t combinations_of(const Roles& places) const {
    size_t product = 1;
    for (const size_t place : places) product *= counts_[place];
    return product;
  }

  /// Tries all choices at `places`, with those of `roles` elsewhere.
  void try_all(Roles roles, const Roles& places) {
    std::vector<size_t> counts;
    for (const size_t place : places) counts.push_back(counts_[place]);
    each_combination(counts, [&](std::span<const size_t> at) {
      for (size_t i = 0; i < at.size(); ++i) roles[places[i]] = at[i];
      consider(roles);
    });
  }
  Roles all_places() const {
    Roles places;
    for (size_t i = 0; i < counts_.size(); ++i) places.push_back(i);
    return places;
  }

  /// The first role of an axis that keeps operand `first`, and then as many others as can be.
  size_t keeping_role(size_t axis, size_t first) const {
    const auto& roles = choices_[axis];
    const auto least = std::ranges::min_element(roles, {}, [&](const AxisChoice& role) {
      const uint64_t mask = changed(axis, role);
      return std::pair{(mask & bit_of(first)) != 0, mask};
    });
    return static_cast<size_t>(least - roles.begin());
  }

  /// Gives one axis, or two, other roles than the best ones. True if that is better.
  bool change(int together) {
    const Roles before = best_roles_;
    for (size_t a = 0; a < counts_.size(); ++a) {
      if (together == 1) try_all(best_roles_, {a});
      for (size_t b = a + 1; together == 2 && b < counts_.size(); ++b) {
        try_all(best_roles_, {a, b});
      }
    }
    return best_roles_ != before;
  }

  [[noreturn]] void refuse() const {
    const auto layout = [&](int operand) {
      return concat("operand ", operand, " ",
                    query_.operands[static_cast<size_t>(operand)]->sharding);
    };
    fail(query_.spec.name, ": layouts of its operands are ", listed(query_.spec.writes, layout),
         ", expected ones that it can change in place");
  }

  /// Tries the roles, once, and keeps the best choice.
  void consider(const Roles& roles) {
    if (!tried_.insert(roles).second) return;
    std::vector<AxisChoice> axes;
    for (size_t a = 0; a < choices_.size(); ++a) axes.push_back(choices_[a][roles[a + 1]]);
    std::optional<Choice> choice = combine(query_, mesh_, axes, sized_[roles[0]]);
    if (!choice) return;
    if (prunes_ && !can_be_better(*choice)) return;
    choice->cost = cost_of(*choice);
    const Trial trial{choice->cost, std::vector(roles.rbegin(), roles.rend())};
    if (best_ && !trial.better_than(best_trial_)) return;
    best_ = std::move(choice);
    best_trial_ = trial;
    best_roles_ = roles;
  }

  /// False when the moves of operands alone take longer than the best choice.
  bool can_be_better(const Choice& choice) const {
    if (!best_) return true;
    ChoiceCost least;
    for (size_t i = 0; i < choice.operands.size(); ++i) {
      const Ref<Layout>& given = query_.operands[i];
      if (choice.operands[i] == given->sharding) continue;
      const Ref<Layout> used = layout_of(choice.operands[i], given->shape, given->dtype);
      least.seconds += least_seconds(*given, *used);
      least.changed |= bit_of(i);
    }
    return !best_->cost.less_than(least);
  }

  ChoiceCost cost_of(const Choice& choice) const {
    ChoiceCost cost;
    for (size_t i = 0; i < choice.operands.size(); ++i) {
      const Ref<Layout>& given = query_.operands[i];
      Ref<Layout> used = given;
      if (choice.operands[i] != given->sharding) {
        used = layout_of(choice.operands[i], given->shape, given->dtype);
        cost.seconds += seconds_between(given, used);
        cost.changed |= bit_of(i);
      }
      if (is_fetched(query_.binding, i)) cost.seconds += fetch_seconds(choice, i, *used);
    }
    return cost;
  }

  /// Predicted time of a move. Axes of one device make no difference; plans are made without them.
  double seconds_between(const Ref<Layout>& given, const Ref<Layout>& used) const {
    if (!has_trivial_axes_) return plan_between(given, used)->cost.seconds;
    const auto reduced = [](const Ref<Layout>& layout) {
      const Pattern pattern = without_trivial_axes(*layout->grid, layout->sharding.pattern());
      return layout_of(layout->grid->intern(pattern), layout->shape, layout->dtype);
    };
    return plan_between(reduced(given), reduced(used))->cost.seconds;
  }

  double fetch_seconds(const Choice& choice, size_t operand, const Layout& used) const {
    Ref<Layout> result;
    if (follows_operand(query_.binding, operand)) {
      const Ref<Layout>& given = query_.operands[0];
      result = layout_of(choice.operands[0], given->shape, given->dtype);
    } else {
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
  size_t few_ = few_on(mesh_.ndim());
  std::vector<int> sized_{-1};
  std::vector<std::vector<AxisChoice>> choices_;
  /// The number of sized_ and of choices_ for each axis.
  std::vector<size_t> counts_;
  bool has_trivial_axes_ = false;
  bool prunes_ = true;
  std::set<Roles> tried_;
  std::optional<Choice> best_;
  Trial best_trial_;
  Roles best_roles_;
};

}  // namespace

Choice choose_layouts(const ChoiceQuery& query, const DeviceMesh& mesh, ChoiceSearch search) {
  return Chooser(query, mesh).choose(search);
}

}  // namespace weft
