// SPDX-License-Identifier: Apache-2.0
#include "fsdp/strategy.h"

#include <algorithm>
#include <functional>
#include <range/v3/algorithm/any_of.hpp>
#include <range/v3/numeric/accumulate.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/map.hpp>
#include <range/v3/view/transform.hpp>

#include "weft/error.h"
#include "weft/extend/links.h"

namespace weft {

Strategy Strategy::full_shard() { return {"full_shard", {{Shard(0), Shard(0), Shard(0)}}}; }
Strategy Strategy::zero2() { return {"zero2", {{Replicate(), Shard(0), Shard(0)}}}; }
Strategy Strategy::zero1() { return {"zero1", {{Replicate(), Partial(), Shard(0)}}}; }
Strategy Strategy::ddp() { return {"ddp", {{Replicate(), Partial(), Replicate()}}}; }
Strategy Strategy::hsdp() {
  return {"hsdp", {{Replicate(), Partial(), Replicate()}, {Shard(0), Shard(0), Shard(0)}}};
}

Strategy Strategy::named(std::string_view name) {
  const Strategy all[] = {full_shard(), zero2(), zero1(), ddp(), hsdp()};
  const auto* const found = std::ranges::find(all, name, &Strategy::name);
  if (found != std::end(all)) return *found;
  fail("strategy: name is ", in_quotes(name), ", expected one of ",
       listed(all, [](const Strategy& strategy) { return strategy.name; }));
}

Reshard::Reshard(int ranks) : ranks_(ranks) {
  if (ranks != 0) return;
  fail("fully_shard: reshard_after_forward is 0, expected a number of ranks above 1; false keeps ",
       "the parameters");
}

}  // namespace weft

namespace weft::fsdp {

namespace views = ranges::views;

std::vector<int> numbers_of(const AxisGroup& ranks) {
  return views::ints(0, ranks.size) | ranges::to<std::vector>();
}

static DeviceMesh view_of(const DeviceMesh& mesh, const std::vector<std::string>& axes) {
  return mesh.view(std::vector<std::string_view>(axes.begin(), axes.end()));
}

AxisGroup Roles::group(const std::vector<std::string>& names) const {
  AxisGroup group;
  group.axes = listed(names, std::identity(), "+");
  group.sizes =
      names | views::transform([&](const auto& name) { return mesh.axis_size(mesh.axis(name)); }) |
      ranges::to<std::vector>();
  group.size = ranges::accumulate(group.sizes, 1, std::multiplies());
  if (group.size == 1) return group;
  group.communicator = view_of(mesh, names).communicator();
  group.rank = group.communicator.rank();
  return group;
}

AxisGroup Roles::group(size_t first, size_t last) const {
  const auto at = [&](size_t i) { return sharded.begin() + static_cast<ptrdiff_t>(i); };
  return group(std::vector<std::string>(at(first), at(last)));
}

/// The ranks of an axis from `first` on, `stride` apart.
static AxisGroup part_of_axis(const AxisGroup& axis, int first, int stride, int size) {
  AxisGroup part{
      .axes = concat(axis.axes, " by ", size), .sizes = {size}, .communicator = {}, .size = size};
  const auto ranks = views::ints(0, size) |
                     views::transform([&](int i) { return first + i * stride; }) |
                     ranges::to<std::vector>();
  part.communicator = axis.communicator.subgroup(ranks, part.axes);
  part.rank = part.communicator.rank();
  return part;
}

AxisGroup Roles::use_group() const {
  if (ranks_at_use == 0) return group(0, at_use);
  const AxisGroup axis = group(0, 1);
  const int stride = axis.size / ranks_at_use;
  return part_of_axis(axis, axis.rank % stride, stride, ranks_at_use);
}

AxisGroup Roles::kept_group() const {
  if (ranks_at_use == 0) return group(at_use, sharded.size());
  const AxisGroup axis = group(0, 1);
  const int size = axis.size / ranks_at_use;
  return part_of_axis(axis, axis.rank / size * size, 1, size);
}

static void check_row(const std::string& axis, const StrategyRow& row) {
  const auto refuse = [&](const char* expected) {
    fail("fully_shard: parameter / gradient / state of axis ", in_quotes(axis), " is ",
         row.parameter, " / ", row.gradient, " / ", row.state, ", expected ", expected);
  };
  if (row.parameter.is_partial()) refuse("a parameter that is R or S");
  const bool sums = row.gradient.is_partial() && row.gradient.op() == ReduceOp::sum;
  if (!sums && !row.gradient.is_shard()) refuse("a gradient that is P(sum) or S");
  if (row.state.is_partial()) refuse("a state that is R or S");
  if (row.state.is_replicate() && !(row.parameter.is_replicate() && row.gradient.is_partial())) {
    refuse("R / P(sum) / R if the state is R");
  }
  int dim = row.state.dim();
  for (const Placement& placement : {row.parameter, row.gradient}) {
    if (placement.is_shard() && placement.dim() != dim) refuse("one dimension in all S");
  }
  for (const Placement& placement : {row.parameter, row.gradient, row.state}) {
    const bool is_plain =
        !placement.is_shard() || !(placement.has_sizes() || placement.outer() > 1);
    if (!is_plain) refuse("S without sizes or inner cuts");
  }
}

/// Returns a row per axis of the mesh; a single row is that of all axes.
static std::vector<StrategyRow> rows_of(const DeviceMesh& mesh, const Strategy& strategy) {
  std::vector<StrategyRow> rows = strategy.rows;
  if (rows.size() == 1) rows.resize(static_cast<size_t>(mesh.ndim()), strategy.rows[0]);
  if (rows.size() != static_cast<size_t>(mesh.ndim())) {
    fail("fully_shard: number of rows of strategy ", in_quotes(strategy.name), " is ", rows.size(),
         ", expected ", mesh.ndim(), ", one per axis of ", mesh);
  }
  for (size_t i = 0; i < rows.size(); ++i) check_row(mesh.axis_name(static_cast<int>(i)), rows[i]);
  return rows;
}

/// The axes over which parameters and gradients move more often shard further outside, so that the
/// parts which these axes move are contiguous.
static int depth_of(const StrategyRow& row) {
  return (row.parameter.is_shard() ? 0 : 1) + (row.gradient.is_shard() ? 0 : 1);
}

/// Returns how many of the axes shard `what`. Fails unless these are the first axes.
static size_t leading(const std::vector<std::pair<std::string, StrategyRow>>& axes,
                      Placement StrategyRow::*what, const DeviceMesh& mesh) {
  size_t count = 0;
  while (count < axes.size() && (axes[count].second.*what).is_shard()) ++count;
  for (const auto& [name, row] : axes | views::drop(count)) {
    if (!(row.*what).is_shard()) continue;
    fail("fully_shard: axes ", in_quotes(name), " and ", in_quotes(axes[count].first), " of ", mesh,
         " shard parameters and gradients in opposite orders, expected one order");
  }
  return count;
}

static void set_ranks_at_use(Roles& roles, int ranks) {
  const int size = roles.group(0, roles.at_use).size;
  if (roles.sharded.size() != 1 || roles.at_use != 1) {
    fail("fully_shard: reshard_after_forward is ", ranks, " of ", roles.mesh,
         ", expected an axis' name where not exactly one axis shards parameters");
  }
  if (ranks < 2 || ranks >= size || size % ranks != 0) {
    fail("fully_shard: reshard_after_forward is ", ranks, ", expected a divisor of ", size,
         " between 1 and ", size, "; true or false for the bounds");
  }
  roles.ranks_at_use = ranks;
  roles.keeps_gathered = false;
}

Roles roles_of(const DeviceMesh& mesh, const Strategy& strategy, const Reshard& reshard) {
  Roles roles{.mesh = mesh, .sharded = {}, .replicas = {}};
  std::vector<StrategyRow> rows = rows_of(mesh, strategy);
  std::vector<std::pair<std::string, StrategyRow>> axes;
  for (const auto& [i, row] : views::enumerate(rows)) {
    const std::string& name = mesh.axis_name(static_cast<int>(i));
    if (!row.state.is_shard()) {
      roles.replicas.push_back(name);
      continue;
    }
    if (axes.empty()) roles.dim = row.state.dim();
    if (row.state.dim() != roles.dim) {
      fail("fully_shard: shard dimension of axis ", in_quotes(name), " is ", row.state.dim(),
           ", expected ", roles.dim, " as of axis ", in_quotes(axes[0].first));
    }
    axes.emplace_back(name, row);
  }
  const bool to_axis = !reshard.axis().empty();
  std::ranges::stable_sort(axes, [&](const auto& a, const auto& b) {
    const int more = depth_of(a.second) - depth_of(b.second);
    return more != 0 ? more < 0 : to_axis && a.first == reshard.axis() && b.first != a.first;
  });
  roles.sharded = axes | views::keys | ranges::to<std::vector>();
  roles.at_use = leading(axes, &StrategyRow::parameter, mesh);
  roles.each_step = leading(axes, &StrategyRow::gradient, mesh);
  if (reshard.ranks() != 0) set_ranks_at_use(roles, reshard.ranks());
  if (!to_axis) return roles;
  if (roles.at_use != axes.size() || axes.empty() || roles.sharded[0] != reshard.axis()) {
    fail("fully_shard: reshard_after_forward is ", in_quotes(reshard.axis()),
         ", expected an axis of ", mesh,
         ", whose axes that shard the state must all shard parameters");
  }
  roles.at_use = 1;
  roles.keeps_gathered = false;
  return roles;
}

/// True if a byte of codes takes less time in two stages than from each rank to each rank.
static bool is_faster(const DeviceMesh& within, const DeviceMesh& across) {
  const Link fast = link_along(within), slow = link_along(across);
  if (!slow.crosses_hosts || fast.crosses_hosts) return false;
  const double w = within.size(), a = across.size();
  const double at_once =
      (1 - 1 / a) * slow.seconds_per_byte + (w - 1) / (w * a) * fast.seconds_per_byte;
  // The sums of the first stage are f32, written and read once, and read again as codes.
  const double copied = (sizeof(float) * 2 + 2) / w * fast.seconds_per_copied_byte;
  const double in_stages =
      (1 - 1 / w) * fast.seconds_per_byte + (1 - 1 / a) / w * slow.seconds_per_byte + copied;
  return in_stages < at_once;
}

static void check_axis(const DeviceMesh& mesh, const std::string& within) {
  const auto has_name = [&](int axis) { return mesh.axis_name(axis) == within; };
  if (within.empty() || ranges::any_of(views::ints(0, mesh.ndim()), has_name)) return;
  fail("fully_shard: axis within which codes move is ", in_quotes(within), ", expected one of ",
       mesh, ", or an empty name");
}

std::vector<int> Stages::order() const {
  auto ranks = views::ints(0, static_cast<int>(rank_within.size())) | ranges::to<std::vector>();
  std::ranges::stable_sort(ranks, {},
                           [&](int rank) { return rank_within[static_cast<size_t>(rank)]; });
  return ranks;
}

std::optional<Stages> stages_of(const Roles& roles, size_t first, size_t last,
                                const Quantization& quantization) {
  const DeviceMesh& mesh = roles.mesh;
  check_axis(mesh.root(), quantization.within.value_or(""));
  std::vector<std::string> within, across;
  std::vector<bool> is_within;
  for (size_t i = first; i < last; ++i) {
    const std::string& name = roles.sharded[i];
    is_within.push_back(quantization.within ? name == *quantization.within
                                            : !link_along(mesh[name]).crosses_hosts);
    (is_within.back() ? within : across).push_back(name);
  }
  if (within.empty() || across.empty()) return {};
  const DeviceMesh fast = view_of(mesh, within), slow = view_of(mesh, across);
  if (fast.size() == 1 || slow.size() == 1) return {};
  if (!quantization.within && !is_faster(fast, slow)) return {};
  Stages stages{roles.group(within), roles.group(across), {0}};
  for (size_t i = first; i < last; ++i) {
    const int size = mesh.axis_size(mesh.axis(roles.sharded[i]));
    std::vector<int> next;
    for (const int rank : stages.rank_within) {
      for (int at = 0; at < size; ++at) {
        next.push_back(is_within[i - first] ? rank * size + at : rank);
      }
    }
    stages.rank_within = std::move(next);
  }
  return stages;
}

}  // namespace weft::fsdp
