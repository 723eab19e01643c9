// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "mesh/mesh_body.h"
#include "weft/communicator.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {

/// The number of ranks of a mesh.
inline int ranks_of(const std::vector<MeshAxis>& axes) {
  int ranks = 1;
  for (const MeshAxis& axis : axes) ranks *= axis.size;
  return ranks;
}

/// Runs `body` on each rank of a mesh over threads, with a short deadline.
inline void on_mesh(const std::vector<MeshAxis>& axes,
                    const std::function<void(const DeviceMesh&)>& body) {
  run_ranks(ranks_of(axes), [&](Communicator world) { body(DeviceMesh(world, axes)); },
            {.deadline = std::chrono::seconds(10), .threads_per_rank = 1});
}

/// Returns the bytes that this rank receives from others while `body` runs.
inline int64_t bytes_received(const DeviceMesh& mesh, const std::function<void()>& body) {
  const int64_t before = mesh.body()->grid().traffic().bytes;
  body();
  return mesh.body()->grid().traffic().bytes - before;
}

/// Integers -4 .. 4 that differ from element to element: sums and products are exact.
inline std::vector<double> small_numbers(const Shape& shape, int64_t salt = 0) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.product(); ++i) {
    values.push_back(static_cast<double>((i * 7 + salt * 5 + i * i % 5) % 9 - 4));
  }
  return values;
}

/// A tensor of those numbers, on one device or sharded.
inline Tensor numbers(const Shape& shape, int64_t salt = 0, const Sharding& sharding = {},
                      DType dtype = DType::f32) {
  return from_values(small_numbers(shape, salt), shape, {.dtype = dtype, .sharding = sharding});
}

/// Ids below 37, equal on all ranks, laid out by `options`.
inline Tensor some_ids(const Shape& shape, int64_t salt, const TensorOptions& options) {
  std::vector<double> ids;
  for (int64_t i = 0; i < shape.product(); ++i) {
    ids.push_back(static_cast<double>((i * i * 7 + i * 13 + salt * 31) % 37));
  }
  return from_values(ids, shape, options);
}

/// The full `values` as terms of a sum: rank 0 of the Partial axes holds 3 times the values, and
/// the others share the excess, negated.
inline Tensor terms_of(const std::vector<double>& values, const Shape& shape,
                       const Sharding& sharding) {
  const DeviceMesh mesh = sharding.mesh();
  int parts = 1, index = 0;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (!sharding[axis].is_partial()) continue;
    parts *= mesh.axis_size(axis);
    index = index * mesh.axis_size(axis) + mesh.coordinate(axis);
  }
  std::vector<double> mine = values;
  for (double& value : mine) {
    if (parts > 1) value *= index == 0 ? 1 + 2 * (parts - 1) : -2;
  }
  return from_values(mine, shape, {.sharding = sharding});
}

inline std::vector<double> whole_values(const Tensor& tensor) {
  return tensor.full_tensor().to_vector<double>();
}

inline void expect_values(const std::vector<double>& actual, const std::vector<double>& expected,
                          double bound = 0) {
  ASSERT_EQ(actual.size(), expected.size());
  double greatest = 0;
  for (double value : expected) greatest = std::max(greatest, std::abs(value));
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_LE(std::abs(actual[i] - expected[i]), bound * greatest)
        << "element " << i << " is " << actual[i] << " instead of " << expected[i];
  }
}

inline void expect_placements(const Tensor& tensor, const std::vector<Placement>& expected) {
  ASSERT_TRUE(tensor.is_sharded());
  std::vector<Placement> actual(tensor.sharding().placements().begin(),
                                tensor.sharding().placements().end());
  EXPECT_EQ(actual, expected) << tensor.sharding();
}

}  // namespace weft
