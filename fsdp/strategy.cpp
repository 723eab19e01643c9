// SPDX-License-Identifier: Apache-2.0
#include "fsdp/strategy.h"

#include <algorithm>
#include <sstream>

#include "weft/error.h"

namespace weft {

Strategy Strategy::full_shard() { return {"full_shard", {{Shard(0), Shard(0), Shard(0)}}}; }
Strategy Strategy::zero2() { return {"zero2", {{Replicate(), Shard(0), Shard(0)}}}; }
Strategy Strategy::zero1() { return {"zero1", {{Replicate(), Partial(), Shard(0)}}}; }
Strategy Strategy::ddp() { return {"ddp", {{Replicate(), Partial(), Replicate()}}}; }
Strategy Strategy::hsdp() {
  return {"hsdp", {{Replicate(), Partial(), Replicate()}, {Shard(0), Shard(0), Shard(0)}}};
}

Strategy Strategy::named(std::string_view name) {
  std::string known;
  for (Strategy strategy : {full_shard(), zero2(), zero1(), ddp(), hsdp()}) {
    if (strategy.name == name) return strategy;
    known += concat(known.empty() ? "" : ", ", strategy.name);
  }
  fail("strategy: ", in_quotes(name), " is none of ", known);
}

}  // namespace weft

namespace weft::fsdp {

static AxisGroup group_of(const DeviceMesh& mesh, const std::vector<std::string>& names) {
  AxisGroup group;
  std::vector<std::string_view> views(names.begin(), names.end());
  for (const std::string& name : names) {
    group.axes += concat(group.axes.empty() ? "" : "+", name);
    group.sizes.push_back(mesh.axis_size(mesh.axis(name)));
    group.size *= group.sizes.back();
  }
  if (group.size == 1) return group;
  group.ranks = mesh.view(views).communicator();
  group.rank = group.ranks.rank();
  return group;
}

AxisGroup Roles::group(size_t first, size_t last) const {
  const auto at = [&](size_t i) { return cut.begin() + static_cast<ptrdiff_t>(i); };
  return group_of(mesh, {at(first), at(last)});
}

AxisGroup Roles::replica_group() const { return group_of(mesh, replicas); }

static std::string row_in_words(const StrategyRow& row) {
  std::ostringstream out;
  out << row.parameter << " / " << row.gradient << " / " << row.state;
  return out.str();
}

static void check_row(const std::string& axis, const StrategyRow& row) {
  const auto refuse = [&](const char* why) {
    fail("fully_shard: axis ", in_quotes(axis), " has parameter / gradient / state as ",
         row_in_words(row), "; ", why);
  };
  if (row.parameter.is_partial()) refuse("parameters are whole or cut");
  if (row.gradient.is_replicate()) refuse("between micro-steps gradients are cut or partial");
  if (row.gradient.is_partial() && row.gradient.op() != ReduceOp::sum) {
    refuse("gradients are summed");
  }
  if (row.state.is_partial()) refuse("the state is whole or cut");
  if (row.state.is_replicate() && !(row.parameter.is_replicate() && row.gradient.is_partial())) {
    refuse("a whole state needs whole parameters and partial gradients");
  }
  int dim = row.state.dim();
  for (const Placement& placement : {row.parameter, row.gradient}) {
    if (placement.is_shard() && placement.dim() != dim) refuse("all are cut along one dim");
  }
}

/// Axes of a mesh with their rows; one row serves all axes.
static std::vector<StrategyRow> rows_of(const DeviceMesh& mesh, const Strategy& strategy) {
  std::vector<StrategyRow> rows = strategy.rows;
  if (rows.size() == 1) rows.resize(static_cast<size_t>(mesh.ndim()), strategy.rows[0]);
  if (rows.size() != static_cast<size_t>(mesh.ndim())) {
    fail("fully_shard: the strategy ", in_quotes(strategy.name), " has rows for ", rows.size(),
         " axes but ", mesh, " has ", mesh.ndim());
  }
  for (size_t i = 0; i < rows.size(); ++i) check_row(mesh.axis_name(static_cast<int>(i)), rows[i]);
  return rows;
}

/// What is gathered or reduced more often is cut further outside, so that its parts are whole
/// stretches of memory.
static int depth_of(const StrategyRow& row) {
  return (row.parameter.is_shard() ? 0 : 1) + (row.gradient.is_shard() ? 0 : 1);
}

static size_t leading(const std::vector<std::pair<std::string, StrategyRow>>& cut,
                      Placement StrategyRow::*what, const DeviceMesh& mesh) {
  size_t count = 0;
  while (count < cut.size() && (cut[count].second.*what).is_shard()) ++count;
  for (size_t i = count; i < cut.size(); ++i) {
    if (!(cut[i].second.*what).is_shard()) continue;
    fail("fully_shard: on ", mesh, " axis ", in_quotes(cut[i].first), " would have to cut outside ",
         in_quotes(cut[count].first),
         " for one of parameter and gradient, and inside for the "
         "other");
  }
  return count;
}

Roles roles_of(const DeviceMesh& mesh, const Strategy& strategy, const Reshard& reshard) {
  Roles roles{.mesh = mesh, .cut = {}, .replicas = {}};
  std::vector<StrategyRow> rows = rows_of(mesh, strategy);
  std::vector<std::pair<std::string, StrategyRow>> cut;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string& name = mesh.axis_name(static_cast<int>(i));
    if (rows[i].state.is_shard()) {
      if (cut.empty()) roles.dim = rows[i].state.dim();
      if (rows[i].state.dim() != roles.dim) {
        fail("fully_shard: axis ", in_quotes(name), " cuts dim ", rows[i].state.dim(), " but ",
             in_quotes(cut[0].first), " dim ", roles.dim);
      }
      cut.emplace_back(name, rows[i]);
    } else {
      roles.replicas.push_back(name);
    }
  }
  const bool to_axis = !reshard.axis().empty();
  std::stable_sort(cut.begin(), cut.end(), [&](const auto& a, const auto& b) {
    const int more = depth_of(a.second) - depth_of(b.second);
    return more != 0 ? more < 0 : to_axis && a.first == reshard.axis() && b.first != a.first;
  });
  for (const auto& [name, row] : cut) roles.cut.push_back(name);
  roles.at_use = leading(cut, &StrategyRow::parameter, mesh);
  roles.each_step = leading(cut, &StrategyRow::gradient, mesh);
  if (!to_axis) return roles;
  if (roles.at_use != cut.size() || roles.cut.empty() || roles.cut[0] != reshard.axis()) {
    fail("fully_shard: parameters are kept over axis ", in_quotes(reshard.axis()),
         " after forward, but ", mesh, " has no such axis or not all its axes shard parameters");
  }
  roles.at_use = 1;
  roles.keeps_gathered = false;
  return roles;
}

}  // namespace weft::fsdp
