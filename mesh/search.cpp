// SPDX-License-Identifier: Apache-2.0
#include "mesh/steps.h"

#include <queue>
#include <unordered_map>

#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

using Kind = PlanStep::Kind;

static void finish(const PlanProblem& problem, const PlanState& state, PlanEdge edge,
                   std::vector<PlanEdge>& edges) {
  if (edge.to == state) return;
  predict(problem, state, edge);
  edges.push_back(std::move(edge));
}

static bool accepts_partial(const Pattern& pattern, const Placement& placement) {
  Axes partial = pattern.partial_axes();
  return partial.empty() || pattern[partial[0]] == placement;
}

/// True unless the axis has the goal's explicit sizes but other cuts outside of it, which these
/// sizes do not divide.
static bool has_parts_of(const Pattern& pattern, const Pattern& goal, int axis) {
  return !pattern[axis].has_sizes() || cuts_alike(pattern, goal, axis);
}

/// Adds steps that every rank does by itself.
static void add_local_edges(const PlanProblem& problem, const PlanState& state,
                            std::vector<PlanEdge>& edges) {
  const Pattern& goal = problem.to.pattern;
  for (int axis = 0; axis < goal.axes(); ++axis) {
    const Placement now = state.pattern[axis], wanted = goal[axis];
    if (now == wanted) continue;
    bool slices = now.is_replicate() && wanted.is_shard();
    bool counts = wanted.is_partial() && accepts_partial(state.pattern, wanted) &&
                  (now.is_replicate() ||
                   (wanted == kSum && now.is_shard() && state.pattern.is_innermost(axis)));
    if (!slices && !counts) continue;
    PlanEdge edge{.kind = Kind::local, .to = state};
    edge.to.pattern.set(axis, wanted);
    if (!has_parts_of(edge.to.pattern, goal, axis)) continue;
    finish(problem, state, std::move(edge), edges);
  }
}

/// Partial axes that the plan must reduce.
static Axes axes_to_reduce(const PlanProblem& problem, const Pattern& pattern) {
  return axes_where(pattern.axes(), [&](int axis) {
    return pattern[axis].is_partial() && pattern[axis] != problem.to.pattern[axis];
  });
}

static ReduceOp op_of(const Pattern& pattern) {
  Axes partial = pattern.partial_axes();
  return partial.empty() ? ReduceOp::sum : pattern[partial[0]].op();
}

/// A pattern cannot mix two kinds of Partial, so new ones wait until the old ones are reduced.
static void without_new_partials(Pattern& pattern, const Pattern& before) {
  for (int axis : pattern.partial_axes()) {
    if (pattern[axis] != before[axis]) pattern.set(axis, Replicate());
  }
}

/// True when reading directly to `to` makes several ranks reduce the same elements.
static bool reduces_twice(const PlanProblem& problem, const Pattern& from, const Pattern& to) {
  if (problem.shape.ndim() == 0) return false;
  Axes reduced = axes_to_reduce(problem, from);
  return std::ranges::any_of(reduced, [&](int axis) { return !to[axis].is_shard(); });
}

/// Adds one step of all axes that must communicate, unless there are none.
static void add_direct(const PlanProblem& problem, const PlanState& state, PlanEdge edge,
                       std::vector<PlanEdge>& edges) {
  edge.axes = talking_axes(problem.grid, state.pattern, edge.to.pattern);
  if (!edge.axes.empty()) finish(problem, state, std::move(edge), edges);
}

static void add_exchange(const PlanProblem& problem, const PlanState& state, const Pattern& to,
                         std::vector<PlanEdge>& edges) {
  add_direct(problem, state,
             {.kind = Kind::exchange, .op = op_of(state.pattern), .to = {to, state.dtype}}, edges);
}

/// Adds reads of peers' memory: to the target, or to a state where each rank has reduced its part.
static void add_exchange_edges(const PlanProblem& problem, const PlanState& state,
                               std::vector<PlanEdge>& edges) {
  const Pattern& goal = problem.to.pattern;
  if (!problem.options.two_step || !reduces_twice(problem, state.pattern, goal)) {
    add_exchange(problem, state, goal, edges);
  }
  Axes reduced = axes_to_reduce(problem, state.pattern);
  if (reduced.empty()) return;
  Pattern moved = goal;
  without_new_partials(moved, state.pattern);
  for (int dim = 0; dim < problem.shape.ndim(); ++dim) {
    Pattern own = state.pattern, parts = moved;
    for (int axis : reduced) {
      own.set(axis, Shard{dim});
      if (!parts[axis].is_shard()) parts.set(axis, Shard{dim});
    }
    add_exchange(problem, state, own, edges);
    add_exchange(problem, state, parts, edges);
  }
}

/// Calls f(axes) for each non-empty subset of `axes`.
template <class F> static void for_subsets(const Axes& axes, F f) {
  for (unsigned chosen = 1; chosen < 1u << axes.size(); ++chosen) {
    Axes subset;
    for (int i = 0; i < axes.size(); ++i) {
      if (chosen >> i & 1) subset.push_back(axes[i]);
    }
    f(subset);
  }
}

/// bf16 and f16 are kept in f32 until the last reduction.
static DType dtype_after(const PlanProblem& problem, const PlanState& state, const Pattern& to) {
  if (axes_to_reduce(problem, to).empty()) return problem.to.dtype;
  ReduceOp op = op_of(state.pattern);
  bool rounds = op == ReduceOp::sum || op == ReduceOp::avg;
  return rounds && is_floating(state.dtype) && size_of(state.dtype) < 4 ? f32 : state.dtype;
}

static void add_gathers(const PlanProblem& problem, const PlanState& state,
                        std::vector<PlanEdge>& edges) {
  Axes sharded;
  for (int dim = 0; dim < kMaxDims; ++dim) {
    for (int axis : state.pattern.cutting(dim)) {
      if (!cuts_alike(state.pattern, problem.to.pattern, axis)) sharded.push_back(axis);
    }
  }
  for_subsets(sharded, [&](const Axes& axes) {
    PlanEdge edge{.kind = Kind::all_gather, .axes = axes, .to = state};
    for (int i = axes.size(); i-- > 0;) {
      // Only parts that no other axis cuts further are contiguous on the group's ranks.
      if (!edge.to.pattern.is_innermost(axes[i])) return;
      edge.to.pattern.set(axes[i], Replicate());
    }
    finish(problem, state, std::move(edge), edges);
  });
}

/// Returns `axes` in the order in which the goal cuts with them.
static Axes in_goal_order(const Pattern& goal, const Axes& axes) {
  Axes order;
  for (int depth = 0; depth < kMaxAxes; ++depth) {
    for (int axis : axes) {
      if ((goal[axis].is_shard() ? goal.depth(axis) : 0) == depth) order.push_back(axis);
    }
  }
  return order;
}

static void add_reductions(const PlanProblem& problem, const PlanState& state,
                           std::vector<PlanEdge>& edges) {
  const Pattern& goal = problem.to.pattern;
  auto add = [&](Kind kind, const Axes& axes, auto placement_of) {
    PlanEdge edge{.kind = kind, .axes = axes, .op = op_of(state.pattern), .to = state};
    for (int axis : axes) {
      edge.to.pattern.set(axis, placement_of(axis));
      if (!has_parts_of(edge.to.pattern, goal, axis)) return;
    }
    edge.to.dtype = dtype_after(problem, state, edge.to.pattern);
    finish(problem, state, std::move(edge), edges);
  };
  for_subsets(axes_to_reduce(problem, state.pattern), [&](const Axes& axes) {
    add(Kind::all_reduce, axes, [](int) { return Placement(); });
    Axes order = in_goal_order(goal, axes);
    for (int dim = 0; dim < problem.shape.ndim(); ++dim) {
      if (problem.shape[dim] < 2) continue;
      add(Kind::reduce_scatter, order, [&](int) { return Placement(Shard{dim}); });
    }
    if (std::ranges::all_of(axes, [&](int axis) { return goal[axis].is_shard(); })) {
      add(Kind::reduce_scatter, order, [&](int axis) { return goal[axis]; });
    }
  });
}

/// Adds moves of one axis to another dim, and one move of all axes that are not Partial to the
/// goal.
static void add_moves(const PlanProblem& problem, const PlanState& state,
                      std::vector<PlanEdge>& edges) {
  const Pattern& goal = problem.to.pattern;
  for (int axis = 0; axis < goal.axes(); ++axis) {
    bool is_free = state.pattern[axis].is_shard() && state.pattern.is_innermost(axis) &&
                   !cuts_alike(state.pattern, goal, axis);
    for (int dim = 0; is_free && dim < problem.shape.ndim(); ++dim) {
      if (state.pattern[axis].is_shard(dim) || problem.shape[dim] < 2) continue;
      Pattern to = state.pattern;
      to.set(axis, Shard{dim});
      add_direct(problem, state, {.kind = Kind::all_to_all, .to = {to, state.dtype}}, edges);
    }
  }
  Pattern to = goal;
  without_new_partials(to, state.pattern);
  for (int axis : state.pattern.partial_axes()) to.set(axis, state.pattern[axis]);
  add_direct(problem, state, {.kind = Kind::all_to_all, .to = {to, state.dtype}}, edges);
}

namespace {

struct StateHash {
  size_t operator()(const PlanState& state) const {
    return mixed(hash_of(state.pattern), static_cast<uint64_t>(state.dtype));
  }
};

/// Predicted time, then the number of steps: of equally fast plans the shorter one is easier to
/// read.
struct Distance {
  double seconds = 0;
  int steps = 0;
  auto operator<=>(const Distance&) const = default;
};

/// Dijkstra's search over states; edges are generated as it goes.
class Search {
 public:
  explicit Search(const PlanProblem& problem)
      : problem_(problem),
        exchanges_(problem.grid.in_memory(problem.options.device) && !problem.options.collectives) {
  }

  std::vector<PlanEdge> run() {
    reach(problem_.from, {}, -1, {});
    while (!queue_.empty()) {
      auto [distance, order, id] = queue_.top();
      queue_.pop();
      auto at = static_cast<size_t>(id);
      if (nodes_[at].settled) continue;
      nodes_[at].settled = true;
      if (nodes_[at].state == problem_.to) return path_to(id);
      expand(id);
    }
    fail("redistribute: number of plans is 0, expected one at least");
  }

 private:
  struct Node {
    PlanState state;
    Distance distance;
    int before;
    PlanEdge edge;
    bool settled = false;
  };
  struct Waiting {
    Distance distance;
    /// Ties go to the state reached first, on all ranks alike.
    int order;
    int node;
    auto operator<=>(const Waiting&) const = default;
  };

  void expand(int id) {
    const PlanState state = nodes_[static_cast<size_t>(id)].state;
    const Distance distance = nodes_[static_cast<size_t>(id)].distance;
    std::vector<PlanEdge> edges;
    add_local_edges(problem_, state, edges);
    if (exchanges_) {
      add_exchange_edges(problem_, state, edges);
    } else {
      add_gathers(problem_, state, edges);
      add_reductions(problem_, state, edges);
      add_moves(problem_, state, edges);
    }
    for (PlanEdge& edge : edges) {
      PlanState to = edge.to;
      reach(to, {distance.seconds + edge.seconds, distance.steps + 1}, id, std::move(edge));
    }
  }

  void reach(const PlanState& state, Distance distance, int before, PlanEdge edge) {
    auto [found, is_new] = ids_.try_emplace(state, static_cast<int>(nodes_.size()));
    int id = found->second;
    if (is_new) {
      nodes_.push_back({state, distance, before, std::move(edge)});
    } else {
      Node& node = nodes_[static_cast<size_t>(id)];
      if (node.settled || !(distance < node.distance)) return;
      node = {state, distance, before, std::move(edge)};
    }
    queue_.push({distance, order_++, id});
  }

  std::vector<PlanEdge> path_to(int id) const {
    std::vector<PlanEdge> path;
    for (; id > 0; id = nodes_[static_cast<size_t>(id)].before) {
      path.push_back(nodes_[static_cast<size_t>(id)].edge);
    }
    std::ranges::reverse(path);
    return path;
  }

  const PlanProblem& problem_;
  bool exchanges_;
  std::vector<Node> nodes_;
  std::unordered_map<PlanState, int, StateHash> ids_;
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> queue_;
  int order_ = 0;
};

}  // namespace

std::vector<PlanEdge> cheapest_steps(const PlanProblem& problem) { return Search(problem).run(); }

}  // namespace weft
