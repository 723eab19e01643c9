// SPDX-License-Identifier: Apache-2.0
// Matrix products, attention, row kernels and AdamW of one rank, as ops on unsharded tensors. A
// case includes the allocation of the result and the tape.

#include <cstdint>

#include "benchmarks/report.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft::bench {

static constexpr const char* kAbout =
    R"(Ops of one rank on tensors without a mesh: GFLOP/s of products and causal attention, GB/s
of row kernels and AdamW from the least traffic they need, by the median time of a call.
One JSON line a case.)";

namespace {

struct Options {
  std::vector<int> threads{1, 2};
  double seconds = 0.6;
  std::string only;

  void add_to(CLI::App& app) {
    app.add_option("--threads", threads, "Numbers of threads, e.g. 1,2")
        ->delimiter(',')
        ->check(CLI::Range(1, 256));
    app.add_option("--seconds", seconds, "Least time a case")->check(CLI::PositiveNumber);
    app.add_option("--case", only, "Run only cases whose name and dtype contain this text");
  }
};

/// Work per call, in the unit of the case.
struct Count {
  enum class Of { flops, bytes } of;
  int64_t number;
};

/// Runs and prints the cases for one number of threads.
class Kernels {
 public:
  Kernels(const Options& options, int threads) : options_(options), threads_(threads) {}

  void run() const {
    for (const DType dtype : {DType::f32, DType::bf16}) products(dtype);
    for (const DType dtype : {DType::f32, DType::bf16}) attention_cases(dtype);
    for (const DType dtype : {DType::f32, DType::bf16}) rows(dtype);
    losses();
    updates();
  }

 private:
  using Function = std::function<Tensor()>;

  void measure(const std::string& name, DType dtype, const std::function<void()>& f,
               Count count) const {
    const std::string dtype_name = dtype == DType::f32 ? "float32" : "bfloat16";
    if ((name + " " + dtype_name).find(options_.only) == std::string::npos) return;
    for (int i = 0; i < 3; ++i) f();
    std::vector<double> times;
    const auto start = Clock::now();
    while (times.size() < 5 || seconds_since(start) < options_.seconds)
      times.push_back(seconds_of(f));
    const Spread spread = spread_of(std::move(times));
    const bool flops = count.of == Count::Of::flops;
    print({{"bench", "weft_kernels"},
           {"case", name},
           {"value", rounded(static_cast<double>(count.number) / spread.median / 1e9, 2)},
           {"unit", flops ? "GFLOP/s" : "GB/s"},
           {"dtype", dtype_name},
           {"threads", threads_},
           {"median_us", rounded(spread.median * 1e6, 1)},
           {"p10_us", rounded(spread.p10 * 1e6, 1)},
           {"p90_us", rounded(spread.p90 * 1e6, 1)},
           {"calls", spread.count},
           {flops ? "flops" : "bytes", count.number}});
  }

  /// Forward without recording, and forward with gradients of `leaves`, from a gradient of ones.
  void both(const std::string& name, DType dtype, const Function& f, const Tensors& leaves,
            Count forward, Count forward_backward) const {
    measure(
        name + " fwd", dtype,
        [&] {
          const NoGrad no_grad;
          f();
        },
        forward);
    const Tensor ones = ones_like(f().detach());
    measure(
        name + " fwd+bwd", dtype,
        [&] {
          backward({f()}, {ones});
          for (const Tensor& leaf : leaves) leaf.set_grad({});
        },
        forward_backward);
  }

  static Tensor random(const Shape& shape, DType dtype) {
    const NoGrad no_grad;
    return randn(shape).to(dtype);
  }
  static Tensor leaf(const Shape& shape, DType dtype) {
    return random(shape, dtype).detach().set_requires_grad();
  }

  static std::string sizes(const char* name, int64_t m, int64_t n, int64_t k) {
    return concat(name, " m", m, " n", n, " k", k);
  }

  void products(DType dtype) const {
    static constexpr int64_t kSizes[][3] = {
        {1024, 1024, 1024}, {2048, 2048, 2048}, {512, 512, 1408}, {512, 1408, 512}};
    for (const auto& [m, n, k] : kSizes) {
      const Tensor a = random({m, k}, dtype), b = random({k, n}, dtype);
      measure(sizes("matmul", m, n, k), dtype, [&] { matmul(a, b); },
              {Count::Of::flops, 2 * m * n * k});
    }
    const auto [m, n, k] = kSizes[3];
    const Tensor a = random({m, k}, dtype), w = random({n, k}, dtype);
    measure(sizes("linear", m, n, k), dtype, [&] { linear(a, w); },
            {Count::Of::flops, 2 * m * n * k});
  }

  void attention_cases(DType dtype) const {
    constexpr int64_t kBatch = 2, kHeads = 8, kSequence = 512, kDim = 64;
    const Shape shape{kBatch, kSequence, kHeads, kDim};
    const Tensor q = leaf(shape, dtype), k = leaf(shape, dtype), v = leaf(shape, dtype);
    // Two products of 2 s s d per head, half of each masked; backward is 2.5 times that.
    const int64_t flops = 2 * kBatch * kHeads * kSequence * kSequence * kDim;
    both("sdpa causal", dtype, [&] { return attention(q, k, v); }, {q, k, v},
         {Count::Of::flops, flops}, {Count::Of::flops, flops * 7 / 2});
  }

  /// Counts each operand as read once and each result as written once; the same for backward.
  void rows(DType dtype) const {
    constexpr int64_t kRows = 4096, kDim = 2048;
    const Tensor x = leaf({kRows, kDim}, dtype), y = leaf({kRows, kDim}, dtype);
    const Tensor w = ones({kDim}, {.dtype = dtype}).set_requires_grad();
    const int64_t bytes = kRows * kDim * static_cast<int64_t>(size_of(dtype));
    const auto passes = [&](int64_t n) { return Count{Count::Of::bytes, n * bytes}; };
    both(
        "rms_norm 4096x2048", dtype, [&] { return rms_norm(x, w); }, {x, w}, passes(2), passes(5));
    both(
        "softmax 4096x2048", dtype, [&] { return softmax(x); }, {x}, passes(2), passes(5));
    both(
        "silu*mul 4096x2048", dtype, [&] { return swiglu(x, y); }, {x, y}, passes(3), passes(8));
  }

  void losses() const {
    constexpr int64_t kRows = 1024, kClasses = 32000;
    const Tensor logits = leaf({kRows, kClasses}, DType::f32);
    const Tensor targets = empty({kRows}, {.dtype = DType::i64});
    for (int64_t i = 0; i < kRows; ++i) targets.block().as<int64_t>()[i] = i * 7919 % kClasses;
    const int64_t bytes = kRows * kClasses * 4;
    both("cross_entropy 1024x32000", DType::f32, [&] { return cross_entropy(logits, targets); },
         {logits}, {Count::Of::bytes, bytes}, {Count::Of::bytes, 3 * bytes});
  }

  void updates() const {
    const std::string name = "adamw 64Mi params (64 tensors)";
    if ((name + " float32").find(options_.only) == std::string::npos) return;
    constexpr int kTensors = 64;
    constexpr int64_t kElements = 1 << 20;
    struct Slot {
      Tensor parameter, gradient, m, v;
    };
    std::vector<Slot> slots;
    for (int i = 0; i < kTensors; ++i) {
      slots.push_back(
          {randn({kElements}), randn({kElements}), zeros({kElements}), zeros({kElements})});
    }
    const Tensor one = ones({});
    AdamWStep step{.weight_decay = 0.1, .step = 0};
    measure(name, DType::f32,
            [&] {
              ++step.step;
              for (const Slot& s : slots) adamw_(s.parameter, s.m, s.v, s.gradient, one, step);
            },
            {Count::Of::bytes, 7 * 4 * kTensors * kElements});  // reads p, g, m, v; writes p, m, v
  }

  const Options& options_;
  int threads_;
};

}  // namespace

static void run_kernels(const Options& options) {
  for (const int threads : options.threads) {
    run_ranks(1, [&](const Communicator&) { Kernels(options, threads).run(); },
              {.threads_per_rank = threads});
  }
}

}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_program("bench_kernels", weft::bench::kAbout, argc, argv,
                                  weft::bench::run_kernels);
}
