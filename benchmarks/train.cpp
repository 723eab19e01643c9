// SPDX-License-Identifier: Apache-2.0
// Training steps of a small Llama: forward, cross entropy, backward, AdamW, zero_grad.

#include <sys/resource.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "benchmarks/report.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/fsdp.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"
#include "weft/storage.h"
#include "weft/transformer.h"

namespace weft::bench {

static constexpr const char* kAbout =
    R"(Trains a small Llama, fully sharded over N ranks, which are threads; started by weft run,
each process is one. A step is forward, cross
entropy, backward, AdamW and zero_grad, after a barrier; its time is the slowest rank's.
value is tokens/s over all ranks from the median step; fraction_of_matmul compares its
floating-point operations with those of the best large product in the same run.)";

namespace {

struct Options {
  std::string config = "tiny";
  std::string dtype = "f32";
  int ranks = 1, threads = 0;
  int batch = 0, steps = 0, warmup = 3;

  void add_to(CLI::App& app) {
    app.add_option("--config", config, "Model: tiny or small")
        ->check(CLI::IsMember({"tiny", "small"}));
    app.add_option("--dtype", dtype, "Dtype of computation; bf16: gathered too, reduced in f32")
        ->check(CLI::IsMember({"f32", "bf16"}));
    app.add_option("--ranks", ranks, "Ranks")->check(CLI::Range(1, 64));
    app.add_option("--threads", threads, "Threads a rank; 0: the cores, shared evenly")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--batch", batch, "Rows a rank; 0: 4 (tiny) or 2 (small)")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--steps", steps, "Timed steps; 0: 20 (tiny) or 10 (small)")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--warmup", warmup, "Steps before, not timed")->check(CLI::NonNegativeNumber);
  }
};

/// Defaults for a configuration, unless flags override them.
struct Defaults {
  int64_t sequence;
  int rows;
  int steps;
};

/// One step of one rank, in seconds.
struct StepTimes {
  double whole = 0, forward = 0, backward = 0, update = 0;
};

/// Measurements of one rank.
struct RankOutcome {
  std::vector<StepTimes> steps;
  std::vector<double> losses;
  double peak_gflops = 0;
  int64_t peak_bytes = 0;
  int64_t bytes_moved = 0;
};

}  // namespace

static Defaults defaults_of(const std::string& config) {
  return config == "tiny" ? Defaults{256, 4, 20} : Defaults{512, 2, 10};
}

/// Text of words chosen by the 32-bit generator x = 1664525 x + 1013904223, equal in every run.
static std::string made_text(size_t bytes) {
  static constexpr std::string_view kWords[] = {
      "the",     "mesh",  "of",        "ranks", "holds", "a",       "shard",  "of", "each",
      "tensor",  "and",   "every",     "row",   "is",    "read",    "once",   "by", "one",
      "process", "while", "gradients", "flow",  "back",  "through", "layers", "to", "weights"};
  std::string text;
  uint32_t x = 1;
  while (text.size() < bytes) {
    x = 1664525u * x + 1013904223u;
    text += kWords[(x >> 16) % std::size(kWords)];
    text += ' ';
  }
  text.resize(bytes);
  return text;
}

/// GFLOP/s of this rank in its best large product, while all ranks run it.
static double matmul_gflops(const Communicator& world, const std::string& dtype) {
  const NoGrad no_grad;
  double best = 0;
  for (const int64_t side : {1024, 2048}) {
    const DType type = dtype == "bf16" ? DType::bf16 : DType::f32;
    const Tensor a = randn({side, side}).to(type), b = randn({side, side}).to(type);
    matmul(a, b);
    world.barrier();
    for (int i = 0; i < 6; ++i) {
      const double seconds = seconds_of([&] { matmul(a, b); });
      best = std::max(best, 2e-9 * static_cast<double>(side * side * side) / seconds);
    }
  }
  return best;
}

namespace {

/// The training of one rank.
class Training {
 public:
  Training(const Communicator& world, const Options& options, const std::string& text)
      : world_(world),
        dtype_(options.dtype),
        rows_(options.batch),
        sequence_(defaults_of(options.config).sequence),
        text_(text),
        mesh_(world, {{"dp", world.size()}}),
        model_(transformer_config(options.config)) {
    FullyShardOptions sharding;
    if (options.dtype == "bf16") {
      sharding.precision = {.compute = DType::bf16, .gather = DType::bf16, .reduce = DType::f32};
    }
    for (const auto& unit : model_.units()) fully_shard(unit, mesh_, sharding);
    fully_shard(model_, mesh_, sharding);
    model_.materialize();
    optimizer_.emplace(
        model_.named_parameters(),
        AdamWOptions{.learning_rate = 1e-3, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1});
  }

  RankOutcome run(int steps) {
    RankOutcome outcome;
    outcome.peak_gflops = matmul_gflops(world_, dtype_);
    for (int step = 0; step < steps; ++step) take(step, outcome);
    outcome.peak_gflops = std::max(outcome.peak_gflops, matmul_gflops(world_, dtype_));
    return outcome;
  }

 private:
  /// Fills in this rank's rows of a step, by their index in the global batch.
  void fill(int step, const Tensor& ids, const Tensor& targets) const {
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t number = (step * world_.size() + world_.rank()) * rows_ + row;
      const int64_t start =
          number * sequence_ % (static_cast<int64_t>(text_.size()) - sequence_ - 1);
      for (int64_t i = 0; i < sequence_; ++i) {
        const auto at = static_cast<size_t>(start + i);
        ids.block().as<int64_t>()[row * sequence_ + i] = static_cast<uint8_t>(text_[at]);
        targets.block().as<int64_t>()[row * sequence_ + i] = static_cast<uint8_t>(text_[at + 1]);
      }
    }
  }

  void take(int step, RankOutcome& outcome) {
    const TensorOptions integers{DType::i64, cpu, Sharding(mesh_, {Shard(0)})};
    const Tensor ids = empty({rows_ * world_.size(), sequence_}, integers);
    const Tensor targets = empty(ids.shape(), integers);
    fill(step, ids, targets);
    const int64_t moved = mesh_.traffic().bytes;
    world_.barrier();
    StepTimes times;
    const auto start = Clock::now();
    Tensor loss = model_.loss(ids, targets);
    times.forward = seconds_since(start);
    loss.backward();
    times.backward = seconds_since(start) - times.forward;
    optimizer_->step();
    optimizer_->zero_grad();
    times.whole = seconds_since(start);
    times.update = times.whole - times.forward - times.backward;
    outcome.bytes_moved = mesh_.traffic().bytes - moved;
    outcome.steps.push_back(times);
    outcome.losses.push_back(loss.detach().full_tensor().item());
    outcome.peak_bytes = memory_statistics().total.peak;
  }

  Communicator world_;
  const std::string dtype_;
  int64_t rows_, sequence_;
  const std::string& text_;
  DeviceMesh mesh_;
  TransformerModel model_;
  std::optional<AdamW> optimizer_;
};

}  // namespace

/// Times of the slowest rank, over the steps after the warm-up.
static Spread spread_of_steps(const RankOutcome& outcome, int warmup, double StepTimes::*part) {
  std::vector<double> times;
  for (size_t step = static_cast<size_t>(warmup); step < outcome.steps.size(); ++step) {
    times.push_back(outcome.steps[step].*part);
  }
  return spread_of(times);
}

static void all_reduce(const Communicator& world, void* data, int64_t count, DType dtype,
                       ReduceOp op) {
  const Piece piece{.send = data, .recv = data, .dtype = dtype, .counts = {&count, 1}};
  world.all_reduce({&piece, 1}, op).wait();
}

/// Combines the outcomes of all ranks: the maximum of each time and of each peak.
static void combine(const Communicator& world, RankOutcome& outcome) {
  static_assert(sizeof(StepTimes) % sizeof(double) == 0);
  const auto times = static_cast<int64_t>(outcome.steps.size() * sizeof(StepTimes) / 8);
  all_reduce(world, outcome.steps.data(), times, f64, ReduceOp::max);
  all_reduce(world, &outcome.peak_gflops, 1, f64, ReduceOp::sum);
  all_reduce(world, &outcome.peak_bytes, 1, i64, ReduceOp::max);
}

static int64_t count_parameters(const TransformerConfig& config) {
  int64_t all = 0;
  for (const ParameterPtr& parameter : TransformerModel(config).parameters())
    all += parameter->shape().product();
  return all;
}

static void report(const Options& options, int ranks, const RankOutcome& outcome) {
  const TransformerConfig config = transformer_config(options.config);
  const int64_t sequence = defaults_of(options.config).sequence;
  const double flops_a_token = training_operations_a_token(config, sequence);
  const Spread step = spread_of_steps(outcome, options.warmup, &StepTimes::whole);
  const double tokens = static_cast<double>(options.batch * ranks * sequence) / step.median;
  const double peak = outcome.peak_gflops;
  const auto median_ms = [&](double StepTimes::*part) {
    return rounded(spread_of_steps(outcome, options.warmup, part).median * 1e3, 2);
  };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  print({{"bench", "weft_train"},
         {"case", options.config + "/fully_shard/" + options.dtype},
         {"value", rounded(tokens, 1)},
         {"unit", "tokens/s"},
         {"ranks", ranks},
         {"ranks_are", launched_ranks() > 1 ? "processes" : "threads"},
         {"threads", Context::current().threads},
         {"rows_per_rank", options.batch},
         {"step_ms", rounded(step.median * 1e3, 2)},
         {"step_ms_p10", rounded(step.p10 * 1e3, 2)},
         {"step_ms_p90", rounded(step.p90 * 1e3, 2)},
         {"forward_ms", median_ms(&StepTimes::forward)},
         {"backward_ms", median_ms(&StepTimes::backward)},
         {"update_ms", median_ms(&StepTimes::update)},
         {"gflops", rounded(tokens * flops_a_token / 1e9, 1)},
         {"matmul_gflops", rounded(peak, 1)},
         {"fraction_of_matmul", rounded(tokens * flops_a_token / 1e9 / peak, 3)},
         {"peak_bytes", outcome.peak_bytes},
         {"peak_rss_mib", usage.ru_maxrss / 1024},
         {"bytes_moved", outcome.bytes_moved},
         {"first_loss", rounded(outcome.losses.front(), 5)},
         {"final_loss", rounded(outcome.losses.back(), 5)},
         {"params", count_parameters(config)},
         {"steps", outcome.steps.size()}});
}

static void run_train(const Options& flags) {
  Options options = flags;
  const Defaults defaults = defaults_of(options.config);
  if (!options.batch) options.batch = defaults.rows;
  if (!options.steps) options.steps = defaults.steps;
  const std::string text = made_text(size_t{1} << 20);
  run_world(options.ranks,
            [&](const Communicator& world) {
              RankOutcome outcome =
                  Training(world, options, text).run(options.warmup + options.steps);
              combine(world, outcome);
              if (world.rank() == 0) report(options, world.size(), outcome);
            },
            {.threads_per_rank = options.threads});
}

}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_program("bench_train", weft::bench::kAbout, argc, argv,
                                  weft::bench::run_train);
}
