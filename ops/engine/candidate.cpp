// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/candidate.h"

#include <algorithm>

namespace weft {

using BoundArray = Binding::BoundArray;

static bool contains(std::span<const int> values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

int fetched_dim(const Binding& binding, size_t operand) {
  const BoundArray& array = binding.operands[operand];
  const auto found = std::find_if(array.begin(), array.end(), [&](const auto& dim) {
    return dim.size() == 1 && binding.factors[static_cast<size_t>(dim[0])].fetched;
  });
  return found == array.end() ? -1 : static_cast<int>(found - array.begin());
}

/// True if a cut can pass to `factor`: within merged dims it must be the outermost that is longer
/// than 1.
static bool is_outermost(const Binding& binding, const BoundArray& array, int factor) {
  for (const auto& dim : array) {
    for (int inner : dim) {
      if (inner == factor) break;
      if (contains(dim, factor) && binding.factors[static_cast<size_t>(inner)].size != 1)
        return false;
    }
  }
  return true;
}

static bool can_be_cut(const ChoiceQuery& query, int factor) {
  const Binding& binding = query.binding;
  const auto& bound = binding.factors[static_cast<size_t>(factor)];
  const bool is_addend = query.by_index && query.by_index->into >= 0 &&
                         query.by_index->written == ByIndex::Written::add;
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
  if (!query.by_index || query.by_index->into < 0) return -1;
  const auto into = static_cast<size_t>(query.by_index->into);
  const int dim = fetched_dim(query.binding, static_cast<size_t>(query.by_index->rows));
  if (dim < 0 || !query.operands[into]->sharding[axis].is_shard(dim)) return -1;
  const auto& factors = query.binding.operands[into][static_cast<size_t>(dim)];
  return factors.size() == 1 ? factors[0] : -1;
}

std::vector<AxisChoice> choices_for_axis(const ChoiceQuery& query, int axis) {
  if (const int kept = kept_factor(query, axis); kept >= 0) {
    return {{AxisChoice::Kind::cut, kept}};
  }
  const Binding& binding = query.binding;
  std::vector<AxisChoice> choices(1);
  for (size_t f = 0; f < binding.factors.size(); ++f) {
    if (!can_be_cut(query, static_cast<int>(f))) continue;
    choices.push_back({AxisChoice::Kind::cut, static_cast<int>(f)});
  }
  for (size_t s = 0; s < query.linear.size(); ++s) {
    for (int operand : query.linear[s]) {
      const Placement& placement = query.operands[static_cast<size_t>(operand)]->sharding[axis];
      if (!placement.is_partial()) continue;
      ReduceOp op = placement.op();
      if (op != ReduceOp::sum && op != ReduceOp::avg) continue;
      choices.push_back({AxisChoice::Kind::partial, -1, static_cast<int>(s), op});
      break;
    }
  }
  return choices;
}

/// True when `size * inner` elements cut into `parts` have the boundaries of `size` cut into them.
static bool boundaries_coincide(int64_t size, int64_t inner, std::span<const int> parts) {
  if (parts.empty() || inner == 1 || size == 0) return true;
  for (int index = 0; index < parts[0]; ++index) {
    Chunk outer = chunk_of(size, parts[0], index), merged = chunk_of(size * inner, parts[0], index);
    if (merged.length != outer.length * inner) return false;
    if (outer.length && merged.offset != outer.offset * inner) return false;
    if (!boundaries_coincide(outer.length, inner, parts.subspan(1))) return false;
  }
  return true;
}

namespace {

/// Turns the axes' choices into shardings.
class Combiner {
 public:
  Combiner(const ChoiceQuery& query, const DeviceMesh& mesh, std::span<const AxisChoice> axes)
      : query_(query), binding_(query.binding), mesh_(mesh), axes_(axes) {}

  std::optional<Choice> combine() {
    find_orders();
    Choice choice;
    for (size_t i = 0; i < binding_.operands.size(); ++i) {
      auto sharding = is_fetched(binding_, i) ? fetched_sharding(i) : operand_sharding(i);
      if (!sharding) return std::nullopt;
      if (contains(query_.pinned, static_cast<int>(i)) &&
          *sharding != query_.operands[i]->sharding) {
        return std::nullopt;
      }
      choice.operands.push_back(*sharding);
    }
    for (const BoundArray& array : binding_.results) {
      auto sharding = result_sharding(array, false);
      if (!sharding) return std::nullopt;
      choice.results.push_back(*sharding);
    }
    for (const BoundArray& array : binding_.stages) {
      auto sharding = result_sharding(array, true);
      if (!sharding) return std::nullopt;
      choice.stages.push_back(*sharding);
    }
    choice.staged = std::any_of(axes_.begin(), axes_.end(), [&](const AxisChoice& axis) {
      return axis.kind == AxisChoice::Kind::cut && contains(query_.staged, axis.factor);
    });
    return choice;
  }

 private:
  /// For each factor, finds the order of the axes that cut it: that of the first operand already
  /// cut by them, otherwise mesh order.
  void find_orders() {
    orders_.assign(binding_.factors.size(), {});
    for (size_t f = 0; f < orders_.size(); ++f) {
      Axes cutting;
      for (int a = 0; a < mesh_.ndim(); ++a) {
        const AxisChoice& axis = axes_[static_cast<size_t>(a)];
        if (axis.kind == AxisChoice::Kind::cut && axis.factor == static_cast<int>(f))
          cutting.push_back(a);
      }
      orders_[f] = cutting.size() > 1 ? present_order(static_cast<int>(f), cutting) : cutting;
    }
  }

  Axes present_order(int factor, const Axes& cutting) const {
    for (size_t i = 0; i < binding_.operands.size(); ++i) {
      const BoundArray& array = binding_.operands[i];
      for (size_t d = 0; d < array.size(); ++d) {
        if (!contains(array[d], factor)) continue;
        Axes order;
        for (int axis : query_.operands[i]->sharding.axes_cutting(static_cast<int>(d))) {
          if (cutting.contains(axis)) order.push_back(axis);
        }
        if (order.size() == cutting.size()) return order;
      }
    }
    return cutting;
  }

  /// Returns the dim of `array` that `factor` cuts, or -1.
  static int dim_of(const BoundArray& array, int factor) {
    for (size_t d = 0; d < array.size(); ++d) {
      if (contains(array[d], factor)) return static_cast<int>(d);
    }
    return -1;
  }

  bool shares_linear_set(int operand, int factor) const {
    for (const auto& set : query_.linear) {
      if (!contains(set, operand)) continue;
      for (int other : set) {
        if (Binding::has(binding_.operands[static_cast<size_t>(other)], factor)) return true;
      }
    }
    return false;
  }

  /// True if no result has the factor and no stage reduces it: cutting it makes results Partial.
  bool makes_partial(int factor) const {
    const auto& bound = binding_.factors[static_cast<size_t>(factor)];
    return !binding_.results.empty() && !bound.created && !contains(query_.staged, factor) &&
           std::none_of(binding_.results.begin(), binding_.results.end(),
                        [&](const BoundArray& array) { return Binding::has(array, factor); });
  }

  Placement operand_placement(size_t operand, const AxisChoice& axis) const {
    int index = static_cast<int>(operand);
    if (axis.kind == AxisChoice::Kind::partial) {
      const auto& set = query_.linear[static_cast<size_t>(axis.set)];
      return contains(set, index) ? Placement(Partial{axis.op}) : Placement(Replicate());
    }
    if (axis.kind == AxisChoice::Kind::whole) return Replicate();
    int dim = dim_of(binding_.operands[operand], axis.factor);
    if (dim >= 0) return Shard{dim};
    // A term that is added to a sum over ranks counts once.
    bool addend = makes_partial(axis.factor) && shares_linear_set(index, axis.factor);
    return addend ? Placement(Partial{ReduceOp::sum}) : Placement(Replicate());
  }

  std::optional<Sharding> operand_sharding(size_t operand) const {
    Pattern pattern(mesh_.ndim());
    for (int a = 0; a < mesh_.ndim(); ++a) {
      pattern.set(a, operand_placement(operand, axes_[static_cast<size_t>(a)]));
    }
    return checked(binding_.operands[operand], pattern);
  }

  /// Fetched dims keep their sharding on axes without another role.
  std::optional<Sharding> fetched_sharding(size_t operand) const {
    Pattern pattern = query_.by_index ? rows_pattern(operand) : fetched_pattern(operand);
    return checked(binding_.operands[operand], pattern, static_cast<int>(operand));
  }

  Pattern fetched_pattern(size_t operand) const {
    Pattern pattern = query_.operands[operand]->sharding.pattern();
    for (int a = 0; a < mesh_.ndim(); ++a) {
      const Placement given = pattern[a];
      const Placement placement = operand_placement(operand, axes_[static_cast<size_t>(a)]);
      const bool stays =
          placement.is_replicate() && given.is_shard() && is_fetched_dim(operand, given.dim());
      if (!stays && placement != given) pattern.set(a, placement);
    }
    return pattern;
  }

  /// Rows that move by index, and the indices that they are written to, are cut alike.
  Pattern rows_pattern(size_t operand) const {
    Pattern pattern = query_.operands[operand]->sharding.pattern();
    const int dim = fetched_dim(binding_, operand);
    for (int a = 0; a < mesh_.ndim(); ++a) {
      const Placement placement = cuts_rows(a)
                                      ? Placement(Shard{dim})
                                      : operand_placement(operand, axes_[static_cast<size_t>(a)]);
      if (placement != pattern[a]) pattern.set(a, placement);
    }
    const auto rows = static_cast<size_t>(query_.by_index->rows);
    if (operand != rows) {
      const Axes order = rows_pattern(rows).cutting(fetched_dim(binding_, rows));
      if (order.size() > 1) pattern.set_order(dim, order);
    }
    return pattern;
  }

  /// True on an axis without a role for rows that do not lie whole on it, or whose indices do not:
  /// cutting them costs less than gathering them.
  bool cuts_rows(int axis) const {
    const auto rows = static_cast<size_t>(query_.by_index->rows);
    if (!operand_placement(rows, axes_[static_cast<size_t>(axis)]).is_replicate()) return false;
    for (const int operand : {query_.by_index->rows, query_.by_index->indices}) {
      const auto i = static_cast<size_t>(operand);
      if (is_fetched(binding_, i) && !query_.operands[i]->sharding[axis].is_replicate()) {
        return true;
      }
    }
    return false;
  }

  bool is_fetched_dim(size_t operand, int dim) const {
    const auto& factors = binding_.operands[operand][static_cast<size_t>(dim)];
    return factors.size() == 1 && binding_.factors[static_cast<size_t>(factors[0])].fetched;
  }

  std::optional<Sharding> result_sharding(const BoundArray& array, bool stage) const {
    Pattern pattern(mesh_.ndim());
    for (int a = 0; a < mesh_.ndim(); ++a) {
      const AxisChoice& axis = axes_[static_cast<size_t>(a)];
      if (axis.kind == AxisChoice::Kind::partial) pattern.set(a, Partial{axis.op});
      if (axis.kind == AxisChoice::Kind::cut) pattern.set(a, cut_result(array, axis.factor, stage));
    }
    return checked(array, pattern);
  }

  /// Placement of a result, or of a stage after its reduction, on an axis that cuts `factor`.
  Placement cut_result(const BoundArray& array, int factor, bool stage) const {
    int dim = dim_of(array, factor);
    if (dim >= 0) return Shard{dim};
    const auto& bound = binding_.factors[static_cast<size_t>(factor)];
    if (bound.created || stage || contains(query_.staged, factor)) return Replicate();
    return Partial{bound.reduce};
  }

  /// Returns nullopt for Partials of two kinds, or for merged dims cut off their boundaries.
  /// Orders the cuts as the factors are cut, but for the fetched dims of operand `fetched`.
  std::optional<Sharding> checked(const BoundArray& array, Pattern pattern,
                                  int fetched = -1) const {
    const Axes partial = pattern.partial_axes();
    for (int axis : partial) {
      if (pattern[axis] != pattern[partial[0]]) return std::nullopt;
    }
    for (size_t d = 0; d < array.size(); ++d) {
      const auto dim = static_cast<int>(d);
      const bool as_it_is = fetched >= 0 && is_fetched_dim(static_cast<size_t>(fetched), dim);
      const Axes order = as_it_is ? pattern.cutting(dim) : order_of(array[d]);
      if (!coincides(array[d], order)) return std::nullopt;
      if (order.size() > 1) pattern.set_order(dim, order);
    }
    return Sharding::of(mesh_, pattern);
  }

  /// The axes that cut the first cut factor of a dim, in their order.
  Axes order_of(const Binding::BoundDim& dim) const {
    for (int factor : dim) {
      if (!orders_[static_cast<size_t>(factor)].empty())
        return orders_[static_cast<size_t>(factor)];
    }
    return {};
  }

  bool coincides(const Binding::BoundDim& dim, const Axes& order) const {
    if (dim.size() < 2 || order.empty()) return true;
    size_t at = 0;
    while (orders_[static_cast<size_t>(dim[at])].empty()) ++at;
    int64_t inner = 1;
    for (size_t i = at + 1; i < dim.size(); ++i) {
      if (!orders_[static_cast<size_t>(dim[i])].empty()) return false;
      inner *= binding_.factors[static_cast<size_t>(dim[i])].size;
    }
    std::vector<int> parts;
    for (int axis : order) parts.push_back(mesh_.axis_size(axis));
    return boundaries_coincide(binding_.factors[static_cast<size_t>(dim[at])].size, inner, parts);
  }

  const ChoiceQuery& query_;
  const Binding& binding_;
  const DeviceMesh& mesh_;
  std::span<const AxisChoice> axes_;
  std::vector<Axes> orders_;
};

}  // namespace

std::optional<Choice> combine(const ChoiceQuery& query, const DeviceMesh& mesh,
                              std::span<const AxisChoice> axes) {
  return Combiner(query, mesh, axes).combine();
}

}  // namespace weft
