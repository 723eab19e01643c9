// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/tcp/meeting.h"
#include "tests/comm/tcp_backend.h"
#include "tests/support/processes.h"
#include "weft/error.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

/// Each member meets on a thread; returns what each one's error says, empty for one that met.
std::vector<std::string> errors_of(const std::vector<TcpMember>& members,
                                   milliseconds deadline = std::chrono::seconds(10)) {
  std::vector<std::string> errors(members.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        const TcpProcesses met = meet_by_tcp(members[i], deadline);
        for (const std::string& text : met.texts) errors[i] += text;
        errors[i] = errors[i] == "abcd" ? "" : errors[i];
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

std::vector<TcpMember> four(uint16_t port) {
  std::vector<TcpMember> members;
  for (int r = 0; r < 4; ++r) {
    members.push_back(tcp_member(port, r, 4));
    members.back().text = std::string(1, static_cast<char>('a' + r));
  }
  return members;
}

void expect_words(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << "expected: " << words << "\n" << text;
}

TEST(Tcp, AllMeetAndLearnTheTextOfEach) {
  EXPECT_EQ(errors_of(four(free_port())), std::vector<std::string>(4));
}

TEST(Tcp, StrangersAreDropped) {
  const uint16_t port = free_port();
  std::vector<OwnedDescriptor> strangers;
  std::jthread caller([&] {
    for (const char* words : {"GET / HTTP/1.0\r\n\r\n", "weft", ""}) {
      std::string why;
      OwnedDescriptor socket;
      while (socket.get() < 0) {
        socket =
            connected_socket({"localhost", port}, TcpClock::now() + std::chrono::seconds(1), why);
      }
      ::send(socket.get(), words, std::string(words).size(), MSG_NOSIGNAL);
      strangers.push_back(std::move(socket));
    }
  });
  std::vector<TcpMember> members = four(port);
  std::jthread first([&] { EXPECT_EQ(errors_of({members[0]})[0], ""); });
  caller.join();
  members.erase(members.begin());
  EXPECT_EQ(errors_of(members), std::vector<std::string>(3));
}

TEST(Tcp, NamesWhatIsWrongWithTheJob) {
  const uint16_t port = free_port();
  const auto expect_all = [&](const std::function<void(std::vector<TcpMember>&)>& change,
                              const std::string& words, milliseconds deadline) {
    std::vector<TcpMember> members = four(port);
    change(members);
    for (const std::string& error : errors_of(members, deadline)) expect_words(error, words);
  };
  expect_all([](auto& members) { members[2].size = 8; },
             "connect: the number of ranks is 8 on rank 2 (127.0.0.1), expected 4, that of rank 0",
             milliseconds(500));
  expect_all([](auto& members) { members[2].rank = 1; },
             "connect: two processes are rank 1 (127.0.0.1 and 127.0.0.1), expected one",
             milliseconds(500));
  expect_all(
      [](auto& members) {
        members.pop_back();
        members[0].local_size = 2;
      },
      concat("connect: rank 3 (of host 1) did not come to localhost:", port,
             " within 500 ms; arrived: rank 0, rank 1 (127.0.0.1), rank 2 (127.0.0.1)"),
      milliseconds(500));
}

TEST(Tcp, NamesWhatIsWrongWithOneRank) {
  const uint16_t port = free_port();
  std::vector<TcpMember> members = four(port);
  members[3].job = "another job";
  const std::vector<std::string> errors = errors_of(members, milliseconds(500));
  for (size_t i = 0; i < 3; ++i) expect_words(errors[i], "connect: rank 3 did not come to");
  expect_words(errors[3], concat("connect: the job at localhost:", port,
                                 " is \"a job\", expected that of rank 3 (127.0.0.1)"));

  const OwnedDescriptor other = listening_socket("localhost", port);
  expect_words(errors_of({members[0]})[0],
               concat("connect: port ", port, " of this host is in use, expected a free one"));
  // Whatever listens there does not answer.
  expect_words(errors_of({members[1]}, milliseconds(200))[0],
               concat("connect: rank 0 at localhost:", port, " ended the connection of rank 1"));
}

TEST(Tcp, NobodyListens) {
  const uint16_t port = free_port();
  expect_words(errors_of({tcp_member(port, 1, 2)}, milliseconds(200))[0],
               concat("connect: rank 0 at localhost:", port,
                      " did not answer rank 1 within 200 ms: Connection refused"));
  for (const char* text : {"", "host", "host:", "host:0", "host:70000", "::1:80", ":80"}) {
    EXPECT_THROW(endpoint_of(text), std::invalid_argument) << text;
  }
  EXPECT_EQ(endpoint_of("[::1]:80").in_words(), "[::1]:80");
}

/// What a rank says of another one, in a call of which that one is killed.
int rank_that_sees_a_death(const TcpMember& member, size_t floats) {
  const auto engine = tcp_engine(member, std::chrono::seconds(60));
  const Communicator world(mpi_world(engine, std::vector<int>(4)));
  std::vector<float> data(floats);
  const auto count = static_cast<int64_t>(floats);
  const Piece piece{.send = data.data(), .recv = data.data(), .counts = {&count, 1}};
  world.barrier();
  const auto began = TcpClock::now();
  try {
    for (int step = 0;; ++step) {
      if (member.rank == 2 && step == 3) ::kill(::getpid(), SIGKILL);
      world.all_reduce({&piece, 1}, ReduceOp::sum).wait();
    }
  } catch (const CommError& error) {
    const bool is_named = error.rank() == 2 &&
                          std::string(error.what()).find("rank 2 is gone (") != std::string::npos;
    if (!is_named) std::printf("%s\n", error.what());
    const bool is_soon = TcpClock::now() - began < std::chrono::seconds(kSanitized ? 20 : 5);
    return is_named && is_soon ? 3 : 4;
  }
}

TEST(Tcp, AKilledRankIsNamedByTheOthers) {
  if (!kForks) GTEST_SKIP() << "forks";
  for (const size_t floats : {size_t{100}, size_t{3'000'000}}) {
    const uint16_t port = free_port();
    const std::vector<pid_t> children = fork_ranks(4, [&] {
      const int rank = std::atoi(std::getenv("WEFT_RANK"));
      return rank_that_sees_a_death(tcp_member(port, rank, 4), floats);
    });
    for (int rank = 0; rank < 4; ++rank) {
      int status = 0;
      waitpid(children[static_cast<size_t>(rank)], &status, 0);
      EXPECT_EQ(status, rank == 2 ? SIGKILL : 3 << 8) << "of rank " << rank;
    }
  }
}

}  // namespace
}  // namespace weft
