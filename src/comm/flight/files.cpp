// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "src/comm/flight/record.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/descriptor.h"

namespace weft {

namespace {

/// The records of this process that are written to files. It is never destroyed: the thread that
/// waits for the signal may outlive `main`.
struct FlightFiles {
  std::string folder;
  std::mutex mutex;
  /// The process that has a thread listening for the signal.
  pid_t process = -1;
  std::vector<FlightRecord*> records;
  /// Written because their world failed.
  std::vector<FlightRecord*> failed;

  static FlightFiles& of_process() {
    static FlightFiles* const files = new FlightFiles;
    return *files;
  }
};

}  // namespace

static int flight_pipe[2] = {-1, -1};

static void ask_for_records(int) {
  const int before = errno;
  [[maybe_unused]] const ssize_t done = ::write(flight_pipe[1], "", 1);
  errno = before;
}

static void serve_requests() {
  char byte;
  for (;;) {
    const ssize_t n = ::read(flight_pipe[0], &byte, 1);
    if (n == 1) write_flight_records("SIGUSR1");
    if (n == 0 || (n < 0 && errno != EINTR)) return;
  }
}

/// Starts a thread that writes the records at the signal: the rank itself may be stuck.
static void listen_for_signal() {
  struct sigaction now {};
  ::sigaction(SIGUSR1, nullptr, &now);
  if (now.sa_handler != SIG_DFL && now.sa_handler != ask_for_records) return;
  if (::pipe2(flight_pipe, O_CLOEXEC) != 0) return;
  for (int& end : flight_pipe) end = above_standard(end);
  ::fcntl(flight_pipe[1], F_SETFL, O_NONBLOCK);
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(serve_requests).detach();
    struct sigaction action {};
    action.sa_handler = ask_for_records;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGUSR1, &action, nullptr);
  } catch (const std::system_error&) {
    // No thread is left: the signal does what it did before.
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

static void write_file(const std::string& folder, const FlightRecord& record,
                       std::string_view reason) {
  ::mkdir(folder.c_str(), 0700);
  const std::string text = record.json(reason);
  const std::string path = concat(folder, "/rank-", record.rank(), ".json");
  const std::string part = concat(path, '.', ::getpid(), ".part");
  open_standard_descriptors();
  const int file = above_standard(
      ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file < 0) return;
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(file, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const bool closed = ::close(file) == 0;
  if (!closed || done < text.size() || ::rename(part.c_str(), path.c_str()) != 0) {
    ::unlink(part.c_str());
  }
}

std::shared_ptr<FlightRecord> new_flight_record(int rank, int ranks) {
  const char* folder = std::getenv("WEFT_FLIGHT");
  if (!folder || !*folder) return nullptr;
  FlightFiles& files = FlightFiles::of_process();
  const std::lock_guard lock(files.mutex);
  // A process that was forked has its parent's memory but not the thread.
  if (std::exchange(files.process, ::getpid()) != ::getpid()) listen_for_signal();
  files.folder = folder;
  files.records.reserve(files.records.size() + 1);
  const auto forget = [&files](FlightRecord* gone) {
    {
      const std::lock_guard held(files.mutex);
      std::erase(files.records, gone);
      std::erase(files.failed, gone);
    }
    delete gone;
  };
  std::shared_ptr<FlightRecord> record(new FlightRecord(rank, ranks), forget);
  files.records.push_back(record.get());
  return record;
}

void write_flight_record(std::string_view reason) noexcept {
  const FlightRecord* record = Context::current().flight.get();
  if (!record) return;
  try {
    FlightFiles& files = FlightFiles::of_process();
    const std::lock_guard lock(files.mutex);
    const auto has = [&](const auto& all) {
      return std::find(all.begin(), all.end(), record) != all.end();
    };
    if (!has(files.records) || has(files.failed)) return;
    files.failed.push_back(const_cast<FlightRecord*>(record));
    write_file(files.folder, *record, reason);
  } catch (...) {
    // The failure that it is written for goes first.
  }
}

void write_flight_records(std::string_view reason) noexcept {
  try {
    FlightFiles& files = FlightFiles::of_process();
    const std::lock_guard lock(files.mutex);
    for (const FlightRecord* record : files.records) write_file(files.folder, *record, reason);
  } catch (...) {
    // As above.
  }
}

}  // namespace weft
