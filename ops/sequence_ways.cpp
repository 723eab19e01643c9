// SPDX-License-Identifier: Apache-2.0
#include "ops/sequence_ways.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "ops/dims.h"
#include "ops/ring.h"
#include "weft/ops.h"

namespace weft {

/// Bytes of gathered keys and values above which the ring is automatic.
static constexpr int64_t kMostGathered = int64_t{1} << 30;

static constexpr std::array<const char*, 4> kWays = {"automatic", "gather", "heads", "ring"};

const char* name_of(SequenceWay way) { return kWays[static_cast<size_t>(way)]; }

SequenceWay sequence_way_named(const char* what, const std::string& name) {
  for (size_t i = 0; i < kWays.size(); ++i) {
    if (name == kWays[i]) return static_cast<SequenceWay>(i);
  }
  fail(what, ": way is ", in_quotes(name), ", expected automatic, gather, heads or ring");
}

namespace {

/// A way that can be chosen.
struct WayCost {
  SequenceWay way;
  double seconds;
  int64_t bytes, key_bytes;
};

}  // namespace

Axes sequence_axes(const Sharding& sharding) {
  const DeviceMesh mesh = sharding.mesh();
  return axes_where(sharding.axes(), [&](int axis) {
    return mesh.axis_size(axis) > 1 && sharding[axis] == Placement(Shard(1));
  });
}

/// Whether an axis may stay as it cuts the queries: along the batch or the sequence, or along heads
/// with their keys' heads.
static bool stays(const Tensor& q, const Tensor& k, int axis) {
  const Placement placement = q.sharding()[axis];
  if (!placement.is_shard() || placement.outer() > 1) return false;
  if (placement.has_sizes() && placement.dim() != 2) return false;
  if (placement.dim() != 2) return placement.dim() < 2;
  const Sharding keys = k.sharding();
  if (k.size(2) == q.size(2)) return keys[axis] == placement;
  if (placement.has_sizes()) return false;
  int64_t parts = 1;
  for (const int other : q.sharding().axes_cutting(2)) {
    if (keys[other] != q.sharding()[other]) return false;
    parts *= q.sharding().mesh().axis_size(other);
  }
  return k.size(2) % parts == 0;
}

static Ref<Layout> with_pattern(const Ref<Layout>& like, const Pattern& pattern) {
  return layout_of(Sharding::of(like->sharding.mesh(), pattern), like->shape, like->dtype);
}

static Ref<Layout> with_axes(const Ref<Layout>& like, const Axes& axes,
                             const Placement& placement) {
  Pattern pattern = like->sharding.pattern();
  for (const int axis : axes) pattern.set(axis, placement);
  return with_pattern(like, pattern);
}

/// Returns whether each rank can have whole heads of queries and keys.
static bool divides_heads(const Ref<Layout>& q, const Ref<Layout>& kv, const Axes& axes) {
  int64_t parts = 1;
  const DeviceMesh mesh = q->sharding.mesh();
  for (const int axis : q->sharding.axes_cutting(2)) parts *= mesh.axis_size(axis);
  for (const int axis : axes) parts *= mesh.axis_size(axis);
  return kv->shape[2] % parts == 0;
}

WayLayouts layouts_in(SequenceWay way, const Ref<Layout>& q, const Ref<Layout>& kv) {
  const Axes axes = sequence_axes(q->sharding);
  WayLayouts made{q, kv, q, kv, kv};
  if (way == SequenceWay::gather) {
    made.used_kv = with_axes(kv, axes, Replicate());
    made.partial_kv = with_axes(kv, axes, Partial());
  }
  if (way == SequenceWay::heads) {
    made.used_q = with_axes(q, axes, Shard(2));
    made.used_kv = made.partial_kv = with_axes(kv, axes, Shard(2));
  }
  return made;
}

/// Returns the cost of forward and backward in a way: keys and values come twice, their gradients
/// go once; with heads queries, results and their gradients move too.
static WayCost cost_of(SequenceWay way, const Ref<Layout>& q, const Ref<Layout>& kv) {
  const WayLayouts at = layouts_in(way == SequenceWay::ring ? SequenceWay::gather : way, q, kv);
  WayCost cost{way, 0, 0, 2 * at.used_kv->local_bytes()};
  const auto add = [&](const Ref<Layout>& from, const Ref<Layout>& to, int times) {
    if (from == to) return;
    const PlanCost each = plan_between(from, to)->cost;
    cost.seconds += times * each.seconds, cost.bytes += times * each.bytes;
  };
  add(at.kv, at.used_kv, 4);
  add(at.partial_kv, at.kv, 2);
  add(at.q, at.used_q, 3);
  add(at.used_q, at.q, 2);
  if (way == SequenceWay::ring) {
    cost.seconds *= 1.25;  // messages of parts, and merges
    cost.key_bytes = 2 * kv->local_bytes() + 2 * kv->local_bytes() / kRingParts * 2;
  }
  return cost;
}

static std::vector<WayCost> costs_of(const Ref<Layout>& q, const Ref<Layout>& kv) {
  const Axes axes = sequence_axes(q->sharding);
  std::vector<WayCost> costs = {cost_of(SequenceWay::gather, q, kv)};
  if (axes.empty()) return costs;
  if (divides_heads(q, kv, axes)) costs.push_back(cost_of(SequenceWay::heads, q, kv));
  if (axes.size() == 1) costs.push_back(cost_of(SequenceWay::ring, q, kv));
  return costs;
}

static SequenceWay chosen(const std::vector<WayCost>& costs) {
  const WayCost* best = nullptr;
  for (const WayCost& cost : costs) {
    if (cost.way == SequenceWay::gather && cost.key_bytes > kMostGathered && costs.size() > 1) {
      continue;
    }
    if (!best || cost.seconds < best->seconds) best = &cost;
  }
  return best->way;
}

SequenceWay checked_way(SequenceWay way, const Ref<Layout>& q, const Ref<Layout>& kv) {
  const std::vector<WayCost> costs = costs_of(q, kv);
  if (way == SequenceWay::automatic || sequence_axes(q->sharding).empty()) return chosen(costs);
  if (std::ranges::count(costs, way, &WayCost::way) > 0) return way;
  if (way == SequenceWay::heads) {
    fail("ordered_attention: number of key heads is ", kv->shape[2],
         ", expected a multiple of the ranks that share the sequence and heads, because the way is "
         "heads");
  }
  fail("ordered_attention: number of axes that cut the sequence is ",
       sequence_axes(q->sharding).size(), ", expected 1 for the way ", name_of(way));
}

Tensors laid_out_alike(const Tensor& q, const Tensor& k, const Tensor& v) {
  Pattern pattern = q.sharding().pattern();
  for (int axis = 0; axis < pattern.axes(); ++axis) {
    if (!stays(q, k, axis)) pattern.set(axis, Replicate());
  }
  const Sharding sharding = Sharding::of(q.sharding().mesh(), pattern);
  Tensors alike;
  for (const Tensor* x : {&q, &k, &v}) {
    alike.push_back(x->sharding() == sharding ? *x : redistributed(*x, sharding));
  }
  return alike;
}

void check_tokens(const Tensor& q, const Tensor& k, const Tensor& v) {
  check_tensor("ordered_attention", q, k, v);
  const bool fits = q.ndim() == 4 && k.ndim() == 4 && k.shape() == v.shape() &&
                    k.size(0) == q.size(0) && k.size(3) == q.size(3) && k.size(2) > 0 &&
                    q.size(2) % k.size(2) == 0;
  if (!fits) {
    fail("ordered_attention: q, k and v are ", q.shape(), ", ", k.shape(), " and ", v.shape(),
         ", expected [batch, s, heads, d] and twice [batch, s, kv heads, d]");
  }
  if (q.is_sharded() && k.is_sharded() && v.is_sharded()) return;
  if (!q.is_sharded() && !k.is_sharded() && !v.is_sharded()) return;
  fail("ordered_attention: only some of q, k and v have a mesh, expected all or none");
}

std::string explain_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  check_tokens(q, k, v);
  if (!q.is_sharded()) return "attention: on one device\n";
  NoGrad no_grad;
  const Tensors x = laid_out_alike(q, k, v);
  const std::vector<WayCost> costs = costs_of(layout_of(x[0]), layout_of(x[1]));
  const SequenceWay best = chosen(costs);
  std::ostringstream text;
  for (const WayCost& cost : costs) {
    text << "attention, " << name_of(cost.way) << ": " << cost.bytes << " B received, "
         << cost.seconds << " s, " << cost.key_bytes << " B of keys and values"
         << (cost.way == best ? ", chosen\n" : "\n");
  }
  return text.str();
}

}  // namespace weft
