// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tag.h"

#include <array>
#include <random>

#include "checkpoint/blocks.h"

namespace weft {

static uint64_t drawn_bits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::string drawn_tag(const Communicator& world) {
  uint64_t bits = world.rank() == 0 ? drawn_bits() : 0;
  const std::array<int64_t, 1> count{1};
  const Piece piece{.send = &bits, .recv = &bits, .dtype = DType::i64, .counts = count};
  world.broadcast({&piece, 1}, 0).wait();
  return hex_of({&bits, 1});
}

}  // namespace weft
