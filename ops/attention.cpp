// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/attention/attention.h"

#include <cmath>

#include "ops/promotion.h"
#include "ops/structure.h"
#include "src/kernels/copy/dense.h"
#include "weft/ops/networks.h"

namespace weft {

/// Returns [batch, sequence, heads, d] as the kernel's [batch, heads, sequence, d].
static MemoryBlock heads_first(const MemoryBlock& block) {
  MemoryBlock turned = block;
  std::swap(turned.shape[1], turned.shape[2]);
  std::swap(turned.strides[1], turned.strides[2]);
  return turned;
}

/// structure: causal; values: the scale. The queries are the last positions of the sequence of
/// keys.
static AttentionOptions attention_options(const Call& c) {
  const int64_t first = c.in_shape(1)[1] - c.in_shape(0)[1] + c.in_box(0).offset[1];
  return {.scale = c.value(0), .causal = c.attribute(0) != 0, .query_offset = first};
}

static Attributes attention_attributes(bool causal, double scale) {
  return {.structure = {causal}, .values = {scale}};
}

/// operands: q, k, v, out, logsumexp, gradient of out. dk and dv are sums over the queries, so they
/// are Partial when the sequence of queries is sharded.
static const Op attention_backward_op = register_op({
    .name = "attention_backward",
    .rule = "b s (g r) [d], b [t] g [d], b [t] g [d], b s (g r) [d], b (g r) s, b s (g r) [d] -> "
            "b s (g r) [d], b [t] g [d], b [t] g [d]",
    .structure = one_flag("flag for causal"),
    .forward =
        [](const Call& c) {
          const DenseBlock q = DenseBlock::of_rows(c.in(0)), k = DenseBlock::of_rows(c.in(1)),
                           v = DenseBlock::of_rows(c.in(2)), dout = DenseBlock::of_rows(c.in(5));
          attention_backward(heads_first(q), heads_first(k), heads_first(v), heads_first(c.in(3)),
                             c.in(4), heads_first(dout), attention_options(c),
                             heads_first(c.out(0)), heads_first(c.out(1)), heads_first(c.out(2)));
        },
    .products = [](const Attributes& a) { return a.structure[0] ? 2.5 : 5; },
    .samples =
        {{.shapes =
              {{2, 5, 6, 4}, {2, 7, 3, 4}, {2, 7, 3, 4}, {2, 5, 6, 4}, {2, 6, 5}, {2, 5, 6, 4}},
          .attributes = attention_attributes(true, 0.5)},
         {.shapes =
              {{3, 5, 2, 3}, {3, 5, 1, 3}, {3, 5, 1, 3}, {3, 5, 2, 3}, {3, 2, 5}, {3, 5, 2, 3}},
          .attributes = attention_attributes(false, 0.5)}},
});

/// results: out and, for the gradient, the logsumexp of each query's scores.
static const Op attention_op = register_op({
    .name = "attention",
    .rule = "b s (g r) [d], b [t] g [d], b [t] g [d] -> b s (g r) [d], b (g r) s",
    .structure = one_flag("flag for causal"),
    .dtype =
        [](const Attributes&, std::span<const DType> dtypes, int result) {
          if (result == 0) return dtypes[0];
          return dtypes[0] == f64 ? f64 : f32;
        },
    .forward =
        [](const Call& c) {
          const DenseBlock q = DenseBlock::of_rows(c.in(0)), k = DenseBlock::of_rows(c.in(1)),
                           v = DenseBlock::of_rows(c.in(2));
          attention(heads_first(q), heads_first(k), heads_first(v), attention_options(c),
                    heads_first(c.out(0)), c.out(1));
        },
    .backward =
        [](const Grad& g) {
          Tensors gradients = attention_backward_op.call(
              {g.in(0), g.in(1), g.in(2), g.out(0), g.out(1), g.grad()}, g.attributes());
          for (int i = 0; i < 3; ++i) g.give(i, gradients[static_cast<size_t>(i)]);
        },
    .saves_out = {0, 1},
    .products = [](const Attributes& a) { return a.structure[0] ? 1.0 : 2.0; },
    .samples = {{.shapes = {{2, 5, 6, 4}, {2, 7, 3, 4}, {2, 7, 3, 4}},
                 .attributes = attention_attributes(true, 0.5)},
                {.shapes = {{3, 5, 2, 3}, {3, 5, 1, 3}, {3, 5, 1, 3}},
                 .attributes = attention_attributes(false, 0.5)}},
});

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

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale) {
  check_heads(q, k, v);
  const DType dtype = promote(promote(q.dtype(), k.dtype()), v.dtype());
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  return attention_op({as_dtype(q, dtype), as_dtype(k, dtype), as_dtype(v, dtype)},
                      attention_attributes(causal, scale));
}

}  // namespace weft
