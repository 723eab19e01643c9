// SPDX-License-Identifier: Apache-2.0
// The overhead of a cached call on a sharded tensor: the time of the call minus that of the same
// kernel on existing memory.

#include "benchmarks/report.h"
#include "src/kernels/map/map.h"
#include "src/kernels/matmul/gemm.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft::bench {

static constexpr const char* kAbout =
    R"(Microseconds that a cached op call on a sharded tensor adds to its kernel, in a fake world
(one rank of a simulated cluster), for local parts of 8x8 and 4x4 f32 elements, with
and without recording for backward. One JSON line a case.)";

namespace {

struct Options {
  std::vector<int> mesh{8};
  int loops = 1000;
  int reps = 25;

  void add_to(CLI::App& app) {
    app.add_option("--mesh", mesh, "Sizes of the mesh's axes, e.g. 8 or 2,4")->delimiter(',');
    app.add_option("--loops", loops, "Calls in a timed loop")->check(CLI::PositiveNumber);
    app.add_option("--reps", reps, "Timed loops; the median counts")->check(CLI::PositiveNumber);
  }
};

struct AddElements {
  template <class T> WEFT_FN T operator()(T a, T b) const { return a + b; }
};

struct TimesNumber {
  double number;
  template <class T> WEFT_FN T operator()(T a) const { return a * static_cast<T>(number); }
};

struct Case {
  const char* name;
  std::function<void()> call;
  /// The kernel alone; empty when the call moves no elements.
  std::function<void()> kernel = {};
};

/// Operands of all cases: local parts of side x side elements, sharded along dim 0 on every axis.
struct Operands {
  Operands(const DeviceMesh& over, int64_t local_side, bool grad)
      : mesh(over),
        side(local_side),
        rows(side * mesh.size()),
        shard0(std::vector<Placement>(static_cast<size_t>(mesh.ndim()), Shard(0))),
        part(wanted(randn({side, side}), grad)),
        x(wanted(from_local(part.detach(), mesh, shard0, {rows, side}), grad)),
        y(wanted(from_local(randn({side, side}), mesh, shard0, {rows, side}), grad)),
        w(wanted(from_local(randn({side, side}), mesh, {}, {side, side}), grad)),
        whole(wanted(from_local(randn({rows, side}), mesh, {}, {rows, side}), grad)),
        out(randn({side, side})) {}

  static Tensor wanted(Tensor tensor, bool grad) { return tensor.set_requires_grad(grad); }

  DeviceMesh mesh;
  int64_t side, rows;
  Placements shard0;
  Tensor part, x, y, w, whole, out;
};

}  // namespace

static std::vector<Case> cases_of(const Operands& o) {
  const MemoryBlock a = o.x.block(), b = o.y.block(), w = o.w.block(), out = o.out.block();
  const Shape viewed{o.rows, 2, o.side / 2}, shape{o.rows, o.side};
  return {
      {"detach", [&o] { o.x.detach(); }},
      {"add", [&o] { o.x + o.y; }, [=] { map(AddElements{}, out, a, b); }},
      {"mul_scalar", [&o] { o.x * 2.0; }, [=] { map(TimesNumber{2.0}, out, a); }},
      {"mm", [&o] { matmul(o.x, o.w); }, [=] { gemm(a, w, out); }},
      {"view", [&o, viewed] { o.x.reshape(viewed); }},
      {"redistribute_r_to_s0", [&o] { o.whole.redistribute(o.shard0); }},
      {"from_local", [&o, shape] { from_local(o.part, o.mesh, o.shard0, shape); }},
      {"to_local", [&o] { o.x.to_local(); }},
  };
}

/// Microseconds per call. Interleaves calls and kernels, so that a change of the machine's speed
/// affects both.
static void measure(const Case& test, const Operands& operands, const Options& options, bool grad) {
  const auto loop = [&](const std::function<void()>& f) {
    return 1e6 / options.loops * seconds_of([&] {
             for (int i = 0; i < options.loops; ++i) f();
           });
  };
  std::vector<double> call, kernel;
  for (int rep = -1; rep < options.reps; ++rep) {
    const double call_us = loop(test.call);
    const double kernel_us = test.kernel ? loop(test.kernel) : 0;
    if (rep < 0) continue;
    call.push_back(call_us);
    kernel.push_back(kernel_us);
  }
  const Spread whole = spread_of(call), alone = spread_of(kernel);
  const std::string side = std::to_string(operands.side);
  print({{"bench", "weft_dispatch"},
         {"case", test.name},
         {"value", rounded(whole.median - alone.median, 3)},
         {"unit", "us"},
         {"call_us", rounded(whole.median, 3)},
         {"kernel_us", test.kernel ? Line(rounded(alone.median, 3)) : Line(nullptr)},
         {"call_p10", rounded(whole.p10, 3)},
         {"call_p90", rounded(whole.p90, 3)},
         {"grad", grad},
         {"backend", "fake"},
         {"mesh", options.mesh},
         {"size", side + "x" + side}});
}

static void run_dispatch(const Options& options) {
  int ranks = 1;
  std::vector<MeshAxis> axes;
  for (const int size : options.mesh) {
    if (size < 1) fail("--mesh: an axis of ", size, " ranks; at least 1");
    axes.push_back({"axis" + std::to_string(axes.size()), size});
    ranks *= size;
  }
  const DeviceMesh mesh(fake_world(0, ranks), axes);
  for (const int64_t side : {8, 4}) {
    for (const bool grad : {false, true}) {
      const Operands operands(mesh, side, grad);
      Context::current().grad_enabled = grad;
      for (const Case& test : cases_of(operands)) measure(test, operands, options, grad);
    }
  }
}

}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_program("bench_dispatch", weft::bench::kAbout, argc, argv,
                                  weft::bench::run_dispatch);
}
