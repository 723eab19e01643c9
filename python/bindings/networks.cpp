// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/networks.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "python/bindings/rule_text.h"

namespace weft::python {

/// Applies a function of the last dim to another dim.
static Tensor along(const char* what, Tensor (*function)(const Tensor&), const Tensor& x, int dim) {
  const int at = normalized_dim(what, dim, x.ndim());
  if (at == x.ndim() - 1) return function(x);
  return function(x.transpose(at, -1)).transpose(at, -1);
}

void bind_networks(py::module_& m) {
  m.def(
      "softmax", [](const Tensor& x, int dim) { return along("softmax", &softmax, x, dim); },
      Released(), py::arg("x"), py::arg("dim") = -1,
      with_rule("softmax", "exp(x) / sum of exp(x) along `dim`"));
  m.def(
      "log_softmax",
      [](const Tensor& x, int dim) { return along("log_softmax", &log_softmax, x, dim); },
      Released(), py::arg("x"), py::arg("dim") = -1,
      with_rule("log_softmax", "The logarithm of softmax(x), along `dim`"));
  m.attr("IGNORED_TARGET") = kIgnoredTarget;
  m.def(
      "cross_entropy", &cross_entropy, Released(), py::arg("logits"), py::arg("targets"),
      with_rule("cross_entropy",
                "Mean over the rows that count of -log softmax(logits)[target]. logits [..., "
                "vocabulary], targets [...] (int32 or int64), each a class or -100 for a row that "
                "does not count; ValueError names another"));
  m.def("cross_entropy_rows", &cross_entropy_rows, Released(), py::arg("logits"),
        py::arg("targets"),
        with_rule("cross_entropy", "The same a row: [...], 0 where the row does not count"));
  m.def(
      "embedding", &embedding, Released(), py::arg("weight"), py::arg("ids"),
      with_rule("embedding",
                "Rows `ids` [...] (int32 or int64) of weight [vocabulary, d]: [..., d]. ValueError "
                "names an id that is no row"));
  using Given = std::optional<Tensor>;
  m.def(
      "rms_norm",
      [](const Tensor& x, const Given& weight, double eps) {
        return rms_norm(x, weight.value_or(Tensor()), eps);
      },
      Released(), py::arg("x"), py::arg("weight") = py::none(), py::arg("eps") = 1e-5,
      with_rule("rms_norm",
                "x / sqrt(mean of x^2 along the last dim + eps) * weight [d], ones if None"));
  m.def(
      "layer_norm",
      [](const Tensor& x, const Given& weight, const Given& bias, double eps) {
        return layer_norm(x, weight.value_or(Tensor()), bias.value_or(Tensor()), eps);
      },
      Released(), py::arg("x"), py::arg("weight") = py::none(), py::arg("bias") = py::none(),
      py::arg("eps") = 1e-5,
      with_rule("layer_norm",
                "(x - mean) / sqrt(variance + eps) * weight [d] + bias [d], along the last dim; "
                "ones and zeros if None"));
  m.def("rope", &rope, Released(), py::arg("x"), py::arg("theta") = 10000.0,
        py::arg("position") = 0,
        with_rule("rope",
                  "Rotary position embedding of x [batch, sequence, heads, d] in Hugging Face's "
                  "'rotate half' convention; positions start at `position`"));
  m.def("swiglu", &swiglu, Released(), py::arg("gate"), py::arg("up"),
        with_rule("swiglu", "silu(gate) * up, of equal shapes"));
  m.def(
      "attention", &attention, Released(), py::arg("q"), py::arg("k"), py::arg("v"),
      py::arg("causal") = true, py::arg("scale") = 0.0,
      with_rule("attention",
                "softmax(q k^T * scale) v by heads, for q [batch, s, heads, d], k and v [batch, t, "
                "kv heads, d] (heads a multiple of kv heads): [batch, s, heads, d]. Causal: query "
                "i sees the positions up to t - s + i. scale 0 means 1 / sqrt(d)"));
  m.def("dropout", &dropout, Released(), py::arg("x"), py::arg("p"),
        with_rule("dropout",
                  "x with elements zeroed with probability p in [0, 1) and the others divided by "
                  "1 - p; equal for any layout of x"));
}

}  // namespace weft::python
