// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/fsdp/chain.h"
#include "tests/fsdp/presets.h"
#include "weft/memory_budget.h"

namespace weft {

/// One weight, used by a function whose gradient adds up the rows' factors.
struct Use {
  const char* name;
  Shape shape;
  Tensor (*function)(const Tensor& x, const Tensor& w);
};

static const Use kUses[] = {
    {"mul", {4}, [](const Tensor& x, const Tensor& w) { return x * w; }},
    {"rms_norm", {4}, [](const Tensor& x, const Tensor& w) { return rms_norm(x, w, 1e-9); }},
    {"1 + w", {4}, [](const Tensor& x, const Tensor& w) { return x * (w + 1); }},
    {"slice", {9}, [](const Tensor& x, const Tensor& w) { return x * slice(w, 0, 0, 4); }},
    {"linear", {4, 4}, [](const Tensor& x, const Tensor& w) { return linear(x, w); }},
    {"matmul", {4, 4}, [](const Tensor& x, const Tensor& w) { return matmul(x, w.t()); }},
    {"bias", {4}, [](const Tensor& x, const Tensor& w) { return x + w; }},
};

namespace {

class User final : public Module {
 public:
  explicit User(const Use& use) : use_(use) {
    declare("weight", use.shape, [](const Tensor& w) { fill_(w, 1); });
  }

 protected:
  Tensors forward(const Tensors& inputs) override { return {use_.function(inputs[0], used(0))}; }

 private:
  const Use& use_;
};

struct Grid {
  const char* name;
  std::vector<MeshAxis> axes;
  /// The axes over which FSDP shards; the others, and the rows, are cut over all.
  std::vector<std::string_view> data;
};

}  // namespace

/// The gradient after two micro-steps: rank 0 adds 1 in each, all others 2^-10.
static void expect_exact(const Use& use, const Grid& grid, const Preset& preset) {
  SCOPED_TRACE(std::string(use.name) + ", " + grid.name + ", " + preset.name);
  run_ranks(ranks_of(grid.axes), [&](Communicator world) {
    const DeviceMesh mesh(world, grid.axes);
    User user(use);
    FullyShardOptions options = preset.options;
    options.precision = {.compute = bf16, .reduce = f32, .inputs = bf16};
    fully_shard(user, mesh.view(grid.data), options);
    user.materialize();
    const std::vector<Placement> cut(static_cast<size_t>(mesh.ndim()), Shard(0));
    const Placements rows{std::span<const Placement>(cut)};
    std::vector<double> factors(static_cast<size_t>(mesh.size()), std::ldexp(1, -10));
    factors[0] = 1;
    const Tensor x = distribute(ones({mesh.size(), 4}), mesh, rows);
    const Tensor c =
        distribute(from_values(factors, {mesh.size(), 1}, {.dtype = bf16}), mesh, rows);
    for (int micro = 0; micro < 2; ++micro) {
      NoSync hold(user, micro == 0);
      sum(user(x) * c).backward();
    }
    const float expected = 2 * (1 + std::ldexp(static_cast<float>(mesh.size() - 1), -10));
    const Tensor gradient = user.parameters()[0]->grad().full_tensor();
    EXPECT_EQ(gradient.dtype(), f32);
    const std::vector<float> values = gradient.to_vector<float>();
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], i < 4 || use.shape[0] == 4 ? expected : 0) << i;
    }
  });
}

TEST(ReduceDtype, HoldsForSumsOverAllAxes) {
  const std::vector<Grid> grids{{"dp", {{"dp", 2}}, {"dp"}},
                                {"dp x tp", {{"dp", 2}, {"tp", 2}}, {"dp"}},
                                {"tp x dp", {{"tp", 2}, {"dp", 2}}, {"dp"}},
                                {"tp", {{"dp", 1}, {"tp", 2}}, {"dp"}},
                                {"joined", {{"a", 2}, {"b", 2}, {"tp", 2}}, {"a", "b"}}};
  const Grid two{
      "across x within x tp", {{"across", 2}, {"within", 2}, {"tp", 2}}, {"across", "within"}};
  for (const Use& use : kUses) {
    for (const Grid& grid : grids) {
      for (const Preset& preset :
           presets_and({"buckets", {.strategy = Strategy::ddp(), .bucket_bytes = 1}})) {
        expect_exact(use, grid, preset);
      }
    }
    expect_exact(use, two, {"hsdp", {.strategy = Strategy::hsdp()}});
  }
}

}  // namespace weft
