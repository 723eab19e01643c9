// SPDX-License-Identifier: Apache-2.0
// Forward and backward of a MoE block whose experts are sharded over the ranks, next to plain
// products of as many multiply-adds.

#include <memory>
#include <vector>

#include "benchmarks/report.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/moe.h"
#include "weft/ops.h"
#include "weft/ranks.h"
#include "weft/tensor_parallel.h"

namespace weft::bench {

namespace {

struct Options {
  int64_t tokens = 2048, dim = 512, width = 1408, experts = 8, top_k = 2;
  int ranks = 2, threads = 1, rounds = 10;
  bool balanced = true;

  void add_to(CLI::App& app) {
    app.add_option("--tokens", tokens, "tokens of all ranks");
    app.add_option("--dim", dim, "width of a token");
    app.add_option("--width", width, "width of an expert");
    app.add_option("--experts", experts, "number of experts");
    app.add_option("--top-k", top_k, "experts of a token");
    app.add_option("--ranks", ranks, "ranks, as threads");
    app.add_option("--threads", threads, "threads of a rank");
    app.add_option("--rounds", rounds, "measured rounds");
    app.add_flag("!--random", balanced, "route random tokens instead of balanced ones");
  }
};

/// The block, or the same multiply-adds without routing: all rows through one feed-forward.
class Subject {
 public:
  Subject(const Options& options, const DeviceMesh& mesh) : options_(options), mesh_(mesh) {
    MoEConfig config{.dim = options.dim, .width = options.width, .experts = options.experts};
    config.router.top_k = options.top_k;
    block_ = std::make_unique<MoE>(config);
    parallelize(*block_, mesh["ep"], {{"experts", ExpertParallel()}});
    block_->materialize();
    const TensorOptions rows{.sharding = Sharding(mesh, {{"ep", Shard(0)}})};
    x_ = randn({options.tokens, options.dim}, rows);
    if (options.balanced) balance();
    x_.set_requires_grad();
    plain_ = randn({options.tokens * options.top_k, options.dim}, rows).set_requires_grad();
    const TensorOptions whole{.sharding = Sharding(mesh, {})};
    for (int i = 0; i < 3; ++i) {
      weights_.push_back(randn({options.width, options.dim}, whole).set_requires_grad());
    }
  }

  double block_seconds() {
    return timed([&] { return (*block_)(x_); }, block_->parameters());
  }
  double plain_seconds() {
    return timed(
        [&] {
          const Tensor hidden = swiglu(linear(plain_, weights_[0]), linear(plain_, weights_[1]));
          return matmul(hidden, weights_[2]);
        },
        {});
  }
  Tensor load() const { return block_->load(); }

 private:
  /// Tokens that prefer each pair of neighbouring experts alike.
  void balance() {
    const NoGrad no_grad;
    const Tensor weight = block_->module("gate").parameters()[0]->value();
    fill_(weight, 0);
    std::vector<double> values(static_cast<size_t>(options_.tokens * options_.dim), 0.5);
    std::vector<double> router(static_cast<size_t>(options_.experts * options_.dim), 0);
    for (int64_t e = 0; e < options_.experts; ++e) {
      router[static_cast<size_t>(e * options_.dim + e)] = 1;
    }
    for (int64_t t = 0; t < options_.tokens; ++t) {
      for (int64_t k = 0; k < options_.top_k; ++k) {
        const int64_t expert = (t + k * (options_.experts / options_.top_k)) % options_.experts;
        values[static_cast<size_t>(t * options_.dim + expert)] = 2 - 0.1 * static_cast<double>(k);
      }
    }
    copy_(weight,
          from_values(router, {options_.experts, options_.dim}, {.sharding = weight.sharding()}));
    x_ = from_values(values, {options_.tokens, options_.dim}, {.sharding = x_.sharding()});
  }

  double timed(const std::function<Tensor()>& forward,
               const std::vector<ParameterPtr>& parameters) {
    for (const ParameterPtr& parameter : parameters) parameter->clear_grad();
    for (const Tensor& tensor : weights_) tensor.set_grad({});
    for (const Tensor& tensor : {x_, plain_}) tensor.set_grad({});
    mesh_.communicator().barrier();
    return seconds_of([&] {
      const Tensor y = forward();
      weft::backward({y}, {ones_like(y)});
      mesh_.communicator().barrier();
    });
  }

  Options options_;
  DeviceMesh mesh_;
  std::unique_ptr<MoE> block_;
  Tensor x_, plain_;
  Tensors weights_;
};

void run_rank(const Options& options, const Communicator& world) {
  const DeviceMesh mesh(world, {{"ep", options.ranks}});
  Subject subject(options, mesh);
  std::vector<double> block, plain;
  for (int round = -2; round < options.rounds; ++round) {
    const double a = subject.block_seconds(), b = subject.plain_seconds();
    if (round < 0) continue;
    block.push_back(a), plain.push_back(b);
  }
  const Tensor load = subject.load().full_tensor();
  if (world.rank() != 0) return;
  const double products = 9.0 * static_cast<double>(options.tokens * options.top_k) *
                          static_cast<double>(options.dim * options.width);
  const Spread of_block = spread_of(block), of_plain = spread_of(plain);
  print({{"bench", "moe"},
         {"case", options.balanced ? "balanced" : "random"},
         {"value", rounded(of_block.median * 1e3, 2)},
         {"unit", "ms"},
         {"p10", rounded(of_block.p10 * 1e3, 2)},
         {"p90", rounded(of_block.p90 * 1e3, 2)},
         {"gflops", rounded(2 * products / of_block.median * 1e-9, 1)},
         {"plain_ms", rounded(of_plain.median * 1e3, 2)},
         {"of_plain", rounded(of_plain.median / of_block.median, 3)},
         {"greatest_load", max(load).item() / sum(load).item()}});
}

}  // namespace

static void run_moe(const Options& options) {
  run_ranks(options.ranks, [&](const Communicator& world) { run_rank(options, world); },
            {.threads_per_rank = options.threads});
}

}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_program("bench_moe", "Forward and backward of a MoE block", argc, argv,
                                  weft::bench::run_moe);
}
