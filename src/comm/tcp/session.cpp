// SPDX-License-Identifier: Apache-2.0
#include "src/comm/tcp/session.h"

#include <cstring>
#include <memory>
#include <utility>

#include "src/comm/mpi/calls.h"
#include "src/comm/tcp/network.h"
#include "weft/error.h"

namespace weft {

// A communicator is a TcpNetwork, and a request a TcpRequest, or 0. No call fails: a connection
// that has ended is found by `loss_of`.

static TcpNetwork& network_in(MpiHandle comm) { return *reinterpret_cast<TcpNetwork*>(comm); }
static TcpRequest* request_in(MpiHandle handle) { return reinterpret_cast<TcpRequest*>(handle); }

/// The network to which requests that are tested belong. A process that fails leaves it as it is.
static TcpNetwork* network = nullptr;

static int start_send(const void* data, int bytes, int to, int tag, MpiHandle comm,
                      MpiHandle* request) {
  *request = reinterpret_cast<MpiHandle>(network_in(comm).send(data, bytes, to, tag));
  return 0;
}

static int start_receive(void* data, int bytes, int from, int tag, MpiHandle comm,
                         MpiHandle* request) {
  *request = reinterpret_cast<MpiHandle>(network_in(comm).receive(data, bytes, from, tag));
  return 0;
}

/// Ends a request that is done.
static bool end_if_done(MpiHandle* request, MpiArrival* arrival) {
  TcpRequest* const made = request_in(*request);
  if (!made->is_done) return false;
  if (arrival) *arrival = {made->peer, static_cast<int>(made->got)};
  delete made;
  *request = 0;
  return true;
}

static int test_one(MpiHandle* request, int* is_done, MpiArrival* arrival) {
  *is_done = 1;
  if (*request == 0 || end_if_done(request, arrival)) return 0;
  network->progress();
  *is_done = end_if_done(request, arrival) ? 1 : 0;
  return 0;
}

static int test_several(int count, MpiHandle* requests, int* done, int* indices) {
  network->progress();
  *done = 0;
  for (int i = 0; i < count; ++i) {
    if (requests[i] == 0 || end_if_done(&requests[i], nullptr)) indices[(*done)++] = i;
  }
  return 0;
}

static int cancel_one(MpiHandle* request) {
  network->cancel(request_in(*request));
  *request = 0;
  return 0;
}

static int close_network(MpiHandle* comm) {
  delete std::exchange(network, nullptr);
  *comm = 0;
  return 0;
}

/// The table, of which a session of processes that have met does not use all.
static const MpiCalls& tcp_calls() {
  static const MpiCalls calls{.success = 0,
                              .world = 0,
                              .null_comm = 0,
                              .null_request = 0,
                              .error_text = [](int, char* text) { std::strcpy(text, "error"); },
                              .version = [](char* text) { std::strcpy(text, "TCP"); },
                              .state =
                                  [](int* is_initialized, int* is_finalized) {
                                    *is_initialized = network != nullptr;
                                    *is_finalized = 0;
                                    return 0;
                                  },
                              .init = nullptr,
                              .finalize = [] { return 0; },
                              .level = nullptr,
                              .before_finalize = nullptr,
                              .describe = nullptr,
                              .greatest_tag =
                                  [](MpiHandle, int* tag) {
                                    *tag = 1 << 30;
                                    return 0;
                                  },
                              .duplicate = nullptr,
                              .return_errors = nullptr,
                              .free = close_network,
                              .all_gather = nullptr,
                              .send = start_send,
                              .receive = start_receive,
                              .test = test_one,
                              .test_some = test_several,
                              .cancel = cancel_one};
  return calls;
}

std::unique_ptr<MpiSession> tcp_session(const TcpMember& member,
                                        std::chrono::milliseconds deadline) {
  static const MpiLibrary library(MpiAbi::standard, tcp_calls(), "weft's own transport");
  TcpProcesses processes = meet_by_tcp(member, deadline);
  std::vector<std::string> texts = processes.texts;
  TcpNetwork* const made = network = new TcpNetwork(std::move(processes), member.timeout);
  return std::make_unique<MpiSession>(
      library, MpiProcesses{reinterpret_cast<MpiHandle>(made), member.rank, std::move(texts),
                            [made](int rank) { return made->loss_of(rank); }});
}

void close_tcp_in_child() { TcpNetwork::close_in_child(); }

}  // namespace weft
