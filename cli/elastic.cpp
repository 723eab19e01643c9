// SPDX-License-Identifier: Apache-2.0
#include "cli/elastic.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "weft/ranks.h"

namespace weft::cli {

namespace fs = std::filesystem;

static constexpr const char* kHostMemory = "/dev/shm";
static constexpr const char* kPrefix = "weft-job-";

/// Opens a folder of this user and locks it; -1 where others hold it, or it is none. Others may
/// make something of that name where all may write: a link is not followed.
static int locked_folder(const std::string& path) {
  const int opened = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return -1;
  struct stat status {};
  const bool is_mine = ::fstat(opened, &status) == 0 && status.st_uid == ::getuid();
  if (is_mine && ::flock(opened, LOCK_EX | LOCK_NB) == 0) return opened;
  ::close(opened);
  return -1;
}

/// Returns the folders of this user's jobs.
static std::vector<std::string> job_folders(const std::string& prefix) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kHostMemory, error)) {
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  }
  return found;
}

/// Removes this user's folders of launchers that are gone, which hold no lock.
static void forget_old_jobs() {
  for (const std::string& path : job_folders(concat(kPrefix, ::getuid(), '-'))) {
    const int locked = locked_folder(path);
    if (locked < 0) continue;
    std::error_code ignored;
    fs::remove_all(path, ignored);
    ::close(locked);
  }
}

bool JobFolder::take() {
  path_ = concat(kHostMemory, '/', kPrefix, new_job());
  if (::mkdir(path_.c_str(), 0700) != 0) fail_call("run", path_, ": ", std::strerror(errno));
  descriptor_ = locked_folder(path_);
  if (descriptor_ < 0) return false;
  struct stat status {};
  if (::stat(path_.c_str(), &status) == 0) return true;
  ::close(descriptor_);
  return false;
}

JobFolder::JobFolder() {
  forget_old_jobs();
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    if (take()) return;
  }
  fail_call("run", path_, " could not be locked");
}

JobFolder::~JobFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::close(descriptor_);
}

bool JobFolder::has_news() {
  std::string newest;
  std::error_code error;
  for (const auto& run : fs::directory_iterator(copies(), error)) {
    // By name, "step-<step>-<generation>": of several hosts each has only some files of a copy.
    constexpr std::string_view kCopy = "step-";
    std::string last;
    for (const auto& copy : fs::directory_iterator(run.path(), error)) {
      const std::string name = copy.path().filename().string();
      if (name.starts_with(kCopy)) {
        last = std::max(last, name.substr(0, name.find('-', kCopy.size())));
      }
    }
    newest += last + '/';
  }
  return newest != std::exchange(newest_, newest);
}

RankBounds rank_bounds(const std::string& text) {
  RankBounds bounds;
  const char *end = text.data() + text.size(), *colon = std::find(text.data(), end, ':');
  const auto is_number = [](const char* from, const char* to, int& number) {
    const auto [rest, error] = std::from_chars(from, to, number);
    return error == std::errc() && rest == to;
  };
  const bool is_range = colon != end && is_number(text.data(), colon, bounds.least) &&
                        is_number(colon + 1, end, bounds.most);
  if (!is_range || bounds.least < 1 || bounds.least > bounds.most ||
      bounds.most > kMostLocalRanks) {
    fail("--elastic is ", in_quotes(text),
         ", expected MIN:MAX ranks, 1 <= MIN <= MAX <= ", kMostLocalRanks);
  }
  return bounds;
}

static constexpr const char* kRanksFile = "/ranks";

namespace {

struct Wanted {
  RankBounds bounds;
  int ranks = 0;
};

}  // namespace

static std::optional<Wanted> read_wanted(const std::string& file) {
  std::ifstream in(file);
  Wanted wanted;
  if (in >> wanted.bounds.least >> wanted.bounds.most >> wanted.ranks) return wanted;
  return {};
}

/// Replaces the file as a whole.
static void write_wanted(const std::string& file, const Wanted& wanted) {
  const std::string next = concat(file, '.', ::getpid());
  std::ofstream(next) << wanted.bounds.least << ' ' << wanted.bounds.most << ' ' << wanted.ranks
                      << '\n';
  fs::rename(next, file);
}

ElasticRanks::ElasticRanks(const JobFolder& folder, RankBounds bounds, int ranks)
    : bounds_(bounds), ranks_(ranks), file_(folder.path() + kRanksFile) {
  write_wanted(file_, {bounds_, ranks_});
}

bool ElasticRanks::is_changed() const {
  const auto wanted = read_wanted(file_);
  return wanted && wanted->ranks != ranks_;
}

bool ElasticRanks::take(const LaunchReport& report) {
  const auto wanted = read_wanted(file_);
  if (wanted && (report.stopped || wanted->ranks != ranks_)) {
    ranks_ = std::clamp(wanted->ranks, bounds_.least, bounds_.most);
    return true;
  }
  if (ranks_ == bounds_.least) return !report.requested;
  write_wanted(file_, {bounds_, --ranks_});
  return true;
}

void resize_job(int launcher, int ranks) {
  for (const std::string& path : job_folders(concat(kPrefix, ::getuid(), '-', launcher, '-'))) {
    // One that can be locked is of a launcher that was killed.
    if (const int locked = locked_folder(path); locked >= 0) {
      ::close(locked);
      continue;
    }
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || status.st_uid != ::getuid()) continue;
    auto wanted = read_wanted(path + kRanksFile);
    if (!wanted) continue;
    if (ranks < wanted->bounds.least || ranks > wanted->bounds.most) {
      fail("resize: number of ranks is ", ranks, ", expected ", wanted->bounds.least, " to ",
           wanted->bounds.most, ", as --elastic says");
    }
    wanted->ranks = ranks;
    return write_wanted(path + kRanksFile, *wanted);
  }
  fail("resize: process ", launcher, " has no elastic job, expected that of a weft run --elastic");
}

void add_resize(CLI::App& program) {
  struct Resized {
    int launcher = 0, ranks = 0;
  };
  const auto resized = std::make_shared<Resized>();
  CLI::App* resize =
      program.add_subcommand("resize", "Change the number of ranks of a running job");
  resize->footer(
      "The job is that of a weft run --elastic MIN:MAX, whose process PID names. Its ranks end\n"
      "after the step under way and start again as N, with the same state.\n"
      "Example: weft resize 4711 4");
  takes_whole(resize->add_option("pid", resized->launcher, "Process of the weft run"), 1,
              std::numeric_limits<int>::max())
      ->required();
  takes_whole(resize->add_option("ranks", resized->ranks, "Ranks from then on"), 1, kMostLocalRanks)
      ->required();
  resize->callback([resized] { resize_job(resized->launcher, resized->ranks); });
}

}  // namespace weft::cli
