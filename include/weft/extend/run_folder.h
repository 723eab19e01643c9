// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "weft/checkpoint_report.h"
#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/ranks.h"
#include "weft/transformer.h"

namespace weft {

struct ResumeOptions;

/// The reason of an MFU above 1.
inline constexpr const char* kAbovePeak =
    "MFU above 100 %: the peak (--peak-tflops, or what products reach on this machine) is too low";

// The weights that a directory holds: a checkpoint of `weft train` or `weft ckpt import`, or a
// Hugging Face model.

/// True when the path is a directory, as the system reports it.
WEFT_API bool is_directory(const std::string& path);
/// The place to which the path leads, or would lead if it existed: equal for all names of it.
WEFT_API std::filesystem::path located(const std::string& path);
/// std::invalid_argument "<what> <path> is missing or a file, expected a directory".
WEFT_API void check_directory(const std::string& what, const std::string& path);
/// True when the directory is a Hugging Face model: it has a config.json.
WEFT_API bool is_hugging_face(const std::string& directory);
/// `directory` if it is one of them; of a run's directory the newest complete checkpoint.
/// std::invalid_argument, which begins with `flag`, when it holds none.
WEFT_API std::string weights_in(const std::string& flag, const std::string& directory);
WEFT_API TransformerConfig config_of_weights(const std::string& weights);
/// Their files, sorted.
WEFT_API std::vector<std::string> files_of_weights(const std::string& weights);
/// Fills a model that has memory; each rank reads what it holds, and rounds it to the model's dtype
/// where the files have another one. std::invalid_argument for elements that are not finite, and
/// for a Hugging Face model where `model` is not a TransformerModel.
WEFT_API void load_weights(Module& model, const std::string& weights);

/// Keeps the files of `weights`, a Hugging Face model or a checkpoint of a run that keeps some, in
/// the run of `directory`, in place of those of another model. Does nothing where `weights` are of
/// that run, and for an empty `directory`.
WEFT_API void keep_files(const std::string& weights, const std::string& directory);

/// Renames a file that is not empty to the first free name of "<path>.1", "<path>.2", ..., with a
/// warning that says so: what a run writes replaces nothing. Leaves pipes and devices alone.
/// std::invalid_argument, which begins with `flag`, when it cannot.
WEFT_API void set_aside(const char* flag, const std::string& path);

// The checkpoints of a run's directory.

/// States when a run begins at step 1 although there are checkpoints, none of them complete.
enum class Start : uint8_t {
  refused,
  /// Begins there when no save was ever complete: each run left at most one checkpoint, which lacks
  /// files, and noted none.
  never_saved,
  allowed
};

/// "finite elements: all", "finite elements: all but 3, the first in tensor "x"" or "finite
/// elements: unknown".
WEFT_API std::string finite_in_words(const CheckpointReport& report);

/// The newest complete checkpoint of a directory (of the finite ones, where there are any), or the
/// directory itself, when it is one; "" when there is none at all. Warns of what it passed over,
/// and why; of those in `suspects` every block is read first. std::runtime_error when there are
/// some and none is complete, or the system fails; `start` says when it returns "" instead.
/// `cure` ends the error where `start` is not `refused`.
WEFT_API std::string complete_checkpoint(const std::string& directory,
                                         const std::set<std::string>& suspects = {},
                                         Start start = Start::refused,
                                         const std::string& cure = "--allow-change start");
/// The same, found by rank 0 and told to the others. Collective.
WEFT_API std::string chosen_checkpoint(const std::string& what, const std::string& directory,
                                       const Communicator& world,
                                       const std::set<std::string>& suspects = {},
                                       Start start = Start::refused,
                                       const std::string& cure = "--allow-change start");

/// Follows ResumeOptions::allow_change.
WEFT_API Start start_of(const ResumeOptions& options);
/// Checks what the options say together, and that `save` takes no other run's directory.
WEFT_API void check_directories(const ResumeOptions& options);
/// The signal at which a run of this process was saved and ended; 0: none.
WEFT_API int stopped_by();

/// Calls `work`, which takes a checkpoint of the run's directory `path`, and again where that was
/// removed meanwhile for newer ones. Ranks that are processes cannot begin anew: the first error
/// ends them.
template <class Work> auto again_if_removed(const std::string& path, const Work& work) {
  for (int left = 100;; --left) {
    try {
      return work();
    } catch (const CheckpointRemoved&) {
      if (left == 0 || launched_ranks() > 1 || !is_directory(path)) throw;
    }
  }
}

/// std::invalid_argument on all ranks when the text of one is not rank 0's: "rank 2 <verb> <own>
/// but rank 0 <first>". Collective; nothing where all ranks are threads, which have the same.
WEFT_API void check_same(const Communicator& world, const char* verb, const std::string& own);

}  // namespace weft
