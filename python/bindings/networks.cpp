// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/networks.h"

#include <variant>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "weft/ops/documents.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/embedding.h"
#include "weft/ops/margin_losses.h"
#include "weft/ops/products.h"
#include "weft/ops/shapes.h"
#include "weft/torch.h"

namespace weft::python {

/// A vector [k] is used as a row on the left and as a column on the right; the dim of size 1 is
/// removed from the result.
Tensor product_of(const Tensor& a, const Tensor& b) {
  if (a.ndim() > 1 && b.ndim() > 1) [[likely]]
    return matmul(a, b);
  if (a.ndim() == 0 || b.ndim() == 0) {
    fail("matmul: operands are ", a.shape(), " and ", b.shape(),
         ", expected at least 1 dim each; multiply() scales");
  }
  const Tensor product =
      matmul(a.ndim() == 1 ? unsqueeze(a, 0) : a, b.ndim() == 1 ? unsqueeze(b, 1) : b);
  const Tensor columns = b.ndim() == 1 ? squeeze(product, -1) : product;
  return a.ndim() == 1 ? squeeze(columns, b.ndim() == 1 ? -1 : -2) : columns;
}

static void bind_products(py::module_& m) {
  using Axes = std::variant<int, std::pair<DimList, DimList>>;
  def(m, "tensordot(x1, x2, axes=2)",
      "Sums products of x1 and x2 over the last `axes` dims of x1 and the first of x2, or over "
      "pairs of dims (dims of x1, dims of x2). The result has the other dims of x1, then those of "
      "x2. ValueError names sizes that differ",
      [](const Tensor& a, const Tensor& b, const Axes& axes) {
        if (const int* count = std::get_if<int>(&axes)) return tensordot(a, b, *count);
        const auto& [first, second] = std::get<1>(axes);
        return tensordot(a, b, first, second);
      });
  def(m, "vecdot(x1, x2, *, axis=-1)", &vecdot,
      "Sums products along `axis`, counted from the end; the other dims broadcast. ValueError when "
      "the sizes of that dim differ");
  def(m, "trace(x, *, offset=0, dtype=None)",
      "The sum of elements (i, i + offset) of the last two dims; integers in int64 unless `dtype` "
      "is given. ValueError when x has fewer than two dims",
      [](const Tensor& x, int64_t offset, const std::optional<DType>& dtype) {
        return as_dtype(x, dtype, [&](const Tensor& of) { return trace(of, offset); });
      });
  def(m, "outer(x1, x2)", &outer,
      "x1 [m] times x2 [n]: [m, n]. ValueError when one has not one dim");
  def(m, "cross(x1, x2, *, axis=-1)", &cross,
      "The cross product of vectors of 3 along `axis`, counted from the end; the other dims "
      "broadcast. ValueError when that dim of one is not 3");
  def(m, "matmul(x1, x2)", &product_of,
      with_rule("matmul",
                "x1 [..., m, k] times x2 [..., k, n]: [..., m, n]; leading dims broadcast, "
                "transposed views are free. A vector [k] is a row, or a column, whose dim of size "
                "1 is left out again. ValueError names the sizes that do not fit"));
  def(m, "linear(x, weight, bias=None)",
      with_rule("linear", "x [..., k] times the transpose of weight [n, k] (+ bias [n]): [..., n]"),
      [](const Tensor& x, const Tensor& weight, const MaybeTensor& bias) {
        return bias ? linear(x, weight, bias) : linear(x, weight);
      });
  def(m, "float8_linear(x, weight)", &float8_linear,
      "x [..., k] times the transpose of weight [n, k], each divided by its greatest magnitude / "
      "448 and rounded to float8_e4m3fn; gradients are rounded to float8_e5m2. Sums are float32. "
      "The greatest magnitudes are those of the whole tensors, however these are sharded");
}

static constexpr const char* kAttentionText =
    "softmax(q k^T * scale) v by heads, for q [batch, s, heads, d], k and v [batch, t, kv heads, "
    "d] (heads a multiple of kv heads): [batch, s, heads, d]. Query i has position t - s + i. "
    "causal: it attends to positions up to its own. scale: 0 means 1 / sqrt(d). window: it attends "
    "to keys less than `window` positions away. softcap: scores become softcap * tanh(score / "
    "softcap). mask: bool (True: attends) or floating (added), broadcast to [batch, heads, s, t]. "
    "sinks [heads]: one more logit in each row's softmax, without a value. segments: integers "
    "[batch, t], ids of packed documents; a query attends to its own document. alibi: slopes "
    "[heads]; slope * distance is subtracted. dropout: the probability of leaving out a key. A "
    "query that attends to no key gives zeros. Memory grows with the sequence, not with its "
    "square. Gradients: q, k, v, a floating mask, sinks\n\nLayout rule: b s (g r) [d], b [t] g "
    "[d], b [t] g [d] -> b s (g r) [d]";

/// PyTorch has the classes of more than 2 dims in dim 1, where classes as targets have another
/// shape but probabilities the same one.
static Tensor torch_cross_entropy(const Tensor& input, const Tensor& target,
                                  const CrossEntropyOptions& options) {
  if (target && is_floating(target.dtype()) && target.ndim() > 2) {
    fail("cross_entropy: floating targets are ", target.shape(),
         ", expected at most 2 dims, [rows, classes]; reshape input and target, in which PyTorch "
         "has the classes of more dims in dim 1, not in the last one");
  }
  return cross_entropy_of_classes(input, target, options);
}

static void bind_losses(py::module_& m) {
  using C = CrossEntropyOptions;
  using L = LinearCrossEntropyOptions;
  m.attr("IGNORED_TARGET") = kIgnoredTarget;
  const auto weight = option("weight", &C::weight);
  const auto smoothing = option("label_smoothing", &C::label_smoothing);
  const auto ignored = option("ignore_index", &C::ignore_index);
  const auto z_loss = option("z_loss", &C::z_loss);
  const auto reduction = [](const char* what) {
    return choice(what, "reduction", &C::reduction, {"mean", "sum", "none"});
  };
  bind_with_fields<C, Tensor, Tensor>(
      m, "_torch_cross_entropy", torch_cross_entropy, Released(), "input"_a, "target"_a, weight,
      py::kw_only(), ignored, reduction("cross_entropy"), smoothing,
      "Cross-entropy of logits [..., classes], or where only that fits [rows, classes, ...], "
      "against classes "
      "[...] or, of "
      "logits [rows, classes] or [classes], probabilities of their shape; rows whose target is "
      "`ignore_index` do not count. "
      "weight: weights of the classes. label_smoothing: the share of the target that all classes "
      "have evenly");
  bind_with_fields<C, Tensor, Tensor>(
      m, "cross_entropy", cross_entropy, Released(), "logits"_a, "targets"_a, py::kw_only(), weight,
      smoothing, ignored, z_loss, reduction("cross_entropy"),
      with_rule(
          "cross_entropy",
          "Cross-entropy of logits [..., vocabulary]: the mean over the rows that count of -log "
          "softmax(logits)[target]. targets [...] are classes (int32 or int64), or ignore_index "
          "for a row that does not count; ValueError names another. Floating targets of the "
          "logits' shape are probabilities. weight [vocabulary]: weights of the classes. "
          "label_smoothing: the share of the target that all classes have evenly. z_loss: the "
          "factor of logsumexp(logits)^2, which is added. reduction: 'mean', 'sum' or 'none'"));
  const auto reduced = within(&L::loss, reduction("linear_cross_entropy"));
  bind_with_fields<L, Tensor, Tensor, Tensor>(
      m, "linear_cross_entropy", linear_cross_entropy, Released(), "x"_a, "weight"_a, "targets"_a,
      py::kw_only(), option("bias", &L::bias), option("softcap", &L::softcap),
      option("multiplier", &L::multiplier), within(&L::loss, option("class_weight", &C::weight)),
      within(&L::loss, smoothing), within(&L::loss, ignored), within(&L::loss, z_loss), reduced,
      option("whole_up_to", &L::whole_up_to),
      "cross_entropy of the logits multiplier * x weight^T + bias, for x [..., d], weight "
      "[classes, d] and targets [...], without storing the logits: parts of them are computed, and "
      "again in backward. softcap: they become softcap * tanh(logits / softcap). The other options "
      "are those of cross_entropy. Logits of at most whole_up_to elements a rank are made whole, "
      "which saves computing them again\n\nLayout rule: v [d], ... [d], ... -> ...");
  bind_with_fields<L, Tensor, Tensor, Tensor>(
      m, "_torch_linear_cross_entropy", linear_cross_entropy, Released(), "input"_a,
      "linear_weight"_a, "target"_a, py::kw_only(), option("linear_bias", &L::bias),
      within(&L::loss, weight), reduced, within(&L::loss, ignored), within(&L::loss, smoothing),
      "cross_entropy of the logits input linear_weight^T + linear_bias, which are never stored: of "
      "input [..., d], linear_weight [classes, d] and target [...]");
  def(m, "cross_entropy_rows(logits, targets)", &cross_entropy_rows,
      with_rule("cross_entropy", "The same a row: [...], 0 where the row does not count"));
}

void bind_networks(py::module_& m) {
  bind_products(m);
  def(m, "softmax(x, dim=-1)", &torch::softmax,
      with_rule("softmax", "exp(x) / sum of exp(x) along `dim`"));
  def(m, "log_softmax(x, dim=-1)", &torch::log_softmax,
      with_rule("log_softmax", "The logarithm of softmax(x), along `dim`"));
  bind_losses(m);
  def(m, "embedding(weight, ids, padding_idx=None)",
      py::overload_cast<const Tensor&, const Tensor&, std::optional<int64_t>>(&embedding),
      with_rule("embedding",
                "Rows `ids` [...] (int32 or int64) of weight [vocabulary, d]: [..., d]. The "
                "gradient gets nothing from ids of row `padding_idx`, which counts from the end if "
                "it is negative. ValueError names an id that is no row"));
  def(m, "rms_norm(x, weight=None, eps=1e-5)", taking<Tensor, MaybeTensor, double>(&rms_norm),
      with_rule("rms_norm",
                "x / sqrt(mean of x^2 along the last dim + eps) * weight [d], ones if None"));
  def(m, "layer_norm(x, weight=None, bias=None, eps=1e-5)",
      taking<Tensor, MaybeTensor, MaybeTensor, double>(&layer_norm),
      with_rule("layer_norm",
                "(x - mean) / sqrt(variance + eps) * weight [d] + bias [d], along the last dim; "
                "ones and zeros if None"));
  def(m, "_torch_layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5)",
      "(x - mean) / sqrt(variance + eps) * weight + bias along the last dims, whose sizes are "
      "normalized_shape; without a weight 1, without a bias 0",
      [](const Tensor& x, const IntList& dims, const MaybeTensor& weight, const MaybeTensor& bias,
         double eps) {
        return torch::layer_norm(x, Shape(std::span<const int64_t>(dims)), weight, bias, eps);
      });
  def(m, "_torch_rms_norm(input, normalized_shape, weight=None, eps=1e-5)",
      "x / sqrt(mean of x^2 + eps) * weight along the last dims, whose sizes are "
      "normalized_shape; without a weight 1",
      [](const Tensor& x, const IntList& dims, const MaybeTensor& weight, double eps) {
        return torch::rms_norm(x, Shape(std::span<const int64_t>(dims)), weight, eps);
      });
  def(
      m, "rope(x, theta=10000.0, position=0)",
      [](const Tensor& x, double theta, const std::variant<int64_t, Tensor>& position) {
        const auto* positions = std::get_if<Tensor>(&position);
        return positions ? rope(x, theta, *positions) : rope(x, theta, std::get<int64_t>(position));
      },
      with_rule("rope",
                "Rotary position embedding of x [batch, sequence, heads, d] in Hugging Face's "
                "'rotate half' convention; positions start at `position`, or are that tensor of "
                "integers [batch, sequence]"));
  def(m, "document_positions(segments)", &document_positions,
      "The position of each token within its document, int64 [batch, sequence], counted from 0 "
      "where the number in `segments` (integers [batch, sequence]) changes");
  def(m, "swiglu(gate, up)", &swiglu, with_rule("swiglu", "silu(gate) * up, of equal shapes"));
  using A = AttentionOptions;
  const auto attend = [](const Tensor& q, const Tensor& k, const Tensor& v, const A& options) {
    return attention(q, k, v, options);
  };
  bind_with_fields<A, Tensor, Tensor, Tensor>(
      m, "attention", attend, Released(), "q"_a, "k"_a, "v"_a, option("causal", &A::causal),
      option("scale", &A::scale), py::kw_only(), option("window", &A::window),
      option("softcap", &A::softcap), option("mask", &A::mask), option("sinks", &A::sinks),
      option("segments", &A::segments), option("alibi", &A::alibi), option("dropout", &A::dropout),
      kAttentionText);
  def(m,
      "_torch_scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, "
      "is_causal=False, *, scale=None, enable_gqa=False)",
      taking<Tensor, Tensor, Tensor, MaybeTensor, double, bool, std::optional<double>, bool>(
          &torch::scaled_dot_product_attention),
      "softmax(q k^T * scale) v of [batch, heads, sequence, d]; key and value may have fewer "
      "heads, "
      "each of which serves as many query heads, with enable_gqa or without. attn_mask: bool "
      "(False "
      "hides a key), or numbers that are added. `weft.attention` takes [batch, sequence, heads, d] "
      "and more options");
  def(m, "dropout(x, p)", &dropout,
      with_rule("dropout",
                "x with elements zeroed with probability p in [0, 1] and the others divided by 1 - "
                "p; equal for any layout of x"));
}

}  // namespace weft::python
