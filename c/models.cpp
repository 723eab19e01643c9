// SPDX-License-Identifier: Apache-2.0
#include "weft/c/models.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "c/guarded.h"
#include "c/texts.h"
#include "weft/checkpoint.h"
#include "weft/checkpoint_report.h"
#include "weft/context.h"
#include "weft/extend/run_folder.h"
#include "weft/generate.h"
#include "weft/ops/factories.h"
#include "weft/state_dict.h"
#include "weft/tensor_parallel.h"

namespace weft::c {

static LoadedModel load_model(const Call& call, const std::string& directory,
                              const DeviceMesh& mesh) {
  const std::string what = concat(call.function, ':');
  check_directory(what, directory);
  const std::string path = is_hugging_face(directory)
                               ? directory
                               : chosen_checkpoint(what, directory, mesh.root().communicator());
  if (path.empty()) {
    fail(call.function, ": ", printable(directory),
         " has no weights, expected config.json and .safetensors files, or a complete checkpoint");
  }
  const TransformerConfig config = config_of_weights(path);
  const auto model = std::make_shared<TransformerModel>(config);
  const std::string_view cut = "tp";
  int axis = 0;
  while (axis < mesh.ndim() && mesh.axis_name(axis) != cut) ++axis;
  if (axis < mesh.ndim()) {
    parallelize(*model, mesh["tp"], transformer_styles(config));
  } else {
    parallelize(*model, mesh[mesh.axis_name(0)], {});
  }
  model->materialize(mesh.device());
  load_weights(*model, path);
  model->set_training(false);
  return {mesh, model};
}

/// Fails for a tensor that a checkpoint lacks, or has in another form.
static void check_contents(const Call& call, const std::string& path,
                           const CheckpointContents& contents, const StateDict& into) {
  for (const auto& [name, tensor] : into.tensors) {
    const auto found = contents.tensors.find(name);
    if (found == contents.tensors.end()) {
      fail(call.function, ": tensor ", in_quotes(name), " is not in ", printable(path),
           ", expected one of ", contents.tensors.size(), " such as ",
           contents.tensors.empty() ? "none" : in_quotes(contents.tensors.begin()->first));
    }
    const auto& [dtype, shape] = found->second;
    if (dtype == tensor.dtype() && shape == tensor.shape()) continue;
    fail(call.function, ": tensor ", in_quotes(name), " is ", dtype, ' ', shape, " in ",
         printable(path), ", expected ", tensor.dtype(), ' ', tensor.shape());
  }
}

/// The path, or the newest complete checkpoint of a run's directory, as the first rank finds it.
static std::string checkpoint_at(const Call& call, const char* path) {
  call.check(path, "path");
  const auto find = [&]() -> std::string {
    if (!is_directory(path) || list_checkpoints(path).empty()) return path;
    std::string newest = newest_complete_checkpoint(path);
    if (newest.empty()) {
      fail(call.function, ": ", printable(path),
           " has 0 complete checkpoints, expected at least 1");
    }
    return newest;
  };
  const Communicator& world = ThreadState::current().world;
  return world ? told_by_first(world, find) : find();
}

static void fill(const Call& call, const std::string& path, StateDict& into) {
  check_contents(call, path, checkpoint_contents(path), into);
  (void)load_common_keys(path, into);
}

static StateDict named(const Call& call, const char* names, int count, const weft_tensor* tensors) {
  const Tensors all = call.tensors(count, tensors, "tensors");
  StateDict state;
  size_t at = 0;
  for (const std::string& name : names_in(call, names, count)) state.tensors[name] = all[at++];
  return state;
}

}  // namespace weft::c

using weft::c::Call;
using weft::c::guarded;
using weft::c::makes;

weft_status weft_model_load(const char* directory, weft_mesh mesh, weft_model* model) {
  return makes(__func__, model, [&](const Call& call) {
    call.check(directory, "directory");
    return load_model(call, directory, call.mesh(mesh));
  });
}

weft_status weft_model_free(weft_model model) {
  return guarded(__func__,
                 [&](const Call& call) { call.free(model.id, weft::c::kModel, "model"); });
}

weft_status weft_model_forward(weft_model model, weft_tensor ids, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    const auto& [mesh, transformer] = call.model(model);
    weft::Tensor input = call.tensor(ids, "ids");
    const weft::NoGrad no_grad;
    if (!input.is_sharded()) input = weft::distribute(input, mesh.root(), {});
    return (*transformer)(input);
  });
}

weft_status weft_model_generate(weft_model model, int64_t count, const int64_t* ids,
                                double temperature, uint64_t seed, int64_t most, int64_t* tokens,
                                int64_t* written) {
  return guarded(__func__, [&](const Call& call) {
    const auto& [mesh, transformer] = call.model(model);
    call.check_at_least(1, count, "count");
    call.check_at_least(1, most, "most");
    call.check(ids, "ids");
    call.check(tokens, "tokens");
    call.check(written, "written");
    const std::vector<int64_t> made =
        weft::generate(*transformer, mesh, std::span(ids, static_cast<size_t>(count)),
                       {.sampling = {.temperature = temperature, .seed = seed}, .tokens = most});
    std::copy(made.begin(), made.end(), tokens);
    *written = std::ssize(made);
  });
}

weft_status weft_save(const char* directory, int64_t step, const char* names, int count,
                      const weft_tensor* tensors) {
  return guarded(__func__, [&](const Call& call) {
    call.check(directory, "directory");
    call.check_at_least(0, step, "step");
    const weft::StateDict state = named(call, names, count, tensors);
    weft::CheckpointSaver saver(call.world(), directory, {.continues = true});
    saver.save(step, state);
    saver.wait_all();
  });
}

weft_status weft_load(const char* path, const char* names, int count, const weft_tensor* tensors) {
  return guarded(__func__, [&](const Call& call) {
    weft::StateDict into = named(call, names, count, tensors);
    fill(call, checkpoint_at(call, path), into);
  });
}

weft_status weft_load_tensor(const char* path, const char* name, weft_mesh mesh,
                             const char* placements, weft_tensor* result) {
  return makes(__func__, result, [&](const Call& call) {
    call.check(name, "name");
    const std::string from = checkpoint_at(call, path);
    const weft::CheckpointContents contents = weft::checkpoint_contents(from);
    weft::StateDict into;
    const auto found = contents.tensors.find(name);
    const auto [dtype, shape] =
        found == contents.tensors.end() ? decltype(found->second)() : found->second;
    weft::TensorOptions options{.dtype = dtype};
    options.sharding = weft::c::sharding_in(call, mesh, placements, shape.ndim());
    weft::Tensor tensor = weft::zeros(shape, options);
    into.tensors[name] = tensor;
    fill(call, from, into);
    return tensor;
  });
}
