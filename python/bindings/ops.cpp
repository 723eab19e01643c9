// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/op.h"

#include <algorithm>
#include <deque>

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "python/bindings/own_op.h"
#include "python/bindings/returned_tensors.h"
#include "weft/error.h"

namespace weft::python {

/// The rule of an op; where it depends on attributes, that of its first sample.
static std::string rule_of(const OpSpec& spec) {
  if (!spec.rule.text().empty()) return std::string(spec.rule.text());
  if (!spec.rule_text.empty()) return spec.rule_text;
  if (spec.samples.empty()) return "depends on the attributes";
  const OpSample& sample = spec.samples.front();
  const Rule rule = spec.rule_of(sample.attributes, sample.shapes);
  std::string shapes;
  for (const Shape& shape : sample.shapes) shapes += concat(shapes.empty() ? "" : ", ", shape);
  return concat(rule.text, "   (by its attributes; this one of ", shapes, ')');
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

/// Numbers of a call, as ops take them: `structure` are dims, flags and sizes, `values` scalars.
static Attributes attributes_of(const Op& op, const Shape& structure,
                                const std::vector<double>& values) {
  Attributes attributes;
  attributes.structure = structure;
  if (values.size() > attributes.values.size()) {
    fail(op.spec().name, ": number of values is ", values.size(), ", expected at most ",
         attributes.values.size());
  }
  std::copy(values.begin(), values.end(), attributes.values.begin());
  return attributes;
}

/// Refuses structure for a built-in op without any: its kernel would silently ignore it.
static void check_takes_structure(const Op& op, const Shape& structure) {
  const OpSpec& spec = op.spec();
  if (structure.empty() || spec.structure.fits || spec.samples.empty()) return;
  fail(spec.name, ": structure is ", structure, ", expected none");
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

static py::object call(const Op& op, const py::args& given, const Shape& structure,
                       const std::vector<double>& values) {
  Tensors operands;
  for (const py::handle operand : given) {
    operands.push_back(tensor_from(op.spec().name, "operand", operands.size(), operand));
  }
  check_takes_structure(op, structure);
  const Attributes attributes = attributes_of(op, structure, values);
  return one_or_all(released([&] { return op.call(operands, attributes); }));
}

void bind_ops(py::module_& m) {
  py::class_<Op>(m, "Op",
                 "An operation, built in or one's own. Call it with tensors, and with `structure` "
                 "(dims, flags and sizes, which take part in the choice of layouts) and `values` "
                 "(scalars) as its kernel takes them")
      .def(py::init(&own_op), py::arg("name"), py::arg("rule"), py::arg("forward"),
           py::arg("backward") = py::none(), py::kw_only(),
           py::arg("linear") = std::vector<std::vector<int>>{}, py::arg("dtype") = py::none(),
           py::arg("saves_outputs") = false, py::arg("dtypes") = std::vector<DType>{},
           py::arg("differentiable") = py::none(),
           py::arg("samples") = std::vector<std::vector<Shape>>{}, kOwnOpDoc)
      .def_property_readonly("name", [](const Op& op) { return op.spec().name; })
      .def_property_readonly(
          "rule", [](const Op& op) { return rule_of(op.spec()); },
          "How the dims of operands and results belong together")
      .def_property_readonly(
          "linear", [](const Op& op) { return op.spec().linear; },
          "Sets of operands in which it is jointly linear: Partial passes there")
      .def_property_readonly(
          "structure", [](const Op& op) { return op.spec().structure.names; },
          "What the numbers of its `structure` are, in order; '' for an op that says nothing")
      .def_property_readonly("differentiable",
                             [](const Op& op) { return op.spec().differentiable; })
      .def_property_readonly("samples", &samples_of,
                             "Calls that it is tested with: (shapes, dtypes, structure, values, "
                             "(low, high) of the elements)")
      .def(
          "__call__", &call, py::kw_only(), py::arg("structure") = Shape(),
          py::arg("values") = std::vector<double>{},
          "The result, or a tuple where there are several. ValueError when operands do not fit the "
          "rule")
      .def("__repr__", [](const Op& op) {
        return concat("Op('", op.spec().name, "', \"", rule_of(op.spec()), "\")");
      });
  m.def("all_ops", &all_ops, "The built-in ops");
}

}  // namespace weft::python
