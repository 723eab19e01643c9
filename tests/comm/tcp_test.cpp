// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/comm/tcp/meeting.h"
#include "src/comm/tcp/network.h"
#include "src/comm/tcp/reception.h"
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
  for (const char* host : {"localhost", "127.0.0.7"}) {
    std::vector<TcpMember> members = four(free_port());
    for (TcpMember& member : members) member.rendezvous.host = host;
    EXPECT_EQ(errors_of(members), std::vector<std::string>(4)) << host;
  }
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
  const std::vector<TcpMember> members = four(port);
  std::jthread first([&] { EXPECT_EQ(errors_of({members[0]})[0], ""); });
  caller.join();
  EXPECT_EQ(errors_of({members.begin() + 1, members.end()}), std::vector<std::string>(3));
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
             "the number of ranks is 8 on rank 2 (127.0.0.1), expected 4, that of rank 0",
             milliseconds(500));
  expect_all([](auto& members) { members[2].rank = 1; },
             "two processes are rank 1 (127.0.0.1 and 127.0.0.1), expected one", milliseconds(500));
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
                                 " is \"a job\", expected \"another job\", that of rank 3"));

  const OwnedDescriptor other = listening_socket("localhost", port);
  expect_words(errors_of({members[0]})[0],
               concat("connect: port ", port, " of this host is in use, expected a free one"));
  // The other listener does not answer.
  expect_words(errors_of({members[1]}, milliseconds(200))[0],
               concat("connect: rank 0 at localhost:", port,
                      " accepted the connection of rank 1 but did not answer within 200 ms"));
}

/// Connects to rank 0, which may not listen yet, and sends a card.
OwnedDescriptor sent_card(uint16_t port, const TcpMember& member,
                          const std::function<void(TcpCard&)>& change) {
  TcpCard card = card_of(member, "");
  change(card);
  OwnedDescriptor socket;
  std::string why;
  const auto until = TcpClock::now() + std::chrono::seconds(5);
  while (socket.get() < 0) socket = connected_socket({"localhost", port}, until, why);
  EXPECT_TRUE(send_whole(socket.get(), &card, sizeof card, until));
  return socket;
}

TEST(Tcp, NamesARankThatBehavesWrongly) {
  const uint16_t port = free_port();
  const auto error_of_first = [&](int rank, const std::function<void(TcpCard&)>& change) {
    std::jthread other([&] { sent_card(port, tcp_member(port, rank, 3), change); });
    return errors_of({tcp_member(port, 0, 3)}, milliseconds(300))[0];
  };
  expect_words(error_of_first(2, [](TcpCard&) {}),
               "connect: rank 2 (127.0.0.1) left before all had come");
  expect_words(error_of_first(1, [](TcpCard& card) { card.version = 2; }),
               "refused: the protocol of a process (127.0.0.1) is version 2, expected 1");
  expect_words(error_of_first(5, [](TcpCard&) {}),
               "refused: the rank of a process (127.0.0.1) is 5, expected 1 to 2");
}

TEST(Tcp, OtherJobsAndSilentConnectionsAreSurvived) {
  const uint16_t port = free_port();
  const std::vector<TcpMember> members = four(port);
  std::jthread first([&] { EXPECT_EQ(errors_of({members[0]})[0], ""); });
  const auto refused =
      sent_card(port, tcp_member(port, 1, 2), [](TcpCard& card) { card.version = 2; });
  expect_words(errors_of({tcp_member(port, 1, 2)})[0],
               "connect: the number of ranks is 2 on rank 1 (127.0.0.1), expected 4");
  std::vector<OwnedDescriptor> silent;
  std::string why;
  const auto until = TcpClock::now() + std::chrono::seconds(5);
  while (silent.size() < 200) silent.push_back(connected_socket({"localhost", port}, until, why));
  // 64 and two of each rank are kept.
  EXPECT_TRUE(await_ready(silent[200 - 72 - 1].get(), POLLIN, until));
  EXPECT_FALSE(await_ready(silent[200 - 72].get(), POLLIN, TcpClock::now()));
  EXPECT_EQ(errors_of({members.begin() + 1, members.end()}), std::vector<std::string>(3));
}

TEST(Tcp, RanksThatDoNotConnectAreNamed) {
  const uint16_t port = free_port();
  OwnedDescriptor idle, mute;
  // Rank 2 comes, but neither connects to rank 1 nor reports.
  std::jthread other([&] { idle = sent_card(port, tcp_member(port, 2, 3), [](TcpCard&) {}); });
  for (const std::string& error :
       errors_of({tcp_member(port, 0, 3), tcp_member(port, 1, 3)}, milliseconds(300))) {
    expect_words(error, "connect: rank 1 was not reached by rank 2 within 300 ms");
  }
  std::jthread silent([&] { mute = sent_card(port, tcp_member(port, 1, 2), [](TcpCard&) {}); });
  expect_words(errors_of({tcp_member(port, 0, 2)}, milliseconds(100))[0],
               "connect: rank 1 (127.0.0.1) did not report within 100 ms whether all reach it");
}

TEST(Tcp, HostsThatDoNotReachEachOther) {
  const uint16_t port = free_port();
  // Nobody listens where this rank 1 says that it does.
  OwnedDescriptor blocked;
  std::jthread other([&] {
    blocked = sent_card(port, tcp_member(port, 1, 3), [](TcpCard& card) { card.port = 1; });
  });
  for (const std::string& error :
       errors_of({tcp_member(port, 0, 3), tcp_member(port, 2, 3)}, milliseconds(2000))) {
    expect_words(error, "connect: rank 2 cannot reach rank 1 at 127.0.0.1:1: Connection refused");
  }
}

TEST(Tcp, AnotherServiceListens) {
  const OwnedDescriptor listener = listening_socket("localhost", 0);
  const uint16_t port = port_of(listener.get());
  std::jthread server([&] {
    await_ready(listener.get(), POLLIN, TcpClock::now() + std::chrono::seconds(5));
    const OwnedDescriptor guest(::accept(listener.get(), nullptr, nullptr));
    const std::string words(sizeof(TcpCard), 'x');
    TcpCard card;
    const auto until = TcpClock::now() + std::chrono::seconds(5);
    receive_whole(guest.get(), &card, sizeof card, until);
    send_whole(guest.get(), words.data(), words.size(), until);
  });
  expect_words(errors_of({tcp_member(port, 1, 2)}, milliseconds(2000))[0],
               concat("connect: rank 0 at localhost:", port, " answers in another protocol"));
}

TEST(Tcp, NobodyListens) {
  const uint16_t port = free_port();
  expect_words(errors_of({tcp_member(port, 1, 2)}, milliseconds(200))[0],
               concat("connect: rank 0 at localhost:", port,
                      " did not answer rank 1 within 200 ms: Connection refused"));
  TcpMember lost = tcp_member(port, 1, 2);
  lost.rendezvous.host = "no host";
  expect_words(errors_of({lost})[0], "connect: the host is \"no host\", expected a known one: ");
  for (const char* text : {"", "host", "host:", "host:0", "host:70000", "::1:80", ":80"}) {
    EXPECT_THROW(endpoint_of(text), std::invalid_argument) << text;
  }
  EXPECT_EQ(endpoint_of("[::1]:80").in_words(), "[::1]:80");
}

/// Two processes that have met, in one.
struct TwoEnds {
  TwoEnds() {
    const uint16_t port = free_port();
    const auto meet = [port](int rank) {
      TcpMember member = tcp_member(port, rank, 2);
      member.timeout = std::chrono::seconds(1);
      return std::make_unique<TcpNetwork>(meet_by_tcp(member, std::chrono::seconds(10)),
                                          member.timeout);
    };
    auto first = std::async(std::launch::async, meet, 0);
    ends[1] = meet(1);
    ends[0] = first.get();
  }
  ~TwoEnds() {
    for (TcpRequest* one : requests) ends[0]->cancel(one);
  }
  void send(const std::vector<std::byte>& data, int tag) {
    add(ends[0]->send(data.data(), static_cast<int64_t>(data.size()), 1, tag));
  }
  void receive(std::vector<std::byte>& data, int tag) {
    add(ends[1]->receive(data.data(), static_cast<int64_t>(data.size()), 0, tag));
  }
  void add(TcpRequest* request) {
    if (request) requests.push_back(request);
  }
  bool all_done_within(milliseconds time) const {
    const auto until = TcpClock::now() + time;
    const auto is_done = [](const TcpRequest* one) { return one->is_done; };
    while (TcpClock::now() < until) {
      for (const auto& end : ends) end->progress();
      if (std::ranges::all_of(requests, is_done)) return true;
    }
    return false;
  }

  std::unique_ptr<TcpNetwork> ends[2];
  std::vector<TcpRequest*> requests;
};

TEST(Tcp, AStoppedReceiverIsWaitedFor) {
  TwoEnds two;
  std::vector<std::byte> data(size_t{32} << 20), received(data.size());
  data.back() = std::byte{7};
  two.receive(received, 5);
  two.ends[1]->progress();
  two.send(data, 5);
  // Longer than the timeout for a silent host.
  const auto until = TcpClock::now() + milliseconds(1700);
  while (TcpClock::now() < until) {
    two.ends[0]->progress();
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(two.ends[0]->loss_of(1), "");
  EXPECT_TRUE(two.all_done_within(std::chrono::seconds(20)));
  EXPECT_EQ(received.back(), data.back());
}

TEST(Tcp, MessagesThatNobodyAwaitsWaitInTheConnection) {
  TwoEnds two;
  std::vector<std::byte> data(8192);
  const int count = 11'000;  // 86 MiB; the connection holds some
  for (int i = 0; i < count; ++i) {
    two.send(data, 5);
    if (i % 16 == 0) two.ends[1]->progress();
  }
  EXPECT_FALSE(two.all_done_within(milliseconds(200)));
  for (int i = 0; i < count; ++i) two.receive(data, 5);
  EXPECT_TRUE(two.all_done_within(std::chrono::seconds(20)));
}

TEST(Tcp, ReceivesThatNobodySendsForAreBounded) {
  TwoEnds two;
  std::vector<std::byte> data(9000);
  for (int tag = 1; tag <= (1 << 17) + 1; ++tag) two.receive(data, tag);
  EXPECT_FALSE(two.all_done_within(milliseconds(300)));
  expect_words(two.ends[0]->loss_of(1), "a message is not one of this version of weft");
}

/// Returns 3 if a call in which rank 2 is killed names that rank in time.
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
