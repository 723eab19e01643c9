// SPDX-License-Identifier: Apache-2.0
// The cost of a collective apart from the bytes it moves: its latency, and the check that all ranks
// made the same call.

#include "benchmarks/report.h"
#include "src/comm/signature.h"
#include "weft/communicator.h"
#include "weft/ranks.h"

namespace weft::bench {

static constexpr const char* kAbout =
    R"(Latency of collectives between N ranks, which are threads; started by weft run, each
process is one. One JSON line a case.)";

namespace {

struct Options {
  int ranks = 2;
  int64_t calls = 1'000'000;

  void add_to(CLI::App& app) {
    app.add_option("--ranks", ranks, "Ranks")->check(CLI::Range(2, 64));
    app.add_option("--calls", calls, "Calls of each")->check(CLI::PositiveNumber);
  }
};

}  // namespace

static void print_nanoseconds(const char* name, const Options& options, double nanoseconds) {
  print({{"bench", "weft_collectives"},
         {"case", name},
         {"value", rounded(nanoseconds, 2)},
         {"unit", "ns"},
         {"ranks", options.ranks},
         {"ranks_are", launched_ranks() > 1 ? "processes" : "threads"},
         {"calls", options.calls}});
}

/// A rank's part of the check: signs its own call, and compares the others' hashes with rank 0's.
static double check_seconds(const Options& options) {
  const int64_t count = 1024;
  const Piece piece{.dtype = DType::f32, .counts = {&count, 1}};
  Collective call{.kind = CollectiveKind::all_reduce, .pieces = {&piece, 1}};
  std::vector<Signature> signatures(static_cast<size_t>(options.ranks));
  for (Signature& signature : signatures) sign(call, {}, signature);
  int64_t differing = 0;
  const double seconds = seconds_of([&] {
    for (int64_t i = 0; i < options.calls; ++i) {
      sign(call, {}, signatures[0]);
      for (const Signature& other : signatures) differing += other.hash != signatures[0].hash;
      // Prevents the compiler from hoisting the work out of the loop.
      asm volatile("" : "+m"(call), "+m"(signatures[0]));
    }
  });
  return differing == 0 ? seconds : -1;
}

static void measure(const Communicator& world, const Options& options) {
  const auto calls = static_cast<double>(options.calls);
  const auto timed = [&](const char* name, const auto& call) {
    for (int i = 0; i < 1000; ++i) call();
    world.barrier();
    const double seconds = seconds_of([&] {
      for (int64_t i = 0; i < options.calls; ++i) call();
    });
    if (world.rank() == 0) print_nanoseconds(name, options, seconds / calls * 1e9);
  };
  timed("barrier", [&] { world.barrier(); });
  std::vector<float> values(1024, 0);
  const int64_t count = 1024;
  const Piece piece{.send = values.data(), .recv = values.data(), .counts = {&count, 1}};
  timed("all_reduce 4 KiB", [&] { world.all_reduce({&piece, 1}, ReduceOp::sum).wait(); });
  if (world.rank() == 0) {
    print_nanoseconds("check that all called the same", options,
                      check_seconds(options) / calls * 1e9);
  }
  world.barrier();
}

static void run_collectives(const Options& options) {
  run_world(options.ranks, [&](const Communicator& world) { measure(world, options); },
            {.threads_per_rank = 1});
}

}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_program("bench_collectives", weft::bench::kAbout, argc, argv,
                                  weft::bench::run_collectives);
}
