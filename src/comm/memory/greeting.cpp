// SPDX-License-Identifier: Apache-2.0
#include "src/comm/memory/greeting.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/device/shared_memory.h"
#include "weft/error.h"
#include "weft/extend/descriptor.h"

namespace weft {

ucred peer_of(int connection) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    fail_call("getsockopt", std::strerror(errno));
  }
  return peer;
}

/// A greeting as the system sends it, with room for descriptors.
struct GreetingMessage {
  static constexpr size_t kMostDescriptors = SharedMemory::kMaxRegions;
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

bool send_greeting(int to, Greeting greeting, const std::vector<int>& descriptors) {
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

bool receive_greeting(int from, Greeting& greeting, std::vector<OwnedDescriptor>& descriptors) {
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

bool await_readable(std::span<pollfd> descriptors, std::chrono::steady_clock::time_point until) {
  using std::chrono::milliseconds;
  while (true) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now()).count();
    const int ready = poll(descriptors.data(), descriptors.size(),
                           static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail_call("poll", std::strerror(errno));
    if (left <= 0) return false;
  }
}

}  // namespace weft
