// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "weft/extend/descriptor.h"
#include "weft/warnings.h"

namespace weft {

using Clock = std::chrono::steady_clock;

namespace {

/// The message that a process sends when it connects, and the answer.
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

/// The name of a job's socket, without what is drawn for it.
static std::string name_of_job(const std::string& key) {
  const auto is_plain = [](char c) { return c > ' ' && c < 127 && c != '@'; };
  // A long key would be cut, and could then be that of another job.
  const bool fits = key.size() < 64 && std::all_of(key.begin(), key.end(), is_plain);
  return concat("weft-", getuid(), '-', fits ? key : concat('#', std::hash<std::string>()(key)));
}

/// A name without a file: it is gone with the socket.
static Address address_of(const std::string& name) {
  Address made;
  made.address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), made.address.sun_path + 1);
  made.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return made;
}

/// Number of hexadecimal digits that follow the name of the job and a minus.
static constexpr size_t kDrawnDigits = 16;

/// The names under which process 0 of the job may listen. The system lists the names of all
/// sockets of this network; the last is the one that process 0 takes where it does not.
static std::vector<std::string> names_in_use(const std::string& job) {
  std::vector<std::string> names;
  std::ifstream list("/proc/net/unix");
  for (std::string line; std::getline(list, line);) {
    const size_t at = line.find(" @");
    if (at == line.npos) continue;
    const std::string name = line.substr(at + 2);
    const bool is_long = name.size() == job.size() + 1 + kDrawnDigits;
    if (is_long && name.starts_with(job) && name[job.size()] == '-') names.push_back(name);
  }
  names.push_back(job);
  return names;
}

static std::string drawn_name(const std::string& job) {
  uint64_t drawn = 0;
  if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) {
    fail_call("getrandom", std::strerror(errno));
  }
  std::array<char, kDrawnDigits + 1> digits;
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(drawn));
  return concat(job, '-', digits.data());
}

static Descriptor new_socket(int flags = 0) {
  Descriptor made(above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0)));
  if (made.get() < 0) fail_call("socket", std::strerror(errno));
  return made;
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

/// Connected to a socket of that name, if one of this user's processes listens there; none
/// otherwise. Does not wait: another user's process may never accept.
static Descriptor connected_to(const std::string& name) {
  Descriptor made = new_socket(SOCK_NONBLOCK);
  const Address address = address_of(name);
  const auto* to = reinterpret_cast<const sockaddr*>(&address.address);
  // Ignores the reason: the socket may be another user's while the job has a different one.
  if (::connect(made.get(), to, address.length) != 0) return Descriptor();
  // The peer would get this process's memory, and any user may take an address of such a name.
  if (peer_of(made.get()).uid != getuid()) return Descriptor();
  if (fcntl(made.get(), F_SETFL, 0) != 0) fail_call("fcntl", std::strerror(errno));
  return made;
}

/// A greeting as the system sends it, with room for descriptors.
struct GreetingMessage {
  static constexpr size_t kMostDescriptors = SharedMemory::kMaxRegions + 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> room{};
  iovec part;
  msghdr head = {};

  explicit GreetingMessage(Greeting& greeting) : part{&greeting, sizeof greeting} {
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    head.msg_control = room.data();
    head.msg_controllen = room.size();
  }
};

static void send_greeting(int to, Greeting greeting, const std::vector<int>& descriptors) {
  GreetingMessage message(greeting);
  const size_t bytes = descriptors.size() * sizeof(int);
  message.head.msg_controllen = descriptors.empty() ? 0 : CMSG_SPACE(bytes);
  if (cmsghdr* head = CMSG_FIRSTHDR(&message.head)) {
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(head), descriptors.data(), bytes);
  }
  if (sendmsg(to, &message.head, MSG_NOSIGNAL) < 0) fail_call("sendmsg", std::strerror(errno));
}

/// False when the other end is closed.
static bool receive_greeting(int from, Greeting& greeting, std::vector<Descriptor>& descriptors) {
  GreetingMessage message(greeting);
  const ssize_t got = recvmsg(from, &message.head, MSG_CMSG_CLOEXEC);
  for (cmsghdr* head = CMSG_FIRSTHDR(&message.head); head;
       head = CMSG_NXTHDR(&message.head, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(above_standard(descriptor));
    }
  }
  if (got >= 0 && (message.head.msg_flags & MSG_CTRUNC)) {
    fail_call("recvmsg", "this process has reached its limit of open files (ulimit -n)");
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
      : members_(members), until_(until) {
    take_name();
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
        warn("waiting for the processes ", missing(), " of ", members_.count, " on this host");
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
  /// Listens under a random name, which no other process can take first; the job's can be guessed.
  void take_name() {
    const std::string job = name_of_job(members_.key), drawn = drawn_name(job);
    listen_as(drawn);
    std::vector<std::string> names = names_in_use(job);
    if (std::erase(names, drawn) == 0) listen_as(job);
    for (const std::string& name : names) {
      if (name == job || connected_to(name).get() < 0) continue;
      fail_call("connect", "another process of this host is the first of job ",
                in_quotes(members_.key), " already");
    }
  }

  void listen_as(const std::string& name) {
    socket_ = new_socket();
    const Address address = address_of(name);
    const auto* as = reinterpret_cast<const sockaddr*>(&address.address);
    if (bind(socket_.get(), as, address.length) != 0) {
      fail_call("bind", "the processes of job ", in_quotes(members_.key),
                " cannot meet: ", std::strerror(errno));
    }
    if (listen(socket_.get(), members_.count) != 0) fail_call("listen", std::strerror(errno));
  }

  std::string missing() const {
    std::string text;
    for (size_t i = 1; i < guests_.size(); ++i) {
      if (guests_[i].get() < 0) text += concat(text.empty() ? "" : ", ", i);
    }
    return text;
  }

  /// Says in `wrong` what ends the meeting; true when one more has come.
  bool let_in(std::string& wrong) {
    Descriptor guest(above_standard(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
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
  /// Time at which it prints which processes are missing.
  Clock::time_point tells_at_ = Clock::now() + std::chrono::seconds(5);
  Descriptor socket_;
  HostMemory memory_;
  std::vector<Descriptor> guests_;
};

}  // namespace

static Descriptor connected_to_host(const HostMembers& members, Clock::time_point until) {
  const std::string job = name_of_job(members.key);
  while (true) {
    for (const std::string& name : names_in_use(job)) {
      Descriptor made = connected_to(name);
      if (made.get() >= 0) return made;
    }
    if (Clock::now() > until) {
      fail_call("connect", "process 0 of job ", in_quotes(members.key),
                " on this host did not come in time");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

static HostMemory meet_as_guest(const HostMembers& members, Clock::time_point until) {
  const auto own = SharedMemory::create(members.index + 1, SharedMemory::kRegion);
  const Descriptor host = connected_to_host(members, until);
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
    fail("connect: number of ranks on this host is ", members.count, ", expected at most ",
         SharedMemory::kMaxRegions - 1);
  }
  const Clock::time_point until = Clock::now() + deadline;
  if (members.index > 0) return meet_as_guest(members, until);
  return Host(members, segment_bytes, until).meet_all();
}

}  // namespace weft
