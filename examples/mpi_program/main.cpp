// SPDX-License-Identifier: Apache-2.0

// weft inside an MPI program that has its own data and its own communication: each process makes
// some rows of a system of equations, weft solves it by gradient descent over all processes, and
// the program checks the residual by MPI_Allreduce.
//
//   mpirun -n 3 mpi_program

#include <mpi.h>

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

int main(int argc, char** argv) {
  int level = 0, rank = 0;
  // weft communicates in a separate thread.
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  bool good = false;
  {
    const Communicator world = connect();
    const Equations mine(rank);
    const std::vector<double> x = solve(world, mine);

    double residual = 0, worst = 0;
    for (int64_t row = 0; row < kRowsPerRank; ++row) {
      double left = 0;
      for (int64_t k = 0; k < kUnknowns; ++k) {
        left += mine.a[static_cast<size_t>(row * kUnknowns + k)] * x[static_cast<size_t>(k)];
      }
      residual = std::max(residual, std::abs(left - mine.b[static_cast<size_t>(row)]));
    }
    MPI_Allreduce(&residual, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    good = worst < 1e-3;
    if (rank == 0) {
      std::printf("%d processes, x =", world.size());
      for (double value : x) std::printf(" %.3f", value);
      std::printf("\nthe residual is %s\n", good ? "below 1e-3" : "too large");
    }
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
