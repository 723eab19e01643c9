// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_directory.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "checkpoint/file_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/source.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/store.h"

namespace weft {

namespace fs = std::filesystem;

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// A lease has so many bytes, spaces at the end: it is renewed in place by one write.
static constexpr size_t kLeaseBytes = 1024;
static constexpr milliseconds kLongestLifetime = std::chrono::hours(24);

namespace {

/// A process that holds a lease, as it states itself. `machine` is the boot and the namespace of
/// process ids that `pid` counts in, `start` tells apart those that had the number. `restart`
/// counts the starts of one Slurm job, `saved` is the generation of the last checkpoint noted.
struct Holder {
  std::string tag, host, machine, job, saved;
  int64_t pid = 0, start = 0, restart = 0, lifetime = 0;
  bool is_free = false;
};

}  // namespace

/// The start time of a process of this machine, in ticks since the boot; 0 where it is not known.
static int64_t start_of_process(int64_t pid) {
  std::ifstream file(concat("/proc/", pid, "/stat"));
  std::string line, field;
  std::getline(file, line);
  // The 22nd field of proc(5); the 2nd is a name in parentheses, which may hold anything.
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')'))));
  for (int i = 2; i < 22; ++i) fields >> field;
  int64_t start = 0;
  return fields >> start ? start : 0;
}

static std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

static Holder this_process() {
  Holder own;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) own.host = host.data();
  std::string boot;
  std::error_code ignored;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const fs::path space = fs::read_symlink("/proc/self/ns/pid", ignored);
  if (!boot.empty() && !ignored) own.machine = concat(own.host, ' ', boot, ' ', space.string());
  // A job that Slurm restarts keeps its id; WEFT_JOB is that of one launch.
  own.restart = std::atoll(variable("SLURM_RESTART_COUNT").c_str());
  own.job = variable("SLURM_JOB_ID");
  if (own.job.empty()) own.job = variable("WEFT_JOB");
  own.job = (own.job.empty() ? "" : own.job + variable("SLURM_CLUSTER_NAME")).substr(0, 128);
  own.pid = ::getpid();
  own.start = start_of_process(own.pid);
  return own;
}

static Holder parsed_holder(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    return {.tag = json.value("tag", ""),
            .host = json.value("host", ""),
            .machine = json.value("machine", ""),
            .job = json.value("job", ""),
            .saved = json.value("saved", ""),
            .pid = json.value("pid", int64_t{0}),
            .start = json.value("start", int64_t{0}),
            .restart = json.value("restart", int64_t{0}),
            .lifetime = json.value("lifetime_ms", int64_t{0}),
            .is_free = json.value("state", "") == "free"};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

/// True for a saver that ended, an earlier start of this job (its steps may run side by side), and
/// a process of this machine that has ended or is this one.
static bool may_be_taken(const Holder& holder, const Holder& own) {
  const bool is_same_job = !own.job.empty() && holder.job == own.job;
  if (holder.is_free || (is_same_job && holder.restart < own.restart)) return true;
  if (holder.machine.empty() || holder.machine != own.machine || holder.pid <= 0) return false;
  if (holder.pid == own.pid && holder.start == own.start) return true;
  if (::kill(static_cast<pid_t>(holder.pid), 0) != 0 && errno == ESRCH) return true;
  const int64_t start = start_of_process(holder.pid);
  return start > 0 && start != holder.start;
}

static std::string in_words(const Holder& holder) {
  if (holder.pid == 0) return "a process that has not written who it is";
  return concat("process ", holder.pid, " of host ", in_quotes(holder.host),
                holder.job.empty() ? "" : concat(", job ", in_quotes(holder.job)));
}

static std::string lease_path(const std::string& directory, int64_t number) {
  return directory + formatted("/.lease-%08lld", static_cast<long long>(number));
}

/// The text of a lease; "" of number 0, and where it is gone or not written yet.
static std::string read_lease(const std::string& directory, int64_t number) {
  if (number == 0) return {};
  return Store::of(directory).get(lease_path(directory, number)).value_or("");
}

/// The newest lease of a directory; 0: it has none. Those before `remove_below` go.
static int64_t newest_lease_in(const std::string& directory, int64_t remove_below = 0) {
  int64_t newest = 0;
  std::error_code error;
  for (const StoredName& stored : Store::of(directory).list(directory, error)) {
    long long number = 0;
    if (std::sscanf(stored.name.c_str(), ".lease-%17lld", &number) != 1) continue;
    newest = std::max<int64_t>(newest, number);
    if (number < remove_below) Store::of(directory).remove(directory + "/" + stored.name);
  }
  if (error) fail_call("readdir", "lease: ", directory, ": ", error.message());
  return newest;
}

std::string noted_generation(const std::string& directory) {
  return parsed_holder(read_lease(directory, newest_lease_in(directory))).saved;
}

/// A child of fork leaves it as it is: it cannot destroy what the parent's thread waits for.
struct Lease::Renewal {
  std::mutex mutex;
  std::condition_variable ends;
  std::thread thread;
};

Lease::Lease(const std::string& directory, milliseconds lifetime)
    : directory_(directory),
      lifetime_(lifetime),
      tag_(drawn_tag()),
      pid_(::getpid()),
      renewal_(std::make_unique<Renewal>()) {}

Lease::~Lease() {
  if (::getpid() != pid_) {
    (void)renewal_.release();
    return;
  }
  if (number_ == 0) return;
  {
    const std::lock_guard lock(renewal_->mutex);
    is_ending_ = true;
  }
  renewal_->ends.notify_one();
  renewal_->thread.join();
  const StoreDeadline short_one(5);
  renew(text());
}

void Lease::note_saved(const std::string& generation) {
  const std::lock_guard lock(renewal_->mutex);
  saved_ = generation;
  if (!is_object_path(directory_)) return renew(text());
  // The thread writes it: the caller does not wait for requests.
  is_due_ = true;
  renewal_->ends.notify_one();
}

bool Lease::take() {
  const Holder own = this_process();
  const int64_t newest = newest_lease_in(directory_);
  const std::string text = read_lease(directory_, newest);
  const Holder holder = parsed_holder(text);
  const milliseconds lifetime =
      holder.lifetime > 0 ? std::min(milliseconds(holder.lifetime), kLongestLifetime) : lifetime_;
  const bool may_take = newest == 0 || may_be_taken(holder, own);
  if (newest == watched_ && text != seen_ && !may_take) {
    fail("checkpoint: ", directory_, " is being saved to by ", in_words(holder),
         ", which renews its lease, expected no other job; wait until it ends, or save to another "
         "directory");
  }
  if (may_take || (newest == watched_ && Clock::now() - since_ >= lifetime)) {
    saved_ = holder.saved;
    return claim(newest + 1);
  }
  if (newest != watched_) {
    watched_ = newest;
    seen_ = text;
    since_ = Clock::now();
    warn(directory_, " may be in use by ", in_words(holder), "; waiting at most ",
         static_cast<double>(lifetime.count()) / 1000, " s for a sign of life");
  }
  const milliseconds most(is_object_path(directory_) ? 1000 : 100);
  std::this_thread::sleep_for(std::clamp(lifetime / 20, milliseconds(1), most));
  return false;
}

/// Exactly one process creates a number. Those before it go: their holders find them missing.
bool Lease::claim(int64_t number) {
  const std::string path = lease_path(directory_, number);
  Store& store = Store::of(directory_);
  if (!store.put_new(path, text())) return false;
  try {
    if (newest_lease_in(directory_, number) == number) {
      number_ = number;
      renewal_->thread = std::thread([this] { keep_alive(); });
      return true;
    }
  } catch (...) {
    number_ = 0;
    store.remove(path);
    throw;
  }
  // This process came late: a newer lease had removed those before it.
  store.remove(path);
  return false;
}

std::string Lease::text() {
  const Holder own = this_process();
  const nlohmann::ordered_json json{{"state", is_ending_ ? "free" : "held"},
                                    {"count", ++count_},
                                    {"lifetime_ms", lifetime_.count()},
                                    {"tag", tag_},
                                    {"host", own.host},
                                    {"pid", own.pid},
                                    {"job", own.job},
                                    {"restart", own.restart},
                                    {"saved", saved_},
                                    {"machine", own.machine},
                                    {"start", own.start}};
  std::string text = json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  text.resize(kLeaseBytes - 1, ' ');
  return text + '\n';
}

/// Does not create it: a lease that was taken over stays so. A failure is tried again, or `check`
/// sees it.
void Lease::renew(const std::string& next) {
  // If all leases were removed, the number may belong to another saver now.
  const auto edit = [&](const std::string& now) -> std::optional<std::string> {
    if (parsed_holder(now).tag != tag_) return {};
    return next;
  };
  try {
    is_lost_ = !Store::of(directory_).update(lease_path(directory_, number_), edit);
  } catch (const std::runtime_error&) {
    return;
  }
}

void Lease::keep_alive() {
  std::unique_lock lock(renewal_->mutex);
  const StoreDeadline until_next(static_cast<double>(lifetime_.count()) / 4000);
  const auto has_work = [this] { return is_ending_ || is_due_; };
  for (;;) {
    renewal_->ends.wait_for(lock, lifetime_ / 4, has_work);
    if (is_ending_) return;
    is_due_ = false;
    const std::string next = text();
    if (is_object_path(directory_)) lock.unlock();
    renew(next);
    if (!lock.owns_lock()) lock.lock();
  }
}

void Lease::check_last_seen() const {
  if (is_lost_) check();
}

void Lease::check() const {
  // Two looks: a directory that is read while a newer lease replaces ours may show neither.
  for (int look = 0; look < 2; ++look) {
    const int64_t newest = newest_lease_in(directory_);
    const Holder holder = parsed_holder(read_lease(directory_, newest));
    if (newest == number_ && holder.tag == tag_) return;
    if (newest <= number_) continue;
    fail_call("save", "the lease of ", directory_, " was taken over by ", in_words(holder),
              "; this run stops, so that the two do not mix");
  }
  fail_call("save", "the lease ", lease_path(directory_, number_),
            " was removed; this run stops, because another may save to the directory");
}

void check_no_newer_run(const std::string& directory, int64_t step, const std::string& generation,
                        const std::set<std::string>& known) {
  for (const auto& [path, its_step, its_generation] : named_checkpoints(directory)) {
    if (its_generation == generation || its_step < step || known.contains(path)) continue;
    // Ranks of a job that lost the lease may still write files; no run resumes from those.
    const auto report = inspect_existing(path, {.depth = Inspection::headers});
    if (!report || report->verdict != Verdict::complete) continue;
    fail_call("save", path,
              " was saved by another run since this one started, expected none of step ", step,
              " or above; this run stops, so that the two do not mix");
  }
}

}  // namespace weft
