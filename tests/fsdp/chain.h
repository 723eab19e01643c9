// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "tests/support/ranks.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/fsdp.h"
#include "weft/fsdp_module.h"
#include "weft/layers.h"
#include "weft/ops.h"

namespace weft {

using Values = std::vector<std::vector<float>>;

/// Three layers of 5 x 5, no size of which is divisible by 2, 3 or 4.
class Chain final : public Module {
 public:
  Chain() {
    for (const char* name : {"first", "second", "third"}) {
      layers.push_back(add(name, std::make_shared<Linear>(5, 5, true, 0.5)));
    }
  }
  std::vector<std::shared_ptr<Linear>> layers;

 protected:
  Tensors forward(const Tensors& inputs) override {
    Tensor x = inputs[0];
    for (const auto& layer : layers) x = tanh((*layer)(x));
    return {x};
  }
};

/// Rows [7, 5], other ones for each step; sharded over the axes of the mesh, if there is one.
inline Tensor rows_of(const DeviceMesh& mesh, int step) {
  std::vector<double> values;
  for (int i = 0; i < 7 * 5; ++i) values.push_back(std::sin(i + 10 * step));
  const Tensor whole = from_values(values, {7, 5});
  if (!mesh) return whole;
  const std::vector<Placement> cut(static_cast<size_t>(mesh.ndim()), Shard(0));
  return distribute(whole, mesh, Placements{std::span<const Placement>(cut)});
}

inline void shard(Chain& chain, const DeviceMesh& mesh, const FullyShardOptions& options = {}) {
  for (const auto& layer : chain.layers) fully_shard(*layer, mesh, options);
  fully_shard(chain, mesh, options);
}

/// Runs `body` on the ranks of a mesh, with a sharded chain that has the values of plain_gradients.
inline void on_chain(const std::vector<MeshAxis>& axes, const FullyShardOptions& options,
                     const std::function<void(Chain&, const DeviceMesh&)>& body) {
  run_ranks(ranks_of(axes), [&](Communicator world) {
    manual_seed(3);
    const DeviceMesh mesh(world, axes);
    Chain chain;
    shard(chain, mesh, options);
    body(chain, mesh);
  });
}

/// The whole gradients of all parameters; empty for one that has none.
inline Values gradients_of(const Module& module) {
  Values all;
  for (const ParameterPtr& parameter : module.parameters()) {
    const Tensor gradient = parameter->grad();
    all.push_back(!gradient               ? std::vector<float>()
                  : gradient.is_sharded() ? gradient.full_tensor().to_vector<float>()
                                          : gradient.to_vector<float>());
  }
  return all;
}

/// The gradients of a model that is not sharded, after so many micro-steps, divided by `factor`.
inline Values plain_gradients(int micro_steps, double factor = 1) {
  manual_seed(3);
  Chain chain;
  chain.materialize();
  for (int micro = 0; micro < micro_steps; ++micro) {
    mul(sum(square(chain(rows_of({}, micro)))), 1 / factor).backward();
  }
  return gradients_of(chain);
}

inline void expect_near(const Values& found, const Values& expected, const std::string& name,
                        double tolerance = 2e-5) {
  ASSERT_EQ(found.size(), expected.size()) << name;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].size(), expected[i].size()) << name << ", parameter " << i;
    for (size_t j = 0; j < found[i].size(); ++j) {
      EXPECT_NEAR(found[i][j], expected[i][j], tolerance)
          << name << ", parameter " << i << ", " << j;
    }
  }
}

}  // namespace weft
