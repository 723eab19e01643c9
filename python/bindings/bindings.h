// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "python/bindings/casters.h"

namespace weft::python {

// A function a file, each of which binds what a public header declares. They run in the order in
// which they stand here: a class is bound before it is named in a signature.
void bind_errors(py::module_& m);
void bind_dtypes(py::module_& m);
void bind_placements(py::module_& m);
void bind_communicator(py::module_& m);
void bind_mesh(py::module_& m);
py::class_<Tensor> declare_tensor(py::module_& m);
void bind_context(py::module_& m);
void bind_ops(py::module_& m);
void bind_elementwise(py::module_& m);
void bind_factories(py::module_& m);
void bind_networks(py::module_& m);
void bind_products(py::module_& m);
void bind_reductions(py::module_& m);
void bind_shapes(py::module_& m);
void bind_trigonometry(py::module_& m);
void bind_rounding(py::module_& m);
void bind_logic(py::module_& m);
void bind_powers(py::module_& m);
void bind_along_dim(py::module_& m);
void bind_updates(py::module_& m);
void bind_tensor(py::module_& m, py::class_<Tensor>& tensor);
void bind_interchange(py::module_& m, py::class_<Tensor>& tensor);
void bind_autograd(py::module_& m);
void bind_modules(py::module_& m);
void bind_layers(py::module_& m);
void bind_llama(py::module_& m);
void bind_optimizers(py::module_& m);
void bind_schedules(py::module_& m);
void bind_fully_shard(py::module_& m);
void bind_tensor_parallel(py::module_& m);
void bind_state_dicts(py::module_& m);
void bind_checkpoints(py::module_& m);
void bind_hugging_face(py::module_& m);
void bind_memory(py::module_& m);
void bind_trace(py::module_& m);

/// All that may compute or wait runs without the interpreter's lock.
using Released = py::call_guard<py::gil_scoped_release>;

/// The sentence of a function, and below it the rule of the op of that name, which says the shapes:
/// the result is kept for the module's life.
const char* with_rule(const char* op, const char* text);

/// A Python callable that C++ keeps, calls and drops on any thread.
class Callable {
 public:
  Callable() = default;
  explicit Callable(py::function function);
  explicit operator bool() const { return function_ != nullptr; }
  /// With the lock held.
  template <class... Arguments>
  py::object operator()(Arguments&&... arguments) const {
    return (*function_)(std::forward<Arguments>(arguments)...);
  }

 private:
  std::shared_ptr<py::function> function_;
};

/// Gives an object back on whatever thread; nothing once the interpreter ends.
void drop(PyObject* object);

/// What a forward of Python returned: a tensor, or a sequence of them. TypeError names `what`
/// otherwise.
Tensors tensors_of(const std::string& what, py::handle returned);
/// One tensor alone, several as a tuple.
py::object one_or_all(Tensors tensors);

}  // namespace weft::python
