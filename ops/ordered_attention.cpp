// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "mesh/grid.h"
#include "ops/dims.h"
#include "ops/engine/engine.h"
#include "ops/promotion.h"
#include "ops/ring.h"
#include "ops/sequence_ways.h"
#include "ops/token_runs.h"
#include "weft/extend/tape.h"
#include "weft/ops.h"
#include "weft/ops/sequences.h"

namespace weft {

/// This rank's rows of numbers that are whole along the sequence.
static std::vector<int64_t> host_numbers(const Tensor& x, const Sharding& like) {
  Tensor whole = x.detach();
  if (like) {
    Pattern pattern = like.pattern();
    for (int axis = 0; axis < pattern.axes(); ++axis) {
      if (pattern[axis] != Placement(Shard(0))) pattern.set(axis, Replicate());
    }
    const Sharding rows = Sharding::of(like.mesh(), pattern);
    whole = x.is_sharded() ? redistributed(whole, rows)
                           : redistributed(distribute(whole, like.mesh(), {}), rows);
    whole = whole.local();
  }
  return whole.to_vector<int64_t>();
}

static HostOrder host_order(const TokenOrder& order, const Tensor& q, const Sharding& like) {
  const int64_t batch = like ? layout_of(q)->box.shape[0] : q.size(0);
  std::vector<int64_t> segments;
  if (order.segments) segments = host_numbers(order.segments, like);
  return {host_numbers(order.places, like), std::move(segments), batch, q.size(1)};
}

/// The part of a dim that this rank has.
static std::pair<int64_t, int64_t> range_of(const Box& box, int dim) {
  return {box.offset[dim], box.offset[dim] + box.shape[dim]};
}

namespace {

/// One call: what forward and backward have in common. Its methods record nothing.
class OrderedAttention {
 public:
  OrderedAttention(WayLayouts layouts, SequenceWay way, HostOrder order, PairOptions options,
                   bool has_memory)
      : at_(std::move(layouts)),
        way_(way),
        order_(std::move(order)),
        options_(options),
        has_memory_(has_memory) {}

  /// Returns the output at rest and what backward needs: output and logsumexp where they are
  /// computed.
  /// `x` are q, k and v.
  Tensors forward(const Tensors& x, const Tensor& sinks) const;
  /// Returns the gradients of q, k and v.
  Tensors backward(const Tensors& x, const Tensor& out, const Tensor& lse,
                   const Tensor& dout) const;

 private:
  Tensor moved(const Tensor& x, const Ref<Layout>& to) const;
  /// Keys or values where they are used, in their order.
  Tensor sorted_keys(const Tensor& x, const SortedRuns& runs) const {
    const Tensor here = moved(x, at_.used_kv).local();
    PurposeScope purpose(Purpose::gathered);
    return runs.sorted(here);
  }
  std::vector<RowRuns> query_runs() const {
    const auto [begin, end] = range_of(at_.used_q->box, 1);
    return order_.runs(begin, end);
  }
  SortedRuns key_runs() const { return SortedRuns(order_.runs(0, at_.used_kv->shape[1])); }
  Ring ring() const {
    return {at_.kv, sequence_axes(at_.kv->sharding)[0], order_, query_runs(), options_};
  }
  void include_sinks(Tensor& out, Tensor& lse, const Tensor& sinks) const;

  WayLayouts at_;
  SequenceWay way_;
  HostOrder order_;
  PairOptions options_;
  bool has_memory_;
};

}  // namespace

Tensor OrderedAttention::moved(const Tensor& x, const Ref<Layout>& to) const {
  if (!x.is_sharded() || layout_of(x) == to) return x;
  const Ref<Layout> target = layout_of(to->sharding, x.shape(), x.dtype());
  if (layout_of(x) == target) return x;
  const Ref<Plan> plan = plan_between(layout_of(x), target);
  check_policy("ordered_attention", !plan->steps.empty(), !plan->is_free());
  if (!plan->is_free()) Engine::current().required("ordered_attention", plan->cost.bytes);
  PurposeScope purpose(Purpose::gathered);
  return run_plan(x, plan, concat("ordered_attention, ", name_of(way_)));
}

/// A sink is one more key without a value: it takes its share from the others.
void OrderedAttention::include_sinks(Tensor& out, Tensor& lse, const Tensor& sinks) const {
  Tensor own = as_dtype(sinks, lse.dtype());
  if (sinks.is_sharded()) {
    Pattern pattern(at_.used_q->sharding.axes());
    for (const int axis : at_.used_q->sharding.axes_cutting(2)) {
      const auto sizes = at_.used_q->sharding[axis].sizes();
      pattern.set(axis, Shard{0, {sizes.begin(), sizes.end()}});
    }
    own = redistributed(own, Sharding::of(sinks.sharding().mesh(), pattern)).local();
  }
  const Tensor both = logaddexp(lse, reshape(own, {1, own.size(0), 1}));
  const Tensor share = unsqueeze(permute(exp(sub(lse, both)), {0, 2, 1}), 3);
  out = as_dtype(mul(as_dtype(out, lse.dtype()), share), out.dtype());
  lse = both;
}

static Tensor with_layout(const Tensor& local, const Ref<Layout>& like) {
  if (!like->sharding) return local;
  const Tensor dense = contiguous(local);
  return relabeled(dense, layout_of(like->sharding, like->shape, local.dtype()));
}

/// The logsumexp of queries, [batch, heads, s], is laid out as they are.
static Ref<Layout> layout_of_lse(const Ref<Layout>& q, DType dtype) {
  const Shape shape{q->shape[0], q->shape[2], q->shape[1]};
  if (!q->sharding) return layout_of(Sharding(), shape, dtype);
  Pattern pattern(q->sharding.axes());
  for (int dim = 0; dim < 3; ++dim) {
    const int to = dim == 1 ? 2 : dim == 2 ? 1 : 0;
    for (const int axis : q->sharding.axes_cutting(dim)) {
      const auto sizes = q->sharding[axis].sizes();
      pattern.set(axis, Shard{to, {sizes.begin(), sizes.end()}});
    }
  }
  return layout_of(Sharding::of(q->sharding.mesh(), pattern), shape, dtype);
}

Tensors OrderedAttention::forward(const Tensors& x, const Tensor& sinks) const {
  const Tensor &q = x[0], &k = x[1], &v = x[2];
  const Tensor queries = moved(q, at_.used_q).local();
  Tensor out, lse;
  if (way_ == SequenceWay::ring) {
    PairResults results(queries, q.dtype() == f64 ? f64 : f32);
    if (has_memory_) {
      ring().forward(queries, k.local(), v.local(), results);
    } else {
      ring().count(queries, k.local(), false);
    }
    out = as_dtype(results.out, q.dtype()), lse = results.lse;
  } else {
    PairResults results(queries, q.dtype());
    if (has_memory_) {
      const SortedRuns sorted = key_runs();
      const Tensor keys = sorted_keys(k, sorted), values = sorted_keys(v, sorted);
      results.add(queries, keys, values, pairs_of(query_runs(), sorted.runs, options_.window),
                  options_);
    } else {
      count_pairs(queries, moved(k, at_.used_kv).local(), options_, false);
      moved(v, at_.used_kv);
    }
    out = results.out, lse = results.lse;
  }
  if (sinks && has_memory_) include_sinks(out, lse, sinks);
  const Tensor made = with_layout(out, at_.used_q);
  return {moved(made, at_.q), made, with_layout(lse, layout_of_lse(at_.used_q, lse.dtype()))};
}

Tensors OrderedAttention::backward(const Tensors& x, const Tensor& out, const Tensor& lse,
                                   const Tensor& dout) const {
  const Tensor &q = x[0], &k = x[1], &v = x[2];
  const PairGradients gradients{moved(q, at_.used_q).local(), out.local(), lse.local(),
                                contiguous(moved(dout, at_.used_q).local()), options_};
  const auto zeros_like_sums = [](const Tensor& like) {
    return zeros(like.shape(), {.dtype = like.dtype() == f64 ? f64 : f32, .device = like.device()});
  };
  const Tensor dq = zeros_like_sums(gradients.q);
  const auto finished = [&](const Tensor& sum, const Ref<Layout>& used, const Ref<Layout>& at) {
    return moved(with_layout(as_dtype(sum, q.dtype()), used), at);
  };
  if (way_ == SequenceWay::ring) {
    const Tensor keys = k.local(), values = v.local();
    const Tensor dk = zeros_like_sums(keys), dv = zeros_like_sums(values);
    if (has_memory_) {
      ring().backward(gradients, keys, values, dq, dk, dv);
    } else {
      ring().count(gradients.q, keys, true);
    }
    return {finished(dq, at_.used_q, at_.q), finished(dk, at_.kv, at_.kv),
            finished(dv, at_.kv, at_.kv)};
  }
  Tensor dk, dv;
  if (has_memory_) {
    const SortedRuns sorted = key_runs();
    const Tensor keys = sorted_keys(k, sorted), values = sorted_keys(v, sorted);
    dk = zeros_like_sums(keys), dv = zeros_like_sums(values);
    gradients.add(keys, values, pairs_of(query_runs(), sorted.runs, options_.window), dq, dk, dv);
    dk = sorted.unsorted(dk), dv = sorted.unsorted(dv);
  } else {
    const Tensor keys = moved(k, at_.used_kv).local();
    moved(v, at_.used_kv);
    dk = zeros_like_sums(keys), dv = zeros_like_sums(keys);
    count_pairs(gradients.q, keys, options_, true);
  }
  return {finished(dq, at_.used_q, at_.q), finished(dk, at_.partial_kv, at_.kv),
          finished(dv, at_.partial_kv, at_.kv)};
}

static void check_order(const Tensor& q, const Tensor& k, const TokenOrder& order) {
  const Shape expected{q.size(0), q.size(1)};
  if (k.size(1) != q.size(1)) {
    fail("ordered_attention: number of keys is ", k.size(1), ", expected ", q.size(1),
         ", that of the queries");
  }
  if (!order.places) fail("ordered_attention: no places are given, expected a tensor");
  const std::pair<const char*, const Tensor*> numbers[] = {{"places", &order.places},
                                                           {"segments", &order.segments}};
  for (const auto& [name, x] : numbers) {
    if (!*x || (x->shape() == expected && is_integer(x->dtype()))) continue;
    fail("ordered_attention: ", name, " are ", x->dtype(), " ", x->shape(), ", expected integers ",
         expected, ", one for each token of q ", q.shape());
  }
}

static void check_ordered_options(const AttentionOptions& o) {
  const std::pair<const char*, bool> refused[] = {{"a mask", bool(o.mask)},
                                                  {"alibi", bool(o.alibi)},
                                                  {"dropout", o.dropout > 0},
                                                  {"segments", bool(o.segments)}};
  for (const auto& [name, is_given] : refused) {
    if (!is_given) continue;
    fail("ordered_attention: ", name, " is given, expected scale, window, softcap and sinks only; ",
         "call attention of tokens in their order");
  }
  if (!o.causal) fail("ordered_attention: causal is false, expected true");
  if (o.window < 0) fail("ordered_attention: window is ", o.window, ", expected 0 or more");
  if (!(o.softcap >= 0)) fail("ordered_attention: softcap is ", o.softcap, ", expected 0 or more");
}

/// -exp(sink - lse) times the sum of out * dout, of each head.
static Tensor gradient_of_sinks(const Tensor& out, const Tensor& lse, const Tensor& dout,
                                const Tensor& sinks) {
  const DType dtype = lse.dtype();
  const Tensor deltas = sum(mul(as_dtype(out, dtype), as_dtype(dout, dtype)), {3});
  const Tensor p = exp(sub(reshape(as_dtype(sinks, dtype), {1, sinks.size(0), 1}), lse));
  return as_dtype(neg(sum(mul(p, permute(deltas, {0, 2, 1})), {0, 2})), sinks.dtype());
}

static void check_sinks(const Tensor& sinks, const Tensor& q) {
  if (!sinks || sinks.shape() == Shape{q.size(2)}) return;
  fail("ordered_attention: shape of sinks is ", sinks.shape(), ", expected [", q.size(2), "]");
}

static std::shared_ptr<OrderedAttention> call_of(const Tensors& x, const TokenOrder& order,
                                                 const AttentionOptions& options, SequenceWay way) {
  const Ref<Layout>&q = layout_of(x[0]), &kv = layout_of(x[1]);
  WayLayouts layouts{q, kv, q, kv, kv};
  SequenceWay used = SequenceWay::gather;
  if (x[0].is_sharded()) {
    used = checked_way(way, q, kv);
    layouts = layouts_in(used, q, kv);
  }
  const bool has_memory = x[0].device().kind != DeviceKind::meta;
  HostOrder places =
      has_memory ? host_order(order, x[0], x[0].sharding()) : HostOrder({}, {}, 0, 0);
  const double scale =
      options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(x[0].size(3)));
  return std::make_shared<OrderedAttention>(std::move(layouts), used, std::move(places),
                                            PairOptions{scale, options.softcap, options.window},
                                            has_memory);
}

/// The gradients of q, k, v and, if it is one of the inputs, of the sinks. `out` and `lse` are
/// where they are computed.
static Tensors gradients_of(const OrderedAttention& call, const Tensors& inputs, const Tensor& out,
                            const Tensor& lse, const Tensor& given) {
  check_first_order("ordered_attention", "use attention of tokens in their order");
  NoGrad no_grad;
  Tensor dout = as_dtype(given.detach(), out.dtype());
  const Tensors x = {inputs[0].detach(), inputs[1].detach(), inputs[2].detach()};
  if (dout.is_sharded()) dout = redistributed(dout, x[0].sharding());
  Tensors gradients = call.backward(x, out, lse, dout);
  if (inputs.size() > 3) {
    if (out.is_sharded()) dout = redistributed(dout, out.sharding());
    gradients.push_back(gradient_of_sinks(out, lse, dout, inputs[3].detach()));
  }
  return gradients;
}

Tensor ordered_attention(const Tensor& q, const Tensor& k, const Tensor& v, const TokenOrder& order,
                         const AttentionOptions& options, SequenceWay way) {
  check_tokens(q, k, v);
  check_order(q, k, order);
  check_ordered_options(options);
  check_sinks(options.sinks, q);
  const DType dtype = promote(promote(q.dtype(), k.dtype()), v.dtype());
  Tensors inputs = {as_dtype(q, dtype), as_dtype(k, dtype), as_dtype(v, dtype)};
  if (q.is_sharded()) inputs = laid_out_alike(inputs[0], inputs[1], inputs[2]);
  const auto call = call_of(inputs, order, options, way);
  Tensors made;
  {
    NoGrad no_grad;
    made = call->forward({inputs[0].detach(), inputs[1].detach(), inputs[2].detach()},
                         options.sinks ? options.sinks.detach() : Tensor());
  }
  if (options.sinks) inputs.push_back(options.sinks);
  if (std::ranges::none_of(inputs, is_recorded)) return made[0];
  return record("ordered_attention", inputs, {made[0]},
                [call, inputs, out = made[1], lse = made[2]](const Tensors& g) {
                  return gradients_of(*call, inputs, out, lse, g[0]);
                })[0];
}

}  // namespace weft
