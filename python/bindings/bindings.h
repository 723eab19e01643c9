// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tools of all files that bind functions: casters, `def`, the lock and errors.
#include "python/bindings/composed.h"
#include "weft/block.h"
#include "weft/error.h"

namespace weft::python {

// A function a subject: most bind what one or several public headers declare. The order in which
// bind_all calls them binds a class before a signature names it.
using Bind = void(py::module_& m);
Bind bind_errors, bind_dtypes, bind_placements, bind_communicator, bind_mesh;
py::class_<Tensor> declare_tensor(py::module_& m);
Bind bind_context, bind_ranks, bind_statistics, bind_modules, bind_ops;
Bind bind_elementwise, bind_factories, bind_networks, bind_rearrangements;
Bind bind_experts, bind_selection, bind_composed, bind_reductions;
Bind bind_shapes, bind_along_dim, bind_updates;
using BindTensor = void(py::module_& m, py::class_<Tensor>& tensor);
BindTensor bind_tensor, bind_derivatives, bind_numpy, bind_dlpack, bind_copies;
void bind_operators(py::class_<Tensor>& tensor);
Bind bind_layers, bind_loss_modules, bind_moe, bind_transformer, bind_optimizers, bind_clipping,
    bind_fully_shard, bind_functional_call;
Bind bind_memory_budget, bind_fsdp_module, bind_tensor_parallel;
Bind bind_checkpoints, bind_tokenizer, bind_datasets, bind_graph, bind_adapters;
Bind bind_trainer, bind_pipeline;
/// Replaces all functions and methods that are bound in `m` by ones that take other words for their
/// arguments, and turns pybind11's own errors into one sentence each: wrong argument types,
/// out-of-range numbers, objects whose __init__ never ran.
void word_functions(py::module_& m);

// Functions that several of these files use.

/// Returns a docstring: the text, followed by the sharding rule of the op of that name, which also
/// states the shapes. Valid for the life of the module.
const char* with_rule(const char* op, const char* text);
/// Returns the same values in new memory with the same layout; without communication.
Tensor values_copied(const Tensor& x);
/// Reshapes to a shape in which one size may be -1.
Tensor reshaped(const Tensor& x, Shape shape);
/// `matmul` that also accepts vectors, as NumPy's does.
Tensor product_of(const Tensor& a, const Tensor& b);
/// Returns the only element as a Python number.
py::object item_of(const Tensor& x);
/// Returns all elements as nested lists of Python numbers.
py::object list_of(const Tensor& x);
/// Returns a dense copy as an array of NumPy; bfloat16 as float32.
py::object copied_array(const MemoryBlock& block);
/// Copies an array, or an object that NumPy converts to one, to the block, in the block's dtype.
/// Throws ValueError naming `what` when the shapes differ.
void fill_from_array(const std::string& what, const MemoryBlock& block, const py::object& values);
/// Returns the tensor if its memory may be read now: on one device, and without a gradient that
/// would be lost. Throws ValueError naming `what` otherwise.
Tensor shown(const char* what, const Tensor& x);
/// The same for memory that is read later, too: also refuses a parameter that is unsharded for a
/// while.
Tensor lent(const char* what, const Tensor& x);
/// Returns the tensor; ValueError naming `what` when it is not on that device, if one is given.
Tensor on_given_device(const char* what, const Tensor& x, const std::optional<Device>& device);
/// Makes a tensor of foreign memory: a view when its elements fill the memory without gaps in some
/// order of the dims, otherwise a copy. `owner` keeps the memory alive. With `copy` false a needed
/// copy is a ValueError; with true a copy is always made.
Tensor tensor_over(const char* what, const MemoryBlock& block, std::shared_ptr<void> owner,
                   const std::optional<bool>& copy);
/// Implements x[index] for ints, slices, None and ... as in NumPy; returns a view where possible.
Tensor indexed(const Tensor& x, const py::object& index);
/// Implements x[index] = value, with broadcasting. Throws ValueError where x[index] is not a view,
/// as for a sharded dim.
void set_indexed(const Tensor& x, const py::object& index, const py::object& value);

/// A function as Python knows it; its text shows the rule of `op`, by default the op of its name.
template <class Function> struct NamedFunction {
  const char* name;
  Function function;
  const char* text;
  const char* op = name;
};

/// Reduces dims, which stay with size 1 if the last argument is true.
using Reduction = Tensor (*)(const Tensor&, const std::vector<int>&, bool);

/// Makes pickle, and copies that would use it, fail with an error that names the alternative.
template <class Class> void refuse_to_pickle(Class& bound, const char* sentence) {
  bound.def("__reduce_ex__", [sentence](const py::object&, const py::object&) -> py::object {
    fail_type(sentence);
  });
}

/// Makes copies of a handle return the handle: the object behind it exists once.
template <class Class> void copy_as_itself(Class& bound) {
  bound.def("__copy__", [](const py::object& self) { return self; });
  bound.def("__deepcopy__", [](const py::object& self, const py::object&) { return self; });
}

}  // namespace weft::python
