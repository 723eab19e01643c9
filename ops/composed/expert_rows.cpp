// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "mesh/mesh_body.h"
#include "ops/take.h"
#include "src/kernels/copy/copy.h"
#include "weft/ops.h"

namespace weft {

namespace {

using Numbers = std::vector<int64_t>;

/// The axes that cut rows, outermost first: those of groups of tokens, then those of experts.
struct RowAxes {
  DeviceMesh mesh;
  Axes groups, experts;
  /// The size of each part into which the experts' axes cut the experts, in the order of the axes.
  Numbers parts;

  int64_t group_count() const { return mesh ? mesh.body()->grid().size(groups) : 1; }
};

RowAxes row_axes(const Tensor& experts, const Tensor& weights) {
  RowAxes axes;
  axes.parts = {weights.size(0)};
  if (!experts.is_sharded()) return axes;
  axes.mesh = experts.sharding().mesh().root();
  if (weights.is_sharded()) {
    axes.experts = weights.sharding().axes_cutting(0);
    const Layout& layout = *layout_of(weights);
    if (layout.sharding.has_inner()) {
      fail("experts: the weights ", weights.shape(), " are laid out as ", layout.sharding,
           ", expected cuts of whole dims");
    }
    const auto parts =
        sizes_of_parts(layout.sharding.pattern(), layout.grid->sizes(), 0, weights.size(0));
    if (!parts.empty()) axes.parts = parts.back();
  }
  for (const int axis : experts.sharding().axes_cutting(0)) {
    if (!axes.experts.contains(axis)) axes.groups.push_back(axis);
  }
  return axes;
}

/// The choices of this rank's group, sorted by expert.
struct SortedChoices {
  /// Number of experts + 1: where each expert's begin.
  Numbers starts = {};
  /// Numbers of choices in the flattened tensor of all tokens' choices.
  Numbers choices = {};
  int64_t dropped = 0;
  /// A choice that is not the number of an expert; the others are not sorted then.
  std::optional<int64_t> mistake = {};

  Numbers counts() const {
    Numbers counts(starts.size());
    std::adjacent_difference(starts.begin(), starts.end(), counts.begin());
    return {counts.begin() + 1, counts.end()};
  }
};

SortedChoices sorted_choices(const Tensor& experts, int64_t count, int64_t capacity) {
  const Numbers chosen = experts.local().to_vector<int64_t>();
  const int64_t first = experts.box().offset[0] * experts.size(1);
  Numbers counts(static_cast<size_t>(count), 0);
  for (const int64_t expert : chosen) {
    if (expert < 0 || expert >= count) {
      return {.starts = Numbers(static_cast<size_t>(count) + 1, 0), .mistake = expert};
    }
    ++counts[static_cast<size_t>(expert)];
  }
  SortedChoices sorted;
  sorted.starts.assign(1, 0);
  for (int64_t& own : counts) {
    sorted.dropped += std::max<int64_t>(0, own - capacity);
    own = std::min(own, capacity);
    sorted.starts.push_back(sorted.starts.back() + own);
  }
  sorted.choices.resize(static_cast<size_t>(sorted.starts.back()));
  Numbers next(sorted.starts.begin(), sorted.starts.end() - 1);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto expert = static_cast<size_t>(chosen[i]);
    if (next[expert] == sorted.starts[expert + 1]) continue;
    sorted.choices[static_cast<size_t>(next[expert]++)] = first + static_cast<int64_t>(i);
  }
  return sorted;
}

/// Choices that are spread evenly, for tensors without memory; but the experts of the first part
/// have `imbalance` times their share. The choices themselves are left out.
SortedChoices planned_choices(int64_t chosen, const Numbers& parts, int64_t capacity,
                              double imbalance) {
  const int64_t count = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  SortedChoices sorted;
  sorted.starts.assign(1, 0);
  const auto spread = [&](int64_t rows, int64_t experts) {
    for (int64_t expert = 0; expert < experts; ++expert) {
      const int64_t own = rows / experts + (expert < rows % experts ? 1 : 0);
      sorted.starts.push_back(sorted.starts.back() + std::min(own, capacity));
      sorted.dropped += std::max<int64_t>(0, own - capacity);
    }
  };
  const bool is_even = imbalance == 1 || parts[0] == 0 || parts[0] == count;
  if (is_even) {
    spread(chosen, count);
    return sorted;
  }
  const double share = static_cast<double>(parts[0]) / static_cast<double>(count);
  const double most = std::round(imbalance * share * static_cast<double>(chosen));
  const auto first = static_cast<int64_t>(std::min(most, static_cast<double>(chosen)));
  spread(first, parts[0]);
  spread(chosen - first, count - parts[0]);
  return sorted;
}

/// The most rows that an expert computes for a group.
int64_t capacity_of(int64_t choices, int64_t experts, std::optional<double> factor) {
  if (!factor || experts == 0) return INT64_MAX;
  const double most = *factor * static_cast<double>(choices) / static_cast<double>(experts);
  return most < 0x1p62 ? static_cast<int64_t>(std::ceil(most)) : INT64_MAX;
}

/// A tensor whose part on this rank has these numbers.
Tensor tensor_with(const Numbers& numbers, const Shape& shape, const TensorOptions& options) {
  const Tensor made = empty(shape, options);
  if (made.device().kind == DeviceKind::meta || numbers.empty()) return made;
  copy(made.block(),
       dense_block(const_cast<int64_t*>(numbers.data()), DType::i64, made.block().shape));
  if (!options.sharding) made.storage()->mark_equal_on_ranks();
  return made;
}

/// A row of `own` on each group, made whole.
Tensor gathered_over_groups(const Numbers& own, const RowAxes& axes, Device device) {
  TensorOptions options{.dtype = DType::i64, .device = device};
  const Shape shape = {axes.group_count(), static_cast<int64_t>(own.size())};
  if (!axes.mesh) return tensor_with(own, shape, options);
  Pattern pattern(axes.mesh.ndim());
  for (const int axis : axes.groups) pattern.set(axis, Shard{0});
  options.sharding = Sharding::of(axes.mesh, pattern);
  return tensor_with(own, shape, options).redistribute({});
}

/// Cuts rows into `leaves`, the number of rows of each part of experts of each group.
Sharding sharding_of_rows(const RowAxes& axes, const Numbers& leaves) {
  Pattern pattern(axes.mesh.ndim());
  for (const Axes& level : {axes.groups, axes.experts}) {
    for (const int axis : level) pattern.set(axis, Shard{0});
  }
  set_parts(pattern, axes.mesh.body()->grid(), 0, leaves);
  return Sharding::of(axes.mesh, pattern);
}

/// The number of rows of each part of experts, for each group.
Numbers rows_of_parts(const Numbers& counts, const RowAxes& axes) {
  Numbers rows;
  auto at = counts.begin();
  for (int64_t group = 0; group < axes.group_count(); ++group) {
    for (const int64_t experts : axes.parts) {
      rows.push_back(std::accumulate(at, at + experts, int64_t{0}));
      at += experts;
    }
  }
  return rows;
}

/// The choices of the experts that this rank has.
Numbers own_choices(const SortedChoices& sorted, const RowAxes& axes) {
  int64_t position = 0;
  for (const int axis : axes.experts) {
    position = position * axes.mesh.axis_size(axis) + axes.mesh.coordinate(axis);
  }
  const auto before = axes.parts.begin() + position;
  const auto first = static_cast<size_t>(std::accumulate(axes.parts.begin(), before, int64_t{0}));
  const auto end = first + static_cast<size_t>(*before);
  return {sorted.choices.begin() + sorted.starts[first],
          sorted.choices.begin() + sorted.starts[end]};
}

void check_choices(const Tensor& experts, const Tensor& weights,
                   const std::optional<double>& capacity_factor, double imbalance) {
  check_tensor("rows_by_expert", experts, weights);
  if (experts.ndim() != 2) {
    fail("rows_by_expert: experts are ", experts.shape(), ", expected [tokens, choices]");
  }
  if (weights.ndim() < 1) fail("rows_by_expert: weights have no dim, expected that of experts");
  if (capacity_factor && !(*capacity_factor >= 0)) {
    fail("rows_by_expert: capacity_factor must be at least 0, got ", *capacity_factor);
  }
  if (!(imbalance >= 1)) fail("rows_by_expert: imbalance must be at least 1, got ", imbalance);
  if (experts.is_sharded() && weights.is_sharded() &&
      !(experts.sharding().mesh() == weights.sharding().mesh())) {
    fail("rows_by_expert: weights are laid out over ", weights.sharding().mesh(), ", expected ",
         experts.sharding().mesh(), ", as the choices");
  }
}

/// The counts of all groups, and the number of choices dropped.
struct GroupCounts {
  Numbers counts;
  int64_t dropped = 0;
};

/// Exchanges the counts of groups into `counts` [groups, experts], or assumes equal groups without
/// memory. A mistake of any group fails on all ranks.
GroupCounts exchanged(const SortedChoices& sorted, const RowAxes& axes, Device device,
                      Tensor& counts) {
  Numbers own = sorted.counts();
  const auto count = static_cast<int64_t>(own.size());
  own.push_back(sorted.mistake ? -1 : sorted.dropped);
  own.push_back(sorted.mistake.value_or(0));
  const Tensor gathered = gathered_over_groups(own, axes, device);
  counts = slice(gathered, 1, 0, count);
  const bool is_here = device.kind != DeviceKind::meta;
  const Numbers all = is_here ? gathered.local().to_vector<int64_t>() : Numbers();
  GroupCounts result;
  for (int64_t group = 0; group < axes.group_count(); ++group) {
    const auto from = is_here ? all.begin() + group * (count + 2) : own.cbegin();
    if (from[count] < 0) {
      fail("rows_by_expert: an expert is ", from[count + 1], ", expected 0 to ", count - 1);
    }
    result.counts.insert(result.counts.end(), from, from + count);
    result.dropped += from[count];
  }
  return result;
}

}  // namespace

ExpertRows rows_by_expert(const Tensor& experts, const Tensor& weights,
                          std::optional<double> capacity_factor, double imbalance) {
  check_choices(experts, weights, capacity_factor, imbalance);
  NoGrad no_grad;
  const Tensor given = with_whole_cuts(as_indices("rows_by_expert", "experts", experts).detach());
  const RowAxes axes = row_axes(given, weights);
  const auto cuts_groups = [&](int axis) { return axes.groups.contains(axis); };
  const Tensor of_group =
      axes.mesh ? redistributed(given, keeping(given.sharding(), cuts_groups)) : given;
  const Device device = given.device();
  const int64_t chosen = of_group.box().shape.product();
  const int64_t most = capacity_of(chosen, weights.size(0), capacity_factor);
  const bool is_here = device.kind != DeviceKind::meta;
  const SortedChoices sorted = is_here ? sorted_choices(of_group, weights.size(0), most)
                                       : planned_choices(chosen, axes.parts, most, imbalance);
  ExpertRows rows;
  const GroupCounts all = exchanged(sorted, axes, device, rows.counts);
  rows.dropped = all.dropped;
  TensorOptions options{.dtype = DType::i64, .device = device};
  if (axes.mesh) options.sharding = sharding_of_rows(axes, rows_of_parts(all.counts, axes));
  Numbers choices = is_here ? own_choices(sorted, axes) : Numbers();
  const Shape shape = {std::accumulate(all.counts.begin(), all.counts.end(), int64_t{0})};
  Numbers tokens = choices;
  for (int64_t& token : tokens) token /= std::max<int64_t>(1, given.size(1));
  for (int64_t& choice : choices) choice %= std::max<int64_t>(1, given.size(1));
  rows.tokens = tensor_with(tokens, shape, options);
  rows.choices = tensor_with(choices, shape, options);
  return rows;
}

Tensor dispatch_rows(const Tensor& x, const ExpertRows& rows) {
  check_tensor("dispatch_rows", x);
  if (x.ndim() != 2) fail("dispatch_rows: x is ", x.shape(), ", expected [tokens, d]");
  return take_rows(x, rows.tokens);
}

Tensor combine_rows(const Tensor& computed, const ExpertRows& rows, const Tensor& weights) {
  check_tensor("combine_rows", computed, weights);
  if (computed.ndim() != 2 || weights.ndim() != 2 || computed.size(0) != rows.tokens.size(0)) {
    fail("combine_rows: shapes are ", computed.shape(), " and ", weights.shape(), ", expected [",
         rows.tokens.size(0), ", d] and [tokens, choices]");
  }
  const Tensor of_rows =
      take_along_dim(take_rows(weights, rows.tokens), unsqueeze(rows.choices, 1), 1);
  const Tensor weighted = mul(computed, cast(of_rows, computed.dtype()));
  const Tensor places =
      places_along({weights.size(0), 1}, 0, weights.sharding(), computed.device());
  return add_rows(weighted, rows.tokens, places);
}

}  // namespace weft
