// SPDX-License-Identifier: Apache-2.0

// weft inside an MPI program that has its own data and its own communication: one half of the
// processes makes rows of a system of equations, which weft solves by gradient descent over these
// processes; the other half goes on with work of its own. All check the result by MPI.
//
//   mpirun -n 4 mpi_program

#include "weft/mpi.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "weft/weft.h"

using namespace weft;

static constexpr int64_t kUnknowns = 6, kRowsPerRank = 8;

/// This process's equations: rows of a, and b = a times (1, 2, ..., 6).
struct Equations {
  explicit Equations(int rank) {
    for (int64_t row = 0; row < kRowsPerRank; ++row) {
      double right = 0;
      for (int64_t k = 0; k < kUnknowns; ++k) {
        const double angle = static_cast<double>((rank * kRowsPerRank + row + 1) * (k + 1));
        a.push_back(std::cos(angle));
        right += a.back() * static_cast<double>(k + 1);
      }
      b.push_back(right);
    }
  }
  std::vector<double> a, b;
};

/// Minimises the mean of (a x - b)^2 and returns x, which is whole on each process.
static std::vector<double> solve(const Communicator& world, const Equations& mine) {
  const DeviceMesh mesh(world, {{"rows", world.size()}});
  const int64_t rows = kRowsPerRank * world.size();
  // Each process's rows become a part of one tensor; nothing is sent.
  const Tensor a = from_local(from_values(mine.a, {kRowsPerRank, kUnknowns}, {.dtype = f64}), mesh,
                              {Shard(0)}, {rows, kUnknowns});
  const Tensor b = from_local(from_values(mine.b, {kRowsPerRank, 1}, {.dtype = f64}), mesh,
                              {Shard(0)}, {rows, 1});
  Tensor x = zeros({kUnknowns, 1}, {.dtype = f64, .sharding = Sharding(mesh, {Replicate()})});
  x.set_requires_grad();
  for (int step = 0; step < 400; ++step) {
    mean(square(matmul(a, x) - b)).backward();  // the gradient is reduced over the processes
    NoGrad no_grad;
    x -= 0.5 * x.grad();
    x.set_grad({});
  }
  return x.to_vector<double>();
}

/// Returns the largest error of these equations for x.
static double residual_of(const Equations& mine, const std::vector<double>& x) {
  double residual = 0;
  for (int64_t row = 0; row < kRowsPerRank; ++row) {
    double left = 0;
    for (int64_t k = 0; k < kUnknowns; ++k) {
      left += mine.a[static_cast<size_t>(row * kUnknowns + k)] * x[static_cast<size_t>(k)];
    }
    residual = std::max(residual, std::abs(left - mine.b[static_cast<size_t>(row)]));
  }
  return residual;
}

/// The work of the other half: pi as an integral, by MPI alone.
static double pi_by(MPI_Comm comm) {
  int rank = 0, size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  constexpr int steps = 100000;
  double own = 0, whole = 0;
  for (int i = rank; i < steps; i += size) {
    const double x = (i + 0.5) / steps;
    own += 4 / (1 + x * x) / steps;
  }
  MPI_Allreduce(&own, &whole, 1, MPI_DOUBLE, MPI_SUM, comm);
  return whole;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);  // any thread level will do
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const bool solves = rank < (size + 1) / 2;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, solves ? 1 : 0, rank, &half);

  std::vector<double> x(kUnknowns);
  double pi = 0;
  if (solves) {
    const Communicator world = connect(half);  // of this half only
    x = solve(world, Equations(world.rank()));
  } else {
    pi = pi_by(half);
  }
  // Process 0 solves, and the last one does not, unless it is alone.
  MPI_Bcast(x.data(), kUnknowns, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  MPI_Bcast(&pi, 1, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
  const double residual = residual_of(Equations(rank), x);
  double worst = 0;
  MPI_Allreduce(&residual, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) {
    std::printf("%d of %d processes, x =", (size + 1) / 2, size);
    for (double value : x) std::printf(" %.3f", value);
    std::printf("\nthe residual is %s\n", worst < 1e-3 ? "below 1e-3" : "too large");
    std::printf("the other half found pi = %.6f\n", pi);
  }
  MPI_Comm_free(&half);
  MPI_Finalize();
  return worst < 1e-3 ? 0 : 1;
}
