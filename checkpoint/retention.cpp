// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/retention.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "checkpoint/file_writer.h"
#include "checkpoint/manifest.h"
#include "weft/checkpoint.h"
#include "weft/error.h"

namespace weft {

namespace fs = std::filesystem;

std::vector<std::string> list_checkpoints(const std::string& directory) {
  std::error_code error;
  std::vector<std::tuple<int64_t, fs::file_time_type, std::string>> found;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    int64_t step = 0;
    std::string generation;
    std::error_code ignored;
    if (!parse_directory_name(at->path().filename().string(), step, generation)) continue;
    if (at->is_symlink(ignored) || !at->is_directory(ignored)) continue;
    found.emplace_back(step, at->last_write_time(ignored), at->path().string());
  }
  const bool absent =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (absent) fail("checkpoint: ", directory, ": ", error.message());
  if (error) fail_call("readdir", "checkpoint: ", directory, ": ", error.message());
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> paths;
  for (const auto& [step, time, path] : found) paths.push_back(path);
  return paths;
}

std::string newest_complete_checkpoint(
    const std::string& directory,
    const std::function<void(const std::string&, const CheckpointReport&)>& passed_over) {
  for (const std::string& path : list_checkpoints(directory)) {
    const CheckpointReport report = inspect_checkpoint(path, {.depth = Inspection::headers});
    if (report.verdict == Verdict::complete) return path;
    if (passed_over) passed_over(path, report);
  }
  return {};
}

static constexpr char kFound = 'f', kNotThere = 'n', kUnreadable = 'u';

/// What one rank finds or throws, in a form to tell the others.
static std::string found_or_thrown(const std::string& directory) {
  try {
    return kFound + newest_complete_checkpoint(directory);
  } catch (const std::invalid_argument& error) {
    return std::string(1, kNotThere) + error.what();
  } catch (const std::exception& error) {
    return std::string(1, kUnreadable) + error.what();
  }
}

std::string newest_complete_checkpoint(const Communicator& world, const std::string& directory) {
  // Also what it throws: the others would take its next collective for the answer.
  const std::string told = world.broadcast(world.rank() == 0 ? found_or_thrown(directory) : "", 0);
  const std::string text = told.substr(1);
  if (told[0] == kNotThere) throw_invalid_argument(text);
  if (told[0] == kUnreadable) throw_runtime_error(text);
  return text;
}

static std::string generation_of(const std::string& path, int64_t& step) {
  std::string generation;
  parse_directory_name(fs::path(path).filename().string(), step, generation);
  return generation;
}

std::set<std::string> generations_in(const std::string& directory) {
  std::set<std::string> generations;
  int64_t step = 0;
  for (const std::string& path : list_checkpoints(directory)) {
    generations.insert(generation_of(path, step));
  }
  return generations;
}

static void remove_all_of(const std::vector<std::string>& paths) {
  std::string failed;
  for (const std::string& path : paths) {
    std::error_code error;
    do {
      fs::remove_all(path, error);
    } while (error == std::errc::interrupted);
    if (error && failed.empty()) failed = concat("checkpoint: ", path, ": ", error.message());
  }
  if (!failed.empty()) fail_call("remove", failed);
}

void retain_newest(const std::string& directory, int64_t step, int keep,
                   const OwnCheckpoints& own) {
  int complete = 0;
  int64_t oldest = step;
  std::vector<std::string> old;
  for (const std::string& path : list_checkpoints(directory)) {
    int64_t its_step = 0;
    const std::string generation = generation_of(path, its_step);
    const bool is_mine = generation == own.generation;
    if (its_step >= step || !(is_mine || own.earlier.contains(generation))) continue;
    if (complete == keep) {
      // Of several of one step nobody knows which the run was resumed from.
      if (its_step < oldest) old.push_back(path);
    } else if ((is_mine || its_step <= own.resumed_step) &&
               inspect_checkpoint(path, {.depth = Inspection::headers}).verdict ==
                   Verdict::complete) {
      // Another rank may have given its file its name and not synced that yet.
      sync_directory(path);
      oldest = its_step;
      ++complete;
    }
  }
  remove_all_of(old);
}

}  // namespace weft
