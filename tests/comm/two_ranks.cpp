// SPDX-License-Identifier: Apache-2.0
// A rank of a user's job: connects, sums and returns.

#include "weft/communicator.h"
#include "weft/ranks.h"

int main() {
  const weft::Communicator world = weft::connect();
  float value = 1;
  const int64_t one = 1;
  const weft::Piece piece{.send = &value, .recv = &value, .counts = {&one, 1}};
  world.all_reduce({&piece, 1}, weft::ReduceOp::sum).wait();
  return value == static_cast<float>(world.size()) ? 0 : 1;
}
