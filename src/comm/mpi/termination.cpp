// SPDX-License-Identifier: Apache-2.0
#include "src/comm/mpi/termination.h"

#include <unistd.h>

#include <atomic>

namespace weft {

static std::atomic<bool> termination_asked{false};

static void note_termination(int) { termination_asked.store(true, std::memory_order_relaxed); }

Termination::Termination() {
  struct sigaction before = {};
  sigaction(SIGTERM, nullptr, &before);
  if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction noting = {};
  noting.sa_handler = note_termination;
  noting.sa_flags = SA_RESTART;
  installed_ = sigaction(SIGTERM, &noting, nullptr) == 0;
}

Termination::~Termination() {
  if (installed_) std::signal(SIGTERM, SIG_DFL);
}

bool Termination::is_asked() const {
  return installed_ && termination_asked.load(std::memory_order_relaxed);
}

void Termination::obey() const {
  std::signal(SIGTERM, SIG_DFL);
  kill(getpid(), SIGTERM);
  while (true) pause();
}

}  // namespace weft
