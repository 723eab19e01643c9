// SPDX-License-Identifier: Apache-2.0
#include "weft/losses.h"

#include "python/bindings/bindings.h"
#include "python/bindings/modules.h"
#include "weft/multihead_attention.h"
#include "weft/summary.h"

// Functions that the loss modules of weft.nn call, MultiheadAttention, and the summary of a module.

namespace weft::python {

static void bind_distances(py::module_& m) {
  def(m, "_torch_l1_loss(input, target, reduction='mean')", &l1_loss,
      "|input - target|: its mean, its sum, or for reduction 'none' all of it");
  def(m, "_torch_smooth_l1_loss(input, target, reduction='mean', beta=1.0)", &smooth_l1_loss,
      "(input - target)^2 / (2 beta) where the distance is below beta, elsewhere the "
      "distance - beta / 2");
  def(m, "_torch_huber_loss(input, target, reduction='mean', delta=1.0)", &huber_loss,
      "(input - target)^2 / 2 where the distance is below delta, elsewhere delta * "
      "(distance - delta / 2)");
  def(m, "_torch_kl_div(input, target, reduction='mean', log_target=False)", &kl_div,
      "target * (log(target) - input); 'batchmean' divides the sum by the size of dim 0");
}

static void bind_margins(py::module_& m) {
  def(m, "_torch_margin_ranking_loss(input1, input2, target, margin=0.0, reduction='mean')",
      &margin_ranking_loss, "max(0, -target (input1 - input2) + margin)");
  def(m, "_torch_hinge_embedding_loss(input, target, margin=1.0, reduction='mean')",
      &hinge_embedding_loss, "input where target is 1, max(0, margin - input) where it is -1");
  def(m, "_torch_soft_margin_loss(input, target, reduction='mean')", &soft_margin_loss,
      "log(1 + exp(-target input)), of targets 1 and -1");
  def(m, "_torch_cosine_embedding_loss(input1, input2, target, margin=0.0, reduction='mean')",
      &cosine_embedding_loss,
      "Loss of the cosine along the last dim: 1 - cosine where target is 1, max(0, cosine - "
      "margin) "
      "where it is -1");
  def(m,
      "_torch_triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-06, "
      "swap=False, reduction='mean')",
      &triplet_margin_loss,
      "max(0, |anchor - positive| - |anchor - negative| + margin), norms along the last dim");
  def(m, "_torch_multi_margin_loss(input, target, p=1, margin=1.0, weight=None, reduction='mean')",
      "The sum over other classes of max(0, margin - input[target] + input)^p over their number",
      [](const Tensor& input, const Tensor& target, int p, double margin, const MaybeTensor& weight,
         std::string_view reduction) {
        return multi_margin_loss(input, target, p, margin, weight, reduction);
      });
  def(m, "_torch_multilabel_margin_loss(input, target, reduction='mean')", &multilabel_margin_loss,
      "The margins of labels over others; target [rows, classes] lists labels, then -1");
  def(m, "_torch_multilabel_soft_margin_loss(input, target, weight=None, reduction='mean')",
      "The mean over classes of binary_cross_entropy_with_logits",
      [](const Tensor& input, const Tensor& target, const MaybeTensor& weight,
         std::string_view reduction) {
        return multilabel_soft_margin_loss(input, target, weight, reduction);
      });
  def(m,
      "_torch_poisson_nll_loss(input, target, log_input=True, full=False, eps=1e-08, "
      "reduction='mean')",
      &poisson_nll_loss,
      "exp(input) - target input, or input - target log(input + eps); full: with Stirling's term");
  def(m, "_torch_gaussian_nll_loss(input, target, var, full=False, eps=1e-06, reduction='mean')",
      &gaussian_nll_loss, "(log(var) + (input - target)^2 / var) / 2; full: plus log(2 pi) / 2");
}

template <class M>
static std::unique_ptr<M> attention_of(int64_t dim, int64_t heads, double dropout, bool bias,
                                       std::optional<int64_t> kdim, std::optional<int64_t> vdim,
                                       bool batch_first) {
  return std::make_unique<M>(dim, heads,
                             MultiheadAttentionOptions{dropout, bias, kdim, vdim, batch_first});
}

static void bind_multihead_attention(py::module_& m) {
  using M = MultiheadAttention;
  auto bound = bind_module_class<M>(
      m, "MultiheadAttention",
      "torch.nn.MultiheadAttention, with its parameters' names: (query, key, value) -> (output, "
      "weights). The weights are None unless need_weights=True, which is not the default. Inputs "
      "are [sequence, batch, dim], or [batch, sequence, dim] with batch_first. A query without "
      "keys gives zeros");
  bound
      .def(py::init(&attention_of<M>, &attention_of<InPython<M>>), "embed_dim"_a, "num_heads"_a,
           "dropout"_a = 0.0, "bias"_a = true, "kdim"_a = py::none(), "vdim"_a = py::none(),
           "batch_first"_a = false)
      .def_property_readonly("embed_dim", &M::dim)
      .def_property_readonly("num_heads", &M::heads)
      .def_property_readonly("batch_first", [](const M& a) { return a.options().batch_first; });
  def(bound,
      "_attend(query, key, value, key_padding_mask, attn_mask, is_causal, weights, averaged)",
      "Computes a call: returns the output and, with `weights`, the probabilities", Released(),
      [](M& attention, const Tensor& query, const Tensor& key, const Tensor& value,
         const MaybeTensor& key_padding_mask, const MaybeTensor& attn_mask, bool is_causal,
         bool weights, bool averaged) {
        using Weights = AttentionWeights;
        const Weights kind = averaged ? Weights::averaged : Weights::by_head;
        return attention.attend(query, key, value, {key_padding_mask, attn_mask, is_causal},
                                weights ? kind : Weights::none);
      });
}

void bind_loss_modules(py::module_& m) {
  bind_distances(m);
  bind_margins(m);
  bind_multihead_attention(m);
  def(m, "_torch_nll_loss(input, target, weight=None, ignore_index=-100, reduction='mean')",
      "-input[target] of log-probabilities [..., classes] and classes [...]",
      [](const Tensor& input, const Tensor& target, const MaybeTensor& weight, int64_t ignored,
         std::string_view reduction) {
        return nll_loss(input, target, weight, ignored, reduction);
      });
  def(m, "_torch_binary_cross_entropy(input, target, weight=None, reduction='mean')",
      "-(target * log(input) + (1 - target) * log(1 - input)), where a logarithm is at least -100",
      [](const Tensor& input, const Tensor& target, const MaybeTensor& weight,
         std::string_view reduction) {
        return binary_cross_entropy(input, target, weight, reduction);
      });
  def(m,
      "_torch_binary_cross_entropy_with_logits(input, target, weight=None, reduction='mean', "
      "pos_weight=None)",
      "binary_cross_entropy of sigmoid(input); pos_weight multiplies the loss of positive targets",
      [](const Tensor& input, const Tensor& target, const MaybeTensor& weight,
         std::string_view reduction, const MaybeTensor& pos_weight) {
        return binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight);
      });
  def(m, "summary(module)",
      "A table of the parameters: name, shape, dtype, elements, trained, layout, bytes on this "
      "rank; equal ones of numbered modules share a line",
      [](Module& module) { return summary(module); });
}

}  // namespace weft::python
