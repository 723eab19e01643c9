// SPDX-License-Identifier: Apache-2.0
#include "cli/job_signals.h"

#include <ctime>

namespace weft::cli {

static volatile std::sig_atomic_t told_to_end = 0;

static void note_end(int signal) { told_to_end = signal; }

JobSignals::JobSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR2}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    // Ignored ones (nohup) stay so.
    if (before.sa_handler == SIG_IGN) continue;
    struct sigaction note {};
    note.sa_handler = note_end;
    ::sigaction(signal, &note, nullptr);
    taken_.emplace_back(signal, before);
  }
}

JobSignals::~JobSignals() {
  for (const auto& [signal, before] : taken_) ::sigaction(signal, &before, nullptr);
}

int JobSignals::told() const { return told_to_end; }

int JobSignals::told_within(double seconds) const {
  sigset_t signals, before;
  ::sigemptyset(&signals);
  for (const auto& [signal, action] : taken_) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, &before);
  if (told_to_end == 0) {
    const auto whole = static_cast<time_t>(seconds);
    const timespec time{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
    if (const int signal = ::sigtimedwait(&signals, nullptr, &time); signal > 0) {
      told_to_end = signal;
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return told();
}

}  // namespace weft::cli
