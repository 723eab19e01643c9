// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "weft/communicator.h"
#include "weft/export.h"

// Reports of the checkpoints that a directory holds, and whether they are whole.

namespace weft {

/// The result of inspecting a checkpoint.
enum class Verdict : uint8_t { complete, incomplete, mixed, corrupt };
/// "COMPLETE", "INCOMPLETE", "MIXED", "CORRUPT".
WEFT_API std::string_view name_of(Verdict verdict);

struct CheckpointReport {
  Verdict verdict = Verdict::incomplete;
  /// One sentence for people: what is wrong, and where.
  std::string reason;
  /// incomplete: files that are missing; mixed: those that do not belong; corrupt: the bad ones.
  std::vector<std::string> files;
  /// corrupt: the first bad file, its first bad tensor and its first bad block of 4 MiB, where they
  /// are known.
  std::string file, tensor;
  int64_t block = -1;
  /// Read from the files.
  int64_t step = -1;
  std::string generation;
  int ranks = 0;
  int64_t tensors = 0;
  int64_t bytes = 0;
  /// Elements that are NaN or infinite, as counted when they were saved, and the first tensor that
  /// has some. -1: not counted (format 1).
  int64_t non_finite = -1;
  std::string non_finite_tensor;
};

/// A checkpoint was removed while it was read, by a run that keeps only some (CheckpointOptions::
/// keep) or by hand: the directory may hold a newer one.
class WEFT_API CheckpointRemoved : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The extent of an inspection: names, sizes and headers, or all data as well.
enum class Inspection : uint8_t { headers, data };

struct InspectOptions {
  Inspection depth = Inspection::data;
  int threads = 1;
  /// Called now and then with the bytes read so far and in all; from one thread at a time.
  std::function<void(int64_t done, int64_t all)> progress = {};
};

/// Never throws for what lies in the directory. std::invalid_argument when it is not there;
/// std::runtime_error when the system cannot open or read a header: that is no verdict;
/// CheckpointRemoved when it is removed meanwhile.
WEFT_API CheckpointReport inspect_checkpoint(const std::string& path,
                                             const InspectOptions& options = {});

/// The same of one that a run may remove at any time: nothing where it is missing or is removed
/// meanwhile.
WEFT_API std::optional<CheckpointReport> inspect_existing(const std::string& path,
                                                          const InspectOptions& options = {});

/// The checkpoints of a directory that a CheckpointSaver wrote to, newest first: by the step that
/// their files state, then by when they were written.
WEFT_API std::vector<std::string> list_checkpoints(const std::string& directory);
/// The newest complete one by names, sizes and headers, or "". The order: the newest whose elements
/// are all finite or were not counted (format 1), else the newest. `passed_over` is called for each
/// newer one, complete or not. std::invalid_argument when the directory is not there;
/// std::runtime_error when the system cannot read it or a header.
WEFT_API std::string newest_complete_checkpoint(
    const std::string& directory,
    const std::function<void(const std::string& path, const CheckpointReport&)>& passed_over = {});
/// The one that the first rank of `world` finds, on all its ranks: they would choose by themselves
/// while another job completes one. What it throws there is thrown on all. Collective.
WEFT_API std::string newest_complete_checkpoint(const Communicator& world,
                                                const std::string& directory);

/// The generation that the last CheckpointSaver::note_saved in a directory was of, or "": an
/// incomplete checkpoint of it has lost files, one of another generation may never have been whole.
WEFT_API std::string noted_generation(const std::string& directory);

}  // namespace weft
