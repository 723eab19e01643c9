// SPDX-License-Identifier: Apache-2.0

// A program that uses MPI itself, in which weft is a guest: mpirun -n 4 guest LEVEL [CASE].

// MPI's own C++ interface does not compile without warnings.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include "weft/mpi.h"

#include <unistd.h>
#ifdef WEFT_WITH_OPENMP
#include <omp.h>
#endif

#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "weft/weft.h"

namespace weft {

static int mistakes = 0;
static int process = 0, processes = 0;

static void check(bool is_right, const std::string& what) {
  if (is_right) return;
  ++mistakes;
  std::fprintf(stderr, "process %d: wrong: %s\n", process, what.c_str());
}

static int most_threads() {
#ifdef WEFT_WITH_OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// The state of the process that a guest does not change.
struct Surroundings {
  std::vector<std::string> environment;
  std::vector<std::pair<void*, int>> handlers;
  int threads = most_threads();

  Surroundings() {
    for (char** entry = environ; *entry; ++entry) environment.emplace_back(*entry);
    for (int signal = 1; signal < 32; ++signal) {
      struct sigaction now = {};
      sigaction(signal, nullptr, &now);
      handlers.emplace_back(reinterpret_cast<void*>(now.sa_sigaction), now.sa_flags);
    }
  }
  bool operator==(const Surroundings&) const = default;
};

static MPI_Comm split(int color, int key) {
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, color, key, &made);
  return made;
}

/// The sum over the ranks of x = rank + 1, with more elements than fit into a short message.
static void check_sums(const Communicator& world) {
  const DeviceMesh mesh(world, {{"ranks", world.size()}});
  const auto n = static_cast<double>(world.size());
  for (const int64_t elements : {int64_t{5}, int64_t{300000}}) {
    const Tensor mine = full({elements}, static_cast<double>(world.rank() + 1));
    const Tensor sum = from_local(mine, mesh, {Partial()}).redistribute({Replicate()});
    const std::vector<float> values = sum.local().to_vector<float>();
    check(values.front() == n * (n + 1) / 2 && values.back() == values.front(),
          concat("a sum of ", elements, " elements over ", world.size(), " ranks"));
  }
}

/// Solves least squares on the ranks of `world`: x = (1, 2, 3).
static void check_solution(const Communicator& world) {
  const DeviceMesh mesh(world, {{"rows", world.size()}});
  const int64_t rows = 4 + world.rank();  // uneven
  std::vector<double> a, b;
  for (int64_t row = 0; row < rows; ++row) {
    double right = 0;
    for (int64_t k = 0; k < 3; ++k) {
      a.push_back(std::cos(static_cast<double>((world.rank() * 8 + row + 1) * (k + 1))));
      right += a.back() * static_cast<double>(k + 1);
    }
    b.push_back(right);
  }
  const Tensor left = from_local(from_values(a, {rows, 3}, {.dtype = f64}), mesh, {Shard(0)});
  const Tensor right = from_local(from_values(b, {rows, 1}, {.dtype = f64}), mesh, {Shard(0)});
  Tensor x = zeros({3, 1}, {.dtype = f64, .sharding = Sharding(mesh, {Replicate()})});
  x.set_requires_grad();
  for (int step = 0; step < 300; ++step) {
    mean(square(matmul(left, x) - right)).backward();
    NoGrad no_grad;
    x -= 0.5 * x.grad();
    x.set_grad({});
  }
  const std::vector<double> solution = x.to_vector<double>();
  for (size_t k = 0; k < 3; ++k) {
    check(std::abs(solution[k] - static_cast<double>(k + 1)) < 1e-3, "the solution");
  }
}

/// Worlds of halves, of these again, of one process, of none, and of all, which overlaps the
/// halves.
static void run_all_worlds() {
  const Surroundings before;
  check(!connect(MPI_COMM_NULL), "the world of MPI_COMM_NULL is empty");
  const MPI_Comm half = split(process % 2, -process);  // in reversed order
  int rank = 0;
  MPI_Comm_rank(half, &rank);
  {
    const Communicator world = connect(half);
    check(world.rank() == rank, "the rank of a half");
    check_solution(world);
    check_sums(world);
    check_sums(connect(MPI_COMM_SELF));
    const Communicator all = connect(MPI_COMM_WORLD);
    check(all.rank() == process && all.size() == processes, "the rank in the world");
    check_sums(all);
    check_solution(all);
    check_sums(all.split(process % 2, process, "world/half"));
    check_sums(world);
    MPI_Comm same = split(process % 2, process);
    check_sums(connect(same));
    MPI_Comm_free(&same);
  }
  // Worlds that overlap those before, one after the other.
  for (int round = 0; round < 5; ++round) check_sums(connect(MPI_COMM_WORLD));
  MPI_Barrier(MPI_COMM_WORLD);
  check(Surroundings() == before, "the environment, signal handlers and OpenMP's threads");
  const Communicator some = connect(split(process == 0 ? MPI_UNDEFINED : 1, process));
  check(static_cast<bool>(some) == (process != 0), "a world without process 0");
  if (some) check_sums(some);
}

static void expect_error(const std::string& text, const std::function<void()>& call) {
  try {
    call();
    check(false, "no error: " + text);
  } catch (const std::exception& error) {
    check(std::string(error.what()).find(text) != std::string::npos,
          concat("error: ", error.what(), "; expected: ", text));
  }
}

static void run_mistakes(int level) {
  const MPI_Comm half = split(process % 2, process);
  MPI_Comm both = MPI_COMM_NULL;
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - process % 2, 7, &both);
  expect_error("connect: comm is an intercommunicator, expected an intracommunicator",
               [&] { static_cast<void>(connect(both)); });
  expect_error("connect: the communicator is of ", [] {
    const bool is_mpich = sizeof(MPI_Comm) == sizeof(int);
    static_cast<void>(connect_mpi(is_mpich ? MpiAbi::openmpi : MpiAbi::mpich, 0x44000000));
  });
  expect_error("connect: deadline must be at least 1 ms, got 0", [&] {
    static_cast<void>(connect(half, {.deadline = std::chrono::milliseconds(0)}));
  });
  if (level >= MPI_THREAD_SERIALIZED) return;
  std::thread([&] {
    expect_error("this thread is not the one that did so",
                 [&] { static_cast<void>(connect(half)); });
  }).join();
}

static Communicator kept;

/// A world that lasts longer than MPI, and one that does not come about.
static void run_past_the_end() {
  const Communicator half = connect(split(process / 2, process));
  kept = connect(MPI_COMM_WORLD);
  check_sums(kept);
}
static void check_past_the_end() {
  if (!kept) return;
  expect_error("connect: the program has finalised MPI, which ended the ranks",
               [] { kept.barrier(); });
  expect_error("MPI_Initialized: the program has finalised MPI already (",
               [] { static_cast<void>(connect(MPI_COMM_WORLD)); });
}

static void run_alone() {
  if (process != 0) return static_cast<void>(sleep(2));
  expect_error(
      "connect: within 500 ms not all processes of the MPI communicator called connect: ", [] {
        static_cast<void>(connect(MPI_COMM_WORLD, {.deadline = std::chrono::milliseconds(500)}));
      });
  // MPI cannot take back a collective that others do not call.
  std::fprintf(stderr, "%d mistakes\n", mistakes);
  MPI_Abort(MPI_COMM_WORLD, mistakes == 0 ? 7 : 1);
}

}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  const std::map<std::string, int> levels{{"single", MPI_THREAD_SINGLE},
                                          {"funneled", MPI_THREAD_FUNNELED},
                                          {"serialized", MPI_THREAD_SERIALIZED},
                                          {"multiple", MPI_THREAD_MULTIPLE}};
  const int wanted = levels.at(argv[1]);
  const std::string name = argc > 2 ? argv[2] : "worlds";
  if (name == "early") {
    expect_error("MPI_Initialized: the program has not initialised MPI yet (",
                 [] { static_cast<void>(connect(MPI_COMM_WORLD)); });
  }
  int level = 0;
  MPI_Init_thread(&argc, &argv, wanted, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  if (name == "worlds") run_all_worlds();
  if (name == "mistakes") run_mistakes(level);
  if (name == "end") run_past_the_end();
  if (name == "alone") run_alone();
  MPI_Finalize();
  check_past_the_end();
  return mistakes == 0 ? 0 : 1;
}
