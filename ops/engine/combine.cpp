// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
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

namespace {

/// A factor, and how many of its elements are outside of the cut.
using Cut = std::pair<int, int64_t>;

/// Turns the axes' choices into shardings.
class Combiner {
 public:
  Combiner(const ChoiceQuery& query, const DeviceMesh& mesh, std::span<const AxisChoice> axes)
      : query_(query), binding_(query.binding), mesh_(mesh), axes_(axes) {
    for (int axis = 0; axis < mesh.ndim(); ++axis) sizes_.push_back(mesh.axis_size(axis));
  }

  std::optional<Choice> combine(int sized) {
    find_orders();
    if (sized >= 0 && !take_parts_of(static_cast<size_t>(sized))) return std::nullopt;
    state_chunks();
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
    for (int a = 0; a < mesh_.ndim(); ++a) {
      const AxisChoice& axis = axes_[static_cast<size_t>(a)];
      if (axis.kind != AxisChoice::Kind::cut) continue;
      orders_[{axis.factor, axis.outer}].push_back(a);
      if (axis.with >= 0 && axis.with != axis.factor) orders_[{axis.with, axis.outer}].push_back(a);
    }
    for (auto& [cut, order] : orders_) {
      if (order.size() > 1) order = present_order(cut, order);
    }
  }

  Axes present_order(const Cut& cut, const Axes& cutting) const {
    for (size_t i = 0; i < binding_.operands.size(); ++i) {
      const int d = Binding::dim_of(binding_.operands[i], cut.first);
      if (d < 0) continue;
      Axes order;
      const int64_t outer = outer_in(binding_.operands[i][static_cast<size_t>(d)], cut);
      for (int axis : query_.operands[i]->sharding.pattern().cutting(d, outer)) {
        if (cutting.contains(axis)) order.push_back(axis);
      }
      if (order.size() == cutting.size()) return order;
    }
    return cutting;
  }

  /// How many elements of a dim are outside of a cut of its factor.
  int64_t outer_in(const Binding::BoundDim& dim, const Cut& cut) const {
    return std::max<int64_t>(1, place_in(binding_, dim, cut.first).outer) * cut.second;
  }

  /// States the sizes of the chunks of a factor that some merged dim, as a whole, has not the
  /// chunks of.
  void state_chunks() {
    for (const auto& [cut, order] : orders_) {
      const auto& [factor, outer] = cut;
      const int64_t size = binding_.factor(factor).size / outer;
      if (parts_.count({factor, order[0]}) || !lacks_chunks(factor, size, order)) continue;
      Pattern pattern(mesh_.ndim());
      pattern.set_order(0, order);
      auto parts = sizes_of_parts(pattern, sizes_, 0, size);
      for (int i = 0; i < order.size(); ++i) {
        parts_[{factor, order[i]}] = std::move(parts[static_cast<size_t>(i)]);
      }
    }
  }

  bool lacks_chunks(int factor, int64_t size, const Axes& order) const {
    std::vector<int> parts;
    for (const int axis : order) parts.push_back(sizes_[static_cast<size_t>(axis)]);
    const auto lacks = [&](const BoundArray& array) {
      const int d = Binding::dim_of(array, factor);
      if (d < 0) return false;
      const FactorPlace place = place_in(binding_, array[static_cast<size_t>(d)], factor);
      return !boundaries_coincide(size, place.inner, parts);
    };
    return std::ranges::any_of(binding_.operands, lacks) ||
           std::ranges::any_of(binding_.results, lacks) ||
           std::ranges::any_of(binding_.stages, lacks);
  }

  /// Takes the order and the sizes of parts of each factor that the operand is cut along. False
  /// when it has none of them, or where its parts divide elements of a factor.
  bool take_parts_of(size_t operand) {
    const Layout& given = *query_.operands[operand];
    const Pattern& pattern = given.sharding.pattern();
    for (int a = 0; a < pattern.axes(); ++a) {
      const int d = pattern[a].dim();
      const int64_t outer = pattern[a].outer();
      if (!pattern[a].is_shard() || pattern.depth(a) > 0) continue;
      if (size_by_parts(pattern, d, outer) < 0) continue;
      const auto found = std::ranges::find_if(orders_, [&](const auto& each) {
        const auto& dim = binding_.operands[operand][static_cast<size_t>(d)];
        return contains(dim, each.first.first) && outer_in(dim, each.first) == outer;
      });
      if (found == orders_.end()) continue;
      const Axes cutting = pattern.cutting(d, outer);
      const Axes& order = found->second;
      const bool same_axes =
          cutting.size() == order.size() &&
          std::ranges::all_of(cutting, [&](int axis) { return order.contains(axis); });
      if (same_axes && !take_parts(operand, d, found->first)) return false;
    }
    return !parts_.empty();
  }

  bool take_parts(size_t operand, int d, const Cut& cut) {
    const auto& dim = binding_.operands[operand][static_cast<size_t>(d)];
    const int64_t inner = place_in(binding_, dim, cut.first).inner, outer = outer_in(dim, cut);
    const Layout& given = *query_.operands[operand];
    std::vector<std::vector<int64_t>> parts =
        sizes_of_parts(given.sharding.pattern(), sizes_, d, given.shape[d] / outer, outer);
    Axes& order = orders_[cut];
    order = given.sharding.pattern().cutting(d, outer);
    for (size_t i = 0; i < parts.size(); ++i) {
      for (int64_t& part : parts[i]) {
        if (inner == 0 || part % inner != 0) return false;
        part /= inner;
      }
      parts_[{cut.first, order[static_cast<int>(i)]}] = std::move(parts[i]);
    }
    return true;
  }

  /// A cut of dim `d` of an array along `factor`, with the sizes of its parts if they are explicit.
  Placement cut(const BoundArray& array, int d, int factor, int axis) const {
    const auto& dim = array[static_cast<size_t>(d)];
    Shard shard{d, {}, outer_in(dim, {factor, axes_[static_cast<size_t>(axis)].outer})};
    const auto found = parts_.find({factor, axis});
    if (found == parts_.end()) return shard;
    shard.sizes = found->second;
    for (int64_t& size : shard.sizes) size *= place_in(binding_, dim, factor).inner;
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
    const Pattern given = plain_where_fetched(operand);
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
      pattern.set(a, is_inner ? Placement(Shard{dim, {}, wanted.outer()}) : wanted);
    }
    return pattern;
  }

  /// The given pattern, with cuts of whole dims in place of inner factors of those that are
  /// fetched.
  Pattern plain_where_fetched(size_t operand) const {
    Pattern pattern = query_.operands[operand]->sharding.pattern();
    for (int a = 0; a < mesh_.ndim(); ++a) {
      const int dim = pattern[a].dim();
      if (pattern[a].outer() > 1 && is_fetched_dim(operand, dim)) pattern.set(a, Shard{dim});
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
      if (fetched >= 0 && is_fetched_dim(static_cast<size_t>(fetched), dim)) continue;
      std::set<int64_t> seen;
      for (const auto& [cut, order] : orders_) {
        if (!contains(array[d], cut.first)) continue;
        const int64_t outer = outer_in(array[d], cut);
        if (!seen.insert(outer).second) return std::nullopt;
        if (order.size() > 1) pattern.set_order(dim, order, outer);
      }
    }
    if (!pattern.has_sizes() && !pattern.has_inner()) return Sharding::of(mesh_, pattern);
    try {
      if (!factored(shape_of(array), {&pattern, 1}, sizes_)) return std::nullopt;
      return Sharding::of(mesh_, pattern);
    } catch (const std::invalid_argument&) {  // sizes that do not divide the parts outside of them
      return std::nullopt;
    }
  }

  Shape shape_of(const BoundArray& array) const {
    Shape shape;
    for (const auto& dim : array) {
      shape.push_back(std::transform_reduce(dim.begin(), dim.end(), int64_t{1}, std::multiplies(),
                                            [&](int f) { return binding_.factor(f).size; }));
    }
    return shape;
  }

  const ChoiceQuery& query_;
  const Binding& binding_;
  const DeviceMesh& mesh_;
  std::span<const AxisChoice> axes_;
  std::vector<int> sizes_;
  /// The axes that cut a factor, or its own inner factor, outermost first.
  std::map<Cut, Axes> orders_;
  /// Explicit sizes of the parts of a factor along an axis, by factor and axis.
  std::map<std::pair<int, int>, std::vector<int64_t>> parts_;
};

}  // namespace

std::optional<Choice> combine(const ChoiceQuery& query, const DeviceMesh& mesh,
                              std::span<const AxisChoice> axes, int sized) {
  return Combiner(query, mesh, axes).combine(sized);
}

}  // namespace weft
