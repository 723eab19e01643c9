// SPDX-License-Identifier: Apache-2.0

// Rank 0 of three processes receives any bytes as the messages of the others, through an MPI that
// exists in this file only.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/mpi/engine.h"
#include "src/comm/mpi/library.h"
#include "src/comm/mpi/mpi_transport.h"
#include "src/comm/mpi/separate_world.h"
#include "src/comm/mpi/session.h"
#include "tests/fuzz/targets.h"
#include "weft/communicator.h"

namespace weft {

static constexpr int kProcesses = 3;

/// The receives that are posted, and the messages that have not been received.
static struct {
  std::vector<std::pair<std::byte*, int>> posted;
  std::vector<std::string> messages;
  size_t next = 0;
  World* world = nullptr;
} network;

static int ok_test(MpiHandle* request, int* is_done, MpiArrival* arrival) {
  *is_done = 1;
  if (*request == 0 || !arrival) return 0;
  const auto [data, room] = network.posted[*request - 1];
  if (network.next == network.messages.size()) {
    *is_done = 0;
    if (network.world) network.world->abort({0, 0, "no message is left"});
    return 0;
  }
  const std::string& message = network.messages[network.next++];
  const auto bytes = std::min(message.size(), static_cast<size_t>(room));
  std::memcpy(data, message.data(), bytes);
  *arrival = {1 + static_cast<int>(network.next % (kProcesses - 1)), static_cast<int>(bytes)};
  return 0;
}

static int ok_receive(void* data, int bytes, int, int tag, MpiHandle, MpiHandle* request) {
  // Transfers of user memory are complete at once.
  *request = 0;
  if (tag != 0) return 0;
  network.posted.emplace_back(static_cast<std::byte*>(data), bytes);
  *request = network.posted.size();
  return 0;
}

static int ok_state(int* is_initialized, int* is_finalized) {
  *is_initialized = 1;
  *is_finalized = 0;
  return 0;
}

static int ok_describe(MpiHandle, int* rank, int* size, int* is_inter) {
  *rank = *is_inter = 0;
  *size = kProcesses;
  return 0;
}

/// The engine has no thread and polls in calls only.
static int ok_level(MpiLevel* level, int* is_main_thread) {
  *level = MpiLevel::serialized;
  *is_main_thread = 1;
  return 0;
}

static const MpiCalls& fake_calls() {
  static const MpiCalls calls{
      .success = 0,
      .world = 0,
      .null_comm = 1,
      .null_request = 0,
      .error_text = [](int, char* text) { std::strcpy(text, "error"); },
      .version = [](char* text) { std::strcpy(text, "fake"); },
      .state = ok_state,
      .init = [] { return 0; },
      .finalize = [] { return 0; },
      .level = ok_level,
      .before_finalize = [](void (*)()) { return 0; },
      .describe = ok_describe,
      .greatest_tag =
          [](MpiHandle, int* tag) {
            *tag = 32767;
            return 0;
          },
      .duplicate =
          [](MpiHandle, MpiHandle* made, MpiHandle* request) {
            *made = *request = 0;
            return 0;
          },
      .return_errors = [](MpiHandle) { return 0; },
      .free = [](MpiHandle*) { return 0; },
      .all_gather =
          [](const void*, void* all, int bytes, MpiHandle, MpiHandle* request) {
            std::memset(all, 0, static_cast<size_t>(bytes) * kProcesses);
            *request = 0;
            return 0;
          },
      .send =
          [](const void*, int, int, int, MpiHandle, MpiHandle* request) {
            *request = 0;
            return 0;
          },
      .receive = ok_receive,
      .test = ok_test,
      .test_some =
          [](int count, MpiHandle*, int* done, int* indices) {
            *done = count;
            for (int i = 0; i < count; ++i) indices[i] = i;
            return 0;
          },
      .cancel = [](MpiHandle*) { return 0; }};
  return calls;
}

/// Each message has two bytes of length before it.
static std::vector<std::string> messages_in(const std::string& input) {
  std::vector<std::string> messages;
  for (size_t at = 1; at + 2 <= input.size();) {
    const size_t length =
        static_cast<uint8_t>(input[at]) + size_t{256} * static_cast<uint8_t>(input[at + 1]);
    messages.push_back(input.substr(at + 2, length));
    at += 2 + length;
  }
  return messages;
}

/// A collective or a message, by the input's first byte; its data goes along with calls or not.
static void call(const Communicator& world, int kind) {
  const int64_t count = kind % 2 == 0 ? 4 : 5000;
  std::vector<float> sent(static_cast<size_t>(count * kProcesses)), got(sent.size());
  const std::vector<int64_t> counts(kProcesses, count);
  const Piece piece{.send = sent.data(), .recv = got.data(), .counts = counts};
  const Piece one{.send = sent.data(), .recv = got.data(), .counts = {&count, 1}};
  switch (kind / 2 % 6) {
    case 0: return world.all_gather({&piece, 1}).wait();
    case 1: return world.all_reduce({&one, 1}, ReduceOp::sum).wait();
    case 2: return world.all_to_all(piece, counts).wait();
    case 3: return world.broadcast({&one, 1}, 1).wait();
    case 4: return world.recv(got.data(), count, f32, 1, 3).wait();
    default: return world.send(sent.data(), count, f32, 2, 3).wait();
  }
}

void fuzz::job_messages(const std::string& input) {
  if (input.empty()) return;
  network = {};
  network.messages = messages_in(input);
  const MpiLibrary library(MpiAbi::openmpi, fake_calls(), "fake");
  const auto deadline = std::chrono::seconds(5);
  auto session = std::make_unique<MpiSession>(library, 0, "", deadline);
  const auto world = std::make_shared<SeparateWorld>(kProcesses, deadline, kProcesses);
  network.world = world.get();
  const auto engine = std::make_shared<MpiEngine>(std::move(session), world);
  const Communicator ranks(mpi_world(engine, {0, 1, 2}));
  try {
    for (int calls = 0; calls < 2; ++calls) call(ranks, static_cast<uint8_t>(input[0]));
  } catch (const std::runtime_error&) {
    // The world was aborted, by a message or because there are none left.
  }
  network.world = nullptr;
}

}  // namespace weft
