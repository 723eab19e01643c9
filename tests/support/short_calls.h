// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/communicator.h"
#include "weft/error.h"

namespace weft {

// Collectives whose values do not matter.

inline void all_reduce(const Communicator& world, int64_t count, DType dtype = f32,
                       ReduceOp op = ReduceOp::sum) {
  std::vector<double> memory(static_cast<size_t>(count), 1.0);
  const Piece piece{
      .send = memory.data(), .recv = memory.data(), .dtype = dtype, .counts = {&count, 1}};
  world.all_reduce({&piece, 1}, op).wait();
}

inline void broadcast(const Communicator& world, int root) {
  float value = 0;
  const int64_t one = 1;
  const Piece piece{.send = &value, .recv = &value, .counts = {&one, 1}};
  world.broadcast({&piece, 1}, root).wait();
}

// The errors of ranks whose third collective is all_reduce(world, 4), where rank 1 fails.

inline std::string others_say(const std::string& what) {
  return concat("world: collective 3: all_reduce(sum, f32, [4]): ", what);
}
inline std::string diverged(const std::string& what) {
  return concat("world: collective 3: rank 0 called all_reduce(sum, f32, [4]) but rank 1 called ",
                what);
}

}  // namespace weft
