// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/comm/mpi/calls.h"
#include "src/comm/tcp/meeting.h"
#include "weft/export.h"

namespace weft {

/// A send or receive in progress.
struct TcpRequest {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int peer = -1;
  int tag = 0;
  /// Bytes received.
  int64_t got = 0;
  bool is_done = false;
};

/// Messages between processes that are connected by TCP, as MPI's: those of one sender and one tag
/// arrive in the order of sending. A message with tag 0, and a short one, leaves at once; others
/// wait until the receiver has said that it is ready, so that they need no memory but the
/// receiver's, and none delays another. Used by one thread at a time.
class TcpNetwork : NotCopied {
 public:
  /// A host that has not answered for `timeout` is gone; 0: never.
  explicit TcpNetwork(TcpProcesses processes, std::chrono::seconds timeout = {});
  ~TcpNetwork();

  /// The memory belongs to the request until it is done. Null when it is done already.
  TcpRequest* send(const void* data, int64_t bytes, int to, int tag);
  /// Tag 0: from any process, into memory of a short message.
  TcpRequest* receive(void* data, int64_t bytes, int from, int tag);
  /// Sends and receives what can be now.
  void progress();
  /// Forgets a receive.
  void cancel(TcpRequest* request);
  /// Why the connection to a process has ended; empty while it has not.
  const std::string& loss_of(int rank) const { return peers_[static_cast<size_t>(rank)].loss; }
  /// Closes the descriptors in a child of this process, which would keep the connections open.
  static void close_in_child();

 private:
  enum class Kind : uint32_t { message, brief, ready, data };
  using Bytes = std::vector<std::byte>;
  /// Precedes each part of a message.
  struct Frame {
    Kind kind;
    int32_t tag;
    int64_t bytes;
  };
  /// A frame to send. Data is cut into several.
  struct Outgoing {
    Frame frame;
    const std::byte* data = nullptr;
    TcpRequest* request = nullptr;
  };
  struct Peer {
    OwnedDescriptor socket = OwnedDescriptor();
    std::string name = {};
    std::string loss = {};
    bool readable = false, writable = false;
    /// The other end sends nothing more than what can be read now.
    bool is_ending = false;
    /// Since when the host has owed an answer, at least.
    TcpClock::time_point owes_since = {};

    /// To send: what leaves at once, data that the peer is ready for, and data that it is not.
    std::deque<Outgoing> urgent = {}, data = {}, waiting = {};
    /// Receives by tag that the peer has announced, and for which nothing was sent yet.
    std::map<int, int> ready = {};
    /// The next frames to leave, and the bytes of the first that have left.
    std::deque<Outgoing> leaving = {};
    size_t sent = 0;

    /// Bytes read and not used yet.
    Bytes buffer = {};
    size_t begin = 0, end = 0;
    /// Receives with another tag than 0, in order, and short messages that came before theirs.
    std::deque<TcpRequest*> awaited = {};
    std::deque<std::pair<int, Bytes>> early = {};
    size_t early_bytes = 0;
    /// The receive to which the next bytes go, and how many of the frame.
    TcpRequest* incoming = nullptr;
    int64_t left_of_incoming = 0;
  };

  void write(Peer& peer);
  bool choose_next(Peer& peer);
  ssize_t send_leaving(Peer& peer);
  void has_left(Peer& peer, size_t bytes);
  void read(Peer& peer);
  bool use_buffer(Peer& peer);
  bool use_frame(Peer& peer);
  void take_data(Peer& peer, int64_t bytes);
  bool take_whole(Peer& peer, const Frame& frame, const std::byte* data);
  static std::deque<TcpRequest*>::iterator awaited_of(Peer& peer, int tag, bool is_brief);
  bool begin_data(Peer& peer, const Frame& frame);
  void take_ready(Peer& peer, int tag);
  void lose_silent();
  static bool lose_malformed(Peer& peer);
  static void lose(Peer& peer, const std::string& reason);

  const std::chrono::seconds timeout_;
  TcpClock::time_point next_look_ = {};
  OwnedDescriptor events_;
  std::vector<Peer> peers_;
  /// Receives with tag 0, in order.
  std::deque<TcpRequest*> any_;
};

}  // namespace weft
