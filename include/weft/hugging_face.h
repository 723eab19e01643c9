// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/module.h"

namespace weft {

/// Fills the parameters of `model` (materialised if they are not) with the tensors of `path`: a
/// .safetensors file, an index of several, or a Hugging Face directory. Each rank reads the
/// elements that it holds, and converts bf16, f16, f32 and f64 to the parameter's dtype. No
/// communication. std::invalid_argument before anything is read when a parameter is missing there,
/// a tensor is no parameter, or a shape or dtype does not fit; of a tied parameter any name will
/// do, and where there are several their elements must be equal.
WEFT_API void load_hugging_face(Module& model, const std::string& path);

struct ExportOptions {
  /// Tensors whose keys begin so are exported, without it; the others are left out.
  std::string prefix = "model/";
  /// A file gets no second tensor beyond so many bytes.
  int64_t file_bytes = int64_t{5} << 30;
  /// Called now and then, on each rank, with the bytes that it has written.
  std::function<void(int64_t bytes)> progress = {};
};

/// Writes the tensors of a checkpoint (whatever `load` reads) as a Hugging Face model: one
/// model.safetensors, or several files and model.safetensors.index.json. Collective over `world`:
/// each rank reads its share of the elements and writes it to its place in the final files, nothing
/// is gathered or written twice. Elements keep their dtype and bits. Other files of the directory
/// are left alone, those of an export that was killed too: their names begin with a dot and end
/// with ".tmp". std::invalid_argument when there is a model already, be it that another export
/// ended meanwhile, or nothing to export.
WEFT_API void export_hugging_face(const std::string& checkpoint, const std::string& directory,
                                  const Communicator& world, const ExportOptions& options = {});

}  // namespace weft
