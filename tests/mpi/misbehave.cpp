// SPDX-License-Identifier: Apache-2.0
// One rank of a job in which rank 1 fails, as the argument names, at its third collective.
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

// MPI's own C++ interface does not compile without warnings.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include "src/comm/mpi/engine.h"
#include "src/comm/mpi/mpi_transport.h"
#include "src/comm/mpi/session.h"
#include "src/launch/run_ranks.h"
#include "tests/support/lone_world.h"
#include "tests/support/short_calls.h"
#include "weft/extend/subject.h"

namespace weft {

/// Parts too large to be sent along with the calls.
static constexpr int64_t kLarge = 100000;

static void all_gather(const Communicator& world, int64_t count) {
  const std::vector<int64_t> counts(static_cast<size_t>(world.size()), count);
  std::vector<float> part(static_cast<size_t>(count));
  std::vector<float> whole(part.size() * counts.size());
  const Piece piece{.send = part.data(), .recv = whole.data(), .counts = counts};
  world.all_gather({&piece, 1}).wait();
}

/// Rank 0 expects more elements from rank 1 than it sends.
static void all_to_all(const Communicator& world) {
  const std::vector<int64_t> ones(static_cast<size_t>(world.size()), 1);
  std::vector<int64_t> expected = ones;
  if (world.rank() == 0) expected[1] = 4;
  std::vector<float> sent(16), got(16);
  const Piece piece{.send = sent.data(), .recv = got.data(), .counts = ones};
  world.all_to_all(piece, expected).wait();
}

static void message(const Communicator& world, int64_t sent, DType dtype) {
  std::vector<double> memory(static_cast<size_t>(kLarge));
  if (world.rank() == 1) world.send(memory.data(), sent, dtype, 0, 3).wait();
  if (world.rank() == 0) world.recv(memory.data(), 4, f32, 1, 3).wait();
}

static void unanswered(const Communicator& world, bool sends) {
  float value = 0;
  if (world.rank() != 0) return;
  (sends ? world.send(&value, 1, f32, 1) : world.recv(&value, 1, f32, 1)).wait();
}

static void by_a_pair(const Communicator& world) {
  if (world.rank() > 1) return;
  const std::vector<int> ranks{1, 0};
  const Communicator pair = world.subgroup(ranks, "world/pair");
  if (world.rank() == 0) pair.barrier();
}

/// Rank 1 calls, and stops before its data has left; its host says that its process is gone.
static void die_in_transfer(const Communicator& world) {
  if (world.rank() == 1) {
    const std::vector<int64_t> counts(static_cast<size_t>(world.size()), kLarge);
    std::vector<float> part(static_cast<size_t>(kLarge)), whole(part.size() * counts.size());
    const Piece piece{.send = part.data(), .recv = whole.data(), .counts = counts};
    const Work work = world.all_gather({&piece, 1});
    raise(SIGSTOP);
  }
  static_cast<LoneWorld*>(world.transport()->world())->gone = 1;
  all_gather(world, kLarge);
}

/// Calls of a world that has failed.
static void go_on(const Communicator& world) {
  if (world.rank() == 1) {
    // The others are in their third call.
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    throw std::runtime_error("boom");
  }
  try {
    world.barrier();
  } catch (const CommError&) {
  }
  all_reduce(world, 4);
}

/// The time for a machine that starts many jobs at once.
static constexpr std::chrono::seconds kForStarting{60};

using Body = std::function<void(const Communicator&)>;

/// The failures of rank 1, while the others reduce 4 numbers.
static const std::map<std::string, Body> kMisdeeds = {
    {"Throws", [](const Communicator&) { throw std::runtime_error("boom"); }},
    {"ReturnsEarly", [](const Communicator&) {}},
    {"Exits0", [](const Communicator&) { _exit(0); }},
    {"Exits3", [](const Communicator&) { _exit(3); }},
    {"IsKilled", [](const Communicator&) { raise(SIGKILL); }},
    {"Crashes",
     [](const Communicator&) {
       std::signal(SIGSEGV, SIG_DFL);
       raise(SIGSEGV);
     }},
    {"Stops", [](const Communicator&) { raise(SIGSTOP); }},
    {"LoopsForEver",
     [](const Communicator&) {
       for (volatile bool on = true; on;) {
       }
     }},
    {"CallsAnotherOperation", [](const Communicator& world) { world.barrier(); }},
    {"CallsLargeOperation", [](const Communicator& world) { all_gather(world, kLarge); }},
    {"CallsWithAnotherDType", [](const Communicator& world) { all_reduce(world, 4, i32); }},
    {"CallsWithAnotherCount", [](const Communicator& world) { all_reduce(world, 5); }},
    {"CallsInAnotherOrder",
     [](const Communicator& world) {
       broadcast(world, 0);
       all_reduce(world, 4);
     }},
    {"CallsWithAnotherReduction",
     [](const Communicator& world) { all_reduce(world, 4, f32, ReduceOp::max); }},
    {"GivesUp", [](const Communicator& world) { world.transport()->abort("no data left"); }},
    {"ThrowsPastWork",
     [](const Communicator& world) {
       float value = 0;
       const Work work = world.recv(&value, 1, f32, 0);
       throw std::runtime_error("boom");
     }},
};

/// The calls of all ranks from the third collective on.
static const std::map<std::string, Body> kCommonMisdeeds = {
    {"GoesWell", [](const Communicator& world) { broadcast(world, 0); }},
    {"LoopsAlone", [](const Communicator& world) { kMisdeeds.at("LoopsForEver")(world); }},
    {"RootsDiffer", [](const Communicator& world) { broadcast(world, world.rank() == 1); }},
    {"SubjectsDiffer",
     [](const Communicator& world) {
       const bool is_first = world.rank() == 0;
       const SubjectScope subject(is_first ? 1 : 2, is_first ? "a" : "b");
       broadcast(world, 0);
     }},
    {"CountsOfPairsDiffer", all_to_all},
    {"MessageSizesDiffer", [](const Communicator& world) { message(world, 5, f32); }},
    {"MessageDTypesDiffer", [](const Communicator& world) { message(world, 4, i32); }},
    {"LargeMessagesDiffer", [](const Communicator& world) { message(world, kLarge, f64); }},
    {"NobodySends", [](const Communicator& world) { unanswered(world, false); }},
    {"NobodyReceives", [](const Communicator& world) { unanswered(world, true); }},
    {"AMemberOfAPairEnds", by_a_pair},
    {"DiesInTransfer", die_in_transfer},
    {"GoesOnAfterAFailure", go_on},
};

static void misbehave(const Communicator& world, const std::string& name) {
  all_reduce(world, 4);
  all_gather(world, kLarge);
  const auto common = kCommonMisdeeds.find(name);
  if (common != kCommonMisdeeds.end()) return common->second(world);
  if (world.rank() == 1) {
    // The others are in their third call.
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    return kMisdeeds.at(name)(world);
  }
  all_reduce(world, 4);
  broadcast(world, 0);
  all_reduce(world, 4);
}

/// An engine with a world of that deadline.
static std::shared_ptr<MpiEngine> lone_engine(std::chrono::milliseconds for_starting,
                                              std::chrono::milliseconds deadline) {
  auto session = MpiSession::of_job("", for_starting, end_process);
  const auto world = std::make_shared<LoneWorld>(session->size(), deadline);
  return std::make_shared<MpiEngine>(std::move(session), world);
}

/// The program itself initializes and finalizes MPI.
static int run_beside_program(int level) {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, level, &provided);
  try {
    const auto engine = lone_engine(kForStarting, std::chrono::milliseconds(800));
    const std::vector<int> hosts(static_cast<size_t>(engine->size()));
    misbehave(Communicator(mpi_world(engine, hosts)), "GoesWell");
    engine->end();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Finalize();
    return 1;
  }
  MPI_Finalize();
  return 0;
}

static bool is_second() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!rank) rank = std::getenv("PMI_RANK");
  return rank && std::string_view(rank) == "1";
}

static int run_misdeed(const std::string& name) {
  if (name == "HasMpi") return run_beside_program(MPI_THREAD_MULTIPLE);
  if (name == "HasFunneledMpi") return run_beside_program(MPI_THREAD_FUNNELED);
  const bool stops = name == "StopsBeforeTheStart";
  if (stops && is_second()) raise(SIGSTOP);
  // When mpirun notices the death of a rank, no rank waits for the deadline.
  const bool dies = name == "Exits0" || name == "Exits3" || name == "IsKilled" ||
                    name == "Crashes" || name == "DiesInTransfer";
  const auto engine = lone_engine(stops ? std::chrono::seconds(3) : kForStarting,
                                  std::chrono::milliseconds(dies ? 60000 : 800));
  const std::vector<int> hosts(static_cast<size_t>(engine->size()));
  const auto begin = std::chrono::steady_clock::now();
  try {
    misbehave(Communicator(mpi_world(engine, hosts)), name);
  } catch (const std::exception& error) {
    engine->world()->abort_for_exception(engine->rank(), std::current_exception());
    const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - begin;
    const std::string text =
        concat("rank ", engine->rank(), " after ", lasted.count(), " s: ", error.what(), "\n");
    std::fputs(text.c_str(), stderr);
    engine->end();
    return 1;
  }
  engine->end();
  return 0;
}

}  // namespace weft

int main(int, char** arguments) {
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  return weft::run_misdeed(arguments[1]);
}
