// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/attention_call.h"
#include "ops/definition.h"
#include "ops/dims.h"
#include "ops/halves.h"
#include "ops/promotion.h"
#include "src/kernels/attention/attention.h"
#include "src/kernels/copy/copy.h"
#include "weft/extend/attention.h"
#include "weft/extend/fixed_sums.h"
#include "weft/extend/tape.h"
#include "weft/ops.h"

namespace weft {

namespace {

/// A custom mod, for the ops that have one.
using Mod = std::optional<ScoreMod>;

}  // namespace

/// Returns [batch, sequence, heads, d] as the kernel's [batch, heads, sequence, d].
static MemoryBlock heads_first(const MemoryBlock& block) { return exchanged(block, 1, 2); }

/// `operand` is the first optional operand. The queries are the last positions of the sequence of
/// keys.
static AttentionArguments attention_arguments(const Call& c, int operand, const Mod& mod) {
  const auto structure = unpack<AttentionStructure>(c.attributes().structure);
  const auto values = unpack<AttentionValues>(c.attributes().values);
  const Box& box = c.in_box(0);
  AttentionArguments arguments{
      .scale = values.scale,
      .causal = structure.has(kCausal),
      .query_offset = c.in_shape(1)[1] - c.in_shape(0)[1] + box.offset[1],
      .window = structure.window,
      .softcap = values.softcap,
      .dropout = values.dropout,
      .random = {c.attributes().random[0], c.attributes().random[1]},
      .origin = {box.offset[0], box.offset[2], c.in_shape(0)[2], c.in_shape(0)[1]},
      .mod = mod ? &*mod : nullptr,
      .mod_bytes = &c.attributes().values[3]};
  const FixedSums* sums = FixedSums::current();
  if (sums && values.dropout > 0) arguments.origin.batch += sums->first_row();
  if (structure.has(kMask)) arguments.mask = c.in(operand++);
  if (structure.has(kSinks)) arguments.sinks = c.in(operand++);
  if (structure.has(kSegments)) arguments.segments = c.in(operand++);
  if (structure.has(kAlibi)) arguments.slopes = c.in(operand++);
  return arguments;
}

static Attributes attention_attributes(int64_t flags, int64_t window, AttentionValues values) {
  return {.structure = pack_structure(AttentionStructure{flags, window}),
          .values = pack_values(values)};
}

/// The dims of a mask as factors: those that broadcast have their own.
static std::string mask_dims(const Shape& mask, const Shape& q, const Shape& k) {
  std::string dims = mask[0] == q[0] ? "b" : "[mask_b]";
  dims += mask[1] == q[2] ? " (g r)" : " [mask_h]";
  dims += mask[2] == q[1] ? " s" : " [mask_s]";
  return dims + (mask[3] == k[1] ? " [t]" : " [mask_t]");
}

static Rule attention_rule(const Attributes& attributes, std::span<const Shape> shapes,
                           bool backward) {
  const auto structure = unpack<AttentionStructure>(attributes.structure);
  const size_t required = backward ? 6 : 3;
  std::string operands = "b s (g r) [d], b [t] g [d], b [t] g [d]";
  if (backward) operands += ", b s (g r) [d], b (g r) s, b s (g r) [d]";
  std::string results =
      backward ? "b s (g r) [d], b [t] g [d], b [t] g [d]" : "b s (g r) [d], b (g r) s";
  if (structure.has(kMask) && shapes.size() > required && shapes[required].ndim() == 4 &&
      shapes[0].ndim() == 4 && shapes[1].ndim() == 4) {
    const std::string mask = mask_dims(shapes[required], shapes[0], shapes[1]);
    operands += ", " + mask;
    if (structure.has(kMaskGradient)) results += ", " + mask;
  } else if (structure.has(kMask)) {
    operands += ", b (g r) s [t]";
  }
  if (structure.has(kSinks)) operands += ", (g r)";
  if (structure.has(kSegments)) operands += ", b [t]";
  if (structure.has(kAlibi)) operands += ", (g r)";
  return {operands + " -> " + results};
}

static DType statistics_dtype(DType dtype) { return dtype == f64 ? f64 : f32; }

/// Returns the part that the specs of attention and of its gradient have in common.
static OpSpec attention_spec(const std::string& name, bool backward) {
  return {
      .name = backward ? name + "_backward" : name,
      .rule_of = [=](const Attributes& a,
                     std::span<const Shape> shapes) { return attention_rule(a, shapes, backward); },
      .takes = {anything()},
      .structure = {"flags, window",
                    [](const Dims& s, std::span<const Shape>) {
                      return s.ndim() == 2 && s[0] >= 0 && s[0] < 64 && s[1] >= 0;
                    }},
      .positions = {{"b", "s", "g", "r"}},
      .dtype =
          [=](const Attributes&, std::span<const DType> dtypes, int result) {
            return result < (backward ? 3 : 1) ? dtypes[0] : statistics_dtype(dtypes[0]);
          },
      .products =
          [=](const Attributes& a) {
            const double all = backward ? 5 : 2;
            return unpack<AttentionStructure>(a.structure).has(kCausal) ? all / 2 : all;
          }};
}

/// Computes the gradients that come from the queries [begin, end).
static void differentiate_queries(const Call& c, const Mod& mod, int64_t begin, int64_t end,
                                  const MemoryBlock& dk, const MemoryBlock& dv) {
  const auto of_queries = [&](const MemoryBlock& x) { return range_of(x, 1, begin, end); };
  const DenseBlock q = DenseBlock::of_rows(of_queries(c.in(0))), k = DenseBlock::of_rows(c.in(1)),
                   v = DenseBlock::of_rows(c.in(2)),
                   dout = DenseBlock::of_rows(of_queries(c.in(5)));
  const bool of_mask = unpack<AttentionStructure>(c.attributes().structure).has(kMaskGradient);
  AttentionArguments arguments = attention_arguments(c, 6, mod);
  arguments.query_offset = *arguments.query_offset + begin;
  attention_backward(
      {{heads_first(q), heads_first(k), heads_first(v), heads_first(of_queries(c.in(3))),
        range_of(c.in(4), 2, begin, end), arguments},
       heads_first(dout),
       heads_first(of_queries(c.out(0))),
       heads_first(dk),
       heads_first(dv),
       of_mask ? c.out(3) : MemoryBlock()});
}

/// operands: q, k, v, out, logsumexp, gradient of out, and the optional ones. dk and dv are sums
/// over the queries, so they are Partial when the sequence of queries is sharded; the gradient of a
/// mask that broadcasts is one over what it broadcasts to.
static OpSpec attention_backward_spec(const std::string& name, const Mod& mod,
                                      std::vector<OpSample> samples = {}) {
  OpSpec spec = attention_spec(name, true);
  spec.samples = std::move(samples);
  spec.forward = [mod](const Call& c) {
    const bool has_mask = unpack<AttentionStructure>(c.attributes().structure).has(kMask);
    const int64_t half = has_mask ? 0 : half_of(c, 0, 1), queries = c.in(0).shape[1];
    const MemoryBlock &dk = c.out(1), &dv = c.out(2);
    if (half == 0) return differentiate_queries(c, mod, 0, queries, dk, dv);
    const DenseMemory second(dk.shape, dk.dtype, dk.device);
    add_by_halves(dv, false, half, queries,
                  [&](int64_t begin, int64_t end, const MemoryBlock& to, bool) {
                    const bool is_first = begin == 0;
                    differentiate_queries(c, mod, begin, end, is_first ? dk : second.block, to);
                  });
    accumulate(dk, second.block);
  };
  return spec;
}

/// The gradient of the sinks: each is a key without value, whose probability is exp(sink - lse).
static Tensor sinks_gradient(const Grad& g, const Tensor& sinks) {
  const Tensor &out = g.out(0), &lse = g.out(1);
  const DType dtype = lse.dtype();
  const Tensor deltas = sum(mul(as_dtype(out, dtype), as_dtype(g.grad(), dtype)), {3});
  const Tensor p = exp(sub(reshape(sinks, {1, sinks.size(0), 1}), lse));
  return neg(sum(mul(p, permute(deltas, {0, 2, 1})), {0, 2}));
}

static void give_attention_gradients(const Grad& g, const Op& backward_op,
                                     const OpDefinition& definition) {
  if (g.grad(1) || backward_creates_graph()) {
    if (definition) return give_by_definition(g, definition);
    check_first_order("attention_with", "state the mod as a mask");
  }
  const auto structure = unpack<AttentionStructure>(g.attributes().structure);
  Attributes attributes = g.attributes();
  const bool of_mask = structure.has(kMask) && is_floating(g.in_dtype(3)) && g.wants(3);
  if (of_mask) attributes.structure[0] |= kMaskGradient;
  attributes.structure[0] &= ~kSinks;
  Tensors operands = {g.in(0), g.in(1), g.in(2), g.out(0), g.out(1), g.grad()};
  const int sinks = structure.has(kMask) ? 4 : 3;
  for (int i = 3; i < g.operands(); ++i) {
    if (!structure.has(kSinks) || i != sinks) operands.push_back(g.in(i));
  }
  const Tensors gradients = backward_op.call(operands, attributes);
  for (int i = 0; i < (of_mask ? 4 : 3); ++i) g.give(i, gradients[static_cast<size_t>(i)]);
  if (structure.has(kSinks) && g.wants(sinks)) g.give(sinks, sinks_gradient(g, g.in(sinks)));
}

/// Computes the results of the queries [begin, end).
static void attend_queries(const Call& c, const Mod& mod, int64_t begin, int64_t end) {
  const auto of_queries = [&](const MemoryBlock& x) { return range_of(x, 1, begin, end); };
  const DenseBlock q = DenseBlock::of_rows(of_queries(c.in(0))), k = DenseBlock::of_rows(c.in(1)),
                   v = DenseBlock::of_rows(c.in(2));
  AttentionArguments arguments = attention_arguments(c, 3, mod);
  arguments.query_offset = *arguments.query_offset + begin;
  attention({heads_first(q), heads_first(k), heads_first(v), heads_first(of_queries(c.out(0))),
             range_of(c.out(1), 2, begin, end), arguments});
}

/// results: out and, for the gradient, the logsumexp of each query's scores.
static OpSpec attention_forward_spec(const std::string& name, const Mod& mod, const Op& backward_op,
                                     std::vector<OpSample> samples = {}) {
  OpSpec spec = attention_spec(name, false);
  spec.samples = std::move(samples);
  spec.forward = [mod](const Call& c) {
    const bool has_mask = unpack<AttentionStructure>(c.attributes().structure).has(kMask);
    const int64_t half = has_mask ? 0 : half_of(c, 0, 1), queries = c.in(0).shape[1];
    if (half > 0) attend_queries(c, mod, 0, half);
    attend_queries(c, mod, half, queries);
  };
  if (!mod) spec.definition = attention_definition;
  spec.backward = [backward_op, definition = spec.definition](const Grad& g) {
    give_attention_gradients(g, backward_op, definition);
  };
  spec.saves_out = {0, 1};
  return spec;
}

static const Op attention_backward_op = register_op(attention_backward_spec(
    "attention", {},
    {{.shapes = {{2, 5, 6, 4}, {2, 7, 3, 4}, {2, 7, 3, 4}, {2, 5, 6, 4}, {2, 6, 5}, {2, 5, 6, 4}},
      .attributes = attention_attributes(kCausal, 0, {0.5, 0, 0})},
     {.shapes = {{3, 5, 2, 3}, {3, 5, 1, 3}, {3, 5, 1, 3}, {3, 5, 2, 3}, {3, 2, 5}, {3, 5, 2, 3}},
      .attributes = attention_attributes(0, 0, {0.5, 0, 0})}}));
// Missed layouts: a Partial v is reduced first, so that no rank computes the scores of others.
static const Op attention_op = register_op(attention_forward_spec(
    "attention", {}, attention_backward_op,
    {{.shapes = {{2, 5, 6, 4}, {2, 7, 3, 4}, {2, 7, 3, 4}},
      .attributes = attention_attributes(kCausal, 0, {0.5, 0, 0})},
     {.shapes = {{3, 5, 2, 3}, {3, 5, 1, 3}, {3, 5, 1, 3}},
      .attributes = attention_attributes(0, 0, {0.5, 0, 0})},
     {.shapes = {{2, 5, 6, 4}, {2, 7, 3, 4}, {2, 7, 3, 4}, {1, 6, 5, 7}, {6}, {2, 7}, {6}},
      .attributes =
          attention_attributes(kCausal | kMask | kSinks | kSegments | kAlibi, 3, {0.5, 2, 0.25}),
      .dtypes = {f32, f32, f32, f32, f32, i64, f32},
      .low = 0,
      .high = 2}}));

Op make_attention_op(const char* name, const ScoreMod& mod) {
  const Op backward_op{attention_backward_spec(name, mod)};
  return Op(attention_forward_spec(name, mod, backward_op));
}

static void check_heads(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (!q || !k || !v) fail("attention: no tensor is given, expected one");
  if (q.ndim() != 4 || k.ndim() != 4 || !(k.shape() == v.shape())) {
    fail("attention: q, k and v are ", q.shape(), ", ", k.shape(), " and ", v.shape(),
         ", expected [batch, s, heads, d] and twice [batch, t, kv heads, d]");
  }
  if (k.size(2) == 0 || q.size(2) % k.size(2) != 0) {
    fail("attention: number of heads of q ", q.shape(), " is ", q.size(2),
         ", expected a multiple of ", k.size(2), ", those of k ", k.shape());
  }
}

static void check_numbers(const AttentionOptions& options) {
  if (options.window < 0) fail("attention: window is ", options.window, ", expected 0 or more");
  if (!(options.softcap >= 0)) {
    fail("attention: softcap is ", options.softcap, ", expected 0 or more");
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    fail("attention: dropout is ", options.dropout, ", expected one in [0, 1)");
  }
}

static Tensor checked_operand(const char* name, const Tensor& x, const Shape& shape, DType dtype) {
  if (!(x.shape() == shape)) {
    fail("attention: shape of ", name, " is ", x.shape(), ", expected ", shape);
  }
  const bool fits = is_floating(dtype) ? is_floating(x.dtype()) : is_integer(x.dtype());
  if (!fits) {
    fail("attention: dtype of ", name, " is ", x.dtype(), ", expected ",
         is_floating(dtype) ? "a floating one" : "integers");
  }
  return as_dtype(x, dtype);
}

/// Returns the mask with four dims, each of size 1 or that of the scores.
static Tensor checked_mask(const Tensor& mask, const Shape& scores, DType dtype) {
  if (!broadcasts_to(mask.shape(), scores)) {
    fail("attention: shape of mask is ", mask.shape(), ", expected one that broadcasts to ", scores,
         ", [batch, heads, s, t]");
  }
  if (mask.dtype() != boolean && !is_floating(mask.dtype())) {
    fail("attention: dtype of mask is ", mask.dtype(), ", expected bool or a floating one");
  }
  Tensor four = mask;
  while (four.ndim() < 4) four = unsqueeze(four, 0);
  return mask.dtype() == boolean ? four : as_dtype(four, dtype);
}

Tensor attention_by(const Op& op, const Tensor& q, const Tensor& k, const Tensor& v,
                    const AttentionOptions& options, const ScoreModBytes& mod) {
  check_heads(q, k, v);
  check_numbers(options);
  const DType dtype = promote(promote(q.dtype(), k.dtype()), v.dtype());
  const DType statistics = statistics_dtype(dtype);
  const int64_t batch = q.size(0), s = q.size(1), heads = q.size(2), t = k.size(1);
  const double scale =
      options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  // Keys before the first query's window: no query sees them.
  const int64_t skipped = options.window > 0 && options.causal ? t - s - options.window + 1 : 0;
  const bool has_key_operands = options.mask || options.segments || options.dropout > 0;
  if (skipped > 0 && !has_key_operands && &op == &attention_op) {
    AttentionOptions own = options;
    if (s == 1) own.window = 0;
    return attention_by(op, q, slice(k, 1, skipped, t), slice(v, 1, skipped, t), own, mod);
  }
  int64_t flags = options.causal ? int64_t{kCausal} : 0;
  Tensors operands = {as_dtype(q, dtype), as_dtype(k, dtype), as_dtype(v, dtype)};
  const auto add = [&](int64_t flag, const Tensor& operand) {
    flags |= flag;
    operands.push_back(operand);
  };
  if (options.mask) add(kMask, checked_mask(options.mask, {batch, heads, s, t}, statistics));
  if (options.sinks) add(kSinks, checked_operand("sinks", options.sinks, {heads}, statistics));
  if (options.segments) {
    if (s > t) {
      fail("attention: number of queries is ", s, ", expected at most ", t,
           ", that of keys, because segments are given");
    }
    add(kSegments, checked_operand("segments", options.segments, {batch, t}, i64));
  }
  if (options.alibi && options.alibi.requires_grad()) {
    fail(
        "attention: alibi requires a gradient, expected constants; add slopes times distances as a "
        "mask");
  }
  if (options.alibi) add(kAlibi, checked_operand("alibi", options.alibi, {heads}, statistics));
  const int64_t window = options.window >= s + t ? 0 : options.window;
  Attributes attributes = attention_attributes(
      flags, window, {scale, options.softcap, options.dropout, mod[0], mod[1], mod[2]});
  if (options.dropout > 0) {
    RandomState& random = Context::current().random;
    attributes.random = {random.seed, random.stream++};
  }
  return op.call(operands, attributes)[0];
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
  return attention_by(attention_op, q, k, v, options, {});
}

}  // namespace weft
