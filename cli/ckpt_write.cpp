// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdio>

#include "cli/ckpt.h"
#include "weft/checkpoint.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/hugging_face.h"
#include "weft/ops/factories.h"

namespace weft::cli {

static int64_t bytes_in(const CheckpointContents& contents, const std::string& prefix = {}) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : contents.tensors) {
    if (!name.starts_with(prefix)) continue;
    bytes += tensor.shape.product() * static_cast<int64_t>(size_of(tensor.dtype));
  }
  return bytes;
}

/// Every tensor with memory, cut along its first dim.
static StateDict state_for(const CheckpointContents& contents, const DeviceMesh& mesh) {
  StateDict state;
  for (const auto& [name, tensor] : contents.tensors) {
    const Placements placements = tensor.shape.empty() ? Placements{} : Placements{Shard(0)};
    state.tensors.emplace(
        name, empty(tensor.shape, {.dtype = tensor.dtype, .sharding = Sharding(mesh, placements)}));
  }
  state.numbers = contents.numbers;
  return state;
}

/// Loads on `options.ranks` ranks and saves again with keys that begin with `prefix`.
static int copy_checkpoint(const CkptOptions& options, const char* what,
                           const std::string& prefix) {
  const CheckpointContents contents = checkpoint_contents(options.path);
  const auto step_number = contents.numbers.find("step/value");
  const int64_t step = step_number == contents.numbers.end() ? 0 : step_number->second;
  CkptProgress progress(what, 2 * bytes_in(contents));
  std::string path;
  run_ranks(options.ranks, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"ranks", world.size()}});
    StateDict state = state_for(contents, mesh);
    load(options.path, state);
    int64_t own = 0;
    StateDict renamed{.tensors = {}, .numbers = state.numbers};
    for (const auto& [name, tensor] : state.tensors) {
      own += tensor.local().numel() * static_cast<int64_t>(size_of(tensor.dtype()));
      renamed.tensors.emplace(concat(prefix, name), tensor);
    }
    progress.add(own);
    CheckpointSaver saver(world, options.other);
    const std::string saved = saver.save(step, renamed);
    progress.add(own);
    if (world.rank() == 0) path = saved;
  });
  std::printf("%s: %zu tensors for %d rank%s, read and written %s\n", path.c_str(),
              contents.tensors.size(), options.ranks, options.ranks == 1 ? "" : "s",
              progress.finish().c_str());
  return 0;
}

int reshard_checkpoint(const CkptOptions& options) {
  return copy_checkpoint(options, "reshard", "");
}

int import_checkpoint(const CkptOptions& options) {
  return copy_checkpoint(options, "import", options.prefix);
}

int export_checkpoint(const CkptOptions& options) {
  const CheckpointContents contents = checkpoint_contents(options.path);
  CkptProgress progress("export", bytes_in(contents, options.prefix));
  run_ranks(options.ranks, [&](Communicator world) {
    int64_t before = 0;
    export_hugging_face(options.path, options.other, world,
                        {.prefix = options.prefix,
                         .file_bytes = options.file_gigabytes << 30,
                         .progress = [&](int64_t bytes) {
                           progress.add(bytes - before);
                           before = bytes;
                         }});
  });
  std::printf("%s: written %s\n", options.other.c_str(), progress.finish().c_str());
  return 0;
}

}  // namespace weft::cli
