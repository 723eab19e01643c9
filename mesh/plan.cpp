// SPDX-License-Identifier: Apache-2.0
#include "mesh/plan.h"

#include "mesh/mesh_body.h"
#include "mesh/steps.h"
#include "src/comm/collective_parts.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

using Kind = PlanStep::Kind;

bool Plan::is_free() const {
  return std::ranges::all_of(steps, [](const PlanStep& step) { return step.kind == Kind::local; });
}

static void check_plannable(const Layout& from, const Layout& to) {
  if (from.shape == to.shape && from.dtype == to.dtype &&
      static_cast<bool>(from.sharding) == static_cast<bool>(to.sharding) &&
      (from.grid == to.grid || from.grid->is_same(*to.grid))) {
    return;
  }
  fail("redistribute: target is ", to, ", expected the shape, dtype and mesh of ", from);
}

static void check_reducible(const Layout& from, const std::vector<PlanEdge>& edges) {
  for (const PlanEdge& edge : edges) {
    if (edge.kind == Kind::local || !from.sharding.has_partial()) continue;
    check_reduction("redistribute", edge.op, from.dtype, from.dtype);
  }
}

/// Appends a step; joins it with the one before if both are local.
static void append_step(Plan& plan, PlanStep step) {
  bool joins =
      step.kind == Kind::local && !plan.steps.empty() && plan.steps.back().kind == Kind::local;
  if (!joins) return plan.steps.push_back(std::move(step));
  PlanStep& last = plan.steps.back();
  last.to = std::move(step.to);
  last.cost.seconds += step.cost.seconds;
  last.cost.peak_bytes = step.cost.peak_bytes;
}

static void build_steps(Plan& plan, const PlanProblem& problem) {
  std::vector<PlanEdge> edges = cheapest_steps(problem);
  check_reducible(*plan.from, edges);
  PlanState state = problem.from;
  Ref<Layout> from = plan.from;
  for (size_t i = 0; i < edges.size(); ++i) {
    const PlanEdge& edge = edges[i];
    PlanStep step{.kind = edge.kind, .axes = edge.axes, .op = edge.op, .from = from};
    Sharding sharding = plan.to->grid->intern(edge.to.pattern);
    bool is_last = i + 1 == edges.size();
    step.to = is_last ? plan.to : layout_of(sharding, plan.to->shape, edge.to.dtype);
    step.cost.seconds = edge.seconds;
    const auto [received, scratch] = bytes_of_step(problem, state, edge);
    step.cost.bytes = received;
    step.cost.peak_bytes = step.to->local_bytes() + scratch;
    from = step.to;
    state = edge.to;
    append_step(plan, std::move(step));
  }
}

/// A layout as one of factors, on the ranks of `like`.
static Ref<Layout> layout_in(const Layout& like, const Factoring& factors, size_t pattern) {
  return layout_of(like.grid->intern(factors.patterns[pattern]), factors.shape, like.dtype);
}

/// Returns `from` with whole dims where it differs from `to`: a layout that both have factors in
/// common with.
static Pattern whole_where_different(const Pattern& from, const Pattern& to) {
  Pattern whole = from;
  for (int axis = 0; axis < from.axes(); ++axis) {
    const int dim = from[axis].dim();
    for (int other = 0; from[axis].is_shard() && other < from.axes(); ++other) {
      const bool cuts = from[other].is_shard(dim) || to[other].is_shard(dim);
      if (cuts && from[other] != to[other]) whole.set(axis, Replicate());
    }
  }
  return whole;
}

/// Plans in a shape of which both layouts cut whole dims; where there is none, by way of a layout
/// that has one with each.
static void plan_in_factors(Plan& plan, const Pattern& from, const Pattern& to) {
  const auto append = [&](std::span<const Pattern> both, bool has_to_fit) {
    const auto factors = factored(plan.to->shape, both, plan.to->grid->sizes());
    if (!factors && has_to_fit) {
      fail("redistribute: layouts are ", *plan.from, " and ", *plan.to, ", expected at most ",
           kMaxDims, " factors of dims");
    }
    if (!factors) return false;
    const Ref<Plan> part = plan_between(layout_in(*plan.to, *factors, 0),
                                        layout_in(*plan.to, *factors, 1), plan.options);
    plan.steps.insert(plan.steps.end(), part->steps.begin(), part->steps.end());
    return true;
  };
  if (append(std::array{from, to}, false)) return;
  const Pattern between = whole_where_different(from, to);
  append(std::array{from, between}, true);
  append(std::array{between, to}, true);
}

/// Bytes that step `i` makes in addition to the result.
static int64_t extra_bytes(const Plan& plan, size_t i) {
  bool is_result = i + 1 == plan.steps.size() || is_made_in_result(plan, i);
  return is_result ? 0 : plan.steps[i].to->local_bytes();
}

static void sum_costs(Plan& plan) {
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    plan.cost.seconds += step.cost.seconds;
    plan.cost.bytes += step.cost.bytes;
    int64_t scratch = step.cost.peak_bytes - step.to->local_bytes();
    int64_t before = i == 0 ? 0 : extra_bytes(plan, i - 1);
    plan.cost.peak_bytes = std::max(
        plan.cost.peak_bytes, plan.to->local_bytes() + before + extra_bytes(plan, i) + scratch);
  }
}

static Ref<Plan> make_plan(const Ref<Layout>& from, const Ref<Layout>& to,
                           const PlanOptions& options) {
  check_plannable(*from, *to);
  Ref<Plan> plan(new Plan);
  plan->from = from;
  plan->to = to;
  plan->options = options;
  // Layouts without a mesh are per thread, so equal ones may be different objects.
  if (from == to || !to->sharding) return plan;
  MeshGrid& grid = *to->grid;
  PlanProblem problem{grid, to->shape, {}, {}, options};
  problem.from = {without_trivial_axes(grid, from->sharding.pattern()), from->dtype};
  problem.to = {without_trivial_axes(grid, to->sharding.pattern()), to->dtype};
  // An empty tensor needs no steps.
  if (to->shape.product() != 0) {
    const Pattern &held = problem.from.pattern, &made = problem.to.pattern;
    held.has_inner() || made.has_inner() ? plan_in_factors(*plan, held, made)
                                         : build_steps(*plan, problem);
  }
  if (plan->steps.empty()) {
    plan->steps.push_back({.kind = Kind::local, .from = from, .to = to});
    plan->steps[0].cost.peak_bytes = to->local_bytes();
  }
  sum_costs(*plan);
  return plan;
}

Ref<Plan> plan_between(const Ref<Layout>& from, const Ref<Layout>& to, const PlanOptions& options) {
  if (!to->sharding) return make_plan(from, to, options);
  const RankThread::Call call(to->grid->thread(), "redistribute");
  Cache<Plan>& plans = body_of(to->sharding).plans;
  const uint64_t salt = static_cast<uint64_t>(options.device) << 2 |
                        static_cast<uint64_t>(options.two_step) << 1 |
                        static_cast<uint64_t>(options.collectives);
  uint64_t hash = mixed(mixed(salt, reinterpret_cast<uintptr_t>(from.get())),
                        reinterpret_cast<uintptr_t>(to.get()));
  Plan* found = plans.find(hash, [&](const Plan& plan) {
    return plan.from == from && plan.to == to && plan.options == options;
  });
  if (found) return Ref<Plan>(found);
  Ref<Plan> plan = make_plan(from, to, options);
  plans.insert(hash, plan);
  return plan;
}

const Plan& plan_on(DeviceKind device, const Plan& plan) {
  if (device != DeviceKind::cuda || plan.is_free()) return plan;
  if (plan.options.device == device || plan.to->grid->in_memory(device)) return plan;
  if (!plan.on_gpu) {
    PlanOptions options = plan.options;
    options.device = device;
    plan.on_gpu = plan_between(plan.from, plan.to, options);
  }
  return *plan.on_gpu;
}

std::optional<Box> local_part(const Plan& plan) {
  if (!plan.steps.empty()) {
    if (plan.steps.size() > 1 || plan.steps[0].kind != Kind::local) return std::nullopt;
    const Layout &from = *plan.steps[0].from, &to = *plan.steps[0].to;
    if (makes_sums(*to.grid, from.sharding.pattern(), to.sharding.pattern())) return std::nullopt;
    const bool in_factors = to.shape != plan.to->shape;
    if (in_factors && to.box != from.box) return std::nullopt;
    if (!in_factors && to.box.shape.product() != 0) return relative(to.box, from.box);
  }
  return Box{Dims::filled(plan.to->shape.ndim(), 0), plan.to->box.shape};
}

std::string_view name_of(Kind kind) {
  static constexpr std::array<std::string_view, 6> names = {
      "local", "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "exchange"};
  return names[static_cast<size_t>(kind)];
}

/// "P(sum) -> S(0)" on a mesh of one axis, otherwise the placements of all axes.
static std::string change_in_words(const PlanStep& step) {
  const auto words = [](const Sharding& sharding) {
    return sharding.axes() == 1 ? concat(sharding[0]) : placements_in_words(sharding);
  };
  std::string wide = step.to->dtype == step.from->dtype ? "" : concat(" in ", step.to->dtype);
  return words(step.from->sharding) + " -> " + words(step.to->sharding) + wide;
}

static ProgramAct act_of(Kind kind) {
  switch (kind) {
    case Kind::local: return ProgramAct::move;
    case Kind::all_gather: return ProgramAct::gather;
    case Kind::reduce_scatter:
    case Kind::all_reduce: return ProgramAct::reduce;
    default: return ProgramAct::exchange;
  }
}

Program program_of(const Plan& plan) {
  Program made{.title = concat(*plan.from, " -> ", *plan.to)};
  if (plan.steps.empty()) return made;
  const MeshGrid& grid = *plan.to->grid;
  made.rank = grid.rank();
  for (const MeshAxis& axis : grid.axes()) made.mesh.emplace_back(axis.name, axis.size);
  const auto change = [&](ProgramAct act, int slot) {
    made.steps.push_back({.act = act, .slot = slot});
  };
  const auto new_slot = [&](const char* name, int64_t bytes) {
    change(ProgramAct::acquire, made.add_slot({.name = name, .bytes = bytes}));
    return made.steps.back().slot;
  };
  int from = made.add_slot({.name = "the source", .held_before = true, .kept_after = true});
  const int result = new_slot("the result", plan.to->local_bytes());
  made.slots.back().kept_after = true;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    const bool in_result = i + 1 == plan.steps.size() || is_made_in_result(plan, i);
    const int to = in_result ? result : new_slot("a block between", step.to->local_bytes());
    const int packed = new_slot("packed boxes", step.cost.peak_bytes - step.to->local_bytes());
    const std::string shape =
        step.to->shape == plan.to->shape ? "" : concat(" of ", step.to->shape);
    made.steps.push_back({.act = act_of(step.kind),
                          .verb = std::string(name_of(step.kind)),
                          .change = change_in_words(step) + shape,
                          .axes = step.axes.empty() ? "" : grid.names(step.axes),
                          .bytes = step.cost.bytes,
                          .seconds = step.cost.seconds,
                          .slot = to,
                          .uses = {from, packed}});
    change(ProgramAct::release, packed);
    if (from != 0 && from != result) change(ProgramAct::release, from);
    from = to;
  }
  return made;
}

std::string to_string(const Plan& plan) { return text_of(program_of(plan)); }

}  // namespace weft
