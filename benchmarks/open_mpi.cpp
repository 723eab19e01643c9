// SPDX-License-Identifier: Apache-2.0
// The five redistributions of bench_redistribute by MPI's collectives, for comparison.

#define OMPI_SKIP_MPICXX
#include <mpi.h>

#include <cstring>

#include "benchmarks/matrix_rounds.h"
#include "benchmarks/report.h"

namespace weft::bench {

static constexpr const char* kAbout =
    R"(MPI's collectives on an f32 matrix between the processes that mpirun started, timed as
bench_redistribute does. One JSON line a case.)";

namespace {

/// One rank's memory: a matrix [side, side], a slice of its rows, and one of its columns.
struct Matrices {
  int ranks = 1;
  int64_t side = 0;
  std::vector<float> whole;
  std::vector<float> part;
  std::vector<float> packed;

  int count() const { return static_cast<int>(side * side / ranks); }
};

using Redistribution = void (*)(Matrices&);

}  // namespace

static void gather(Matrices& m) {
  MPI_Allgather(m.part.data(), m.count(), MPI_FLOAT, m.whole.data(), m.count(), MPI_FLOAT,
                MPI_COMM_WORLD);
}

/// Rows to columns: blocks are packed, exchanged, and unpacked.
static void exchange(Matrices& m) {
  const int64_t rows = m.side / m.ranks;
  for (int r = 0; r < m.ranks; ++r) {
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(m.packed.data() + (r * rows + i) * rows, m.part.data() + i * m.side + r * rows,
                  static_cast<size_t>(rows) * sizeof(float));
    }
  }
  const int block = m.count() / m.ranks;
  MPI_Alltoall(m.packed.data(), block, MPI_FLOAT, m.part.data(), block, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce(Matrices& m) {
  const auto all = static_cast<int>(m.whole.size());
  MPI_Allreduce(m.packed.data(), m.whole.data(), all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void scatter(Matrices& m) {
  MPI_Reduce_scatter_block(m.packed.data(), m.part.data(), m.count(), MPI_FLOAT, MPI_SUM,
                           MPI_COMM_WORLD);
}

static std::vector<double> times_of(Redistribution run, Matrices& matrices, int rounds,
                                    int warmup) {
  std::vector<double> times;
  for (int i = 0; i < warmup + rounds; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double seconds = seconds_of([&] { run(matrices); });
    if (i >= warmup) times.push_back(seconds);
  }
  MPI_Allreduce(MPI_IN_PLACE, times.data(), rounds, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return times;
}

static void measure_all(const MatrixRounds& options) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::pair<const char*, Redistribution> cases[] = {{"shard0->replicate", gather},
                                                          {"shard0->shard1", exchange},
                                                          {"partial->replicate", reduce},
                                                          {"partial->shard0", scatter}};
  for (const Size& size : kSizes) {
    if (!options.size.empty() && options.size != size.name) continue;
    const auto elements = static_cast<size_t>(size.side * size.side);
    Matrices matrices{ranks, size.side, std::vector<float>(elements, 1),
                      std::vector<float>(elements, 1), std::vector<float>(elements, 1)};
    for (const auto& [name, run] : cases) {
      const int rounds = options.rounds ? options.rounds : size.rounds;
      const Spread spread = spread_of(times_of(run, matrices, rounds, options.warmup));
      if (rank > 0) continue;
      const auto bytes = static_cast<double>(elements * sizeof(float));
      print({{"bench", "open_mpi_redistribute"},
             {"case", name},
             {"value", rounded(bytes / spread.median / 1e9, 4)},
             {"unit", "GB/s"},
             {"size", size.name},
             {"ranks", ranks},
             {"median_us", rounded(spread.median * 1e6, 2)},
             {"p10_us", rounded(spread.p10 * 1e6, 2)},
             {"p90_us", rounded(spread.p90 * 1e6, 2)},
             {"rounds", spread.count}});
    }
  }
}

}  // namespace weft::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = weft::bench::run_program("bench_open_mpi", weft::bench::kAbout, argc, argv,
                                            weft::bench::measure_all);
  MPI_Finalize();
  return code;
}
