// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ops/engine/route.h"

namespace weft {

/// Returns the slice of an operand that a slice of the result needs.
using Needs = std::function<Box(const Box& result)>;

/// In the shape of such a slice: the rank's own part of a dim, which is not fetched.
inline constexpr int64_t kOwnPart = -1;

/// True when operand `operand` is fetched for slices of operand 0, in place of result 0: where that
/// has a factor that no result has, as in the gradient of a filter.
bool follows_operand(const Binding& binding, size_t operand);

/// Returns each rank's slice of the operand, clipped to the operand's shape.
std::vector<Box> needed_boxes(const Layout& operand, const Layout& result, const Needs& needs);

/// Returns how many elements the rank that lacks most of what it needs lacks.
int64_t most_missing(const Layout& operand, const std::vector<Box>& needed);

/// The properties of an op call that determine its layouts.
struct ChoiceQuery {
  const OpSpec& spec;
  const Binding& binding;
  std::span<const Ref<Layout>> operands;
  std::span<const DType> result_dtypes;
  /// Factors over which stages reduce: cutting them does not make results Partial.
  std::span<const int> staged;
  /// Factors that an axis may cut together: rows and the entries that they belong to; -1 without.
  std::pair<int, int> joined;
  /// Returns what an operand with ~ dims needs.
  std::function<Needs(int operand)> needs;
};

/// Cost of a choice: predicted time, then the operands that it changes (the first ones weigh most),
/// so that ties keep operands as they are.
struct ChoiceCost {
  double seconds = 0;
  uint64_t changed = 0;
  /// Smaller differences of predicted times do not count.
  bool less_than(const ChoiceCost& other) const {
    constexpr double kSameSeconds = 1e-12;
    if (seconds < other.seconds - kSameSeconds) return true;
    return seconds < other.seconds + kSameSeconds && changed < other.changed;
  }
};

/// The layouts to compute in. For an operand with ~ dims: the layout from which slices are fetched.
struct Choice {
  std::vector<Sharding> operands;
  std::vector<Sharding> results;
  std::vector<Sharding> stages;
  /// True when a staged factor is cut.
  bool staged = false;
  ChoiceCost cost = {};
  /// How many combinations of the axes' roles were tried.
  size_t tried = 0;
};

/// Which combinations of the axes' roles are compared.
enum class ChoiceSearch : uint8_t {
  /// All where they are few, as on up to three axes; otherwise first those that keep operands as
  /// they are, then those that differ from the best one on one axis or two.
  by_axis,
  /// All: their number grows exponentially with the axes.
  exhaustive,
};

/// Returns the allowed layouts of least predicted time, jointly over the axes of the mesh; ties
/// keep operands as they are. All operands are laid out over the same mesh. Equal on all ranks.
/// std::invalid_argument when no layout allows the operands that are changed in place.
Choice choose_layouts(const ChoiceQuery& query, const DeviceMesh& mesh,
                      ChoiceSearch search = ChoiceSearch::by_axis);

/// The role of one mesh axis in an op: none, cuts a factor, or passes a Partial on.
struct AxisChoice {
  enum class Kind : uint8_t { whole, cut, partial } kind = Kind::whole;
  int factor = -1;
  /// A second factor that the axis cuts together with it: the entries of rows.
  int with = -1;
  /// Index of the linear set whose operands are Partial, and their reduction.
  int set = -1;
  ReduceOp op = ReduceOp::sum;
  /// Cuts the factor's own inner factor, with so many elements outside of it.
  int64_t outer = 1;
};

/// A factor in one dim of an array: the products of the sizes of the dim's factors outside of it
/// and inside of it.
struct FactorPlace {
  int64_t outer, inner;
};
FactorPlace place_in(const Binding& binding, const Binding::BoundDim& dim, int factor);

/// The factor of a dim that a cut with so many elements outside of it cuts, and how many of these
/// are elements of that factor. nullopt where it cuts none, as in a dim of size 1.
struct CutFactor {
  int factor;
  int64_t outer;
};
std::optional<CutFactor> factor_cut_at(const Binding& binding, const Binding::BoundDim& dim,
                                       int64_t outer);

/// Returns the roles that axis `axis` can have by itself, "none" first.
std::vector<AxisChoice> choices_for_axis(const ChoiceQuery& query, int axis);

/// A dim of an array that an axis cuts, and the factor along which; dim -1 without one.
struct CutDim {
  int dim, factor;
};
CutDim dim_cut_by(const Binding::BoundArray& array, const AxisChoice& axis);

/// Returns the placement of an operand on an axis with that role, but for the sizes of parts and
/// the dims that are fetched.
Placement placement_of(const ChoiceQuery& query, const AxisChoice& role, int operand);

/// Returns the layouts that the axes' roles give; nullopt if they are incompatible. Factors are cut
/// into the parts of operand `sized`, whose sharding has explicit sizes, where the same axes cut
/// them there, otherwise (and everywhere for -1) into chunks.
std::optional<Choice> combine(const ChoiceQuery& query, const DeviceMesh& mesh,
                              std::span<const AxisChoice> axes, int sized);

/// Calls `visit` with each combination of one of `counts[i]` choices for each i, the first fastest.
template <class Visit> void each_combination(std::span<const size_t> counts, const Visit& visit) {
  if (std::ranges::count(counts, 0u)) return;
  std::vector<size_t> at(counts.size(), 0);
  for (size_t i = 0; i < at.size() || at.empty();) {
    visit(at);
    if (at.empty()) return;
    for (i = 0; i < at.size() && ++at[i] == counts[i]; ++i) at[i] = 0;
  }
}

/// Cuts dim `dim` of `pattern`, which no axis cuts, as `other` cuts its dim `from`.
inline void cut_like(Pattern& pattern, int dim, const Pattern& other, int from) {
  for (const int axis : other.cutting(from)) {
    const std::span<const int64_t> sizes = other[axis].sizes();
    pattern.set(axis, Shard{dim, {sizes.begin(), sizes.end()}, other[axis].outer()});
  }
}

/// Returns the first dim of an operand that is fetched, or -1.
int fetched_dim(const Binding& binding, size_t operand);
inline bool is_fetched(const Binding& binding, size_t operand) {
  return fetched_dim(binding, operand) >= 0;
}

/// True when all operands and results that have a factor divide it into the same parts. Where no
/// part has an explicit size, the rules of cuts ensure it.
bool parts_agree(const ChoiceQuery& query, const Choice& choice);

}  // namespace weft
