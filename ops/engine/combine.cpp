// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <stdexcept>

#include "mesh/grid.h"
#include "ops/engine/choose.h"

namespace weft {

using BoundArray = Binding::BoundArray;

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

/// True when an axis cuts the operand of a view op, or the view, but did not cut the operand
/// before. Each replica would then show only its part of the elements, and change only these.
static bool cuts_replicas(const ChoiceQuery& query, const Choice& choice) {
  const Sharding& given = query.operands[0]->sharding;
  for (int axis = 0; axis < given.axes(); ++axis) {
    if (!given[axis].is_replicate()) continue;
    if (choice.operands[0][axis].is_shard() || choice.results[0][axis].is_shard()) return true;
  }
  return false;
}

static bool keeps_cuts_of(int dim, const Pattern& given, const Pattern& used) {
  for (int axis = 0; axis < given.axes(); ++axis) {
    if (!given[axis].is_shard(dim) && !used[axis].is_shard(dim)) continue;
    if (given[axis] != used[axis] || given.depth(axis) != used.depth(axis)) return false;
  }
  return true;
}

/// True when all operands that have one of the joined factors are cut along it as they were given:
/// only then does each rank hold the rows that its entries name.
static bool keeps_joined(const ChoiceQuery& query, const Choice& choice) {
  const auto [rows, entries] = query.joined;
  for (size_t i = 0; i < choice.operands.size(); ++i) {
    const Binding::BoundArray& array = query.binding.operands[i];
    for (size_t d = 0; d < array.size(); ++d) {
      if (array[d].size() != 1 || (array[d][0] != rows && array[d][0] != entries)) continue;
      const Pattern& given = query.operands[i]->sharding.pattern();
      if (!keeps_cuts_of(static_cast<int>(d), given, choice.operands[i].pattern())) return false;
    }
  }
  return true;
}

/// A dim of an array that an axis cuts, and the factor along which; -1 without one.
struct CutDim {
  int dim, factor;
};
static CutDim dim_cut_by(const BoundArray& array, const AxisChoice& axis) {
  const int dim = Binding::dim_of(array, axis.factor);
  if (dim >= 0 || axis.with < 0) return {dim, axis.factor};
  return {Binding::dim_of(array, axis.with), axis.with};
}

static bool shares_linear_set(const ChoiceQuery& query, int operand, int factor) {
  const auto& operands = query.binding.operands;
  const auto has = [&](int i) {
    return i < std::ssize(operands) && Binding::has(operands[static_cast<size_t>(i)], factor);
  };
  return std::ranges::any_of(query.spec.linear, [&](const auto& set) {
    return contains(set, operand) && std::ranges::any_of(set, has);
  });
}

/// True if no result has the factor and no stage reduces it: cutting it makes results Partial.
static bool makes_partial(const ChoiceQuery& query, int factor) {
  const auto& results = query.binding.results;
  return !results.empty() && !query.binding.factor(factor).created &&
         !contains(query.staged, factor) &&
         std::ranges::none_of(results,
                              [&](const BoundArray& array) { return Binding::has(array, factor); });
}

Placement placement_of(const ChoiceQuery& query, const AxisChoice& role, int operand) {
  if (role.kind == AxisChoice::Kind::whole) return Replicate();
  if (role.kind == AxisChoice::Kind::partial) {
    const auto& set = query.spec.linear[static_cast<size_t>(role.set)];
    return contains(set, operand) ? Placement(Partial{role.op}) : Placement(Replicate());
  }
  const int dim = dim_cut_by(query.binding.operands[static_cast<size_t>(operand)], role).dim;
  if (dim >= 0) return Shard{dim};
  // A term that is added to a sum over ranks counts once.
  const bool addend =
      makes_partial(query, role.factor) && shares_linear_set(query, operand, role.factor);
  return addend ? Placement(Partial{ReduceOp::sum}) : Placement(Replicate());
}

namespace {

/// Turns the axes' choices into shardings.
class Combiner {
 public:
  Combiner(const ChoiceQuery& query, const DeviceMesh& mesh, std::span<const AxisChoice> axes)
      : query_(query), binding_(query.binding), mesh_(mesh), axes_(axes) {}

  std::optional<Choice> combine(int sized) {
    find_orders();
    if (sized >= 0 && !take_parts_of(static_cast<size_t>(sized))) return std::nullopt;
    Choice choice;
    for (size_t i = 0; i < binding_.operands.size(); ++i) {
      auto sharding = is_fetched(binding_, i)
                          ? checked(binding_.operands[i], fetched_pattern(i), static_cast<int>(i))
                          : operand_sharding(i);
      if (!sharding) return std::nullopt;
      if (contains(query_.spec.writes, static_cast<int>(i)) &&
          *sharding != query_.operands[i]->sharding) {
        return std::nullopt;
      }
      choice.operands.push_back(*sharding);
    }
    for (const bool stage : {false, true}) {
      for (const BoundArray& array : stage ? binding_.stages : binding_.results) {
        auto sharding = result_sharding(array, stage);
        if (!sharding) return std::nullopt;
        (stage ? choice.stages : choice.results).push_back(*sharding);
      }
    }
    if (query_.spec.view && cuts_replicas(query_, choice)) return std::nullopt;
    const bool joins = std::ranges::any_of(axes_, [](auto& a) { return a.with >= 0; });
    if (joins && !keeps_joined(query_, choice)) return std::nullopt;
    if (!parts_agree(query_, choice)) return std::nullopt;
    choice.staged = std::ranges::any_of(axes_, [&](const AxisChoice& axis) {
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
        const auto factor = static_cast<int>(f);
        if (axis.kind != AxisChoice::Kind::cut) continue;
        if (axis.factor == factor || axis.with == factor) cutting.push_back(a);
      }
      orders_[f] = cutting.size() > 1 ? present_order(static_cast<int>(f), cutting) : cutting;
    }
  }

  Axes present_order(int factor, const Axes& cutting) const {
    for (size_t i = 0; i < binding_.operands.size(); ++i) {
      const int d = Binding::dim_of(binding_.operands[i], factor);
      if (d < 0) continue;
      Axes order;
      for (int axis : query_.operands[i]->sharding.axes_cutting(d)) {
        if (cutting.contains(axis)) order.push_back(axis);
      }
      if (order.size() == cutting.size()) return order;
    }
    return cutting;
  }

  /// Takes the order and the sizes of parts of each factor that the operand is cut along. False
  /// when it has none of them, or where its parts divide elements of a factor.
  bool take_parts_of(size_t operand) {
    const Layout& given = *query_.operands[operand];
    for (int d = 0; d < given.shape.ndim(); ++d) {
      const auto& dim = binding_.operands[operand][static_cast<size_t>(d)];
      const int factor = cut_factor_of(dim);
      if (factor < 0 || size_by_parts(given.sharding.pattern(), d) < 0) continue;
      const Axes cutting = given.sharding.axes_cutting(d);
      const Axes& order = orders_[static_cast<size_t>(factor)];
      const bool same_axes =
          cutting.size() == order.size() &&
          std::ranges::all_of(cutting, [&](int axis) { return order.contains(axis); });
      if (same_axes && !take_parts(given, d, factor)) return false;
    }
    return !parts_.empty();
  }

  bool take_parts(const Layout& given, int d, int factor) {
    const int64_t inner = given.shape[d] / std::max<int64_t>(1, binding_.factor(factor).size);
    std::vector<std::vector<int64_t>> parts =
        sizes_of_parts(given.sharding.pattern(), given.grid->sizes(), d, given.shape[d]);
    Axes& order = orders_[static_cast<size_t>(factor)];
    order = given.sharding.axes_cutting(d);
    for (size_t i = 0; i < parts.size(); ++i) {
      for (int64_t& part : parts[i]) {
        if (inner == 0 || part % inner != 0) return false;
        part /= inner;
      }
      parts_[{factor, order[static_cast<int>(i)]}] = std::move(parts[i]);
    }
    return true;
  }

  /// The factor of a dim that some axis cuts, or -1.
  int cut_factor_of(const Binding::BoundDim& dim) const {
    for (const int factor : dim) {
      if (!orders_[static_cast<size_t>(factor)].empty()) return factor;
    }
    return -1;
  }

  /// A cut of dim `d` of an array along `factor`, with the sizes of its parts if they are explicit.
  Placement cut(const BoundArray& array, int d, int factor, int axis) const {
    const auto found = parts_.find({factor, axis});
    if (found == parts_.end()) return Shard{d};
    int64_t inner = 1;
    for (const int other : array[static_cast<size_t>(d)]) {
      if (other != factor) inner *= binding_.factor(other).size;
    }
    Shard shard{d, found->second};
    for (int64_t& size : shard.sizes) size *= inner;
    return shard;
  }

  Placement operand_placement(size_t operand, int a) const {
    const AxisChoice& axis = axes_[static_cast<size_t>(a)];
    const Placement placement = placement_of(query_, axis, static_cast<int>(operand));
    if (!placement.is_shard() || parts_.empty()) return placement;
    const auto [dim, factor] = dim_cut_by(binding_.operands[operand], axis);
    return cut(binding_.operands[operand], dim, factor, a);
  }

  std::optional<Sharding> operand_sharding(size_t operand) const {
    Pattern pattern(mesh_.ndim());
    for (int a = 0; a < mesh_.ndim(); ++a) {
      pattern.set(a, operand_placement(operand, a));
    }
    return checked(binding_.operands[operand], pattern);
  }

  /// Fetched dims keep their sharding on axes without another role. Explicit sizes hold inside the
  /// same outer cuts only, so that axes with another role leave before they cut again. Rows that
  /// move by index, and the indices that they are written to, are cut alike.
  Pattern fetched_pattern(size_t operand) const {
    const bool moves_rows = query_.spec.by_index.has_value();
    const size_t rows = moves_rows ? static_cast<size_t>(query_.spec.by_index->rows) : operand;
    if (operand != rows) return pattern_like_rows(operand, fetched_pattern(rows));
    const Pattern& given = query_.operands[operand]->sharding.pattern();
    const bool sized = given.has_sizes() || !parts_.empty();
    const int dim = fetched_dim(binding_, operand);
    Pattern pattern = given;
    std::vector<std::pair<int, Placement>> leaving;
    for (int a = 0; a < mesh_.ndim(); ++a) {
      const Placement wanted =
          moves_rows && cuts_rows(a) ? Placement(Shard{dim}) : operand_placement(operand, a);
      const bool is_cut = given[a].is_shard();
      const bool stays =
          moves_rows ? cuts_rows(a) && given[a].is_shard(dim)
                     : wanted.is_replicate() && is_cut && is_fetched_dim(operand, given[a].dim());
      if (stays || (wanted == given[a] && !(sized && is_cut))) continue;
      leaving.emplace_back(a, wanted);
      pattern.set(a, Replicate());
    }
    for (const auto& [a, wanted] : leaving) {
      // Sizes of a factor's parts do not divide those of the axes that stay.
      const bool is_inner = wanted.is_shard(dim) && !pattern.cutting(dim).empty();
      pattern.set(a, is_inner ? Placement(Shard{dim}) : wanted);
    }
    return pattern;
  }

  /// Cuts the fetched dim of an operand as that of the rows is cut.
  Pattern pattern_like_rows(size_t operand, const Pattern& rows) const {
    const int dim = fetched_dim(binding_, operand);
    const int from = fetched_dim(binding_, static_cast<size_t>(query_.spec.by_index->rows));
    Pattern pattern(mesh_.ndim());
    for (int a = 0; a < mesh_.ndim(); ++a) {
      if (!rows[a].is_shard(from)) pattern.set(a, operand_placement(operand, a));
    }
    cut_like(pattern, dim, rows, from);
    return pattern;
  }

  /// True on an axis without a role for rows that do not lie whole on it, or whose indices do not:
  /// cutting them costs less than gathering them.
  bool cuts_rows(int axis) const {
    const auto rows = static_cast<size_t>(query_.spec.by_index->rows);
    if (!operand_placement(rows, axis).is_replicate()) return false;
    for (const int operand : {query_.spec.by_index->rows, query_.spec.by_index->indices}) {
      const auto i = static_cast<size_t>(operand);
      if (is_fetched(binding_, i) && !query_.operands[i]->sharding[axis].is_replicate()) {
        return true;
      }
    }
    return false;
  }

  bool is_fetched_dim(size_t operand, int dim) const {
    return binding_.is_fetched(binding_.operands[operand][static_cast<size_t>(dim)]);
  }

  std::optional<Sharding> result_sharding(const BoundArray& array, bool stage) const {
    Pattern pattern(mesh_.ndim());
    for (int a = 0; a < mesh_.ndim(); ++a) {
      const AxisChoice& axis = axes_[static_cast<size_t>(a)];
      if (axis.kind == AxisChoice::Kind::partial) pattern.set(a, Partial{axis.op});
      if (axis.kind == AxisChoice::Kind::cut) pattern.set(a, cut_result(array, a, stage));
    }
    return checked(array, pattern);
  }

  /// Placement of a result, or of a stage after its reduction, on an axis that cuts a factor.
  Placement cut_result(const BoundArray& array, int axis, bool stage) const {
    const auto [dim, factor] = dim_cut_by(array, axes_[static_cast<size_t>(axis)]);
    if (dim >= 0) return cut(array, dim, factor, axis);
    const auto& bound = binding_.factor(factor);
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
      const int factor = cut_factor_of(array[d]);
      const Axes order = as_it_is     ? pattern.cutting(dim)
                         : factor < 0 ? Axes()
                                      : orders_[static_cast<size_t>(factor)];
      if (!coincides(array[d], order)) return std::nullopt;
      if (order.size() > 1) pattern.set_order(dim, order);
    }
    if (!pattern.has_sizes()) return Sharding::of(mesh_, pattern);
    try {
      return Sharding::of(mesh_, pattern);
    } catch (const std::invalid_argument&) {  // sizes that do not divide the parts outside of them
      return std::nullopt;
    }
  }

  bool coincides(const Binding::BoundDim& dim, const Axes& order) const {
    if (dim.size() < 2 || order.empty()) return true;
    size_t at = 0;
    while (orders_[static_cast<size_t>(dim[at])].empty()) ++at;
    const bool sized = parts_.count({dim[at], order[0]}) > 0;
    int64_t inner = 1;
    for (size_t i = at + 1; i < dim.size(); ++i) {
      if (!orders_[static_cast<size_t>(dim[i])].empty()) return false;
      inner *= binding_.factor(dim[i]).size;
    }
    if (sized) return true;
    std::vector<int> parts;
    for (int axis : order) parts.push_back(mesh_.axis_size(axis));
    return boundaries_coincide(binding_.factor(dim[at]).size, inner, parts);
  }

  const ChoiceQuery& query_;
  const Binding& binding_;
  const DeviceMesh& mesh_;
  std::span<const AxisChoice> axes_;
  std::vector<Axes> orders_;
  /// Explicit sizes of the parts of a factor along an axis, by factor and axis.
  std::map<std::pair<int, int>, std::vector<int64_t>> parts_;
};

}  // namespace

std::optional<Choice> combine(const ChoiceQuery& query, const DeviceMesh& mesh,
                              std::span<const AxisChoice> axes, int sized) {
  return Combiner(query, mesh, axes).combine(sized);
}

}  // namespace weft
