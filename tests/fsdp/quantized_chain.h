// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/fsdp/chain.h"
#include "tests/support/ranks.h"
#include "weft/autograd.h"

namespace weft {

/// A mesh, and the strategy on it.
struct Place {
  const char* name;
  std::vector<MeshAxis> axes;
  const char* strategy = "full_shard";
  Reshard reshard = true;

  int ranks() const { return ranks_of(axes); }
};

inline FullyShardOptions options_of(const Place& place, const Quantization& quantization) {
  return {.reshard_after_forward = place.reshard,
          .strategy = Strategy::named(place.strategy),
          .quantization = quantization};
}

/// The gradients of two micro-steps, and what was predicted and measured.
struct Outcome {
  Values gradients;
  FullyShardBytes predicted, measured;
};

inline Outcome outcome_of(const Place& place, const Communicator& world,
                          const FullyShardOptions& options, int64_t dim = 0) {
  manual_seed(3);
  DeviceMesh mesh(world, place.axes);
  Chain chain;
  FullyShardOptions given = options;
  if (dim > 0) {
    given.shard_dim = [dim](const NamedParameter& p) {
      return p.parameter->shape().ndim() > dim ? static_cast<int>(dim) : 0;
    };
  }
  shard(chain, mesh, given);
  chain.materialize();
  const auto step = [&] {
    for (int micro = 0; micro < 2; ++micro) {
      NoSync hold(chain, micro == 0);
      sum(square(chain(rows_of(mesh, micro)))).backward();
    }
  };
  step();
  for (const ParameterPtr& parameter : chain.parameters()) parameter->clear_grad();
  FsdpModule(chain).reset_iter_state();
  // The parameters count as changed, so that the step gathers all of them.
  {
    const NoGrad no_grad;
    for (const ParameterPtr& parameter : chain.parameters())
      copy_(parameter->value(), clone(parameter->value()));
  }
  Outcome outcome;
  outcome.predicted = predicted_bytes(chain, 2);
  step();
  outcome.measured = measured_bytes(chain);
  outcome.gradients = gradients_of(chain);
  return outcome;
}

inline void expect_same_bytes(const FullyShardBytes& measured, const FullyShardBytes& predicted,
                              const std::string& name) {
  EXPECT_EQ(measured.parameters, predicted.parameters) << name;
  EXPECT_EQ(measured.gradients, predicted.gradients) << name;
  EXPECT_EQ(measured.buffers, predicted.buffers) << name;
  EXPECT_EQ(measured.received, predicted.received) << name;
  EXPECT_EQ(measured.by_axes, predicted.by_axes) << name;
  EXPECT_EQ(measured.copied, predicted.copied) << name;
}

/// The largest difference between two sets of values.
inline double distance(const Values& a, const Values& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      most = std::max(most, static_cast<double>(std::abs(a[i][j] - b[i][j])));
    }
  }
  return most;
}

}  // namespace weft
