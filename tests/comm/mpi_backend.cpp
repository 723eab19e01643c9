// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/mpi_backend.h"

#include <gtest/gtest.h>

#include <cstdlib>

#ifdef WEFT_WITH_MPI
#include "src/comm/mpi/engine.h"
#include "src/comm/mpi/mpi_transport.h"
#include "src/comm/mpi/session.h"
#include "src/launch/run_ranks.h"
#include "tests/support/lone_world.h"
#endif

namespace weft {

#ifdef WEFT_WITH_MPI

int mpirun_ranks() {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (!size) size = std::getenv("PMI_SIZE");
  return size ? std::atoi(size) : 0;
}

static std::shared_ptr<MpiEngine> new_engine() {
  auto session = MpiSession::of_job("", std::chrono::minutes(1), end_process);
  const auto world = std::make_shared<LoneWorld>(session->size(), std::chrono::milliseconds(20000));
  return std::make_shared<MpiEngine>(std::move(session), world);
}

/// This process's rank, for all test cases.
struct MpiRank {
  std::shared_ptr<MpiEngine> engine = new_engine();
  uint64_t cases = 0;
};

static std::unique_ptr<MpiRank> mpi_rank;

class EndOfMpi : public testing::Environment {
 public:
  void TearDown() override {
    if (mpi_rank) mpi_rank->engine->end();
  }
};

void run_on_mpi(int, const std::function<void(Communicator)>& body) {
  if (!mpi_rank) {
    mpi_rank = std::make_unique<MpiRank>();
    testing::AddGlobalTestEnvironment(new EndOfMpi);
  }
  const std::vector<int> hosts(static_cast<size_t>(mpi_rank->engine->size()));
  Communicator world(mpi_world(mpi_rank->engine, hosts, ++mpi_rank->cases));
  try {
    body(world);
  } catch (...) {
    mpi_rank->engine->world()->abort_for_exception(mpi_rank->engine->rank(),
                                                   std::current_exception());
    throw;
  }
}

#else

int mpirun_ranks() { return 0; }
void run_on_mpi(int, const std::function<void(Communicator)>&) {}

#endif

}  // namespace weft
