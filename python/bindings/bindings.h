// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"

namespace weft::python {

// A function a subject: most bind what one or several public headers declare. The order in which
// bind_all calls them binds a class before a signature names it.
void bind_errors(py::module_& m);
void bind_dtypes(py::module_& m);
void bind_placements(py::module_& m);
void bind_communicator(py::module_& m);
void bind_mesh(py::module_& m);
py::class_<Tensor> declare_tensor(py::module_& m);
void bind_context(py::module_& m);
void bind_ranks(py::module_& m);
void bind_statistics(py::module_& m);
void bind_modules(py::module_& m);
void bind_ops(py::module_& m);
void bind_elementwise(py::module_& m);
void bind_factories(py::module_& m);
void bind_networks(py::module_& m);
void bind_products(py::module_& m);
void bind_rearrangements(py::module_& m);
void bind_reductions(py::module_& m);
void bind_shapes(py::module_& m);
void bind_along_dim(py::module_& m);
void bind_updates(py::module_& m);
void bind_in_place(py::class_<Tensor>& tensor);
void bind_tensor(py::module_& m, py::class_<Tensor>& tensor);
void bind_numpy(py::module_& m, py::class_<Tensor>& tensor);
void bind_dlpack(py::module_& m, py::class_<Tensor>& tensor);
void bind_experts(py::module_& m);
void bind_selection(py::module_& m);
void bind_pointwise(py::module_& m);
void bind_parts(py::module_& m);
void bind_composed(py::module_& m);
void bind_copies(py::module_& m, py::class_<Tensor>& tensor);
void bind_init(py::module_& m);
void bind_layers(py::module_& m);
void bind_moe(py::module_& m);
void bind_transformer(py::module_& m);
void bind_optimizers(py::module_& m);
void bind_fully_shard(py::module_& m);
void bind_memory_budget(py::module_& m);
void bind_fsdp_module(py::module_& m);
void bind_tensor_parallel(py::module_& m);
void bind_state_dicts(py::module_& m);
void bind_checkpoints(py::module_& m);
void bind_tokenizer(py::module_& m);
void bind_graph(py::module_& m);
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
/// The tensors that a function takes one by one; `kind` names them in errors.
Tensors tensors_in(const std::string& what, const py::args& given, const char* kind = "tensor");
/// Reshapes to a shape in which one size may be -1.
Tensor reshaped(const Tensor& x, Shape shape);
/// `matmul` that also accepts vectors, as NumPy's does.
Tensor product_of(const Tensor& a, const Tensor& b);
/// Returns the only element as a Python number.
py::object item_of(const Tensor& x);
/// Returns all elements as nested lists of Python numbers.
py::object list_of(const Tensor& x);
/// Implements x[index] for ints, slices, None and ... as in NumPy; returns a view where possible.
Tensor indexed(const Tensor& x, const py::object& index);
/// Implements x[index] = value, with broadcasting. Throws ValueError where x[index] is not a view,
/// as for a sharded dim.
void set_indexed(const Tensor& x, const py::object& index, const py::object& value);

/// Makes pickle, and copies that would use it, fail with an error that names the alternative.
template <class Class> void refuse_to_pickle(Class& bound, const char* sentence) {
  bound.def("__reduce_ex__", [sentence](const py::object&, const py::object&) -> py::object {
    throw py::type_error(sentence);
  });
}

/// Makes copies of a handle return the handle: the object behind it exists once.
template <class Class> void copy_as_itself(Class& bound) {
  bound.def("__copy__", [](const py::object& self) { return self; });
  bound.def("__deepcopy__", [](const py::object& self, const py::object&) { return self; });
}

}  // namespace weft::python
