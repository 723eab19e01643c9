// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/choose.h"

#include <algorithm>

namespace weft {

using BoundArray = Binding::BoundArray;

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
  if (joins) choices.push_back({AxisChoice::Kind::cut, rows, entries});
  for (size_t s = 0; s < query.linear.size(); ++s) {
    for (int operand : query.linear[s]) {
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
