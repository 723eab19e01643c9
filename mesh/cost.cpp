// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <functional>
#include <range/v3/numeric/accumulate.hpp>
#include <ranges>

#include "mesh/mesh_body.h"
#include "mesh/steps.h"
#include "src/comm/collective_parts.h"
#include "src/comm/transport.h"
#include "weft/extend/links.h"

namespace weft {

using Kind = PlanStep::Kind;

CostModel cost_model_of(const Communicator& ranks) {
  // Shared memory: a wait among 4 ranks on 2 cores takes 1.8 µs, a copy runs at 10 to 20 GB/s.
  if (ranks.transport()->in_memory()) return {{2e-6, 1e-10}, {2e-6, 1e-10}, 5e-11};
  // A cluster: 100 GB/s within a host, 100 Gbit/s between hosts.
  return {{5e-6, 1e-11}, {1e-5, 8e-11}, 1e-12};
}

CostModel nccl_cost_model() {
  // Assumed, not measured: on a board of eight H100 the smallest all_reduce of NCCL takes about 15
  // to 30 µs, which is 4 per message here, and a large one runs at 300 GB/s of NVLink's 450;
  // between hosts there are 400 Gbit/s per GPU. A copy within a GPU reads and writes 3 TB/s.
  return {{4e-6, 1.0 / 300e9}, {8e-6, 1.0 / 45e9}, 1.0 / 1.5e12};
}

/// The box of a rank in a state.
static Box box_at(const PlanProblem& problem, const PlanState& state, const Coordinates& at) {
  return box_of(state.pattern, problem.grid.sizes(), problem.shape, at);
}

namespace {

/// A step on the ranks of a mesh: the boxes before and after.
struct Step {
  Box held(const Coordinates& at) const { return box_at(problem, from, at); }
  Box made(const Coordinates& at) const { return box_at(problem, edge.to, at); }

  const PlanProblem& problem;
  const PlanState& from;
  const PlanEdge& edge;
  const MeshGrid& grid = problem.grid;
};

}  // namespace

static int64_t bytes_of(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }

bool cuts_alike(const Pattern& a, const Pattern& b, int axis) {
  if (!a[axis].is_shard() || a[axis] != b[axis] || a.depth(axis) != b.depth(axis)) return false;
  Axes first = a.cutting(a[axis].dim()), second = b.cutting(a[axis].dim());
  return std::equal(first.begin(), first.begin() + a.depth(axis), second.begin(),
                    [&](int one, int other) { return one == other && a[one] == b[other]; });
}

Axes talking_axes(const MeshGrid& grid, const Pattern& from, const Pattern& to) {
  return axes_where(from.axes(), [&](int axis) {
    if (grid.size(axis) == 1) return false;
    bool reduced = from[axis].is_partial() && from[axis] != to[axis];
    bool moved = from[axis].is_shard() && !cuts_alike(from, to, axis) && to[axis] != kSum;
    return reduced || moved;
  });
}

bool counts_elsewhere(const Pattern& from, const Pattern& to, const Coordinates& coordinates) {
  return std::ranges::any_of(std::views::iota(0, from.axes()), [&](int axis) {
    const bool made = to[axis] == kSum && from[axis] != kSum && !from[axis].is_shard();
    return made && coordinates[static_cast<size_t>(axis)] != 0;
  });
}

bool makes_sums(const MeshGrid& grid, const Pattern& from, const Pattern& to) {
  return std::ranges::any_of(std::views::iota(0, from.axes()), [&](int axis) {
    return grid.size(axis) > 1 && to[axis] == kSum && from[axis] != kSum;
  });
}

/// True when a Shard becomes a Partial(sum): a rank reads only the slices at its own coordinates.
static bool embeds(const MeshGrid& grid, const Pattern& from, const Pattern& to) {
  return std::ranges::any_of(std::views::iota(0, from.axes()), [&](int axis) {
    return grid.size(axis) > 1 && from[axis].is_shard() && to[axis] == kSum;
  });
}

static int64_t elements_of_members(const Step& step, const Box& result,
                                   const Coordinates& coordinates) {
  return ranges::accumulate(step.grid.members(step.edge.axes, coordinates), int64_t{0}, std::plus(),
                            [&](int rank) {
                              const Box held = step.held(step.grid.coordinates_of(rank));
                              return overlap(held, result).shape.product();
                            });
}

/// Elements that a rank receives from others, unless they share the reduction: its box from each
/// rank that it reduces over, without what it holds itself.
static int64_t read_elements(const Step& step, const Coordinates& coordinates) {
  const Pattern &from = step.from.pattern, &to = step.edge.to.pattern;
  if (counts_elsewhere(from, to, coordinates)) return 0;
  const Box own = step.held(coordinates), result = step.made(coordinates);
  int64_t held = overlap(own, result).shape.product();
  if (embeds(step.grid, from, to)) return elements_of_members(step, result, coordinates) - held;
  const int64_t sources = ranges::accumulate(step.edge.axes, 1, std::multiplies(), [&](int axis) {
    return from[axis].is_partial() ? step.grid.size(axis) : 1;
  });
  return sources * result.shape.product() - held;
}

static int index_in_group(const MeshGrid& grid, const Axes& axes, const Coordinates& coordinates) {
  int index = 0;
  for (int axis : axes) index = index * grid.size(axis) + coordinates[static_cast<size_t>(axis)];
  return index;
}

static int64_t received_bytes(const Step& step, const Coordinates& coordinates) {
  const MeshGrid& grid = step.grid;
  const PlanEdge& edge = step.edge;
  const int64_t element = bytes_of(step.from.dtype);
  const int ranks = grid.size(edge.axes);
  if (ranks == 1) return 0;
  if (edge.kind != Kind::all_reduce) return read_elements(step, coordinates) * element;
  const int64_t made = step.made(coordinates).shape.product();
  const int64_t part = share_of(made, ranks, index_in_group(grid, edge.axes, coordinates)).count;
  return (ranks - 1) * part * element + (made - part) * bytes_of(edge.to.dtype);
}

/// True when boxes cut from `whole` along `axes` are contiguous in it, one after the other.
static bool lie_in_order(const Pattern& pattern, const Axes& axes, const Shape& whole) {
  const int dim = pattern[axes[0]].dim();
  return std::ranges::all_of(axes, [&](int axis) { return pattern[axis].dim() == dim; }) &&
         std::ranges::all_of(whole | std::views::take(dim), [](int64_t size) { return size == 1; });
}

static int64_t scratch_bytes(const Step& step, const Coordinates& coordinates) {
  const PlanState& from = step.from;
  const PlanEdge& edge = step.edge;
  const Box own = step.held(coordinates), result = step.made(coordinates);
  const int64_t held = own.shape.product() * bytes_of(from.dtype);
  const int64_t made = result.shape.product() * bytes_of(edge.to.dtype);
  switch (edge.kind) {
    case Kind::all_gather: return lie_in_order(from.pattern, edge.axes, result.shape) ? 0 : made;
    case Kind::reduce_scatter:
      return lie_in_order(edge.to.pattern, edge.axes, own.shape) ? 0 : held;
    case Kind::all_to_all: return held + made;
    default: return 0;
  }
}

StepBytes bytes_of_step(const PlanProblem& problem, const PlanState& from, const PlanEdge& edge) {
  const Step step{problem, from, edge};
  const Coordinates& here = problem.grid.coordinates();
  return {received_bytes(step, here), scratch_bytes(step, here)};
}

/// Messages to wait for: one to start, then the rounds of a tree (twice for all_reduce); for
/// all_to_all one per rank.
static double messages_of(Kind kind, int ranks) {
  double rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
  switch (kind) {
    case Kind::local: return 0;
    case Kind::all_reduce: return 1 + 2 * rounds;
    case Kind::all_to_all: return ranks;
    case Kind::exchange: return 1;
    default: return 1 + rounds;
  }
}

/// The axes along which boxes of a step differ, or whether a rank reads at all.
static Axes axes_that_differ(const Pattern& from, const Pattern& to) {
  return axes_where(from.axes(), [&](int axis) {
    return from[axis].is_shard() || to[axis].is_shard() || from[axis] != to[axis];
  });
}

/// The most of f(coordinates) over the first, a middle and the last coordinate of each of `axes`:
/// in a cut into chunks the first ranks hold most and the last ones least. Over `every` coordinate
/// where parts have explicit sizes.
template <class F> static int64_t most_of(const MeshGrid& grid, const Axes& axes, bool every, F f) {
  Coordinates at{};
  int64_t most = 0;
  auto visit = [&](auto&& self, int i) -> void {
    if (i == axes.size()) {
      most = std::max(most, f(at));
      return;
    }
    const int axis = axes[i];
    const int last = grid.size(axis) - 1;
    const int step = every ? 1 : std::max(1, (last + 1) / 2);
    for (int coordinate = 0, before = -1; before < last; coordinate += step) {
      at[static_cast<size_t>(axis)] = before = std::min(coordinate, last);
      self(self, i + 1);
    }
  };
  visit(visit, 0);
  return most;
}

/// Bytes of the block of the rank that holds most in that state.
static int64_t most_bytes(const PlanProblem& problem, const PlanState& state) {
  const auto bytes = [&](const Coordinates& at) {
    return box_at(problem, state, at).shape.product() * bytes_of(state.dtype);
  };
  // Where no part has an explicit size, the first rank has most.
  return state.pattern.has_sizes() ? most_of(problem.grid, problem.grid.all_axes(), true, bytes)
                                   : bytes({});
}

/// Bytes that the busiest rank receives. Of chunks: all_gather: the rank with the smallest part of
/// the largest result; reductions: the rank with the largest part; all_to_all and exchange: the
/// busiest of a sample.
static int64_t most_received(const Step& step, bool sized) {
  const PlanEdge& edge = step.edge;
  const auto received = [&](const Coordinates& at) { return received_bytes(step, at); };
  if (sized || edge.kind == Kind::all_to_all || edge.kind == Kind::exchange) {
    return most_of(step.grid, axes_that_differ(step.from.pattern, edge.to.pattern), sized,
                   received);
  }
  Coordinates at{};
  if (edge.kind == Kind::all_gather) {
    for (int axis : edge.axes) at[static_cast<size_t>(axis)] = step.grid.size(axis) - 1;
  }
  return received(at);
}

void predict(const PlanProblem& problem, const PlanState& from, PlanEdge& edge) {
  const MeshGrid& grid = problem.grid;
  const DeviceKind device = problem.options.device;
  const Step step{problem, from, edge};
  const bool sized = from.pattern.has_sizes() || edge.to.pattern.has_sizes();
  const auto scratch_at = [&](const Coordinates& at) { return scratch_bytes(step, at); };
  const bool zeroes = edge.kind == Kind::local && makes_sums(grid, from.pattern, edge.to.pattern);
  const int64_t copied = zeroes  ? most_bytes(problem, edge.to)
                         : sized ? most_of(grid, grid.all_axes(), true, scratch_at)
                                 : scratch_at({});
  const LinkCost& link = grid.link(edge.axes, device);
  edge.seconds = messages_of(edge.kind, grid.size(edge.axes)) * link.seconds_per_message +
                 static_cast<double>(most_received(step, sized)) * link.seconds_per_byte +
                 static_cast<double>(copied) * grid.costs(device).seconds_per_copied_byte;
}

Pattern without_trivial_axes(const MeshGrid& grid, Pattern pattern) {
  for (int axis = 0; axis < pattern.axes(); ++axis) {
    if (grid.size(axis) == 1) pattern.drop_trivial(axis);
  }
  return pattern;
}

double least_seconds(const Layout& from, const Layout& to) {
  const MeshGrid& grid = *to.grid;
  const std::array<Pattern, 2> patterns = {from.sharding.pattern(), to.sharding.pattern()};
  Factoring factors{to.shape, {}, {patterns.begin(), patterns.end()}};
  if (from.sharding.has_inner() || to.sharding.has_inner()) {
    const auto found = factored(to.shape, patterns, grid.sizes());
    if (!found) return 0;
    factors = *found;
  }
  const PlanProblem problem{*to.grid, factors.shape, {}, {}, {}};
  const PlanState held{without_trivial_axes(grid, factors.patterns[0]), from.dtype};
  const PlanState made{without_trivial_axes(grid, factors.patterns[1]), to.dtype};
  const Axes axes = talking_axes(grid, held.pattern, made.pattern);
  if (axes.empty() || to.shape.product() == 0) return 0;
  Coordinates last{};
  for (int axis = 0; axis < grid.ndim(); ++axis) {
    last[static_cast<size_t>(axis)] = grid.size(axis) - 1;
  }
  int64_t received = 0;
  const bool zeroes = makes_sums(grid, held.pattern, made.pattern);
  for (const Coordinates& at : {Coordinates{}, last}) {
    if (zeroes) break;
    const Box result = box_at(problem, made, at);
    const int64_t has = overlap(box_at(problem, held, at), result).shape.product();
    received = std::max(received, result.shape.product() - has);
  }
  double message = grid.link(axes).seconds_per_message, byte = grid.link(axes).seconds_per_byte;
  for (int axis : axes) {
    message = std::min(message, grid.link(Axes{axis}).seconds_per_message);
    byte = std::min(byte, grid.link(Axes{axis}).seconds_per_byte);
  }
  return message + static_cast<double>(received * bytes_of(from.dtype)) * byte;
}

double predicted_exchange_seconds(const DeviceMesh& mesh, int64_t bytes) {
  if (mesh.root().size() == 1) return 0;
  MeshGrid& grid = mesh.body()->grid();
  const Axes all = grid.all_axes();
  const LinkCost& link = grid.link(all);
  double messages = messages_of(grid.in_memory(DeviceKind::cpu) ? Kind::exchange : Kind::all_to_all,
                                grid.size(all));
  return messages * link.seconds_per_message + static_cast<double>(bytes) * link.seconds_per_byte;
}

Link link_along(const DeviceMesh& mesh) {
  const MeshGrid& grid = mesh.body()->grid();
  Axes axes;
  for (int axis = 0; axis < mesh.ndim(); ++axis) axes.push_back(mesh.root_axis(axis));
  const DeviceKind kind = mesh.device_type();
  return {grid.crosses_hosts(axes), grid.link(axes, kind).seconds_per_byte,
          grid.costs(kind).seconds_per_copied_byte};
}

CostModel agreed_costs(const Communicator& ranks) {
  CostModel costs = cost_model_of(ranks);
  const int64_t count = sizeof(CostModel) / sizeof(double);
  Piece piece{.send = &costs, .recv = &costs, .dtype = f64, .counts = {&count, 1}};
  ranks.broadcast({&piece, 1}, 0).wait();
  return costs;
}

}  // namespace weft
