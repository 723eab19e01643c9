// SPDX-License-Identifier: Apache-2.0
#include "src/comm/shared/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "weft/error.h"

namespace weft {

using Clock = std::chrono::steady_clock;

namespace {

/// What a process says when it comes, and is told.
struct Greeting {
  int32_t index = 0;
  int32_t count = 0;
  /// A build, or what is wrong.
  std::array<char, 1000> text{};
};

class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

struct Address {
  sockaddr_un address = {};
  socklen_t length = 0;
};

}  // namespace

/// A name without a file: it is gone with the socket.
static Address address_of(const std::string& key) {
  Address made;
  made.address.sun_family = AF_UNIX;
  // A long key would be cut, and could then be that of another job.
  const std::string job =
      key.size() < 64 ? key : concat(key.substr(0, 40), '#', std::hash<std::string>()(key));
  const std::string name = concat("weft-", getuid(), '-', job);
  const size_t length = std::min(name.size(), sizeof(made.address.sun_path) - 1);
  std::copy_n(name.begin(), length, made.address.sun_path + 1);
  made.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return made;
}

static Descriptor new_socket() {
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (made.get() < 0) fail_call("socket", std::strerror(errno));
  return made;
}

static constexpr size_t kMostDescriptors = SharedMemory::kMaxRegions + 1;

static void send_greeting(int to, Greeting greeting, const std::vector<int>& descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> room{};
  iovec part{&greeting, sizeof greeting};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const size_t bytes = descriptors.size() * sizeof(int);
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(head), descriptors.data(), bytes);
  }
  if (sendmsg(to, &message, MSG_NOSIGNAL) < 0) fail_call("sendmsg", std::strerror(errno));
}

/// The process at the other end of a connection: its user and number.
static ucred peer_of(int connection) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    fail_call("getsockopt", std::strerror(errno));
  }
  return peer;
}

/// False when the other end is closed.
static bool receive_greeting(int from, Greeting& greeting, std::vector<Descriptor>& descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> room{};
  iovec part{&greeting, sizeof greeting};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  const ssize_t got = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(descriptor);
    }
  }
  if (got >= 0 && (message.msg_flags & MSG_CTRUNC)) {
    fail_call("recvmsg", "this process may open no more files (ulimit -n)");
  }
  greeting.text.back() = '\0';
  return got == static_cast<ssize_t>(sizeof greeting);
}

/// Waits until something can be read, or accepted.
static bool await_readable(int descriptor, Clock::time_point until) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd polled{descriptor, POLLIN, 0};
    const int ready = poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail_call("poll", std::strerror(errno));
    if (left <= 0) return false;
  }
}

static Greeting greeting_of(const HostMembers& members, std::string_view text) {
  Greeting greeting{members.index, members.count, {}};
  std::copy_n(text.begin(), std::min(text.size(), greeting.text.size() - 1), greeting.text.begin());
  return greeting;
}

namespace {

/// The first process: it lets the others in, and hands round what they bring.
class Host {
 public:
  Host(const HostMembers& members, size_t segment_bytes, Clock::time_point until)
      : members_(members), until_(until), socket_(new_socket()) {
    const Address address = address_of(members.key);
    if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length)) {
      if (errno == EADDRINUSE) {
        fail_call("connect", "another process of this host is the first of job ",
                  in_quotes(members.key), " already");
      }
      fail_call("bind", "the processes of job ", in_quotes(members.key),
                " cannot meet: ", std::strerror(errno));
    }
    if (listen(socket_.get(), members.count) != 0) fail_call("listen", std::strerror(errno));
    memory_.segment = SharedMemory::create(0, segment_bytes);
    memory_.heaps.resize(static_cast<size_t>(members.count));
    memory_.heaps[0] = SharedMemory::create(1, SharedMemory::kRegion);
    guests_.resize(memory_.heaps.size());
  }

  HostMemory meet_all() {
    std::string wrong;
    for (int come = 1; come < members_.count && wrong.empty();) {
      if (await_readable(socket_.get(), std::min(until_, tells_at_))) {
        come += let_in(wrong);
      } else if (tells_at_ < until_) {
        std::fprintf(stderr, "weft: waiting for the processes %s of %d on this host\n",
                     missing().c_str(), members_.count);
        tells_at_ = until_;
      } else {
        wrong = concat("the processes ", missing(), " of ", members_.count,
                       " on this host did not come in time");
      }
    }
    std::vector<int> descriptors{memory_.segment->descriptor()};
    for (const auto& heap : memory_.heaps) {
      if (heap) descriptors.push_back(heap->descriptor());
    }
    for (const Descriptor& guest : guests_) {
      if (guest.get() < 0) continue;
      if (wrong.empty()) {
        send_greeting(guest.get(), greeting_of(members_, ""), descriptors);
      } else {
        send_greeting(guest.get(), greeting_of(members_, wrong), {});
      }
    }
    if (!wrong.empty()) fail_call("connect", wrong);
    return std::move(memory_);
  }

 private:
  std::string missing() const {
    std::string text;
    for (size_t i = 1; i < guests_.size(); ++i) {
      if (guests_[i].get() < 0) text += concat(text.empty() ? "" : ", ", i);
    }
    return text;
  }

  /// Says in `wrong` what ends the meeting; true when one more has come.
  bool let_in(std::string& wrong) {
    Descriptor guest(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (guest.get() < 0) {
      const bool may_come = errno == EINTR || errno == EAGAIN || errno == ECONNABORTED;
      if (!may_come) wrong = concat("accept: ", std::strerror(errno));
      return false;
    }
    const ucred user = peer_of(guest.get());
    if (user.uid != getuid()) return false;
    Greeting greeting;
    std::vector<Descriptor> brought;
    if (!await_readable(guest.get(), until_)) return false;
    try {
      if (!receive_greeting(guest.get(), greeting, brought) || brought.size() != 1) return false;
    } catch (const std::runtime_error& error) {
      wrong = error.what();
      return false;
    }
    const auto index = static_cast<size_t>(greeting.index);
    if (greeting.index < 1 || greeting.index >= members_.count || guests_[index].get() >= 0 ||
        greeting.count != members_.count) {
      wrong = concat("process ", user.pid, " comes as number ", greeting.index, " of ",
                     greeting.count, " of job ", in_quotes(members_.key), ", which has ",
                     members_.count, " and room for each once");
    } else if (members_.build != greeting.text.data()) {
      wrong = concat("process ", greeting.index,
                     " is another build, which may compute other bits: ", greeting.text.data(),
                     "; process 0 is ", members_.build);
    }
    if (index < guests_.size()) {
      guests_[index] = std::move(guest);
      if (wrong.empty()) {
        memory_.heaps[index] = SharedMemory::map(greeting.index + 1, brought[0].release());
      }
    } else {
      send_greeting(guest.get(), greeting_of(members_, wrong), {});
    }
    return true;
  }

  const HostMembers& members_;
  const Clock::time_point until_;
  /// When it says whom it waits for.
  Clock::time_point tells_at_ = Clock::now() + std::chrono::seconds(5);
  Descriptor socket_;
  HostMemory memory_;
  std::vector<Descriptor> guests_;
};

}  // namespace

static Descriptor connected_socket(const HostMembers& members, Clock::time_point until) {
  const Address address = address_of(members.key);
  while (true) {
    Descriptor made = new_socket();
    const auto* to = reinterpret_cast<const sockaddr*>(&address.address);
    if (::connect(made.get(), to, address.length) == 0) {
      // It gets this process's memory: anybody may take an address of that name.
      const ucred host = peer_of(made.get());
      if (host.uid == getuid()) return made;
      fail_call("connect", "the first process of job ", in_quotes(members.key),
                " on this host, number ", host.pid, ", is of user ", host.uid, ", not of ",
                getuid());
    }
    const bool may_come = errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR;
    if (!may_come) fail_call("connect", std::strerror(errno));
    if (Clock::now() > until) {
      fail_call("connect", "process 0 of job ", in_quotes(members.key),
                " on this host did not come in time");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

static HostMemory meet_as_guest(const HostMembers& members, Clock::time_point until) {
  const auto own = SharedMemory::create(members.index + 1, SharedMemory::kRegion);
  const Descriptor host = connected_socket(members, until);
  send_greeting(host.get(), greeting_of(members, members.build), {own->descriptor()});
  Greeting reply;
  std::vector<Descriptor> shared;
  // Process 0 has the same deadline, and says who did not come.
  const auto a_little_later = until + std::chrono::milliseconds(500);
  if (!await_readable(host.get(), a_little_later) || !receive_greeting(host.get(), reply, shared)) {
    fail_call("connect", "process 0 on this host went before all had come");
  }
  if (reply.text[0] != '\0') fail_call("connect", reply.text.data());
  HostMemory memory;
  memory.segment = SharedMemory::map(0, shared.at(0).release());
  for (int i = 0; i < members.count; ++i) {
    const int descriptor = shared.at(static_cast<size_t>(i) + 1).release();
    if (i == members.index) {
      close(descriptor);
      memory.heaps.push_back(own);
    } else {
      memory.heaps.push_back(SharedMemory::map(i + 1, descriptor));
    }
  }
  return memory;
}

HostMemory meet(const HostMembers& members, size_t segment_bytes,
                std::chrono::milliseconds deadline) {
  if (members.count > SharedMemory::kMaxRegions - 1) {
    fail("connect: ", members.count, " ranks on one host; at most ", SharedMemory::kMaxRegions - 1);
  }
  const Clock::time_point until = Clock::now() + deadline;
  if (members.index > 0) return meet_as_guest(members, until);
  return Host(members, segment_bytes, until).meet_all();
}

}  // namespace weft
