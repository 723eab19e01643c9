// SPDX-License-Identifier: Apache-2.0
#include "weft/optimizers.h"

#include <cmath>
#include <map>
#include <variant>
#include <vector>

#include <range/v3/range/conversion.hpp>
#include <range/v3/view/transform.hpp>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/modules.h"
#include "weft/extend/disk_tensor.h"
#include "weft/ops/elementwise.h"

namespace weft::python {

namespace {

/// The numbers of a group, by name.
using NamedNumbers = std::map<std::string, double>;

/// An optimizer whose update is written in Python.
class WrittenOptimizer : public Optimizer {
 public:
  WrittenOptimizer(const std::vector<ParameterGroup<NamedNumbers>>& groups,
                   const std::vector<double>& learning_rates, std::vector<std::string> moments)
      : Optimizer(groups | ranges::views::transform(&ParameterGroup<NamedNumbers>::parameters) |
                      ranges::to<std::vector>(),
                  learning_rates),
        moments_(std::move(moments)) {
    for (const auto& group : groups) numbers_.push_back(group.options);
  }
  std::vector<std::string> moments() const override { return moments_; }

 protected:
  void update(const Update& update) override {
    const Tensor gradient = update.gradient * update.gradient_scale;
    const Locked lock;
    const py::function written = py::get_override(static_cast<const Optimizer*>(this), "update");
    if (!written)
      fail(
          "optimizer: update is missing, expected update(value, gradient, state, step, options) in "
          "its class");
    const size_t group = group_of(update.parameter);
    py::dict options("lr"_a = learning_rate(group));
    for (const auto& [name, value] : numbers_[group]) options[name.c_str()] = value;
    written(update.value, gradient, update.state, update.step, options);
  }
  int kind_of(size_t) const override { return 0; }
  std::vector<Hyperparameter> numbers(size_t group) override {
    std::vector<Hyperparameter> all;
    for (auto& [name, value] : numbers_[group]) all.push_back({name, &value});
    return all;
  }

 private:
  std::vector<NamedNumbers> numbers_;
  const std::vector<std::string> moments_;
};

}  // namespace

/// Returns the groups that Python gives: a module, parameters, or dicts with "params" and options,
/// each of which `set(options, name, value)` takes if it returns true.
template <class Options, class Set>
static std::vector<ParameterGroup<Options>> groups_of(const py::object& given,
                                                      const Options& defaults, const Set& set) {
  if (!py::isinstance<py::sequence>(given) || py::len(given) == 0 ||
      !py::isinstance<py::dict>(given[py::int_(0)])) {
    return {{named_parameters_of(given), defaults}};
  }
  std::vector<ParameterGroup<Options>> groups;
  for (const py::handle item : given) {
    if (!py::isinstance<py::dict>(item) || !item.contains("params")) {
      fail_type("parameters: group ", groups.size(),
                " has no \"params\", expected a dict with a list of parameters");
    }
    ParameterGroup<Options> group{named_parameters_of(item["params"]), defaults};
    for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(item)) {
      const auto name = py::cast<std::string>(key);
      if (name == "params" || set(group.options, name, value)) continue;
      fail("parameters: option ", in_quotes(name), " of group ", groups.size(),
           " does not exist in this optimizer");
    }
    // Parameters without names are counted over all groups.
    size_t before = 0;
    for (const auto& earlier : groups) before += earlier.parameters.size();
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      std::vector<std::string>& names = group.parameters[i].names;
      if (names[0] == concat(i)) names[0] = concat(before + i);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

static bool set_among(const std::vector<Hyperparameter>& numbers, std::string_view name,
                      double value) {
  for (const Hyperparameter& number : numbers) {
    if (number.name != name) continue;
    number.set(value);
    return true;
  }
  return false;
}

/// Sets an option of AdamW, SGD or Lamb by its name in PyTorch.
template <class Options>
static bool set_option(Options& options, const std::string& name, const py::handle& value) {
  if constexpr (requires { options.beta1; }) {
    if (name == "betas") {
      std::tie(options.beta1, options.beta2) = value.cast<std::pair<double, double>>();
      return true;
    }
  }
  return set_among(hyperparameters(options), name, value.cast<double>());
}

static std::unique_ptr<WrittenOptimizer> written_optimizer(const py::object& parameters,
                                                           const NamedNumbers& options,
                                                           std::vector<std::string> moments) {
  if (!options.contains("lr"))
    fail("optimizer: option \"lr\" is missing, expected a learning rate");
  auto groups =
      groups_of(parameters, options,
                [](NamedNumbers& numbers, const std::string& name, const py::handle& value) {
                  const auto found = numbers.find(name);
                  if (found == numbers.end()) return false;
                  found->second = value.cast<double>();
                  return true;
                });
  std::vector<double> rates;
  for (auto& group : groups) rates.push_back(group.options.extract("lr").mapped());
  return std::make_unique<WrittenOptimizer>(groups, rates, std::move(moments));
}

/// The numbers of each group's parameters, and its hyperparameters.
static py::list groups_of_numbers(Optimizer& o) {
  py::list groups;
  for (size_t group = 0; group < o.groups(); ++group) {
    py::list parameters;
    for (size_t i = 0; i < o.parameters().size(); ++i) {
      if (o.group_of(i) == group) parameters.append(o.parameters()[i].parameter);
    }
    py::dict numbers;
    for (const Hyperparameter& number : o.hyperparameters(group)) {
      const py::str name{std::string(number.name)};
      std::visit([&](const auto* value) { numbers[name] = *value; }, number.value);
    }
    groups.append(py::make_tuple(parameters, numbers));
  }
  return groups;
}

static void check_parameter(const char* what, const Optimizer& o, size_t parameter) {
  const size_t number = o.parameters().size();
  if (parameter >= number)
    fail(what, ": parameter is ", parameter, ", expected one below ", number);
}

static void bind_base(py::module_& m) {
  py::class_<Optimizer, WrittenOptimizer> bound(
      m, "Optimizer",
      "Changes parameters by their gradients. It holds their slots, so they may be sharded, "
      "gathered or loaded meanwhile. A class derived from it defines update(value, gradient, "
      "state, step, options), which changes `value` and the tensors of `state`, zeros at first, in "
      "place. Each is the flat part of one or several parameters that this rank holds; `step` "
      "counts from 1, and `options` is a dict of the numbers of their group");
  bound.def(py::init(&written_optimizer), "parameters"_a, "options"_a, py::kw_only(),
            "moments"_a = std::vector<std::string>(),
            "parameters: as AdamW takes them. options: numbers by name, with an \"lr\"; groups may "
            "have others of these names. moments: the names of the tensors in `state`");
  refuse_to_pickle(bound,
                   "an Optimizer is not pickled; make another one and load_state_dict() into it "
                   "what weft.state_dict() gives");
  bound.def("_copy_for", &Optimizer::copy_for, Released(), "parameters"_a)
      .def_property_readonly("_parameters", [](const Optimizer& o) {
        return o.parameters() | ranges::views::transform(&NamedParameter::parameter) |
               ranges::to<std::vector>();
      });
  def(bound, "step(gradient_scale=None)",
      "One update by the gradients times the one element of gradient_scale (clip_scale gives one). "
      "Parameters without a gradient stay; ValueError when none has one",
      Released(), [](Optimizer& o, const MaybeTensor& scale) { o.step(scale); });
  def(bound, "zero_grad(set_to_none=True)", "Clears the gradients of its parameters", Released(),
      [](Optimizer& o, bool set_to_none) {
        if (!set_to_none) {
          fail(
              "zero_grad: set_to_none is False, expected True; gradients are cleared, not filled "
              "with 0");
        }
        o.zero_grad();
      });
  bound
      .def_property(
          "lr", [](const Optimizer& o) { return o.learning_rate(); },
          [](Optimizer& o, double rate) { o.set_learning_rate(rate); },
          "The learning rate of the first group; setting it sets that of all")
      .def_property_readonly("_groups", &groups_of_numbers)
      .def("_set", [](Optimizer& o, size_t group, const std::string& name,
                      double value) { return set_among(o.hyperparameters(group), name, value); })
      .def("_set_steps", &Optimizer::set_steps);
  getter(bound, "names", "Of the trainable parameters it was given", [](const Optimizer& o) {
    return o.parameters() | ranges::views::transform(&NamedParameter::name) |
           ranges::to<std::vector<std::string>>();
  });
  bound.def_property_readonly("moments", &Optimizer::moments, "Names of what it remembers of each");
  def(bound, "state(parameter)",
      "What it remembers of parameter number `parameter`, in its layout: a tensor for each of "
      "`moments`. Change them in place only",
      [](Optimizer& o, size_t parameter) {
        check_parameter("state", o, parameter);
        return released([&] { return o.state(parameter); });
      });
  def(bound, "steps(parameter)", "How many updates parameter number `parameter` has had",
      [](const Optimizer& o, size_t parameter) {
        check_parameter("steps", o, parameter);
        return o.steps(parameter);
      });
}

/// Binds a built-in optimizer: its constructor takes parameters, and `items`, fields of Options.
template <class Kind, class Options, class... Items>
static void bind_optimizer(py::module_& m, const char* name, const char* doc,
                           const Items&... items) {
  py::class_<Kind, Optimizer> kind(m, name, doc);
  const auto make = [](const py::object& parameters, const Options& options) {
    return std::make_unique<Kind>(groups_of(parameters, options, set_option<Options>));
  };
  bind_constructor<Options, py::object>(kind, make, "parameters"_a, items...);
}

static Tier offload_in(const std::variant<bool, std::string>& given) {
  return tier_from("optimizer: offload", given);
}

static void bind_kinds(py::module_& m) {
  using A = AdamWOptions;
  using S = SGDOptions;
  using L = LambOptions;
  const py::arg_v decays = "decays"_a = py::none(), offload = "offload"_a = false;
  bind_optimizer<AdamW, A>(
      m, "AdamW", "Adam with decoupled weight decay (Loshchilov and Hutter, 2019)",
      option("lr", &A::learning_rate), betas_of<A>(), option("eps", &A::eps),
      option("weight_decay", &A::weight_decay), py::kw_only(),
      converted(decays, &A::decays, function_of_parameter<bool>), option("moments", &A::moments),
      converted(offload, &A::offload, offload_in),
      "parameters: a module, its named_parameters() or parameters(), or a list of groups, dicts "
      "with \"params\" and the options that differ from those given here. decays(name, parameter) "
      "returns whether weight decay applies (to all unless given). moments: the dtype of m and v. "
      "offload: True keeps them in pinned memory of the host, \"disk:DIR\" in files without a name "
      "in DIR");
  bind_optimizer<SGD, S>(m, "SGD", "Stochastic gradient descent, with momentum",
                         option("lr", &S::learning_rate), option("momentum", &S::momentum),
                         option("weight_decay", &S::weight_decay), option("nesterov", &S::nesterov),
                         py::kw_only(), converted(decays, &S::decays, function_of_parameter<bool>),
                         converted(offload, &S::offload, offload_in));
  bind_optimizer<Lamb, L>(m, "Lamb", "Layer-wise adapted Adam (You et al., 2020)",
                          option("lr", &L::learning_rate), betas_of<L>(), option("eps", &L::eps),
                          option("weight_decay", &L::weight_decay), py::kw_only(),
                          converted(decays, &L::decays, function_of_parameter<bool>),
                          converted(offload, &L::offload, offload_in));
}

void bind_optimizers(py::module_& m) {
  bind_base(m);
  bind_kinds(m);
  using C = WarmupCosine;
  bind_options<C>(
      m, "WarmupCosine",
      "A learning rate by step, counted from 0: it grows evenly to `peak`, reached after `warmup` "
      "steps, and falls along half a cosine to `floor`, reached at step `total` and kept",
      needed("peak", &C::peak), needed("warmup", &C::warmup), needed("total", &C::total),
      option("floor", &C::floor))
      .def("__call__", &C::operator(), "step"_a,
           "ValueError for a negative step or a warm-up longer than the whole");
  def(m, "gradient_norm(parameters)",
      "sqrt of the sum of squares of all gradients, whatever their layouts and meshes: one "
      "element, float32, equal on each rank. One all-reduce",
      [](const py::object& parameters) {
        const auto all = parameters_of(parameters);
        return released([&] { return gradient_norm(all); });
      });
  def(m, "in_memory(tensor)", &in_memory,
      "The tensor, or a copy in memory of one that rests on disk");
  def(m, "rests_on_disk(tensor)", &rests_on_disk,
      "Whether the elements of this rank rest in a file (offload=\"disk:DIR\")");
  def(m, "clip_scale(norm, max_norm)", &clip_scale,
      "min(1, max_norm / (norm + 1e-6)): what Optimizer.step takes, so that clipping is no pass "
      "over the gradients");
  def(m,
      "clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, "
      "foreach=None)",
      "Scales all gradients so that their norm is at most max_norm; gives the norm before: that of "
      "the gradients whatever their layouts and meshes. One all-reduce. ValueError for a norm_type "
      "that is not 2; RuntimeError, when asked for, where the norm is no finite number",
      [](const py::object& parameters, double max_norm, const py::object& norm_type,
         bool error_if_nonfinite, const py::object&) {
        if (!norm_type.equal(py::float_(2.0))) {
          fail("clip_grad_norm_: norm_type is ", py::repr(norm_type), ", expected 2");
        }
        const auto all = parameters_of(parameters);
        return released([&] {
          const double norm = error_if_nonfinite ? gradient_norm(all).item() : 0;
          if (!std::isfinite(norm)) {
            fail_call("clip_grad_norm_", "the norm of the gradients is ", norm);
          }
          return clip_grad_norm(all, max_norm);
        });
      });
  def(m, "clip_grad_value_(parameters, clip_value)",
      "Limits every element of the gradients to [-clip_value, clip_value]. No traffic",
      [](const py::object& parameters, double clip_value) {
        const auto all = parameters_of(parameters);
        released([&] { clip_grad_value(all, clip_value); });
      });
}

}  // namespace weft::python
