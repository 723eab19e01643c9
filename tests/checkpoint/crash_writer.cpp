// SPDX-License-Identifier: Apache-2.0
// Saves one step on 2 ranks: crash_writer DIRECTORY STEP sync|async. Exit code: a bit for each rank
// whose save threw.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "weft/checkpoint.h"
#include "weft/communicator.h"
#include "weft/ops.h"
#include "weft/ranks.h"

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  const std::string directory = argv[1];
  const int step = std::atoi(argv[2]);
  const bool async = std::string(argv[3]) == "async";
  const auto set_rank = reinterpret_cast<void (*)(int)>(::dlsym(RTLD_DEFAULT, "weft_crash_rank"));
  std::atomic<int> failed = 0;
  weft::run_ranks(2, [&](weft::Communicator world) {
    const weft::DeviceMesh mesh(world, {{"dp", 2}});
    weft::StateDict state;
    state.tensors.emplace(
        "w", weft::full({5, 3}, step, {.sharding = weft::Sharding(mesh, {weft::Shard(0)})}));
    state.tensors.emplace("whole", weft::full({4}, step));
    state.numbers.emplace("step", step);
    weft::CheckpointSaver saver(world, directory, {.keep = 1, .continues = true});
    if (set_rank) set_rank(world.rank());
    try {
      if (async) {
        saver.save_async(step, state);
        saver.wait();
      } else {
        saver.save(step, state);
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", world.rank(), error.what());
      failed |= 1 << world.rank();
    }
    if (set_rank) set_rank(-1);
  });
  return failed;
}
