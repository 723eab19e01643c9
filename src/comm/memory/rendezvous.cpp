// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <span>
#include <thread>
#include <utility>

#include "src/comm/memory/memory_worlds.h"
#include "weft/error.h"

namespace weft {

using Clock = std::chrono::steady_clock;

/// The messages between the processes of a host that meet (`rendezvous`).
struct Greeting {
  int32_t index = 0;
  int32_t count = 0;
  /// A build, or what is wrong.
  std::array<char, 1000> text{};
};

/// The process at the other end of a connection: its user and number.
static ucred peer_of(int connection) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    fail_call("getsockopt", std::strerror(errno));
  }
  return peer;
}

/// A greeting as the system sends it, with space for descriptors.
struct GreetingMessage {
  static constexpr size_t kMostDescriptors = SharedMemory::kMaxRegions;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  iovec part;
  msghdr head = {};

  explicit GreetingMessage(Greeting& greeting) : part{&greeting, sizeof greeting} {
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    head.msg_control = control.data();
    head.msg_controllen = control.size();
  }
};

/// Sends a greeting with copies of `descriptors`. Returns false when the other end is closed.
static bool send_greeting(int to, Greeting greeting, const std::vector<int>& descriptors) {
  GreetingMessage message(greeting);
  const size_t bytes = descriptors.size() * sizeof(int);
  message.head.msg_controllen = descriptors.empty() ? 0 : CMSG_SPACE(bytes);
  if (cmsghdr* head = CMSG_FIRSTHDR(&message.head)) {
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(head), descriptors.data(), bytes);
  }
  if (sendmsg(to, &message.head, MSG_NOSIGNAL) >= 0) return true;
  if (errno == EPIPE || errno == ECONNRESET) return false;
  fail_call("sendmsg", std::strerror(errno));
}

/// Waits for a greeting. Returns false when the other end is closed.
static bool receive_greeting(int from, Greeting& greeting,
                             std::vector<OwnedDescriptor>& descriptors) {
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

/// Waits until one of the descriptors can be read, or accepted; returns false after `until`.
static bool await_readable(std::span<pollfd> descriptors, Clock::time_point until) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    const int ready = poll(descriptors.data(), descriptors.size(),
                           static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail_call("poll", std::strerror(errno));
    if (left <= 0) return false;
  }
}

/// The name of a job's socket, without what is drawn for it.
static std::string name_of_job(const std::string& key) {
  const auto is_plain = [](char c) { return c > ' ' && c < 127 && c != '@'; };
  // A long key would be cut, and could then be that of another job.
  const bool fits = key.size() < 64 && std::all_of(key.begin(), key.end(), is_plain);
  return concat("weft-", getuid(), '-', fits ? key : concat('#', std::hash<std::string>()(key)));
}

/// Calls `bind` or `connect` with a name without a file: it is gone with the socket.
static int call_with_name(int (*call)(int, const sockaddr*, socklen_t), int socket,
                          const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return call(socket, reinterpret_cast<const sockaddr*>(&address), length);
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

std::string random_digits() {
  uint64_t drawn = 0;
  if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) {
    fail_call("getrandom", std::strerror(errno));
  }
  return formatted("%016llx", static_cast<unsigned long long>(drawn));
}

static OwnedDescriptor new_socket(int flags = 0) {
  OwnedDescriptor made(above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0)));
  if (made.get() < 0) fail_call("socket", std::strerror(errno));
  return made;
}

/// Connected to a socket of that name, if one of this user's processes listens there; none
/// otherwise. Does not wait: another user's process may never accept.
static OwnedDescriptor connected_to(const std::string& name) {
  OwnedDescriptor made = new_socket(SOCK_NONBLOCK);
  // Ignores the reason: the socket may be another user's while the job has a different one.
  if (call_with_name(::connect, made.get(), name) != 0) return OwnedDescriptor();
  // The peer would get this process's memory, and any user may take an address of such a name.
  if (peer_of(made.get()).uid != getuid()) return OwnedDescriptor();
  if (fcntl(made.get(), F_SETFL, 0) != 0) fail_call("fcntl", std::strerror(errno));
  return made;
}

static Greeting greeting_of(const HostMembers& members, std::string_view text) {
  Greeting greeting{members.index, members.count, {}};
  std::copy_n(text.begin(), std::min(text.size(), greeting.text.size() - 1), greeting.text.begin());
  return greeting;
}

namespace {

/// Process 0: it accepts the others, and sends each the memory of all.
class FirstProcess {
 public:
  FirstProcess(const HostMembers& members, size_t segment_bytes, Clock::time_point until)
      : members_(members), until_(until) {
    take_name();
    memory_.segment = SharedMemory::create(0, segment_bytes);
    memory_.segment->lock_index(0);
    memory_.heaps.resize(static_cast<size_t>(members.count));
    memory_.heaps[0] = SharedMemory::create(1, SharedMemory::kRegion);
    guests_.resize(memory_.heaps.size());
  }

  HostMemory meet_all() {
    while (missing_ > 0 && wrong_.empty()) {
      std::vector<pollfd> all{{socket_.get(), POLLIN, 0}};
      for (const OwnedDescriptor& guest : silent_) all.push_back({guest.get(), POLLIN, 0});
      if (!await_readable(all, std::min(until_, tells_at_))) {
        look_at_time();
        continue;
      }
      for (size_t i = all.size(); --i > 0;) {
        if (all[i].revents != 0 && wrong_.empty()) take_greeting(i - 1);
      }
      if (all[0].revents != 0 && wrong_.empty()) accept_one();
    }
    if (!wrong_.empty()) refuse_all();
    std::vector<int> descriptors;
    for (const auto& heap : memory_.heaps) descriptors.push_back(heap->descriptor());
    for (size_t i = 1; i < guests_.size(); ++i) {
      // One that has died meanwhile is found by the others, because it holds no lock.
      send_greeting(guests_[i].get(), greeting_of(members_, ""), descriptors);
    }
    return std::move(memory_);
  }

 private:
  /// Listens under a random name, which no other process can take first; the job's can be guessed.
  void take_name() {
    const std::string job = name_of_job(members_.key), drawn = concat(job, '-', random_digits());
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
    if (call_with_name(::bind, socket_.get(), name) != 0) {
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
    return concat("the processes ", text, " of ", members_.count, " on this host");
  }

  void look_at_time() {
    if (tells_at_ < until_) {
      warn("waiting for ", missing());
      tells_at_ = until_;
    } else {
      wrong_ = concat(missing(), " did not come in time", kAllConnect);
    }
  }

  /// Sends the segment to a process of this user, which answers with its greeting.
  void accept_one() {
    OwnedDescriptor guest(above_standard(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    if (guest.get() < 0) {
      const bool may_come = errno == EINTR || errno == EAGAIN || errno == ECONNABORTED;
      if (!may_come) wrong_ = concat("accept: ", std::strerror(errno));
      return;
    }
    if (peer_of(guest.get()).uid != getuid()) return;
    if (!send_greeting(guest.get(), greeting_of(members_, ""), {memory_.segment->descriptor()})) {
      return;
    }
    silent_.push_back(std::move(guest));
  }

  void take_greeting(size_t guest_index) {
    OwnedDescriptor guest = std::move(silent_[guest_index]);
    silent_.erase(silent_.begin() + static_cast<std::ptrdiff_t>(guest_index));
    Greeting greeting;
    std::vector<OwnedDescriptor> brought;
    try {
      if (!receive_greeting(guest.get(), greeting, brought) || brought.size() != 1) return;
    } catch (const std::runtime_error& error) {
      wrong_ = error.what();
      return;
    }
    wrong_ = wrong_with(greeting, peer_of(guest.get()).pid);
    if (!wrong_.empty()) return silent_.push_back(std::move(guest));
    const auto index = static_cast<size_t>(greeting.index);
    guests_[index] = std::move(guest);
    memory_.heaps[index] = SharedMemory::map(greeting.index + 1, std::move(brought[0]));
    --missing_;
  }

  std::string wrong_with(const Greeting& greeting, pid_t process) const {
    if (greeting.index < 1 || greeting.index >= members_.count ||
        guests_[static_cast<size_t>(greeting.index)].get() >= 0 ||
        greeting.count != members_.count) {
      return concat("process ", process, " comes as number ", greeting.index, " of ",
                    greeting.count, " of job ", in_quotes(members_.key), ", which has ",
                    members_.count, " and room for each once");
    }
    if (members_.build == greeting.text.data()) return "";
    return concat("process ", greeting.index,
                  " is another build, which may compute other bits: ", greeting.text.data(),
                  "; process 0 is ", members_.build);
  }

  [[noreturn]] void refuse_all() const {
    for (const auto* guests : {&guests_, &silent_}) {
      for (const OwnedDescriptor& guest : *guests) {
        if (guest.get() >= 0) send_greeting(guest.get(), greeting_of(members_, wrong_), {});
      }
    }
    fail_call("connect", wrong_);
  }

  const HostMembers& members_;
  const Clock::time_point until_;
  /// Time at which it prints which processes are missing.
  Clock::time_point tells_at_ = Clock::now() + std::chrono::seconds(5);
  OwnedDescriptor socket_;
  HostMemory memory_;
  /// By index; none: missing.
  std::vector<OwnedDescriptor> guests_;
  int missing_ = members_.count - 1;
  /// Connections whose greeting has not come.
  std::vector<OwnedDescriptor> silent_;
  /// The events that end the meeting in all processes.
  std::string wrong_;
};

}  // namespace

static OwnedDescriptor connected_to_first(const HostMembers& members, Clock::time_point until) {
  const std::string job = name_of_job(members.key);
  while (true) {
    for (const std::string& name : names_in_use(job)) {
      OwnedDescriptor made = connected_to(name);
      if (made.get() >= 0) return made;
    }
    if (Clock::now() > until) {
      fail_call("connect", "process 0 of job ", in_quotes(members.key),
                " on this host did not come in time", kAllConnect);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Waits for a message of process 0. It has the same deadline, and names the missing processes.
static std::vector<OwnedDescriptor> received_from(int first, Clock::time_point until) {
  pollfd one{first, POLLIN, 0};
  Greeting greeting;
  std::vector<OwnedDescriptor> shared;
  if (!await_readable({&one, 1}, until + std::chrono::milliseconds(500)) ||
      !receive_greeting(first, greeting, shared)) {
    fail_call("connect", "process 0 on this host went before all had come");
  }
  if (greeting.text[0] != '\0') fail_call("connect", greeting.text.data());
  return shared;
}

static HostMemory meet_as_guest(const HostMembers& members, Clock::time_point until) {
  const auto own = SharedMemory::create(members.index + 1, SharedMemory::kRegion);
  const OwnedDescriptor first = connected_to_first(members, until);
  HostMemory memory;
  memory.segment = SharedMemory::map(0, std::move(received_from(first.get(), until).at(0)));
  // Before process 0 counts it as present: from then on the others can find that it has died.
  // Process 0 refuses a process whose index is taken.
  memory.segment->lock_index(members.index);
  send_greeting(first.get(), greeting_of(members, members.build), {own->descriptor()});
  std::vector<OwnedDescriptor> shared = received_from(first.get(), until);
  for (int i = 0; i < members.count; ++i) {
    OwnedDescriptor& heap = shared.at(static_cast<size_t>(i));
    memory.heaps.push_back(i == members.index ? own : SharedMemory::map(i + 1, std::move(heap)));
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
  return FirstProcess(members, segment_bytes, until).meet_all();
}

}  // namespace weft
