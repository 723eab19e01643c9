// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <mutex>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/map.hpp>

#include "checkpoint/blocks.h"
#include "checkpoint/keys.h"
#include "checkpoint/source.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

std::string_view name_of(Verdict verdict) {
  static constexpr std::string_view names[] = {"COMPLETE", "INCOMPLETE", "MIXED", "CORRUPT"};
  return names[static_cast<int>(verdict)];
}

/// Reads and checks the data of a file; calls `progress` with the bytes of each block.
static void check_data(const OpenedFile& file, const std::function<void(int64_t)>& progress) {
  const BlockReader reader(file.file);
  const auto check = [&](size_t i, const BlockBuffer& buffer) {
    const auto block = static_cast<int64_t>(i);
    const int64_t begin = block * kBlockBytes;
    const int64_t bytes = std::min(kBlockBytes, file.data_bytes() - begin);
    file.check_block(block,
                     [&] { return xxh3_of(reader.read(file.data_start + begin, bytes, buffer)); });
    progress(bytes);
  };
  work_in_parallel(static_cast<size_t>(blocks_in(file.data_bytes())), kReads, check);
}

/// Reads the data of a checkpoint's files in several threads; returns what is bad, by rank.
static std::vector<BadFile> bad_files(const std::string& path, const RankFiles& world,
                                      const InspectOptions& options) {
  const int ranks = world.manifest().ranks;
  std::mutex mutex;
  int64_t done = 0, all = 0;
  std::map<size_t, BadFile> bad;
  for (int rank = 0; rank < ranks; ++rank) all += world.data_bytes(rank);
  const auto progress = [&](int64_t bytes) {
    if (!options.progress) return;
    const std::lock_guard lock(mutex);
    options.progress(done += bytes, all);
  };
  work_in_parallel(static_cast<size_t>(ranks), options.threads, [&](size_t i, const BlockBuffer&) {
    const auto rank = static_cast<int>(i);
    try {
      const auto opened = open_rank_file(path + "/" + file_name_of(rank, ranks));
      check_rank_file(*opened, world, rank);
      check_data(*opened, progress);
    } catch (const BadFile& error) {
      const std::lock_guard lock(mutex);
      bad.emplace(i, error);
    }
  });
  return bad | ranges::views::values | ranges::to<std::vector>();
}

static void report_bad(const std::vector<BadFile>& bad, CheckpointReport& report) {
  for (const BadFile& one : bad) report.files.push_back(one.file);
  report.verdict = bad[0].verdict;
  report.reason = bad[0].what();
  report.file = bad[0].file;
  report.tensor = bad[0].tensor;
  report.block = bad[0].block;
}

static void describe_world(const AgreedManifest& agreed, CheckpointReport& report) {
  const RankFiles& world = *agreed.world;
  const Manifest& manifest = world.manifest();
  report.step = manifest.step;
  report.generation = manifest.generation;
  report.ranks = manifest.ranks;
  report.tensors = static_cast<int64_t>(manifest.tensors.size());
  for (int rank = 0; rank < manifest.ranks; ++rank) report.bytes += world.data_bytes(rank);
  if (!agreed.non_finite) return;
  report.non_finite = agreed.non_finite->count;
  const int64_t tensor = agreed.non_finite->tensor;
  if (tensor >= 0) report.non_finite_tensor = manifest.tensors[static_cast<size_t>(tensor)].name;
}

static CheckpointReport judged(const std::string& path, const InspectOptions& options) {
  CheckpointReport report;
  const RankFileNames names = rank_files_in(path);
  const AgreedManifest agreed = agreed_manifest(path, names);
  describe_world(agreed, report);
  report.reason = wrong_name(path, agreed.world->manifest());
  if (!report.reason.empty()) {
    report.verdict = Verdict::mixed;
    return report;
  }
  if (!agreed.bad.empty()) {
    report_bad(agreed.bad, report);
    return report;
  }
  std::vector<std::string> mixed = names.strangers;
  mixed.insert(mixed.end(), agreed.others.begin(), agreed.others.end());
  std::vector<std::string> missing;
  for (int rank = 0; rank < report.ranks; ++rank) {
    const std::string name = file_name_of(rank, report.ranks);
    if (!agreed.own.contains(name) && !agreed.others.contains(name)) missing.push_back(name);
  }
  if (!mixed.empty()) {
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
    if (options.depth == Inspection::headers) return report;
    const std::vector<BadFile> bad = bad_files(path, *agreed.world, options);
    if (!bad.empty()) report_bad(bad, report);
  }
  return report;
}

CheckpointReport inspect_checkpoint(const std::string& path, const InspectOptions& options) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    fail("checkpoint: ", path, " is missing or a file, expected a directory");
  }
  try {
    return judged(path, options);
  } catch (const BadFile& bad) {
    CheckpointReport report;
    report_bad({bad}, report);
    if (bad.file.empty()) report.files.clear();
    return report;
  } catch (const std::invalid_argument& error) {
    CheckpointReport report;
    report.verdict = Verdict::corrupt;
    report.reason = error.what();
    return report;
  }
}

}  // namespace weft
