// SPDX-License-Identifier: Apache-2.0
// The example of README.md, which house/scripts compares with this file.
#include <iostream>

#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/ranks.h"

using namespace weft;

int main() {
  run_ranks(4, [](Communicator world) {  // 4 ranks, as threads of this process
    DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    Tensor w = distribute(randn({512, 256}), mesh, {{"tp", Shard(0)}});
    Tensor x = distribute(randn({64, 256}), mesh, {{"dp", Shard(0)}});
    Tensor y = matmul(x, w.t());  // rows sharded over dp, columns over tp; no traffic
    Tensor whole = y.redistribute({Replicate(), Replicate()});
    if (world.rank() == 0) {  // its steps: bytes, predicted time, peak memory
      std::cout << explain(y, {Replicate(), Replicate()}) << whole.shape() << '\n';
    }
  });
}
