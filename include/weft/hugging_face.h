// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "weft/checkpoint.h"
#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/module.h"
#include "weft/state_dict.h"
#include "weft/transformer_config.h"

namespace weft {

/// Fills the parameters of `model` (materialised if they are not) with the tensors of `path`: a
/// .safetensors file, an index of several, or a Hugging Face directory. Of a TransformerModel they
/// are found under the names of its family, wherever the files stack them. Each rank reads the
/// elements that it holds, and converts bf16, f16, f32 and f64 to the parameter's dtype. No
/// communication. std::invalid_argument before anything is read when a parameter is missing there,
/// a tensor is no parameter, or a shape or dtype does not fit; of a tied parameter any name will
/// do, and where there are several their elements must be equal.
WEFT_API void load_hugging_face(Module& model, const std::string& path);
/// The same for what both have, as a model with adapters has other parameters too: the names of the
/// parameters that `path` lacks, and of its tensors that are no parameter. Tensors that have
/// another shape than their parameter are refused all the same.
[[nodiscard]] WEFT_API SkippedKeys load_common_hugging_face(Module& model, const std::string& path);

/// The parameters of a model of this config in such files, by name in the model, with the files'
/// dtypes. std::invalid_argument as above.
WEFT_API CheckpointContents hugging_face_contents(const std::string& path,
                                                  const TransformerConfig& config);
/// Fills the tensors of `into`, which are such parameters, from the files.
WEFT_API void load_hugging_face(StateDict& into, const std::string& path,
                                const TransformerConfig& config);

struct ExportOptions {
  /// Tensors whose keys begin so are exported, without it; the others are left out.
  std::string prefix = "model/";
  /// The model that they are the parameters of: the files are those of its family, with a
  /// config.json. Without it, that which `weft train` or `weft ckpt import` saved in the
  /// checkpoint; where there is none, the tensors are written under their names.
  std::optional<TransformerConfig> config = {};
  /// A folder of a Hugging Face model whose tokenizer and generation_config.json are copied, and
  /// whose config.json has the ids of special tokens. Without it, the folder "hugging_face" of the
  /// run of the checkpoint, if it exists.
  std::optional<std::string> files = {};
  /// A file gets no second tensor beyond so many bytes.
  int64_t file_bytes = int64_t{5} << 30;
  /// Called now and then, on each rank, with the bytes that it has written.
  std::function<void(int64_t bytes)> progress = {};
};

/// Writes the tensors of a checkpoint (whatever `load` reads) as a Hugging Face model: one
/// model.safetensors, or several files and model.safetensors.index.json. Collective over `world`:
/// each rank reads its share of the elements and writes it to its place in the final files, nothing
/// is gathered or written twice. Elements keep their dtype and bits. The first rank writes the
/// files other than tensors, except those that exist; a warning names those that differ. Other
/// files of the directory are left alone, those of an export that was killed too: their names begin
/// with a dot and end with ".tmp". std::invalid_argument when there is a model or the config.json
/// of another one already, be it that another export ended meanwhile, or nothing to export.
WEFT_API void export_hugging_face(const std::string& checkpoint, const std::string& directory,
                                  const Communicator& world, const ExportOptions& options = {});

}  // namespace weft
