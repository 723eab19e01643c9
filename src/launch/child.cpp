// SPDX-License-Identifier: Apache-2.0
#include "src/launch/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "weft/error.h"
#include "weft/extend/descriptor.h"

namespace weft {

LaunchPipe new_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_call("pipe2", "launch: ", std::strerror(errno));
  LaunchPipe made{OwnedDescriptor(above_standard(ends[0])),
                  OwnedDescriptor(above_standard(ends[1]))};
  if (made.read.get() >= 0 && made.write.get() >= 0) return made;
  fail_call("fcntl", "launch: ", std::strerror(errno));
}

void make_nonblocking(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const auto replaces = [&](const auto& variable) { return variable.first == name; };
    if (std::none_of(variables.begin(), variables.end(), replaces)) all.emplace_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(concat(name, '=', value));
  return all;
}

static std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

namespace {

/// Data of the child between fork and exec, where it may not allocate.
struct BetweenForkAndExec {
  const LaunchChild& child;
  const LaunchSignals& signals;
  const sigset_t& mask;
  char** arguments;
  char** environment;
  pid_t launcher;
  /// The reason of a failure goes there.
  int news;

  [[noreturn]] void run() const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // It may have died before the line above.
    if (::getppid() != launcher) ::_exit(127);
    const int in = child.in >= 0 ? child.in : ::open("/dev/null", O_RDONLY);
    if (in != STDIN_FILENO) ::dup2(in, STDIN_FILENO);
    if (child.in < 0 && in != STDIN_FILENO) ::close(in);
    if (::dup2(child.out, STDOUT_FILENO) >= 0 && ::dup2(child.err, STDERR_FILENO) >= 0) {
      signals.restore_in_child();
      ::sigprocmask(SIG_SETMASK, &mask, nullptr);
      ::execvpe(arguments[0], arguments, environment);
    }
    const int reason = errno;
    [[maybe_unused]] const ssize_t told = ::write(news, &reason, sizeof reason);
    ::_exit(127);
  }
};

}  // namespace

pid_t start_child(const LaunchChild& child, const LaunchSignals& signals) {
  std::vector<char*> arguments = pointers_to(child.command);
  std::vector<char*> environment = pointers_to(child.environment);
  LaunchPipe news = new_pipe();
  pid_t pid = -1;
  int reason = 0;
  {
    const LaunchSignals::Blocked blocked;
    const BetweenForkAndExec between{
        child,      signals,         blocked.before(), arguments.data(), environment.data(),
        ::getpid(), news.write.get()};
    pid = ::fork();
    if (pid == 0) between.run();
    if (pid < 0) reason = errno;
  }
  news.write.close();
  ssize_t got = 0;
  // Ends when exec has closed the other end.
  while (pid > 0 && (got = ::read(news.read.get(), &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  if (pid > 0 && got == 0) return pid;
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  throw_runtime_error(
      concat("launch: cannot start ", in_quotes(child.command[0]), ": ", std::strerror(reason)));
}

}  // namespace weft
