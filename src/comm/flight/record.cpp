// SPDX-License-Identifier: Apache-2.0
#include "src/comm/flight/record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft {

std::string_view name_of(FlightState state) {
  static constexpr std::array<std::string_view, 4> names = {"posted", "running", "done", "failed"};
  return names[static_cast<size_t>(state)];
}

FlightOperation FlightRecord::begin(std::string_view communicator, const Signature& signature,
                                    uint64_t sequence) {
  const uint64_t number = count_.load(std::memory_order_relaxed) + 1;
  Entry& to = entry(number);
  to[kNumber].store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  // Words are stored one by one, without a FlightCopy: a load stalls right after smaller stores to
  // the same bytes.
  const auto put = [&](size_t word, uint64_t value) {
    to[word].store(value, std::memory_order_relaxed);
  };
  const auto put_all = [&](size_t word, const void* from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 8) {
      uint64_t value;
      std::memcpy(&value, static_cast<const char*>(from) + i, sizeof value);
      put(word + i / 8, value);
    }
  };
  put(kSequence, sequence);
  put(kPosted, static_cast<uint64_t>(ticks_now()));
  for (const size_t word : {kStarted, kEnded, kBytes}) put(word, 0);
  put(kState, static_cast<uint64_t>(FlightState::posted));
  // Fields without use are left out: they are up to three quarters of a signature.
  const auto put_part = [&](size_t offset, size_t bytes) {
    put_all(kCall + offset / 8, reinterpret_cast<const char*>(&signature) + offset, bytes);
  };
  put_part(0, offsetof(Signature, shown));
  if (signature.kind == CollectiveKind::exchange) {
    put_part(offsetof(Signature, words), sizeof signature.words);
  } else {
    const auto shown = std::min(static_cast<size_t>(signature.counts), signature.shown.size());
    put_part(offsetof(Signature, shown), shown * sizeof signature.shown[0]);
  }
  put_part(offsetof(Signature, subject), signature.subject[0] ? sizeof signature.subject : 8);
  put_part(offsetof(Signature, claim), signature.claim.hash ? sizeof(Claim) : sizeof(uint64_t));
  std::array<char, 32> name{};  // the last byte stays 0
  std::copy_n(communicator.begin(), std::min(communicator.size(), name.size() - 1), name.begin());
  put_all(kName, name.data(), name.size());
  to.set(kNumber, number);
  count_.store(number, std::memory_order_release);
  return {*this, number};
}

/// False when it is not there, or is overwritten meanwhile.
bool FlightRecord::copy(uint64_t number, FlightCopy& into) const {
  const Entry& from = entries_[number % kEntries];
  if (from[kNumber].load(std::memory_order_acquire) != number) return false;
  std::array<uint64_t, kWords> words;
  // The state first: an operation that is done has all times.
  words[kState] = from[kState].load(std::memory_order_acquire);
  for (size_t i = 0; i < kWords; ++i) {
    if (i != kState) words[i] = from[i].load(std::memory_order_relaxed);
  }
  std::memcpy(static_cast<void*>(&into), words.data(), sizeof words);
  std::atomic_thread_fence(std::memory_order_acquire);
  return from[kNumber].load(std::memory_order_relaxed) == number;
}

void FlightRecord::tell(uint64_t number) {
  FlightCopy operation;
  if (copy(number, operation)) listener_->ended(operation);
}

std::vector<FlightCopy> FlightRecord::operations() const {
  std::vector<FlightCopy> all;
  const uint64_t last = count();
  const uint64_t first = last > kEntries ? last - kEntries + 1 : 1;
  for (uint64_t number = first; number <= last; ++number) {
    FlightCopy operation;
    if (copy(number, operation)) all.push_back(operation);
  }
  return all;
}

static nlohmann::ordered_json in_json(const FlightCopy& operation, const TickScale& scale) {
  const auto time = [&](int64_t ticks) {
    return ticks ? nlohmann::ordered_json(scale.steady(ticks)) : nlohmann::ordered_json(nullptr);
  };
  return {{"number", operation.number},         {"communicator", operation.communicator.data()},
          {"sequence", operation.sequence},     {"kind", name_of(operation.call.kind)},
          {"words", operation.in_words()},      {"state", name_of(operation.state)},
          {"bytes", operation.bytes},           {"posted", time(operation.posted)},
          {"started", time(operation.started)}, {"ended", time(operation.ended)}};
}

std::string FlightRecord::json(std::string_view reason) const {
  const std::vector<FlightCopy> all = operations();
  const TickScale scale = TickScale::measured();
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const nlohmann::ordered_json head{
      {"weft_flight", 1},
      {"rank", rank_},
      {"ranks", ranks_},
      {"host", host.data()},
      {"process", ::getpid()},
      {"reason", reason},
      {"clock", {{"steady", scale.anchor_steady()}, {"wall", scale.anchor_wall()}}},
      {"forgotten", count() - all.size()}};
  const auto dumped = [](const nlohmann::ordered_json& json) {
    return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  };
  // A line an operation: people read it too.
  std::string text = dumped(head);
  text.back() = ',';
  text += "\n\"operations\":[";
  for (size_t i = 0; i < all.size(); ++i) {
    text += i ? ",\n" : "\n";
    text += dumped(in_json(all[i], scale));
  }
  return text + "\n]}\n";
}

namespace {

/// The records of this process that are written to files. It is never destroyed: the thread that
/// waits for the signal may outlive `main`.
struct FlightFiles {
  std::string folder;
  std::mutex mutex;
  /// The process that has a thread listening for the signal.
  pid_t process = -1;
  /// True for those that are written because their world failed.
  std::map<const FlightRecord*, bool> records;

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
  const std::string path = concat(folder, "/rank-", record.rank(), ".json");
  const std::string part = concat(path, '.', ::getpid(), ".part");
  try {
    OutputFile file("flight record", part, OutputFile::Mode::replace_own);
    file.write(record.json(reason));
    file.close();
    if (::rename(part.c_str(), path.c_str()) == 0) return;
  } catch (const std::exception&) {
    // The same happens when the name cannot be changed.
  }
  ::unlink(part.c_str());
}

std::shared_ptr<FlightRecord> new_flight_record(int rank, int ranks, bool listens) {
  const char* folder = std::getenv("WEFT_FLIGHT");
  if (!folder || !*folder) return nullptr;
  FlightFiles& files = FlightFiles::of_process();
  const std::lock_guard lock(files.mutex);
  // A process that was forked has its parent's memory but not the thread.
  if (std::exchange(files.process, ::getpid()) != ::getpid() && listens) listen_for_signal();
  files.folder = folder;
  const auto forget = [&files](FlightRecord* gone) {
    {
      const std::lock_guard held(files.mutex);
      files.records.erase(gone);
    }
    delete gone;
  };
  auto record = std::make_unique<FlightRecord>(rank, ranks);
  files.records[record.get()] = false;
  return {record.release(), forget};
}

void write_flight_record(std::string_view reason) noexcept {
  const FlightRecord* record = Context::current().flight.get();
  if (!record) return;
  try {
    FlightFiles& files = FlightFiles::of_process();
    const std::lock_guard lock(files.mutex);
    const auto found = files.records.find(record);
    if (found == files.records.end() || std::exchange(found->second, true)) return;
    write_file(files.folder, *record, reason);
  } catch (...) {
    // The failure that it is written for goes first.
  }
}

void write_flight_records(std::string_view reason) noexcept {
  try {
    FlightFiles& files = FlightFiles::of_process();
    const std::lock_guard lock(files.mutex);
    for (const auto& [record, failed] : files.records) write_file(files.folder, *record, reason);
  } catch (...) {
    // The same holds here as above.
  }
}

}  // namespace weft
