// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/op.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "python/bindings/bindings.h"
#include "weft/extend/testing.h"

namespace weft::python {

/// The rule of an op; where it depends on attributes, that of its first sample.
static std::string rule_of(const OpSpec& spec) {
  if (!spec.rule.text().empty()) return std::string(spec.rule.text());
  if (!spec.rule_text.empty()) return spec.rule_text;
  if (spec.samples.empty()) return "depends on the attributes";
  const OpSample& sample = spec.samples.front();
  const Rule rule = spec.rule_of(sample.attributes, sample.shapes);
  return concat(rule.text, "   (by its attributes; this one of ", listed(sample.shapes), ')');
}

const char* with_rule(const char* op, const char* text) {
  static std::deque<std::string> kept;
  for (const Op& built_in : all_ops()) {
    if (built_in.spec().name == op) {
      return kept.emplace_back(concat(text, "\n\nRule: ", rule_of(built_in.spec()))).c_str();
    }
  }
  fail("with_rule: op ", in_quotes(op), " does not exist");
}

/// (shapes, dtypes, structure, values, (low, high)) of each call that the op is tested with.
static py::list samples_of(const Op& op) {
  py::list all;
  for (const OpSample& sample : op.spec().samples) {
    std::vector<DType> dtypes = sample.dtypes;
    dtypes.resize(sample.shapes.size(), DType::f32);
    all.append(py::make_tuple(sample.shapes, dtypes, sample.attributes.structure,
                              sample.attributes.values, std::pair(sample.low, sample.high)));
  }
  return all;
}

/// `structure` are dims, flags and sizes, `values` scalars.
static py::object call(const Op& op, const py::args& given, const Shape& structure,
                       const std::vector<double>& values) {
  const OpSpec& spec = op.spec();
  const Tensors operands = tensors_in(spec.name, given, "operand");
  // The kernel of a built-in op without structure would silently ignore it.
  if (!structure.empty() && !spec.structure.fits && !spec.samples.empty()) {
    fail(spec.name, ": structure is ", structure, ", expected none");
  }
  Attributes attributes{.structure = structure};
  if (values.size() > attributes.values.size()) {
    fail(spec.name, ": number of values is ", values.size(), ", expected at most ",
         attributes.values.size());
  }
  std::copy(values.begin(), values.end(), attributes.values.begin());
  return one_or_all(released([&] { return op.call(operands, attributes); }));
}

template <class... Fields> static py::object namespace_of(Fields&&... fields) {
  return py::module_::import("types").attr("SimpleNamespace")(std::forward<Fields>(fields)...);
}

static std::pair<Shape, Shape> as_pair(const Box& box) { return {box.offset, box.shape}; }

/// The `call` argument of forward: a copy, so that Python may keep it.
static py::object told_of(const Call& call, int results) {
  std::vector<std::pair<Shape, Shape>> operand_boxes, result_boxes;
  std::vector<Shape> operand_wholes, result_wholes, result_shapes;
  for (int i = 0; i < call.operands(); ++i) {
    operand_boxes.push_back(as_pair(call.in_box(i)));
    operand_wholes.push_back(call.in_shape(i));
  }
  for (int i = 0; i < results; ++i) {
    result_boxes.push_back(as_pair(call.out_box(i)));
    result_wholes.push_back(call.out_shape(i));
    result_shapes.push_back(call.out(i).shape);
  }
  return namespace_of("structure"_a = call.attributes().structure,
                      "values"_a = call.attributes().values, "operand_boxes"_a = operand_boxes,
                      "result_boxes"_a = result_boxes, "operand_wholes"_a = operand_wholes,
                      "result_wholes"_a = result_wholes, "result_shapes"_a = result_shapes,
                      "counts_here"_a = call.counts_here());
}

/// Runs forward on copies of the operands and copies what it returns to the results.
static void run_forward(const std::string& name, const Callable& forward, int results,
                        const Call& call) {
  const Locked lock;
  for (int i = 0; i < call.operands(); ++i) {
    if (call.in(i).device == cpu) continue;
    fail(name, ": operand ", i, " is on ", call.in(i).device,
         ", expected cpu, for a forward of NumPy arrays; move it by to(\"cpu\")");
  }
  py::list arguments;
  arguments.append(told_of(call, results));
  for (int i = 0; i < call.operands(); ++i) arguments.append(copied_array(call.in(i)));
  const py::object returned = forward(*arguments);
  const py::tuple all = results == 1 && !PyTuple_Check(returned.ptr())
                            ? py::make_tuple(returned)
                            : py::tuple(py::reinterpret_borrow<py::object>(returned));
  if (static_cast<int>(all.size()) != results) {
    fail(name, ": number of arrays that forward returned is ", all.size(), ", expected ", results,
         ", the results of the rule");
  }
  for (int i = 0; i < results; ++i) fill_from_array(name, call.out(i), all[static_cast<size_t>(i)]);
}

/// Gives the gradients that Python's backward returns.
static void run_backward(const std::string& name, const Callable& backward, int results,
                         bool saves_outputs, const Grad& grad) {
  const Locked lock;
  py::list operands, outputs, arguments;
  for (int i = 0; i < grad.operands(); ++i) operands.append(grad.in(i));
  for (int i = 0; saves_outputs && i < results; ++i) outputs.append(grad.out(i));
  arguments.append(namespace_of("operands"_a = operands, "results"_a = outputs,
                                "structure"_a = grad.attributes().structure,
                                "values"_a = grad.attributes().values));
  for (int i = 0; i < results; ++i) arguments.append(MaybeTensor(grad.grad(i)));
  const py::object returned = backward(*arguments);
  const bool is_one = !PyTuple_Check(returned.ptr()) && !PyList_Check(returned.ptr());
  const py::sequence all = is_one ? py::sequence(py::make_tuple(returned)) : py::sequence(returned);
  if (static_cast<int>(all.size()) != grad.operands()) {
    fail(name, ": number of gradients that backward returned is ", all.size(), ", expected ",
         grad.operands(), ", one an operand, or None");
  }
  for (int i = 0; i < grad.operands(); ++i) {
    const py::object gradient = all[static_cast<size_t>(i)];
    if (gradient.is_none() || !grad.wants(i)) continue;
    const auto tensor = tensor_of(gradient);
    if (!tensor)
      fail(name, ": gradient ", i, " of backward is another object, expected a Tensor or None");
    const Unlocked release;
    grad.give(i, *tensor);
  }
}

/// Arrays after the arrow of the rule of a custom op, of which there must be one.
static int results_of(const std::string& name, const std::string& rule) {
  const size_t arrow = rule.find("->");
  if (arrow == std::string::npos) return 1;  // the op's constructor reports the error
  if (rule.find_first_not_of(' ', arrow + 2) == rule.npos) {
    fail(name, ": the rule \"", rule,
         "\" has no result, expected at least one; write . for one without dims");
  }
  const auto results = rule.begin() + static_cast<ptrdiff_t>(arrow);
  return 1 + static_cast<int>(std::count(results, rule.end(), ','));
}

static Op own_op(const std::string& name, const std::string& rule, const py::function& forward,
                 const py::object& backward, const std::vector<std::vector<int>>& linear,
                 std::optional<DType> dtype, bool saves_outputs, const std::vector<DType>& dtypes,
                 std::optional<bool> differentiable, const std::vector<std::vector<Shape>>& samples,
                 const std::optional<std::vector<std::string>>& positions) {
  const int results = results_of(name, rule);
  OpSpec spec;
  spec.name = name;
  spec.rule_text = rule;
  spec.linear = linear;
  spec.positions = positions;
  spec.forward = [name, results, kept = Callable(forward)](const Call& call) {
    run_forward(name, kept, results, call);
  };
  if (dtype) {
    spec.dtype = [kept = *dtype](const Attributes&, std::span<const DType>, int) { return kept; };
  }
  // Forward gets copies: arrays that say what their dtype is.
  spec.takes = {{.dtypes = dtypes, .strides = true}};
  spec.differentiable = differentiable.value_or(!dtype || is_floating(*dtype));
  for (const std::vector<Shape>& shapes : samples) spec.samples.push_back({.shapes = shapes});
  if (!backward.is_none()) {
    spec.backward = [name, results, saves_outputs,
                     kept = Callable(py::function(backward))](const Grad& grad) {
      run_backward(name, kept, results, saves_outputs, grad);
    };
    if (saves_outputs) {
      spec.saves_out.resize(static_cast<size_t>(results));
      std::iota(spec.saves_out.begin(), spec.saves_out.end(), 0);
    }
  }
  return Op(std::move(spec));
}

static constexpr const char* kOwnOpDoc =
    "A custom op. `rule` is in factor notation ('... m k, ... k n -> ... m n'). forward(call, "
    "*operands) computes one device's part: it gets new NumPy arrays (bfloat16 as float32) and "
    "returns one array a result, of the shapes that call.result_shapes says. `call` also has "
    "structure, values, operand_boxes and result_boxes ((offset, shape) of this part in the "
    "whole), operand_wholes, result_wholes (shapes) and counts_here (False where a number added "
    "must not count, being added on another rank). backward(call, *gradients) gets the results' "
    "gradients as Tensors (None where nothing depends on one) and returns one Tensor or None an "
    "operand; `call` has operands, results (with saves_outputs), structure and values. `linear`: "
    "sets of operands in which it is jointly linear. `dtype`: of the results; that of operand 0 "
    "unless given. `dtypes`: those that operands may have; any unless given. Without backward a "
    "gradient that reaches the op raises a ValueError; with differentiable=False it stops there, "
    "as it does at results of integers. `samples`: operand shapes of the calls that weft.testing "
    "runs. `positions`: the factors along which forward reads positions, all unless given; along "
    "others, operands may have cuts of inner factors (Shard.outer)";

static std::string reason_without_gradient(const Op& op) {
  const OpSpec& spec = op.spec();
  if (spec.differentiable && (spec.backward || spec.definition)) return "";
  if (!spec.writes.empty()) return "it changes its operands in place";
  if (!spec.differentiable) return "operands or results are integers or bool";
  if (!spec.name.ends_with("_backward")) return "it refuses: the result is no smooth function";
  const std::string of = spec.name.substr(0, spec.name.size() - 9);
  return concat("it is the fused gradient of ", of, ", whose definition is differentiated");
}

void bind_ops(py::module_& m) {
  py::class_<Op> op_class(m, "Op",
                          "An operation, built in or one's own. Call it with tensors, and with "
                          "`structure` (dims, flags and sizes, which take part in the choice of "
                          "layouts) and `values` (scalars) as its kernel takes them");
  op_class
      .def(py::init(&own_op),
           Signature(
               "(name, rule, forward, backward=None, *, linear=[], dtype=None, "
               "saves_outputs=False, dtypes=[], differentiable=None, samples=[], positions=None)"),
           kOwnOpDoc)
      .def_property_readonly("name", [](const Op& op) { return op.spec().name; });
  getter(op_class, "rule", "The relation between the dims of operands and results",
         [](const Op& op) { return rule_of(op.spec()); });
  getter(op_class, "linear", "Sets of operands in which it is jointly linear: Partial passes there",
         [](const Op& op) { return op.spec().linear; });
  getter(op_class, "structure",
         "Names of the numbers of its `structure`, in order; '' for an op that says nothing",
         [](const Op& op) { return op.spec().structure.names; });
  getter(op_class, "staged",
         "Factors over which ranks exchange small results, or parts, when they are cut",
         [](const Op& op) { return op.spec().staged_over; });
  getter(
      op_class, "has_definition",
      "True when it states its meaning in simpler ops: second derivatives are computed from that",
      [](const Op& op) { return static_cast<bool>(op.spec().definition); });
  getter(op_class, "gradient_reason",
         "Why it has no gradient, and so no second one; '' where it has", &reason_without_gradient);
  getter(op_class, "gradient_order",
         "The order of its derivatives: 'any order', or 'none' where no gradient flows",
         [](const Op& op) {
           const OpSpec& spec = op.spec();
           const bool has = spec.differentiable && (spec.backward || spec.definition);
           return std::string(has ? "any order" : "none");
         });
  op_class
      .def_property_readonly("differentiable",
                             [](const Op& op) { return op.spec().differentiable; })
      .def_property_readonly("samples", &samples_of,
                             "Calls that it is tested with: (shapes, dtypes, structure, values, "
                             "(low, high) of the elements)")
      .def("__call__", &call, Signature("(*given, structure=(), values=[])"),
           "The result, or a tuple where there are several. ValueError when operands do not fit "
           "the rule")
      .def("__repr__", [](const Op& op) {
        return concat("Op('", op.spec().name, "', \"", rule_of(op.spec()), "\")");
      });
  def(m, "all_ops()", &all_ops, "The built-in ops");
  // Returns whether the op passed, and the report as text.
  def(m, "_gradcheck(op, seed)", [](const Op& op, uint64_t seed) {
    const GradcheckReport report = gradcheck(op, seed);
    return std::pair(report.ok(), concat(report));
  });
  def(m, "_sweep(op, axes, most, percent, seed)",
      [](const Op& op, const std::vector<std::pair<std::string, int>>& axes, int64_t most,
         int percent, uint64_t seed) {
        SweepOptions options{.axes = {}, .most = most, .percent = percent, .seed = seed};
        for (const auto& [name, size] : axes) options.axes.push_back({name, size});
        const SweepReport report = axes.empty() ? sweep(op) : sweep(op, options);
        return std::pair(report.ok(), concat(report));
      });
}

}  // namespace weft::python
