// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/bindings.h"

namespace weft::python {

void bind_all(py::module_& m) {
  const auto each = [&m](std::initializer_list<Bind*> binds) {
    for (Bind* bind : binds) bind(m);
  };
  each({bind_errors, bind_dtypes, bind_placements, bind_communicator, bind_mesh});
  auto tensor = declare_tensor(m);
  each({bind_context, bind_ranks, bind_statistics, bind_modules, bind_ops});
  each({bind_elementwise, bind_factories, bind_networks, bind_rearrangements, bind_experts});
  each({bind_selection, bind_composed, bind_reductions, bind_shapes, bind_along_dim});
  bind_updates(m);
  for (BindTensor* bind : {bind_tensor, bind_numpy, bind_dlpack, bind_copies}) bind(m, tensor);
  each({bind_layers, bind_moe, bind_transformer, bind_optimizers, bind_fully_shard});
  each({bind_memory_budget, bind_fsdp_module, bind_tensor_parallel});
  each({bind_checkpoints, bind_tokenizer, bind_graph});
  word_functions(m);
}

}  // namespace weft::python

PYBIND11_MODULE(_weft, m) {
  m.doc() = "weft's engine; the package `weft` shows it.";
  m.attr("__version__") = WEFT_VERSION;
  weft::python::bind_all(m);
}
