// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/ckpt.h"
#include "cli/output_files.h"
#include "cli/ranks.h"
#include "cli/resume.h"
#include "cli/run_description.h"
#include "cli/weights.h"
#include "weft/checkpoint.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/saved_model.h"
#include "weft/hugging_face.h"
#include "weft/ranks.h"
#include "weft/warnings.h"

namespace weft::cli {

/// Each process has chosen by itself; another checkpoint may have been completed meanwhile.
static void check_same_checkpoint(const Communicator& world, const std::string& own) {
  if (launched_ranks() == 1) return;
  const std::string first = world.broadcast(own, 0);
  if (first == own) return;
  throw_runtime_error(concat("ckpt: rank ", world.rank(), " found ", own,
                             " to be the newest, rank 0 ", first,
                             "; a run saves there now: name one of them"));
}

static int64_t bytes_in(const CheckpointContents& contents, const std::string& prefix = {}) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : contents.tensors) {
    if (!name.starts_with(prefix)) continue;
    bytes += bytes_of(tensor);
  }
  return bytes;
}

/// The directory of a model in Hugging Face's form, which may be named by one of its files.
static std::string directory_of(const std::string& model) {
  namespace fs = std::filesystem;
  return fs::is_directory(model) ? model : fs::absolute(model).parent_path().string();
}

/// `train` and `sample` take the newest checkpoint with the files of a model that the run keeps:
/// those of an older step would be the files of another one.
static void check_target(const std::string& directory, int64_t step) {
  check_kept_model_files(directory);
  if (!std::filesystem::is_directory(directory)) return;
  const std::vector<std::string> held = list_checkpoints(directory);
  if (held.empty()) return;
  const int64_t newest = inspect_checkpoint(held[0], {.depth = Inspection::headers}).step;
  if (newest <= step) return;
  fail("ckpt: ", directory, " holds a checkpoint of step ", newest, ", expected none newer than ",
       "step ", step, ", which is written; name another directory");
}

/// Loads on `options.ranks` ranks and saves again with keys that begin with `prefix`. With a
/// `config`, what is loaded are a Hugging Face model's parameters, and the config is saved too.
static int copy_checkpoint(const CkptOptions& options, const char* what, const std::string& prefix,
                           const std::optional<TransformerConfig>& config = {}) {
  outlive_readers();
  const std::string from = one_checkpoint(options.path);
  const CheckpointContents contents =
      config ? hugging_face_contents(from, *config) : checkpoint_contents(from);
  print_note(from, contents);
  const auto step_number = contents.numbers.find("step/value");
  const int64_t step = step_number == contents.numbers.end() ? 0 : step_number->second;
  check_target(options.other, step);
  CkptProgress progress(what, 2 * bytes_in(contents) / launched_ranks());
  std::string path;
  run_world(options.ranks, [&](Communicator world) {
    check_same_flags(world);
    check_same_checkpoint(world, from);
    const DeviceMesh mesh(world, {{"ranks", world.size()}});
    StateDict state{.tensors = {}, .numbers = contents.numbers};
    for (const auto& [name, tensor] : contents.tensors) {
      state.tensors.emplace(name, empty_for(tensor, mesh));
    }
    config ? load_hugging_face(state, from, *config) : load(from, state);
    int64_t own = 0;
    StateDict renamed{.tensors = {}, .numbers = state.numbers};
    RunDescription run;
    if (config) add_model(*config, run);
    if (config) renamed.numbers = run.numbers();
    for (const auto& [name, tensor] : state.tensors) {
      own += tensor.local().numel() * static_cast<int64_t>(size_of(tensor.dtype()));
      renamed.tensors.emplace(concat(prefix, name), tensor);
    }
    progress.add(own);
    CheckpointSaver saver(world, options.other);
    const std::string saved = saver.save(step, renamed);
    progress.add(own);
    world.barrier();
    if (world.rank() == 0) path = saved;
  });
  if (!is_first_process()) return 0;
  keep_files(config ? directory_of(from) : from, options.other);
  std::printf("%s: %zu tensors for %d rank%s, read and written %s\n", printable(path).c_str(),
              contents.tensors.size(), options.ranks, options.ranks == 1 ? "" : "s",
              progress.finish().c_str());
  return 0;
}

void print_note(const std::string& path, const CheckpointContents& contents) {
  if (contents.note.empty() || !is_first_process()) return;
  std::fprintf(stderr, "note: %s: %s\n", printable(path).c_str(), escaped(contents.note).c_str());
}

int reshard_checkpoint(const CkptOptions& options) {
  return copy_checkpoint(options, "reshard", "");
}

/// Returns the config.json in the folder of the tensors; `train` and `sample` build the model from
/// it.
static std::optional<TransformerConfig> imported_config(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};  // the load reports it
  const std::string directory = directory_of(path);
  std::string reason;
  try {
    if (is_hugging_face(directory)) return transformer_config(directory);
    reason = concat(printable(directory),
                    " has no config.json; weft train and weft sample cannot use what is imported");
  } catch (const std::invalid_argument& error) {
    reason = concat("weft train and weft sample cannot use what is imported: ", error.what());
  }
  if (is_first_process()) warn("warning: ", reason);
  return {};
}

int import_checkpoint(const CkptOptions& options) {
  return copy_checkpoint(options, "import", options.prefix, imported_config(options.path));
}

int export_checkpoint(const CkptOptions& options) {
  outlive_readers();
  const std::string from = one_checkpoint(options.path);
  const CheckpointContents contents = checkpoint_contents(from);
  print_note(from, contents);
  CkptProgress progress("export", bytes_in(contents, options.prefix) / launched_ranks());
  run_world(options.ranks, [&](Communicator world) {
    check_same_flags(world);
    check_same_checkpoint(world, from);
    int64_t before = 0;
    export_hugging_face(from, options.other, world,
                        {.prefix = options.prefix,
                         .file_bytes = options.file_gigabytes << 30,
                         .progress = [&](int64_t bytes) {
                           progress.add(bytes - before);
                           before = bytes;
                         }});
  });
  if (!is_first_process()) return 0;
  std::printf("%s: written %s\n", printable(options.other).c_str(), progress.finish().c_str());
  return 0;
}

}  // namespace weft::cli
