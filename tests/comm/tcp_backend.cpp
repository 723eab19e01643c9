// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/tcp_backend.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "src/comm/tcp/session.h"
#include "tests/support/lone_world.h"
#include "tests/support/processes.h"

namespace weft {

bool runs_on_tcp() { return kForks && std::getenv("WEFT_TEST_TCP") != nullptr; }

uint16_t free_port() {
  static std::mt19937 random{std::random_device{}()};
  while (true) {
    // Below the ports that the system gives to connections of other tests.
    const auto port = static_cast<uint16_t>(20000 + random() % 12000);
    if (listening_socket("localhost", port).get() >= 0) return port;
  }
}

TcpMember tcp_member(uint16_t port, int rank, int size) {
  return {.rendezvous = {"localhost", port}, .job = "a job", .rank = rank, .size = size};
}

std::shared_ptr<MpiEngine> tcp_engine(const TcpMember& member, std::chrono::milliseconds deadline) {
  return std::make_shared<MpiEngine>(
      tcp_session(member, deadline),
      std::make_shared<SeparateWorld>(member.size, deadline, member.size));
}

static int run_rank(const TcpMember& member, const std::function<void(Communicator)>& body) {
  const auto engine = tcp_engine(member, std::chrono::seconds(60));
  const std::vector<int> hosts(static_cast<size_t>(member.size));
  try {
    body(Communicator(mpi_world(engine, hosts)));
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    engine->world()->abort_for_exception(engine->rank(), std::current_exception());
    engine->end();
    return 2;
  }
  engine->end();
  return testing::Test::HasFailure() ? 1 : 0;
}

void run_on_tcp(int ranks, const std::function<void(Communicator)>& body) {
  const uint16_t port = free_port();
  const std::vector<pid_t> children = fork_ranks(ranks, [&] {
    const int rank = std::atoi(std::getenv("WEFT_RANK"));
    return run_rank(tcp_member(port, rank, ranks), body);
  });
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "of process " << child;
  }
}

}  // namespace weft
