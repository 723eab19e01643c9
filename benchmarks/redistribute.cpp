// SPDX-License-Identifier: Apache-2.0
// Tensor::redistribute between ranks that are threads or processes: time and GB/s.

#include "benchmarks/matrix_rounds.h"
#include "benchmarks/report.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft::bench {

static constexpr const char* kAbout =
    R"(Redistributes an f32 matrix between N ranks, which are threads; started by weft run or
mpirun, each process is one. A barrier precedes each round, whose
time is that of the slowest rank; value is bytes of the whole tensor over the median time,
also where fewer move. Every result is checked. One JSON line a case.)";

namespace {

struct Options : MatrixRounds {
  int ranks = 2;

  void add_to(CLI::App& app) {
    app.add_option("--ranks", ranks, "Ranks")->check(CLI::Range(1, 64));
    MatrixRounds::add_to(app);
  }
};

struct Pair {
  const char* name;
  Placement from, to;
};

}  // namespace

/// Counts cyclically from 0 to 1023, [side, side]: sums over ranks are exact in f32.
static Tensor counting(int64_t side) {
  Tensor whole = empty({side, side});
  auto* values = whole.block().as<float>();
  for (int64_t i = 0; i < side * side; ++i) values[i] = static_cast<float>(i % 1024);
  return whole;
}

/// True when this rank's part is correct for a redistribution of `counting`.
static bool is_correct(const Tensor& result, bool was_partial, int ranks) {
  const float factor = was_partial ? static_cast<float>(ranks) : 1;
  const Box box = result.box();
  const int64_t columns = result.size(1);
  const std::vector<float> values = result.to_vector<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t row = box.offset[0] + static_cast<int64_t>(i) / box.shape[1];
    const int64_t column = box.offset[1] + static_cast<int64_t>(i) % box.shape[1];
    if (values[i] != factor * static_cast<float>((row * columns + column) % 1024)) return false;
  }
  return true;
}

static void all_reduce(const Communicator& world, void* data, int64_t count, DType dtype,
                       ReduceOp op) {
  const Piece piece{.send = data, .recv = data, .dtype = dtype, .counts = {&count, 1}};
  world.all_reduce({&piece, 1}, op).wait();
}

static void print_case(const Pair& pair, const Size& size, int ranks, std::vector<double> slowest,
                       bool is_right) {
  const Spread spread = spread_of(std::move(slowest));
  const int64_t bytes = size.side * size.side * 4;
  print({{"bench", "weft_redistribute"},
         {"case", pair.name},
         {"value", rounded(static_cast<double>(bytes) / spread.median / 1e9, 4)},
         {"unit", "GB/s"},
         {"size", size.name},
         {"bytes", bytes},
         {"ranks", ranks},
         {"ranks_are", launched_ranks() > 1 ? "processes" : "threads"},
         {"median_us", rounded(spread.median * 1e6, 2)},
         {"p10_us", rounded(spread.p10 * 1e6, 2)},
         {"p90_us", rounded(spread.p90 * 1e6, 2)},
         {"rounds", spread.count},
         {"threads", 1},
         {"correct", is_right}});
}

/// One rank's rounds of one case.
static void measure(const DeviceMesh& mesh, const Pair& pair, const Size& size,
                    const Options& options) {
  const Communicator world = mesh.communicator();
  const Tensor whole = counting(size.side);
  const Tensor from = pair.from.is_partial()
                          ? from_local(whole, mesh, {pair.from}, whole.shape())
                          : distribute(whole, mesh, {}).redistribute({pair.from});
  const Placements target{pair.to};
  std::vector<double> times;
  const int rounds = options.rounds ? options.rounds : size.rounds;
  Tensor result;
  for (int i = 0; i < options.warmup + rounds; ++i) {
    result = {};
    world.barrier();
    const double seconds = seconds_of([&] { result = from.redistribute(target); });
    if (i >= options.warmup) times.push_back(seconds);
  }
  int32_t is_right = is_correct(result, pair.from.is_partial(), world.size());
  all_reduce(world, times.data(), rounds, f64, ReduceOp::max);
  all_reduce(world, &is_right, 1, i32, ReduceOp::min);
  if (world.rank() == 0) print_case(pair, size, world.size(), times, is_right != 0);
  if (!is_right) fail_call("redistribute", pair.name, " of ", size.name, " is wrong");
}

static void run_redistribute(const Options& options) {
  run_world(options.ranks,
            [&](const Communicator& world) {
              const NoGrad no_grad;
              const DeviceMesh mesh(world, {{"ranks", world.size()}});
              const Pair pairs[] = {{"shard0->replicate", Shard(0), Replicate()},
                                    {"shard0->shard1", Shard(0), Shard(1)},
                                    {"partial->replicate", Partial(), Replicate()},
                                    {"partial->shard0", Partial(), Shard(0)},
                                    {"replicate->shard0", Replicate(), Shard(0)}};
              for (const Size& size : kSizes) {
                if (!options.size.empty() && options.size != size.name) continue;
                for (const Pair& pair : pairs) measure(mesh, pair, size, options);
              }
            },
            {.threads_per_rank = 1});
}

}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_program("bench_redistribute", weft::bench::kAbout, argc, argv,
                                  weft::bench::run_redistribute);
}
