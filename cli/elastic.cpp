// SPDX-License-Identifier: Apache-2.0
#include "cli/elastic.h"

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "weft/checkpoint_report.h"
#include "weft/ranks.h"

namespace weft::cli {

namespace fs = std::filesystem;

static constexpr const char* kHostMemory = "/dev/shm";
static constexpr const char* kCopiesPrefix = "weft-copies-";

/// Removes this user's copies of launchers that are gone.
static void forget_old_copies() {
  const std::string prefix = concat(kCopiesPrefix, ::getuid(), '-');
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kHostMemory, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const int launcher = std::atoi(name.c_str() + prefix.size());
    const bool is_alive = launcher > 0 && (::kill(launcher, 0) == 0 || errno == EPERM);
    struct stat status {};
    if (is_alive || ::lstat(entry.path().c_str(), &status) != 0) continue;
    // Others may make something of that name where all may write; a link is not followed.
    std::error_code ignored;
    if (S_ISDIR(status.st_mode) && status.st_uid == ::getuid()) fs::remove_all(entry, ignored);
  }
}

HostCopies::HostCopies() : folder_(concat(kHostMemory, '/', kCopiesPrefix, new_job())) {
  forget_old_copies();
  if (::mkdir(folder_.c_str(), 0700) != 0) {
    fail_call("--redundancy host", folder_, ": ", std::strerror(errno));
  }
}

HostCopies::~HostCopies() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

bool HostCopies::has_news() {
  std::string newest;
  std::error_code error;
  for (const auto& run : fs::directory_iterator(folder_, error)) {
    newest += newest_complete_checkpoint(run.path().string());
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

static std::string file_of(int launcher) {
  return (fs::temp_directory_path() / concat("weft-elastic-", ::getuid(), '-', launcher)).string();
}

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

ElasticRanks::ElasticRanks(RankBounds bounds, int ranks)
    : bounds_(bounds), ranks_(ranks), file_(file_of(::getpid())) {
  write_wanted(file_, {bounds_, ranks_});
}

ElasticRanks::~ElasticRanks() {
  std::error_code ignored;
  fs::remove(file_, ignored);
}

bool ElasticRanks::is_changed() const {
  const auto wanted = read_wanted(file_);
  return wanted && wanted->ranks != ranks_;
}

bool ElasticRanks::take(const LaunchReport& report) {
  if (const auto wanted = read_wanted(file_); wanted && wanted->ranks != ranks_) {
    ranks_ = std::clamp(wanted->ranks, bounds_.least, bounds_.most);
    return true;
  }
  if (ranks_ == bounds_.least) return !report.requested;
  write_wanted(file_, {bounds_, --ranks_});
  return true;
}

void resize_job(int launcher, int ranks) {
  const std::string file = file_of(launcher);
  auto wanted = read_wanted(file);
  if (!wanted || (::kill(launcher, 0) != 0 && errno != EPERM)) {
    fail("resize: process ", launcher,
         " has no elastic job, expected that of a weft run --elastic");
  }
  if (ranks < wanted->bounds.least || ranks > wanted->bounds.most) {
    fail("resize: number of ranks is ", ranks, ", expected ", wanted->bounds.least, " to ",
         wanted->bounds.most, ", as --elastic says");
  }
  wanted->ranks = ranks;
  write_wanted(file, *wanted);
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
