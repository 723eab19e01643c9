// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>
#include <string>
#include <variant>

#include "python/bindings/optimizers.h"
#include "weft/muon.h"
#include "weft/ops/updates.h"
#include "weft/parameter_groups.h"

namespace weft::python {

static Tier offload_in(const std::variant<bool, std::string>& given) {
  return tier_from("optimizer: offload", given);
}

/// The predicate in Python, whose pattern, if it is that of `no_decay`, is checked.
static DecayPredicate decays_in(const py::object& given) {
  if (given.is_none() || !py::hasattr(given, "finds")) return function_of_parameter<bool>(given);
  return NoDecay{py::cast<std::string>(given.attr("pattern")),
                 function_in<bool, const std::string&>(given.attr("finds")),
                 py::cast<bool>(given.attr("vectors"))};
}

/// Binds a variant of Adam, which may have further options.
template <class Kind, AdamKind kKind, class... More>
static void bind_adam(py::module_& m, const char* name, const char* doc, const More&... more) {
  using O = AdamKindOptions<kKind>;
  bind_optimizer<Kind, O>(m, name, doc, option("lr", &O::learning_rate), betas_of<O>(),
                          option("eps", &O::eps), option("weight_decay", &O::weight_decay),
                          py::kw_only(), converted("decays"_a = py::none(), &O::decays, decays_in),
                          more...);
}

static void bind_usual_kinds(py::module_& m) {
  using I = LionOptions;
  using S = SGDOptions;
  const py::arg_v decays = "decays"_a = py::none(), offload = "offload"_a = false;
  bind_adam<AdamW, AdamKind::adamw>(
      m, "AdamW", "Adam with decoupled weight decay (Loshchilov and Hutter, 2019)",
      option("moments", &AdamWOptions::moments),
      converted(offload, &AdamWOptions::offload, offload_in),
      "parameters: a module, its named_parameters() or parameters(), or a list of groups, dicts "
      "with \"params\" and the options that differ from those given here. decays(name, parameter) "
      "returns whether weight decay applies (to all unless given). moments: the dtype of m and v. "
      "offload: True keeps them in pinned memory of the host, \"disk:DIR\" in files without a name "
      "in DIR");
  bind_adam<Adam, AdamKind::adam>(
      m, "Adam", "Adam (Kingma and Ba, 2015), whose weight decay is part of the gradient",
      option("moments", &AdamOptions::moments),
      converted(offload, &AdamOptions::offload, offload_in), "The arguments are those of AdamW");
  bind_adam<AdamW8bit, AdamKind::adamw8bit>(
      m, "AdamW8bit",
      "AdamW whose moments have 8 bits an element and a scale for 128 elements of a row; their "
      "bits do not depend on the layout",
      option("least_elements", &AdamW8bitOptions::least_elements),
      "The arguments are those of AdamW. least_elements: smaller parameters, and vectors, have "
      "moments of float32");
  bind_adam<Lamb, AdamKind::lamb>(m, "Lamb", "Layer-wise adapted Adam (You et al., 2020)",
                                  converted(offload, &LambOptions::offload, offload_in));
  bind_optimizer<Lion, I>(
      m, "Lion", "Evolved sign momentum (Chen et al., 2023): steps by signs, one moment",
      option("lr", &I::learning_rate), betas_of<I>(), option("weight_decay", &I::weight_decay),
      py::kw_only(), converted(decays, &I::decays, decays_in), option("moments", &I::moments),
      converted(offload, &I::offload, offload_in),
      "The arguments are those of AdamW; rates are 3 to 10 times smaller");
  bind_optimizer<SGD, S>(m, "SGD", "Stochastic gradient descent, with momentum",
                         option("lr", &S::learning_rate), option("momentum", &S::momentum),
                         option("weight_decay", &S::weight_decay), option("nesterov", &S::nesterov),
                         py::kw_only(), converted(decays, &S::decays, decays_in),
                         converted(offload, &S::offload, offload_in));
}

static void bind_muon(py::module_& m) {
  using M = MuonOptions;
  const py::arg_v decays = "decays"_a = py::none(), is_matrix = "is_matrix"_a = py::none();
  const auto coefficients = field<std::array<double, 3>>(
      "ns_coefficients"_a = M().coefficients,
      [](M& all, const std::array<double, 3>& given) { all.coefficients = given; });
  const auto rate = field<std::optional<std::string>>(
      "adjust_lr_fn"_a = py::none(),
      [](M& all, const std::optional<std::string>& given) { all.rate = muon_rate_of(given); });
  bind_optimizer<Muon, M>(
      m, "Muon",
      "Momentum orthogonalized by a Newton-Schulz iteration (Jordan et al., 2024), as "
      "torch.optim.Muon; AdamW for what is no matrix inside the model. Each matrix is iterated by "
      "one rank of its mesh",
      option("lr", &M::learning_rate), option("weight_decay", &M::weight_decay),
      option("momentum", &M::momentum), option("nesterov", &M::nesterov), coefficients,
      option("eps", &M::eps), option("ns_steps", &M::steps), rate, py::kw_only(),
      option("ns_dtype", &M::iterates_in),
      converted(is_matrix, &M::is_matrix, function_of_parameter<bool>), betas_of<M>(),
      option("adam_eps", &M::adam_eps), converted(decays, &M::decays, decays_in),
      "parameters and decays as in AdamW. adjust_lr_fn: 'original', 'match_rms_adamw', with which "
      "rates of AdamW fit, or 'spectral_unclamped'. ns_dtype: of the iteration and of what travels "
      "for it. is_matrix(name, parameter): False for those of 2 dims that AdamW updates with betas "
      "and adam_eps (embeddings and heads, by their names, unless given)");
  m.def("newton_schulz", &newton_schulz, Released(), "m"_a, "steps"_a = 5,
        "coefficients"_a = M().coefficients, "eps"_a = 1e-7,
        "Orthogonalizes a matrix of one rank as a step of Muon does");
}

static void bind_lion(py::module_& m) {
  using Step = LionStep;
  const auto lion = [](const py::object& parameter, const Tensor& mean, const Tensor& gradient,
                       const Tensor& scale, const Step& step) {
    changed(parameter, [&](const Tensor& x) { lion_(x, mean, gradient, scale, step); });
  };
  bind_with_fields<Step, py::object, Tensor, Tensor, Tensor>(
      m, "lion_", lion, "parameter"_a, "m"_a, "gradient"_a, "gradient_scale"_a, py::kw_only(),
      option("lr", &Step::learning_rate), betas_of<Step>(),
      option("weight_decay", &Step::weight_decay),
      with_rule("lion_",
                "One Lion step (Chen et al., 2023), in place on parameter and m; the gradient "
                "counts times the one element of gradient_scale"));
}

void bind_optimizer_kinds(py::module_& m) {
  bind_lion(m);
  bind_usual_kinds(m);
  bind_muon(m);
}

}  // namespace weft::python
