// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/own_op.h"

#include <numeric>

#include "python/bindings/arrays.h"
#include "python/bindings/bindings.h"
#include "python/bindings/callable.h"
#include "python/bindings/lock.h"
#include "weft/error.h"

namespace weft::python {

static py::object namespace_of(const py::dict& fields) {
  return py::module_::import("types").attr("SimpleNamespace")(**fields);
}

static py::list values_of(const Attributes& attributes) {
  py::list values;
  for (const double value : attributes.values) values.append(value);
  return values;
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
  py::dict fields;
  fields["structure"] = call.attributes().structure;
  fields["values"] = values_of(call.attributes());
  fields["operand_boxes"] = operand_boxes;
  fields["result_boxes"] = result_boxes;
  fields["operand_wholes"] = operand_wholes;
  fields["result_wholes"] = result_wholes;
  fields["result_shapes"] = result_shapes;
  fields["counts_here"] = call.counts_here();
  return namespace_of(fields);
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
  py::tuple arguments(static_cast<size_t>(call.operands() + 1));
  arguments[0] = told_of(call, results);
  for (int i = 0; i < call.operands(); ++i) {
    arguments[static_cast<size_t>(i + 1)] = copied_array(call.in(i));
  }
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
  py::list operands, outputs;
  for (int i = 0; i < grad.operands(); ++i) operands.append(grad.in(i));
  for (int i = 0; saves_outputs && i < results; ++i) outputs.append(grad.out(i));
  py::dict fields;
  fields["operands"] = operands;
  fields["results"] = outputs;
  fields["structure"] = grad.attributes().structure;
  fields["values"] = values_of(grad.attributes());
  py::tuple arguments(static_cast<size_t>(results + 1));
  arguments[0] = namespace_of(fields);
  for (int i = 0; i < results; ++i) {
    arguments[static_cast<size_t>(i + 1)] = py::cast(optional_of(grad.grad(i)));
  }
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

/// Arrays after the arrow of a rule.
static int results_of(const std::string& rule) {
  const size_t arrow = rule.find("->");
  if (arrow == std::string::npos) return 1;  // the op's constructor reports the error
  return 1 + static_cast<int>(
                 std::count(rule.begin() + static_cast<ptrdiff_t>(arrow), rule.end(), ','));
}

/// Checks that the rule of a custom op has a result.
static void check_has_result(const std::string& name, const std::string& rule) {
  const size_t arrow = rule.find("->");
  if (arrow == std::string::npos || rule.find_first_not_of(" ", arrow + 2) != rule.npos) return;
  fail(name, ": the rule \"", rule,
       "\" has no result, expected at least one; write . for one without dims");
}

Op own_op(const std::string& name, const std::string& rule, const py::function& forward,
          const py::object& backward, const std::vector<std::vector<int>>& linear,
          std::optional<DType> dtype, bool saves_outputs, const std::vector<DType>& dtypes,
          std::optional<bool> differentiable, const std::vector<std::vector<Shape>>& samples) {
  check_has_result(name, rule);
  const int results = results_of(rule);
  OpSpec spec;
  spec.name = name;
  spec.rule_text = rule;
  spec.linear = linear;
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

}  // namespace weft::python
