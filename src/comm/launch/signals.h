// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace weft {

/// While it lives, the process's signals that a launcher passes on, and the news of its children,
/// come to a pipe. One at a time: std::invalid_argument for a second one.
class LaunchSignals {
 public:
  LaunchSignals();
  ~LaunchSignals();
  LaunchSignals(const LaunchSignals&) = delete;
  LaunchSignals& operator=(const LaunchSignals&) = delete;

  /// Readable when something has come.
  int descriptor() const { return read_; }
  /// What has come and is to be passed on, in order.
  std::vector<int> take();
  /// In a new child whose signals are all blocked: gives it those that the process had before.
  void restore_in_child() const;
  /// Blocks all signals of the calling thread for a scope, in which it may fork.
  class Blocked {
   public:
    Blocked();
    ~Blocked();
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;
    const sigset_t& before() const { return before_; }

   private:
    sigset_t before_;
  };

 private:
  struct Taken {
    int signal;
    struct sigaction before;
  };
  void take_over(int signal);

  int read_ = -1, write_ = -1;
  std::vector<Taken> taken_;
};

/// "SIGSEGV", "signal 40".
std::string name_of_signal(int signal);

}  // namespace weft
