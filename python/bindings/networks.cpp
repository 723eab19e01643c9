// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/networks.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/ops/attention.h"
#include "weft/ops/cross_entropy.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/float8.h"
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

/// `axes`: a number of dims, or two dims or sequences of dims.
static Tensor tensordot_over(const Tensor& a, const Tensor& b, const py::object& axes) {
  if (PyIndex_Check(axes.ptr())) {
    const int count = dim_number("tensordot", axes);
    return released([&] { return tensordot(a, b, count); });
  }
  if (!py::isinstance<py::sequence>(axes) || py::len(axes) != 2) {
    throw py::type_error(concat("tensordot: axes is a ", Py_TYPE(axes.ptr())->tp_name,
                                ", expected an int or a pair of dims"));
  }
  const std::vector<int> first = named_dims(axes[py::int_(0)]);
  const std::vector<int> second = named_dims(axes[py::int_(1)]);
  return released([&] { return tensordot(a, b, first, second); });
}

static void bind_sums_of_products(py::module_& m) {
  m.def("tensordot", &tensordot_over, "x1"_a, "x2"_a, "axes"_a = 2,
        "Sums products of x1 and x2 over the last `axes` dims of x1 and the first of x2, or over "
        "pairs of dims (dims of x1, dims of x2). The result has the other dims of x1, then those "
        "of x2. ValueError names sizes that differ");
  m.def("vecdot", &vecdot, Released(), "x1"_a, "x2"_a, py::kw_only(), "axis"_a = -1,
        "Sums products along `axis`, counted from the end; the other dims broadcast. ValueError "
        "when the sizes of that dim differ");
  m.def(
      "trace",
      [](const Tensor& x, int64_t offset, const std::optional<DType>& dtype) {
        return dtype ? cast(trace(cast(x, *dtype), offset), *dtype) : trace(x, offset);
      },
      Released(), "x"_a, py::kw_only(), "offset"_a = 0, "dtype"_a = py::none(),
      "The sum of elements (i, i + offset) of the last two dims; integers in int64 unless `dtype` "
      "is given. ValueError when x has fewer than two dims");
  m.def("outer", &outer, Released(), "x1"_a, "x2"_a,
        "x1 [m] times x2 [n]: [m, n]. ValueError when one has not one dim");
  m.def("cross", &cross, Released(), "x1"_a, "x2"_a, py::kw_only(), "axis"_a = -1,
        "The cross product of vectors of 3 along `axis`, counted from the end; the other dims "
        "broadcast. ValueError when that dim of one is not 3");
}

static void bind_products(py::module_& m) {
  bind_sums_of_products(m);
  m.def("matmul", &product_of, Released(), "x1"_a, "x2"_a,
        with_rule(
            "matmul",
            "x1 [..., m, k] times x2 [..., k, n]: [..., m, n]; leading dims broadcast, "
            "transposed views are free. A vector [k] is a row, or a column, whose dim of size 1 is "
            "left out again. ValueError names the sizes that do not fit"));
  m.def(
      "linear",
      [](const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
        return bias ? linear(x, weight, *bias) : linear(x, weight);
      },
      Released(), "x"_a, "weight"_a, "bias"_a = py::none(),
      with_rule("linear",
                "x [..., k] times the transpose of weight [n, k] (+ bias [n]): [..., n]"));
  m.def("float8_linear", &float8_linear, Released(), "x"_a, "weight"_a,
        "x [..., k] times the transpose of weight [n, k], each divided by its greatest magnitude / "
        "448 and rounded to float8_e4m3fn; gradients are rounded to float8_e5m2. Sums are float32. "
        "The greatest magnitudes are those of the whole tensors, however these are sharded");
}

/// Applies a function of the last dim to another dim.
static Tensor along(const char* what, Tensor (*function)(const Tensor&), const Tensor& x, int dim) {
  const int at = normalized_dim(what, dim, x.ndim());
  if (at == x.ndim() - 1) return function(x);
  return function(x.transpose(at, -1)).transpose(at, -1);
}

static CrossEntropyOptions loss_options(const char* what, const std::optional<Tensor>& weight,
                                        double label_smoothing, int64_t ignore_index, double z_loss,
                                        const std::string& reduction) {
  CrossEntropyOptions options{weight.value_or(Tensor()), label_smoothing, ignore_index, z_loss};
  if (reduction == "sum") {
    options.reduction = LossReduction::sum;
  } else if (reduction == "none") {
    options.reduction = LossReduction::none;
  } else if (reduction != "mean") {
    fail(what, ": reduction is '", reduction, "', expected 'mean', 'sum' or 'none'");
  }
  return options;
}

static constexpr const char* kAttentionText =
    "softmax(q k^T * scale) v by heads, for q [batch, s, heads, d], k and v [batch, t, kv heads, "
    "d] (heads a multiple of kv heads): [batch, s, heads, d]. Query i has position t - s + i. "
    "causal: it attends to positions up to its own. scale: 0 means 1 / sqrt(d). window: it "
    "attends to keys less than `window` positions away. softcap: scores become softcap * "
    "tanh(score / softcap). mask: bool (True: attends) or floating (added), broadcast to [batch, "
    "heads, s, t]. sinks [heads]: one more logit in each row's softmax, without a value. segments: "
    "integers [batch, t], ids of packed documents; a query attends to its own document. alibi: "
    "slopes [heads]; slope * distance is subtracted. dropout: the probability of leaving out a "
    "key. A query that attends to no key gives zeros. Memory grows with the sequence, not with "
    "its square. Gradients: q, k, v, a floating mask, sinks\n\n"
    "Layout rule: b s (g r) [d], b [t] g [d], b [t] g [d] -> b s (g r) [d]";

void bind_networks(py::module_& m) {
  bind_products(m);
  const auto bind_along = [&](const char* name, Tensor (*function)(const Tensor&),
                              const char* text) {
    m.def(
        name, [=](const Tensor& x, int dim) { return along(name, function, x, dim); }, Released(),
        "x"_a, "dim"_a = -1, with_rule(name, text));
  };
  bind_along("softmax", &softmax, "exp(x) / sum of exp(x) along `dim`");
  bind_along("log_softmax", &log_softmax, "The logarithm of softmax(x), along `dim`");
  m.attr("IGNORED_TARGET") = kIgnoredTarget;
  m.def(
      "cross_entropy",
      [](const Tensor& logits, const Tensor& targets, const std::optional<Tensor>& weight,
         double label_smoothing, int64_t ignore_index, double z_loss,
         const std::string& reduction) {
        return cross_entropy(logits, targets,
                             loss_options("cross_entropy", weight, label_smoothing, ignore_index,
                                          z_loss, reduction));
      },
      Released(), "logits"_a, "targets"_a, py::kw_only(), "weight"_a = py::none(),
      "label_smoothing"_a = 0.0, "ignore_index"_a = kIgnoredTarget, "z_loss"_a = 0.0,
      "reduction"_a = "mean",
      with_rule("cross_entropy",
                "Cross-entropy of logits [..., vocabulary]: the mean over the rows that count of "
                "-log softmax(logits)[target]. targets [...] are classes (int32 or int64), or "
                "ignore_index for a row that does not count; ValueError names another. Floating "
                "targets of the logits' shape are probabilities. weight [vocabulary]: weights of "
                "the classes. label_smoothing: the share of the target that all classes have "
                "evenly. z_loss: the factor of logsumexp(logits)^2, which is added. reduction: "
                "'mean', 'sum' or 'none'"));
  m.def(
      "linear_cross_entropy",
      [](const Tensor& x, const Tensor& weight, const Tensor& targets,
         const std::optional<Tensor>& bias, double softcap, double multiplier,
         const std::optional<Tensor>& class_weight, double label_smoothing, int64_t ignore_index,
         double z_loss, const std::string& reduction, int64_t whole_up_to) {
        return linear_cross_entropy(x, weight, targets,
                                    {loss_options("linear_cross_entropy", class_weight,
                                                  label_smoothing, ignore_index, z_loss, reduction),
                                     bias.value_or(Tensor()), softcap, multiplier, whole_up_to});
      },
      Released(), "x"_a, "weight"_a, "targets"_a, py::kw_only(), "bias"_a = py::none(),
      "softcap"_a = 0.0, "multiplier"_a = 1.0, "class_weight"_a = py::none(),
      "label_smoothing"_a = 0.0, "ignore_index"_a = kIgnoredTarget, "z_loss"_a = 0.0,
      "reduction"_a = "mean", "whole_up_to"_a = LinearCrossEntropyOptions().whole_up_to,
      "cross_entropy of the logits multiplier * x weight^T + bias, for x [..., d], weight "
      "[classes, "
      "d] and targets [...], without storing the logits: parts of them are computed, and again in "
      "backward. softcap: they become softcap * tanh(logits / softcap). The other options are "
      "those of cross_entropy. Logits of at most whole_up_to elements a rank are made "
      "whole, which saves computing them again\n\nLayout rule: v [d], ... [d], ... -> ...");
  m.def("cross_entropy_rows", &cross_entropy_rows, Released(), "logits"_a, "targets"_a,
        with_rule("cross_entropy", "The same a row: [...], 0 where the row does not count"));
  m.def(
      "embedding", &embedding, Released(), "weight"_a, "ids"_a,
      with_rule("embedding",
                "Rows `ids` [...] (int32 or int64) of weight [vocabulary, d]: [..., d]. ValueError "
                "names an id that is no row"));
  using Given = std::optional<Tensor>;
  m.def(
      "rms_norm",
      [](const Tensor& x, const Given& weight, double eps) {
        return rms_norm(x, weight.value_or(Tensor()), eps);
      },
      Released(), "x"_a, "weight"_a = py::none(), "eps"_a = 1e-5,
      with_rule("rms_norm",
                "x / sqrt(mean of x^2 along the last dim + eps) * weight [d], ones if None"));
  m.def(
      "layer_norm",
      [](const Tensor& x, const Given& weight, const Given& bias, double eps) {
        return layer_norm(x, weight.value_or(Tensor()), bias.value_or(Tensor()), eps);
      },
      Released(), "x"_a, "weight"_a = py::none(), "bias"_a = py::none(), "eps"_a = 1e-5,
      with_rule("layer_norm",
                "(x - mean) / sqrt(variance + eps) * weight [d] + bias [d], along the last dim; "
                "ones and zeros if None"));
  m.def("rope", py::overload_cast<const Tensor&, double, int64_t>(&rope), Released(), "x"_a,
        "theta"_a = 10000.0, "position"_a = 0,
        with_rule("rope",
                  "Rotary position embedding of x [batch, sequence, heads, d] in Hugging Face's "
                  "'rotate half' convention; positions start at `position`"));
  m.def("swiglu", &swiglu, Released(), "gate"_a, "up"_a,
        with_rule("swiglu", "silu(gate) * up, of equal shapes"));
  m.def(
      "attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale,
         int64_t window, double softcap, const std::optional<Tensor>& mask,
         const std::optional<Tensor>& sinks, const std::optional<Tensor>& segments,
         const std::optional<Tensor>& alibi, double probability) {
        return attention(
            q, k, v,
            {causal, scale, window, softcap, mask.value_or(Tensor()), sinks.value_or(Tensor()),
             segments.value_or(Tensor()), alibi.value_or(Tensor()), probability});
      },
      Released(), "q"_a, "k"_a, "v"_a, "causal"_a = true, "scale"_a = 0.0, py::kw_only(),
      "window"_a = 0, "softcap"_a = 0.0, "mask"_a = py::none(), "sinks"_a = py::none(),
      "segments"_a = py::none(), "alibi"_a = py::none(), "dropout"_a = 0.0, kAttentionText);
  m.def(
      "_scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask,
         double probability, bool causal, std::optional<double> scale, bool grouped) {
        return torch::scaled_dot_product_attention(q, k, v, mask.value_or(Tensor()), probability,
                                                   causal, scale, grouped);
      },
      Released(), "query"_a, "key"_a, "value"_a, "attn_mask"_a, "dropout_p"_a, "is_causal"_a,
      "scale"_a, "enable_gqa"_a);
  m.def("dropout", &dropout, Released(), "x"_a, "p"_a,
        with_rule("dropout",
                  "x with elements zeroed with probability p in [0, 1) and the others divided by "
                  "1 - p; equal for any layout of x"));
}

}  // namespace weft::python
