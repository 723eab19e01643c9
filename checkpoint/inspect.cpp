// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/map.hpp>
#include <tuple>
#include <utility>

#include "checkpoint/blocks.h"
#include "checkpoint/run_directory.h"
#include "checkpoint/source.h"
#include "weft/checkpoint.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

namespace fs = std::filesystem;

template <class... Parts>
[[noreturn]] static void fail_corrupt(const std::string& path, const Parts&... parts) {
  throw BadFile(Verdict::corrupt, concat("checkpoint: ", path, ": ", parts...), path);
}

OpenedFile::OpenedFile(const std::string& path)
    : file("checkpoint", path), tensors(path), data_start(file.size()) {
  for (const SafetensorsEntry& entry : tensors.entries()) data_start -= entry.bytes;
}

OpenedFile::OpenedFile(const File& opened, const SafetensorsEntry& entry)
    : file(opened), tensors(opened, {entry}), data_start(entry.offset) {}

void OpenedFile::check_block(int64_t number, const std::function<uint64_t()>& read) const {
  std::string mistake;
  try {
    if (read() == hashes[static_cast<size_t>(number)]) return;
    mistake = concat("checkpoint: ", file.path(), ": block ", number, " (tensor ",
                     in_quotes(tensor_in(number)), ") does not have its checksum");
  } catch (const std::runtime_error& error) {
    // A store that does not answer says nothing about the object.
    if (is_object_path(file.path())) throw;
    mistake = error.what();
  }
  throw BadFile(Verdict::corrupt, mistake, file.path(), tensor_in(number), number);
}

std::string OpenedFile::tensor_in(int64_t block) const {
  const int64_t begin = data_start + block * kBlockBytes;
  for (const SafetensorsEntry& entry : tensors.entries()) {
    if (entry.bytes > 0 && entry.offset + entry.bytes > begin) return entry.name;
  }
  return {};
}

static std::shared_ptr<OpenedFile> opened_file(const std::string& path) {
  try {
    return std::make_shared<OpenedFile>(path);
  } catch (const MissingObject&) {
    throw BadFile(Verdict::incomplete, concat("checkpoint: ", path, " is missing"), path);
  } catch (const std::invalid_argument& error) {
    throw BadFile(Verdict::corrupt, error.what(), path);
  }
}

static std::shared_ptr<OpenedFile> opened_safetensors(const std::string& path) {
  if (is_object_path(path)) return opened_file(path);
  std::error_code failed;
  const fs::file_status status = fs::symlink_status(path, failed);
  const bool is_stale = failed.value() == ESTALE;
  if (is_stale || status.type() == fs::file_type::not_found) {
    throw BadFile(Verdict::incomplete, concat("checkpoint: ", path, " is missing"), path);
  }
  if (fs::is_symlink(status)) fail_corrupt(path, "it is a link, not a file");
  // A file that cannot be examined is an error, but not known to be corrupt.
  if (failed) fail_call("stat", "checkpoint: ", path, ": ", failed.message());
  if (::access(path.c_str(), R_OK) != 0) {
    fail_call("access", "checkpoint: ", path, ": ", std::strerror(errno));
  }
  return opened_file(path);
}

std::shared_ptr<const OpenedFile> open_rank_file(const std::string& path) {
  const auto opened = opened_safetensors(path);
  const auto& metadata = opened->tensors.metadata();
  std::vector<uint64_t> numbers;
  const auto has = [&](const char* key, size_t count) {
    const auto found = metadata.find(key);
    return found != metadata.end() && parse_hex(found->second, numbers) && numbers.size() == count;
  };
  // The JSON is sound; but a changed byte need not break that.
  uint64_t hash = 0;
  if (!has("weft.header", 1) || !hash_header(opened->file.text(0, opened->data_start), hash)) {
    fail_corrupt(path, "the header has no checksum");
  }
  if (hash != numbers[0]) fail_corrupt(path, "the header does not have its checksum");
  for (const char* key : {"weft", "weft.blocks", "weft.rank"}) {
    if (!metadata.contains(key)) fail_corrupt(path, "the header has no ", in_quotes(key));
  }
  const auto blocks = static_cast<size_t>(blocks_in(opened->data_bytes()));
  if (!has("weft.blocks", blocks)) {
    fail_corrupt(path, "the checksums are not those of ", blocks, " blocks");
  }
  opened->hashes = std::move(numbers);
  if (!metadata.contains("weft.finite")) return opened;
  if (!has("weft.finite", 2)) {
    fail_corrupt(path, "the count of elements that are not finite is not a number");
  }
  opened->non_finite = {static_cast<int64_t>(numbers[0]), static_cast<int64_t>(numbers[1])};
  return opened;
}

static bool has_entries(const OpenedFile& opened, const RankFiles& world, int rank) {
  const auto& actual = opened.tensors.entries();
  const std::vector<RankFiles::Entry> expected = world.entries(rank);
  if (actual.size() != expected.size()) return false;
  for (const RankFiles::Entry& entry : expected) {
    const SavedTensor& tensor = world.manifest().tensors[entry.tensor];
    const SafetensorsEntry* found = opened.tensors.find(tensor.name);
    const bool same = found && found->dtype == tensor.dtype && found->shape == entry.box->shape &&
                      found->offset == opened.data_start + entry.offset;
    if (!same) return false;
  }
  return true;
}

void check_rank_file(const OpenedFile& opened, const RankFiles& world, int rank) {
  const std::string& path = opened.file.path();
  const std::string& own_rank = opened.tensors.metadata().at("weft.rank");
  if (opened.manifest_text() != world.manifest_text() || own_rank != std::to_string(rank)) {
    throw BadFile(Verdict::mixed,
                  concat("checkpoint: ", path, " is not of step ", world.manifest().step,
                         " of generation ", world.manifest().generation, ", rank ", rank, " of ",
                         world.manifest().ranks, ", as the others are"),
                  path);
  }
  const auto tensors = static_cast<int64_t>(world.manifest().tensors.size());
  const std::optional<NonFinite>& marked = opened.non_finite;
  const bool good = marked ? marked->count >= 0 && marked->tensor < tensors &&
                                 (marked->count > 0) == (marked->tensor >= 0)
                           : world.manifest().format < 2;
  if (!good) fail_corrupt(path, "the count of elements that are not finite is none of this world");
  if (!has_entries(opened, world, rank)) {
    fail_corrupt(path, "its tensors are not those that its manifest says");
  }
}

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
  work_in_parallel(static_cast<size_t>(blocks_in(file.data_bytes())),
                   is_object_path(file.file.path()) ? kObjectReads : kReads, check);
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
  for (const BadFile& one : bad) {
    if (!one.file.empty()) report.files.push_back(one.file);
  }
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
  if (!path_is_directory(path)) {
    fail("checkpoint: ", path, " is missing or a file, expected a directory");
  }
  return unless_removed(path, [&] {
    CheckpointReport report;
    try {
      report = judged(path, options);
    } catch (const BadFile& bad) {
      report_bad({bad}, report);
    } catch (const std::invalid_argument& error) {
      report_bad({BadFile(Verdict::corrupt, error.what(), {})}, report);
    }
    if (report.verdict != Verdict::complete && !path_exists(path)) fail_removed(path);
    return report;
  });
}

void fail_removed(const std::string& path) {
  throw CheckpointRemoved(
      concat("checkpoint: ", path, " is missing; a run removed it before it was read"));
}

std::optional<CheckpointReport> inspect_existing(const std::string& path,
                                                 const InspectOptions& options) {
  try {
    if (path_exists(path)) return inspect_checkpoint(path, options);
  } catch (const std::exception&) {
    if (path_exists(path)) throw;
  }
  return {};
}

std::vector<NamedCheckpoint> named_checkpoints(const std::string& directory) {
  std::error_code error;
  std::vector<NamedCheckpoint> found;
  for (const auto& [name, kind, bytes] : Store::of(directory).list(directory, error)) {
    NamedCheckpoint named{.path = (fs::path(directory) / name).string()};
    if (!parse_directory_name(name, named.step, named.generation)) continue;
    if (kind == PathKind::directory) found.push_back(std::move(named));
  }
  const bool absent =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (absent) fail("checkpoint: ", directory, ": ", error.message());
  if (error) fail_call("readdir", "checkpoint: ", directory, ": ", error.message());
  return found;
}

std::vector<NamedCheckpoint> sorted_checkpoints(const std::string& directory) {
  std::vector<std::tuple<int64_t, int64_t, NamedCheckpoint>> found;
  std::map<int64_t, int> with_step;
  for (const NamedCheckpoint& named : named_checkpoints(directory)) {
    found.emplace_back(stated_step(named.path, named.step), 0, named);
    ++with_step[std::get<0>(found.back())];
  }
  for (auto& [step, time, named] : found) {
    if (with_step[step] > 1) time = Store::of(directory).written(named.path);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<NamedCheckpoint> sorted;
  for (auto& [step, time, named] : found) sorted.push_back(std::move(named));
  return sorted;
}

std::vector<std::string> list_checkpoints(const std::string& directory) {
  std::vector<std::string> paths;
  for (const NamedCheckpoint& named : sorted_checkpoints(directory)) paths.push_back(named.path);
  return paths;
}

std::string newest_complete_checkpoint(
    const std::string& directory,
    const std::function<void(const std::string&, const CheckpointReport&)>& passed_over) {
  std::vector<std::pair<std::string, CheckpointReport>> seen;
  size_t chosen = SIZE_MAX;
  bool was_removed = false;
  for (const std::string& path : list_checkpoints(directory)) {
    const auto existing = inspect_existing(path, {.depth = Inspection::headers});
    was_removed |= !existing;
    if (!existing) continue;
    seen.emplace_back(path, *existing);
    const CheckpointReport& report = seen.back().second;
    if (report.verdict != Verdict::complete) continue;
    if (report.non_finite <= 0 || chosen == SIZE_MAX) chosen = seen.size() - 1;
    if (report.non_finite <= 0) break;
  }
  // A run removes one only for a newer one.
  if (chosen == SIZE_MAX && was_removed) return newest_complete_checkpoint(directory, passed_over);
  for (size_t i = 0; passed_over && i < std::min(chosen, seen.size()); ++i) {
    passed_over(seen[i].first, seen[i].second);
  }
  return chosen == SIZE_MAX ? "" : seen[chosen].first;
}

std::string newest_complete_checkpoint(const Communicator& world, const std::string& directory) {
  return told_by_first(world, [&] { return newest_complete_checkpoint(directory); });
}

}  // namespace weft
