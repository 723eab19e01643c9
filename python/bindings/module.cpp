// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "python/bindings/bindings.h"

namespace weft::python {

/// The prefix of the names that pybind11 gives to classes.
constexpr std::string_view kModule = "weft._weft.";

/// Python's own messages name a class by tp_name, which CPython takes from the module of its
/// definition.
static void name_class(py::handle type) {
  auto* named = reinterpret_cast<PyTypeObject*>(type.ptr());
  if (std::string_view(named->tp_name).starts_with(kModule)) {
    named->tp_name = strdup(concat("weft.", named->tp_name + kModule.size()).c_str());
  }
}

/// Translates errors of arguments that weft's own functions convert, and of memory.
static void translate_errors(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    py::set_error(PyExc_MemoryError, "out of memory");
  } catch (const std::length_error&) {
    py::set_error(PyExc_MemoryError, "out of memory");
  } catch (const py::cast_error& error) {
    const std::string message = error.what();
    const size_t start = message.find("<class '"), end = message.find("'>");
    const bool names_type = start != message.npos && end != message.npos;
    std::string type = names_type ? message.substr(start + 8, end - start - 8) : "object";
    if (type.starts_with(kModule)) type.replace(0, kModule.size(), "weft.");
    py::set_error(PyExc_TypeError,
                  concat("an argument holds a ", type,
                         ", which is not what is taken there, or more than it can hold")
                      .c_str());
  }
}

Bind bind_activations;
Bind bind_images;
/// Sequences that ranks share.
Bind bind_sequences;

void bind_all(py::module_& m) {
  const auto each = [&m](std::initializer_list<Bind*> binds) {
    for (Bind* bind : binds) bind(m);
  };
  each({bind_errors, bind_dtypes, bind_placements, bind_communicator, bind_mesh});
  auto tensor = declare_tensor(m);
  each({bind_context, bind_ranks, bind_statistics, bind_modules, bind_ops, bind_elementwise,
        bind_factories, bind_networks, bind_sequences, bind_rearrangements, bind_experts,
        bind_selection, bind_composed, bind_reductions, bind_shapes, bind_along_dim, bind_updates});
  for (BindTensor* bind : {bind_tensor, bind_numpy, bind_dlpack, bind_copies}) bind(m, tensor);
  each({bind_layers,          bind_activations,   bind_images,
        bind_loss_modules,    bind_moe,           bind_transformer,
        bind_optimizers,      bind_clipping,      bind_fully_shard,
        bind_functional_call, bind_memory_budget, bind_fsdp_module,
        bind_tensor_parallel, bind_checkpoints,   bind_tokenizer,
        bind_datasets,        bind_graph,         bind_adapters,
        bind_trainer,         bind_pipeline});
  py::register_exception_translator(translate_errors);
  word_functions(m);
  for (const auto& [name, member] : py::dict(m.attr("__dict__"))) {
    if (PyType_Check(member.ptr())) name_class(member);
  }
}

}  // namespace weft::python

PYBIND11_MODULE(_weft, m) {
  m.doc() = "weft's engine; the package `weft` shows it.";
  m.attr("__version__") = WEFT_VERSION;
  weft::python::bind_all(m);
}
