// SPDX-License-Identifier: Apache-2.0
#include "weft/hugging_face.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <vector>

#include "checkpoint/keys.h"
#include "checkpoint/model_files.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/ops/factories.h"
#include "weft/safetensors.h"
#include "weft/transformer.h"
#include "weft/warnings.h"

namespace weft {

static void warn_of_further_tokens(const TensorFiles& tensors, const TransformerConfig& config) {
  const std::vector<std::string> names = tensors.names();
  const auto count = std::ranges::count_if(
      names, [&](const std::string& name) { return predicts_further_tokens(config, name); });
  if (count == 0) return;
  // Once, though each rank of this process loads.
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  if (!warned.insert(tensors.path()).second) return;
  warn(kLoadModel, ": ", tensors.path(), ": skipped ", count,
       " tensors of layers that predict further tokens (multi-token prediction)");
}

CheckpointContents hugging_face_contents(const std::string& path, const TransformerConfig& config) {
  const TensorFiles tensors(path);
  const ModelFiles files(TransformerModel(config), tensors);
  CheckpointContents contents;
  for (const auto& [name, parameter] : files.parameters()) {
    contents.tensors.emplace(name, CheckpointContents::Entry{parameter.dtype, parameter.shape});
  }
  return contents;
}

/// This rank's elements as they are in the file.
static Tensor read_part(const ModelFiles& files, const std::string& name, const Box& box,
                        size_t alias = 0) {
  Tensor part = empty(box.shape, {.dtype = files.parameters().at(name).dtype});
  files.read_box(name, box, part.block().data, alias);
  return part;
}

static void fill(const Tensor& whole, const ModelFiles& files, const std::string& name) {
  if (rests_on_disk(whole)) {
    const Tensor read = memory_like(whole);
    fill(read, files, name);
    return write_to_disk(whole, read);
  }
  const Tensor value = whole.local();
  const Box box = whole.box();
  const bool as_it_is = value.dtype() == files.parameters().at(name).dtype &&
                        value.block().is_dense() && value.device().kind == DeviceKind::cpu;
  if (as_it_is) {
    files.read_box(name, box, value.block().data);
    value.storage()->mark_changed();
  } else {
    copy_(value, read_part(files, name, box));
  }
}

static void check_equal(const Parameter& parameter, const ModelFiles& files,
                        const std::string& path, const std::string& name) {
  const auto& names = files.parameters().at(name).names;
  if (names.size() < 2) return;
  const Box box = parameter.value().box();
  const Tensor first = read_part(files, name, box);
  for (size_t alias = 1; alias < names.size(); ++alias) {
    check_tied(concat(kLoadModel, ": ", path), names[0], first, names[alias],
               read_part(files, name, box, alias));
  }
}

void load_hugging_face(Module& model, const std::string& path) {
  const TensorFiles tensors(path);
  const auto* transformer = dynamic_cast<const TransformerModel*>(&model);
  if (transformer) warn_of_further_tokens(tensors, transformer->config());
  const ModelFiles files(model, tensors);
  const std::vector<NamedParameter> parameters = model.named_parameters();
  for (const NamedParameter& named : parameters) {
    if (files.parameters().contains(named.name())) continue;
    fail(kLoadModel, ": ", path, ": tensor ", in_quotes(named.name()), " is missing");
  }
  model.materialize();
  NoGrad no_grad;
  for (const NamedParameter& named : parameters) {
    check_equal(*named.parameter, files, path, named.name());
    fill(named.parameter->value(), files, named.name());
  }
  for (const NamedBuffer& buffer : model.named_buffers()) {
    if (buffer.persistent) fill(buffer.value, files, buffer.name);
  }
}

void load_hugging_face(StateDict& into, const std::string& path, const TransformerConfig& config) {
  const TensorFiles tensors(path);
  warn_of_further_tokens(tensors, config);
  const ModelFiles files(TransformerModel(config), tensors);
  const NoGrad no_grad;
  for (const auto& [name, tensor] : into.tensors) {
    if (!files.parameters().contains(name)) {
      fail(kLoadModel, ": ", path, ": tensor ", in_quotes(name), " is not one of the model");
    }
    fill(tensor, files, name);
  }
}

}  // namespace weft
