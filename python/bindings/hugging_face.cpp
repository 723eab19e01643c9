// SPDX-License-Identifier: Apache-2.0
#include "weft/hugging_face.h"

#include "python/bindings/lock.h"
#include "python/bindings/modules.h"

namespace weft::python {

void bind_hugging_face(py::module_& m) {
  m.def("load_hugging_face", py::overload_cast<Module&, const std::string&>(&load_hugging_face),
        Released(), py::arg("model"), py::arg("path"),
        "Fills the parameters with the tensors of a .safetensors file, an index of several, or a "
        "Hugging Face directory. Each rank reads the elements that it holds; no communication. "
        "ValueError, before anything is read, names what is missing or does not fit");
  m.def(
      "export_hugging_face",
      [](const std::string& checkpoint, const std::string& directory, const Communicator& world,
         const std::string& prefix, int64_t file_bytes,
         const std::optional<TransformerConfig>& config, const std::optional<std::string>& files) {
        export_hugging_face(
            checkpoint, directory, world,
            {.prefix = prefix, .config = config, .files = files, .file_bytes = file_bytes});
      },
      Released(), py::arg("checkpoint"), py::arg("directory"), py::arg("world"), py::kw_only(),
      py::arg("prefix") = "model/", py::arg("file_bytes") = int64_t{5} << 30,
      py::arg("config") = py::none(), py::arg("files") = py::none(),
      "Writes a checkpoint as a Hugging Face model: the tensors in the form of its family, "
      "config.json, and the tokenizer and generation_config.json of the Hugging Face model in the "
      "folder `files`. Collective over `world`: each rank writes its share to its place in the "
      "final "
      "files. Without `config` and `files` they are those that `weft train` or `weft ckpt import` "
      "kept with the checkpoint; where it kept none, only tensors are written, under their names");
}

}  // namespace weft::python
