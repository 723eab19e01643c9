// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/bindings.h"

namespace weft::python {

void bind_all(py::module_& m) {
  bind_errors(m);
  bind_dtypes(m);
  bind_placements(m);
  bind_communicator(m);
  bind_mesh(m);
  auto tensor = declare_tensor(m);
  bind_context(m);
  bind_ranks(m);
  bind_statistics(m);
  bind_modules(m);
  bind_ops(m);
  bind_elementwise(m);
  bind_factories(m);
  bind_networks(m);
  bind_products(m);
  bind_rearrangements(m);
  bind_parts(m);
  bind_pointwise(m);
  bind_experts(m);
  bind_selection(m);
  bind_composed(m);
  bind_reductions(m);
  bind_shapes(m);
  bind_along_dim(m);
  bind_updates(m);
  bind_tensor(m, tensor);
  bind_numpy(m, tensor);
  bind_dlpack(m, tensor);
  bind_copies(m, tensor);
  bind_init(m);
  bind_layers(m);
  bind_moe(m);
  bind_transformer(m);
  bind_optimizers(m);
  bind_fully_shard(m);
  bind_memory_budget(m);
  bind_fsdp_module(m);
  bind_tensor_parallel(m);
  bind_state_dicts(m);
  bind_checkpoints(m);
  bind_tokenizer(m);
  bind_graph(m);
  word_functions(m);
}

}  // namespace weft::python

PYBIND11_MODULE(_weft, m) {
  m.doc() = "weft's engine; the package `weft` shows it.";
  m.attr("__version__") = WEFT_VERSION;
  weft::python::bind_all(m);
}
