// SPDX-License-Identifier: Apache-2.0

// A custom op with its sharding rule, its gradient and its test: squared distances between the rows
// of two matrices.
//
//   custom_op

#include <iostream>

#include "weft/extend/op.h"
#include "weft/extend/testing.h"
#include "weft/weft.h"

using namespace weft;

/// Computes one device's part: [n, d], [m, d] -> [n, m]. The operands are dense and f32.
static void compute(const Call& call) {
  const int64_t rows = call.in(0).shape[0], columns = call.in(1).shape[0];
  const int64_t dim = call.in(0).shape[1];
  const auto *x = call.in(0).as<float>(), *y = call.in(1).as<float>();
  auto* out = call.out().as<float>();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < dim; ++k) {
        const float difference = x[i * dim + k] - y[j * dim + k];
        sum += difference * difference;
      }
      out[i * columns + j] = sum;
    }
  }
}

/// d/dx of sum g (x - y)^2 is 2 (x sum g - g y). It is written in tensor ops, so it shards too.
static void differentiate(const Grad& grad) {
  const Tensor &g = grad.grad(), x = grad.in(0), y = grad.in(1);
  if (grad.wants(0)) grad.give(0, 2.0 * (x * sum(g, {1}, true) - matmul(g, y)));
  if (grad.wants(1)) {
    grad.give(1, 2.0 * (y * reshape(sum(g, {0}), {y.size(0), 1}) - matmul(g.t(), x)));
  }
}

/// Equal names in the rule are one factor. The result lacks d: when d is sharded, each rank
/// computes an addend of the sum. Samples are shapes for tests, with sizes that no mesh divides.
static OpSpec distances_spec() {
  return {.name = "distances",
          .rule = "n d, m d -> n m",
          .forward = compute,
          .backward = differentiate,
          .samples = {{{{5, 7}, {3, 7}}}}};
}

static const Op distances(distances_spec());

static void use(const Communicator& world) {
  const DeviceMesh mesh(world, {{"ranks", 3}});
  const Tensor x = Tensor::of({{0.0, 0.0}, {3.0, 4.0}, {6.0, 8.0}});
  for (const Placement& layout : {Placement(Shard(0)), Placement(Shard(1))}) {
    const Tensor result = distances({distribute(x, mesh, {layout}), distribute(x, mesh, {layout})});
    const Tensor whole = result.full_tensor();
    if (world.rank() == 0) std::cout << layout << " -> " << result.sharding()[0] << '\n';
    if (world.rank() == 0 && layout.is_shard(1)) std::cout << whole << '\n';
  }
}

/// Returns whether the tests pass. In a project these are two lines of a unit test.
static bool test() {
  const GradcheckReport gradients = gradcheck(distances);
  const SweepReport layouts = sweep(distances);
  std::cout << "gradcheck: " << (gradients.ok() ? "passed" : "failed") << ", " << gradients.operands
            << " operands\n"
            << "sweep: " << (layouts.ok() ? "passed" : "failed") << ", " << layouts.ran
            << " combinations of layouts\n";

  // The sweep shows a mistake: distances are not linear in x, so a Partial x may not pass through.
  OpSpec wrong = distances_spec();
  wrong.linear = {{0}};
  const SweepReport report = sweep(Op(wrong), {.axes = {{"a", 2}}});
  std::cout << "a wrong rule: " << report.wrong << " of " << report.ran
            << " combinations are wrong, the first one:\n";
  const std::string& first = report.mismatches[0];
  const size_t at = first.find(" result");
  std::cout << "  " << first.substr(0, at) << "\n   " << first.substr(at) << '\n';
  return gradients.ok() && layouts.ok() && report.wrong > 0;
}

int main() {
  run_ranks(3, use);
  return test() ? 0 : 1;
}
