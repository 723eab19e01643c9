// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "mesh/grid.h"
#include "ops/engine/choose.h"

namespace weft {

using BoundArray = Binding::BoundArray;

FactorPlace place_in(const Binding& binding, const Binding::BoundDim& dim, int factor) {
  FactorPlace place{1, 1};
  bool found = false;
  for (const int other : dim) {
    if (other != factor) (found ? place.inner : place.outer) *= binding.factor(other).size;
    found = found || other == factor;
  }
  return place;
}

std::optional<CutFactor> factor_cut_at(const Binding& binding, const Binding::BoundDim& dim,
                                       int64_t outer) {
  for (const int factor : dim) {
    const int64_t size = binding.factor(factor).size, before = place_in(binding, dim, factor).outer;
    const int64_t own = before > 0 && outer % before == 0 ? outer / before : size;
    if (own < size && size % own == 0) return CutFactor{factor, own};
  }
  return std::nullopt;
}

CutDim dim_cut_by(const BoundArray& array, const AxisChoice& axis) {
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
  const BoundArray& array = query.binding.operands[static_cast<size_t>(operand)];
  const auto [dim, factor] = dim_cut_by(array, role);
  if (dim >= 0) {
    const auto& factors = array[static_cast<size_t>(dim)];
    return Shard{
        dim, {}, std::max<int64_t>(1, place_in(query.binding, factors, factor).outer) * role.outer};
  }
  // A term that is added to a sum over ranks counts once.
  const bool addend =
      makes_partial(query, role.factor) && shares_linear_set(query, operand, role.factor);
  return addend ? Placement(Partial{ReduceOp::sum}) : Placement(Replicate());
}

/// True unless, in merged dims, a factor longer than 1 is outside of `factor`: a cut of it is one
/// of an inner factor then.
static bool is_outermost(const Binding& binding, const BoundArray& array, int factor) {
  for (const auto& dim : array) {
    for (int inner : dim) {
      if (inner == factor) break;
      if (contains(dim, factor) && binding.factor(inner).size != 1) return false;
    }
  }
  return true;
}

static bool is_named(const std::vector<std::string>& names, const std::string& factor) {
  return std::ranges::any_of(names, [&](const std::string& name) {
    return name == factor || (name == "..." && factor.starts_with("..."));
  });
}

/// True for an op that adds rows, or elements, at indices: the order of the addends is free.
static bool adds_by_index(const ChoiceQuery& query) {
  const auto& given = query.spec.by_index;
  return given && given->into >= 0 && given->written == ByIndex::Written::add;
}

/// True for the factor of the dim that indices name.
static bool is_indexed(const ChoiceQuery& query, int factor) {
  const auto& given = query.spec.by_index;
  if (!given || given->into < 0) return false;
  const int dim = fetched_dim(query.binding, static_cast<size_t>(given->rows));
  const auto& into = query.binding.operands[static_cast<size_t>(given->into)];
  return dim >= 0 && contains(into[static_cast<size_t>(dim)], factor);
}

/// True if operands may have cuts of inner factors along `factor`: wherever the op does not read
/// positions. Boxes of fetched dims are worked out dim by dim.
static bool accepts_inner(const ChoiceQuery& query, int factor) {
  const Binding& binding = query.binding;
  const auto& bound = binding.factor(factor);
  const auto& positions = query.spec.positions;
  if (bound.created || bound.whole || !positions) return false;
  if ((bound.fetched && !adds_by_index(query)) || is_indexed(query, factor)) return false;
  if (is_named(*positions, bound.name) || contains(query.staged, factor)) return false;
  if (factor == query.joined.first || factor == query.joined.second) return false;
  if (!query.spec.needs) return true;
  const auto is_alone = [&](const BoundArray& array) {
    return std::ranges::all_of(
        array, [&](const auto& dim) { return dim.size() < 2 || !contains(dim, factor); });
  };
  return std::ranges::all_of(binding.operands, is_alone) &&
         std::ranges::all_of(binding.results, is_alone);
}

static bool can_be_cut(const ChoiceQuery& query, int factor) {
  const Binding& binding = query.binding;
  const auto& bound = binding.factor(factor);
  if (bound.whole || (bound.fetched && !adds_by_index(query))) return false;
  if (accepts_inner(query, factor)) return true;
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
  if (dim < 0 || !query.operands[into]->sharding[axis].cuts_with(Shard{dim})) return -1;
  const auto& factors = query.binding.operands[into][static_cast<size_t>(dim)];
  return factors.size() == 1 ? factors[0] : -1;
}

/// True when the axis cuts the factor in all operands that have it.
static bool is_cut(const ChoiceQuery& query, int factor, int axis) {
  bool found = false;
  for (size_t i = 0; i < query.operands.size(); ++i) {
    const int d = Binding::dim_of(query.binding.operands[i], factor);
    if (d < 0) continue;
    if (!query.operands[i]->sharding[axis].cuts_with(Shard{d})) return false;
    found = true;
  }
  return found;
}

/// Adds roles of an axis that cut inner factors as it does in an operand.
static void add_inner_roles(const ChoiceQuery& query, int axis, std::vector<AxisChoice>& choices) {
  const auto& arrays = query.binding.operands;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Placement& given = query.operands[i]->sharding[axis];
    if (!given.is_shard()) continue;
    const auto& dim = arrays[i][static_cast<size_t>(given.dim())];
    const std::optional<CutFactor> cut = factor_cut_at(query.binding, dim, given.outer());
    if (!cut || cut->outer == 1 || !accepts_inner(query, cut->factor)) continue;
    AxisChoice role{AxisChoice::Kind::cut, cut->factor};
    role.outer = cut->outer;
    const bool is_new = std::ranges::none_of(choices, [&](const AxisChoice& other) {
      return other.kind == role.kind && other.factor == role.factor && other.outer == role.outer;
    });
    if (is_new) choices.push_back(role);
  }
}

std::vector<AxisChoice> choices_for_axis(const ChoiceQuery& query, int axis) {
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
  add_inner_roles(query, axis, choices);
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

}  // namespace weft
