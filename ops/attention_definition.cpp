// SPDX-License-Identifier: Apache-2.0
#include "ops/attention_call.h"
#include "ops/definition.h"
#include "ops/dims.h"
#include "ops/promotion.h"
#include "weft/ops.h"

namespace weft {

namespace {

/// Scores of [b, g, r, s, t] that hidden keys do not have: -1e30 there, and whether a key counts.
struct DefinedScores {
  Tensor scores, counts;
};

}  // namespace

/// The scores after all changes, and which keys each query attends to. `heads` splits a dim of
/// query heads into those of keys, and queries for each of these.
static DefinedScores defined_scores(std::span<const Tensor> given, const Attributes& attributes,
                                    const Shape& heads) {
  const auto structure = unpack<AttentionStructure>(attributes.structure);
  const auto values = unpack<AttentionValues>(attributes.values);
  const int64_t b = given[0].size(0), s = given[0].size(1), t = given[1].size(1);
  const Tensor q = widened(
      permute(reshape(given[0], {b, s, heads[0], heads[1], given[0].size(3)}), {0, 2, 3, 1, 4}));
  const Tensor k = widened(unsqueeze(permute(given[1], {0, 2, 3, 1}), 2));
  Tensor scores = mul(matmul(q, k), values.scale);
  if (values.softcap > 0) scores = mul(tanh(mul(scores, 1 / values.softcap)), values.softcap);
  const Tensor at = unsqueeze(numbers_next_to(scores, t - s, t), -1);
  const Tensor distance = sub(at, numbers_next_to(scores, 0, t));
  Tensor counts = greater_equal(distance, structure.has(kCausal) ? 0 : -t - s);
  if (structure.window > 0) counts = logical_and(counts, less(abs(distance), structure.window));
  size_t next = 3;
  const Tensor mask = structure.has(kMask) ? given[next++] : Tensor();
  if (structure.has(kSinks)) ++next;
  const Tensor segments = structure.has(kSegments) ? given[next++] : Tensor();
  if (structure.has(kAlibi)) {
    const Tensor slopes = reshape(widened(given[next].detach()), {heads[0], heads[1], 1, 1});
    scores = sub(scores, mul(slopes, as_dtype(abs(distance), scores.dtype())));
  }
  if (mask) {
    const Shape each = mask.size(1) != 1 ? heads : Shape{1, 1};
    const Tensor five = reshape(mask, {mask.size(0), each[0], each[1], mask.size(2), mask.size(3)});
    const bool adds = mask.dtype() != boolean;
    adds ? scores = add(scores, five) : counts = logical_and(counts, five);
  }
  if (segments) {
    const Tensor own = reshape(slice(segments, 1, t - s, t), {b, 1, 1, s, 1});
    counts = logical_and(counts, equal(own, reshape(segments, {b, 1, 1, 1, t})));
  }
  counts = logical_and(counts, greater(scores, -1e30));
  return {where(counts, scores, full({}, -1e30, options_next_to(scores, scores.dtype()))), counts};
}

Tensors attention_definition(std::span<const Tensor> given, const Attributes& attributes) {
  const auto structure = unpack<AttentionStructure>(attributes.structure);
  const int64_t b = given[0].size(0), s = given[0].size(1), heads = given[0].size(2),
                groups = given[1].size(2), d = given[0].size(3);
  const Shape split = {groups, heads / groups};
  const auto [scores, counts] = defined_scores(given, attributes, split);
  Tensor most = max(scores, {-1}, true).detach();
  Tensor sinks;
  if (structure.has(kSinks)) {
    sinks = reshape(widened(given[structure.has(kMask) ? 4 : 3]), {groups, heads / groups, 1, 1});
    most = maximum(most, sinks.detach());
  }
  const Tensor parts = mul(exp(sub(scores, most)), as_dtype(counts, scores.dtype()));
  Tensor total = sum(parts, {-1}, true);
  if (sinks) total = add(total, exp(sub(sinks, most)));
  Tensor p = div(parts, masked_fill(total, equal(total, 0), 1));
  if (const double drop = unpack<AttentionValues>(attributes.values).dropout; drop > 0) {
    const int64_t t = given[1].size(1);
    const Shape rows = {b, heads, s, (t + 3) / 4 * 4};
    const Tensor ones_of = full(rows, 1, options_next_to(p, p.dtype()));
    const Tensor factors =
        slice(dropout_by({.values = {drop}, .random = attributes.random}, ones_of), 3, 0, t);
    p = mul(p, reshape(factors, p.shape()));
  }
  const Tensor v = widened(unsqueeze(permute(given[2], {0, 2, 1, 3}), 2));
  const Tensor out = reshape(permute(matmul(p, v), {0, 3, 1, 2, 4}), {b, s, heads, d});
  const Tensor lse = reshape(add(log(total), most), {b, heads, s});
  return {as_dtype(out, given[0].dtype()), lse};
}

}  // namespace weft
