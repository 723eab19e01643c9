// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include "checkpoint/blocks.h"
#include "checkpoint/source.h"
#include "weft/checkpoint.h"
#include "weft/error.h"

namespace weft {

std::string_view name_of(Verdict verdict) {
  static constexpr std::string_view names[] = {"COMPLETE", "INCOMPLETE", "MIXED", "CORRUPT"};
  return names[static_cast<int>(verdict)];
}

namespace {

/// Reads the data of files in several threads; keeps the bad file of the lowest rank.
class DataCheck {
 public:
  DataCheck(std::vector<std::shared_ptr<const OpenedFile>> files, const InspectOptions& options)
      : files_(std::move(files)), options_(options) {
    for (const auto& file : files_) all_ += file->data_bytes();
  }

  std::vector<BadFile> run() {
    std::vector<std::thread> threads;
    const int count = std::min(options_.threads, static_cast<int>(files_.size()));
    for (int i = 1; i < count; ++i) threads.emplace_back([this] { read_files(); });
    read_files();
    for (std::thread& thread : threads) thread.join();
    std::vector<BadFile> bad;
    for (const auto& [number, error] : bad_) bad.push_back(error);
    return bad;
  }

 private:
  void read_files() {
    for (size_t i = next_++; i < files_.size(); i = next_++) {
      try {
        read_file(*files_[i]);
      } catch (const BadFile& error) {
        const std::lock_guard lock(mutex_);
        bad_.emplace(i, error);
      }
    }
  }

  void read_file(const OpenedFile& file) {
    BlockReader reader(file.file);
    for (int64_t block = 0; block < blocks_in(file.data_bytes()); ++block) {
      const std::span<const std::byte> bytes = file.read_block(block, reader);
      if (!options_.progress) continue;
      const std::lock_guard lock(mutex_);
      options_.progress(done_ += static_cast<int64_t>(bytes.size()), all_);
    }
  }

  std::vector<std::shared_ptr<const OpenedFile>> files_;
  const InspectOptions& options_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;
  int64_t done_ = 0, all_ = 0;
  std::map<size_t, BadFile> bad_;
};

}  // namespace

static std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t most = 3;
  std::string text;
  for (size_t i = 0; i < std::min(most, names.size()); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > most) text += concat(" and ", names.size() - most, " more");
  return text;
}

static void report_bad(const std::vector<BadFile>& bad, CheckpointReport& report) {
  for (const BadFile& one : bad) report.files.push_back(one.file);
  report.verdict = bad[0].verdict;
  report.reason = bad[0].what();
  report.file = bad[0].file;
  report.tensor = bad[0].tensor;
  report.block = bad[0].block;
}

static void describe_world(const RankFiles& world, CheckpointReport& report) {
  const Manifest& manifest = world.manifest();
  report.step = manifest.step;
  report.generation = manifest.generation;
  report.ranks = manifest.ranks;
  report.tensors = static_cast<int64_t>(manifest.tensors.size());
  for (int rank = 0; rank < manifest.ranks; ++rank) report.bytes += world.data_bytes(rank);
}

/// Files that lie there but are no part of this world.
static std::vector<std::string> strangers_in(const RankFileNames& names, int ranks) {
  std::vector<std::string> strangers = names.strangers;
  for (const std::string& name : names.names) {
    int rank = 0, its_ranks = 0;
    parse_file_name(name, rank, its_ranks);
    if (its_ranks != ranks) strangers.push_back(name);
  }
  return strangers;
}

static CheckpointReport judged(const std::string& path, const InspectOptions& options) {
  CheckpointReport report;
  const RankFileNames names = rank_files_in(path);
  const AgreedManifest agreed = agreed_manifest(path, names);
  describe_world(*agreed.world, report);
  if (!agreed.bad.empty()) {
    report_bad(agreed.bad, report);
    return report;
  }
  std::vector<std::string> mixed = strangers_in(names, report.ranks);
  std::vector<std::string> missing;
  std::vector<std::shared_ptr<const OpenedFile>> files;
  std::vector<BadFile> bad;
  for (int rank = 0; rank < report.ranks; ++rank) {
    const std::string name = file_name_of(rank, report.ranks);
    const auto opened = agreed.sound.find(name);
    if (opened == agreed.sound.end()) {
      missing.push_back(name);
      continue;
    }
    try {
      check_rank_file(*opened->second, *agreed.world, rank);
      files.push_back(opened->second);
    } catch (const BadFile& error) {
      if (error.verdict == Verdict::mixed) mixed.push_back(name);
      if (error.verdict == Verdict::corrupt) bad.push_back(error);
    }
  }
  if (!bad.empty()) {
    report_bad(bad, report);
  } else if (!mixed.empty()) {
    report.verdict = Verdict::mixed;
    report.reason = concat("checkpoint: ", path, " is of step ", report.step, ", generation ",
                           report.generation, " and ", report.ranks, " ranks, but holds ",
                           some_of(mixed), " of another");
    report.files = mixed;
  } else if (!missing.empty()) {
    report.reason = concat("checkpoint: ", path, " lacks ", missing.size(), " of ", report.ranks,
                           " files: ", some_of(missing));
    report.files = missing;
  } else {
    report.verdict = Verdict::complete;
    if (options.depth == Inspection::data) bad = DataCheck(std::move(files), options).run();
    if (!bad.empty()) report_bad(bad, report);
  }
  return report;
}

CheckpointReport inspect_checkpoint(const std::string& path, const InspectOptions& options) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    fail("checkpoint: ", path, " is no directory");
  }
  try {
    return judged(path, options);
  } catch (const BadFile& bad) {
    CheckpointReport report;
    report_bad({bad}, report);
    if (bad.file.empty()) report.files.clear();
    return report;
  } catch (const std::exception& error) {
    CheckpointReport report;
    report.verdict = Verdict::corrupt;
    report.reason = error.what();
    return report;
  }
}

}  // namespace weft
