// SPDX-License-Identifier: Apache-2.0
#include "weft/derivatives.h"

#include <algorithm>
#include <cmath>

#include "ops/promotion.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

/// The inputs as leaves, or as themselves where the result is to be differentiated by them too.
static Tensors as_leaves(const char* what, const Tensors& inputs, bool create_graph) {
  Tensors leaves;
  for (const Tensor& input : inputs) {
    if (!input || !is_floating(input.dtype())) {
      fail(what, ": input ", leaves.size(), ' ',
           input ? concat("is ", input.dtype()) : std::string("is missing"),
           ", expected a floating tensor");
    }
    const bool is_kept = create_graph && input.requires_grad();
    leaves.push_back(is_kept ? mul(input, 1) : input.detach().set_requires_grad());
  }
  return leaves;
}

static void check_count(const char* what, const Tensors& v, const Tensors& like) {
  if (v.size() != like.size()) {
    fail(what, ": number of vectors is ", v.size(), ", expected ", like.size());
  }
  for (size_t i = 0; i < v.size(); ++i) {
    if (v[i] && v[i].shape() == like[i].shape()) continue;
    fail(what, ": vector ", i, " is ", v[i] ? concat(v[i].shape()) : std::string("missing"),
         ", expected ", like[i].shape());
  }
}

/// Gradients, with zeros for inputs that the outputs do not depend on.
static Tensors complete_grad(const Tensors& outputs, const Tensors& inputs,
                             const Tensors& gradients, bool create_graph) {
  Tensors roots, given;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i] || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    given.push_back(i < gradients.size() ? gradients[i] : Tensor());
  }
  Tensors found(inputs.size());
  if (!roots.empty()) {
    found = grad(roots, inputs,
                 {.grad_outputs = given,
                  .create_graph = create_graph,
                  .retain_graph = true,
                  .allow_unused = true});
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) found[i] = zeros_like(inputs[i]);
  }
  return found;
}

static Tensors detached(Tensors tensors, bool create_graph) {
  for (Tensor& tensor : tensors) {
    if (!create_graph) tensor = tensor.detach();
  }
  return tensors;
}

WithProducts vjp(const TensorFunction& function, const Tensors& inputs, const Tensors& v,
                 bool create_graph) {
  const ContextSetting<&Context::grad_enabled> recording(true);
  const Tensors leaves = as_leaves("vjp", inputs, create_graph);
  const Tensors outputs = function(leaves);
  check_count("vjp", v, outputs);
  return {detached(outputs, create_graph), complete_grad(outputs, leaves, v, create_graph)};
}

WithProducts jvp(const TensorFunction& function, const Tensors& inputs, const Tensors& v,
                 bool create_graph) {
  const ContextSetting<&Context::grad_enabled> recording(true);
  check_count("jvp", v, inputs);
  const Tensors leaves = as_leaves("jvp", inputs, create_graph);
  const Tensors outputs = function(leaves);
  Tensors cotangents;
  for (const Tensor& output : outputs) {
    cotangents.push_back(zeros_like(output.detach()).set_requires_grad());
  }
  const Tensors gradients = complete_grad(outputs, leaves, cotangents, true);
  return {detached(outputs, create_graph), complete_grad(gradients, cotangents, v, create_graph)};
}

static void check_one(const char* what, const Tensors& outputs) {
  if (outputs.size() == 1 && outputs[0].numel() == 1) return;
  fail(what, ": number of outputs is ", outputs.size(),
       outputs.empty() ? std::string() : concat(", the first ", outputs[0].shape()),
       ", expected 1 of one element");
}

WithProducts hvp(const TensorFunction& function, const Tensors& inputs, const Tensors& v,
                 bool create_graph) {
  const ContextSetting<&Context::grad_enabled> recording(true);
  check_count("hvp", v, inputs);
  const Tensors leaves = as_leaves("hvp", inputs, create_graph);
  const Tensors outputs = function(leaves);
  check_one("hvp", outputs);
  const Tensors gradients = complete_grad(outputs, leaves, {}, true);
  return {detached(outputs, create_graph), complete_grad(gradients, leaves, v, create_graph)};
}

/// 1 at element i, in row-major order, and 0 elsewhere.
static Tensor unit_like(const Tensor& x, int64_t i) {
  const Tensor is_it = equal(numbers_next_to(x, 0, x.numel()), i);
  return reshape(as_dtype(is_it, x.dtype()), x.shape());
}

static std::vector<Tensors> jacobian_at(const Tensors& outputs, const Tensors& leaves,
                                        bool create_graph) {
  std::vector<Tensors> all;
  for (const Tensor& output : outputs) {
    std::vector<Tensors> rows(leaves.size());
    for (int64_t i = 0; i < output.numel(); ++i) {
      const Tensors found = complete_grad({output}, leaves, {unit_like(output, i)}, create_graph);
      for (size_t j = 0; j < found.size(); ++j) rows[j].push_back(found[j]);
    }
    Tensors& of_output = all.emplace_back();
    for (size_t j = 0; j < leaves.size(); ++j) {
      Shape shape = output.shape();
      for (const int64_t size : leaves[j].shape()) shape.push_back(size);
      of_output.push_back(rows[j].empty()
                              ? zeros(shape, options_next_to(leaves[j], leaves[j].dtype()))
                              : reshape(stack(rows[j], 0), shape));
    }
  }
  return all;
}

std::vector<Tensors> jacobian(const TensorFunction& function, const Tensors& inputs,
                              bool create_graph) {
  const ContextSetting<&Context::grad_enabled> recording(true);
  const Tensors leaves = as_leaves("jacobian", inputs, create_graph);
  return jacobian_at(function(leaves), leaves, create_graph);
}

std::vector<Tensors> hessian(const TensorFunction& function, const Tensors& inputs,
                             bool create_graph) {
  const ContextSetting<&Context::grad_enabled> recording(true);
  const Tensors leaves = as_leaves("hessian", inputs, create_graph);
  const Tensors outputs = function(leaves);
  check_one("hessian", outputs);
  return jacobian_at(complete_grad(outputs, leaves, {}, true), leaves, create_graph);
}

static std::vector<double> elements_of(const Tensor& x) {
  return x.full_tensor().to(cpu).to(DType::f64).to_vector<double>();
}

std::string gradcheck(const TensorFunction& function, const Tensors& inputs,
                      const CheckOptions& options) {
  const std::vector<Tensors> found = jacobian(function, inputs);
  Tensors changed;
  for (const Tensor& input : inputs) {
    if (input.dtype() != f64) {
      fail("gradcheck: input ", changed.size(), " is ", input.dtype(), ", expected f64");
    }
    changed.push_back(input.detach());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t count = inputs[i].numel();
    for (int64_t e = 0; e < count; ++e) {
      const Tensor step = mul(unit_like(inputs[i].detach(), e), options.eps), before = changed[i];
      changed[i] = add(before, step);
      const Tensors above = function(changed);
      changed[i] = sub(before, step);
      const Tensors below = function(changed);
      changed[i] = before;
      for (size_t o = 0; o < above.size(); ++o) {
        const std::vector<double> a = elements_of(above[o].detach()),
                                  b = elements_of(below[o].detach()),
                                  all = elements_of(found[o][i].detach());
        for (size_t r = 0; r < a.size(); ++r) {
          const double quotient = (a[r] - b[r]) / (2 * options.eps);
          const double gradient = all[r * static_cast<size_t>(count) + static_cast<size_t>(e)];
          const double off = std::abs(gradient - quotient);
          if (off <= options.atol + options.rtol * std::abs(quotient)) continue;
          return concat("the derivative of output ", o, "[", r, "] by input ", i, "[", e, "] is ",
                        gradient, ", expected ", quotient);
        }
      }
    }
  }
  return "";
}

std::string gradgradcheck(const TensorFunction& function, const Tensors& inputs,
                          const CheckOptions& options) {
  const auto gradients = [&](const Tensors& given) {
    const Tensors own(given.begin(), given.begin() + static_cast<ptrdiff_t>(inputs.size()));
    const Tensors v(given.begin() + static_cast<ptrdiff_t>(inputs.size()), given.end());
    return vjp(function, own, v, true).products;
  };
  Tensors all = inputs;
  const NoGrad no_grad;
  for (const Tensor& output : function(inputs)) {
    // Any values that are not symmetric do.
    const Tensor numbers = numbers_next_to(output, 1, output.numel() + 1);
    all.push_back(reshape(cos(as_dtype(numbers, f64)), output.shape()));
  }
  return gradcheck(gradients, all, options);
}

}  // namespace weft
