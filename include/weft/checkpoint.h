// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "weft/checkpoint_report.h"
#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/state_dict.h"

namespace weft {

struct CheckpointOptions {
  /// Number of complete checkpoints of this run and earlier steps to keep in addition to the one
  /// being saved. Once that one is written, rank 0 removes older ones of this run. 0: keep all.
  int keep = 0;
  /// The run goes on from what the directory holds when the saver is made: those checkpoints count
  /// as its own. Those of other runs are neither counted nor removed.
  bool continues = false;
  /// The step after which a run with `continues` goes on (0: none was done). Checkpoints of later
  /// steps that existed then were passed over, so they do not count towards `keep`, and are removed
  /// when enough newer ones are complete. -1: the step before the first that is saved.
  int64_t resumed_step = -1;
  /// Memory for copies that `save_async` writes from, a rank; what does not fit is written before
  /// it returns. -1: as much as there is to save.
  int64_t async_bytes = -1;
  /// True: a save throws std::runtime_error, naming the tensor, when an element of this rank's part
  /// is NaN or infinite; the rank's file does not appear then. False: such a state is saved
  /// like any other, because masks and running bounds may be infinite on purpose, and marked:
  /// CheckpointReport::non_finite.
  bool refuse_non_finite = false;
  /// Seconds, from 0.001 to 86400, that another job waits for a sign of life of this saver before
  /// it takes the directory over. The saver shows one four times as often.
  double lease_seconds = 60;
};

/// Saves states of a run to "<directory>/step-<step>-<generation>/", a file a rank, and a
/// replicated part by one of its holders. A save makes no collective and overwrites nothing;
/// whether a checkpoint is complete is for its readers to say. Belongs to its rank's thread. While
/// it lives, the first rank holds the directory's lease: one saver at a time saves to a directory.
/// Warns (weft/error.h), on any thread, when rank 0 cannot remove an old checkpoint or finds the
/// previous save CORRUPT or MIXED, and when a save without a later wait() fails.
class WEFT_API CheckpointSaver : NotCopied {
 public:
  /// Collective over all ranks that hold the state: they agree on the run's generation, and the
  /// first rank takes the directory's lease: at once from a saver that ended, of this process or of
  /// an earlier start of this Slurm job, else when the lease of another job was not renewed for its
  /// lifetime, with a warning that names the job it waits for.
  /// std::invalid_argument when that job is alive, or when the directory cannot be made or written
  /// because of its path; std::runtime_error when the system fails or is full, or the directory
  /// cannot hold a lease.
  CheckpointSaver(const Communicator& world, const std::string& directory,
                  const CheckpointOptions& options = {});
  /// Waits for a save under way; what it would throw becomes a warning.
  ~CheckpointSaver();

  /// Writes this rank's part; call it on all ranks, in any order. Returns the checkpoint's path
  /// when this rank's file is on the disk, complete under its final name: it survives a crash of
  /// this machine. Other ranks' files may be missing still, and readers pass over the checkpoint
  /// until all are there: `wait_all`. A save under way is waited for first, and throws here
  /// what went wrong with it. std::invalid_argument for a state that cannot be saved, or when the
  /// file exists already; std::runtime_error naming file, call and reason, and what
  /// check_may_save throws.
  std::string save(int64_t step, const StateDict& state);
  std::string save(int64_t step, const TrainingState& state) {
    return save(step, state.state_dict());
  }
  /// Returns as soon as the elements are copied, so that they may change, and writes them
  /// meanwhile.
  std::string save_async(int64_t step, const StateDict& state);
  std::string save_async(int64_t step, const TrainingState& state) {
    return save_async(step, state.state_dict());
  }
  /// Waits until nothing is under way; throws the error of a save that failed.
  void wait();
  bool is_saving() const;
  /// The same, and then until the files of all ranks of the last save are there, by looking into
  /// the directory: no collective, so that any of the ranks may call it. Returns the checkpoint's
  /// path; it is COMPLETE, and --resume and `load` find it. std::invalid_argument before the first
  /// save; std::runtime_error naming the missing files after `timeout`.
  std::string wait_all(std::chrono::milliseconds timeout = std::chrono::minutes(10));
  /// Throws std::runtime_error on the first rank when another job has taken the lease over, or has
  /// saved a checkpoint that is newer than this saver's last. Ranks that share the outcome before a
  /// save leave no incomplete one.
  void check_may_save() const;

  /// Notes on the first rank that all ranks have saved one of this generation: `noted_generation`.
  void note_saved() const;

  /// Sets CheckpointOptions::resumed_step where it follows from what is chosen after this saver
  /// was made. Call it before the first save.
  void set_resumed_step(int64_t step);
  /// 16 hexadecimal digits, different in each run.
  const std::string& generation() const { return generation_; }

 private:
  struct Saving;
  std::unique_ptr<Saving> start(int64_t step, const StateDict& state);

  Communicator world_;
  std::string directory_;
  CheckpointOptions options_;
  std::string generation_;
  /// State that saves share: buffers for copies, the lease, the last save.
  struct Plans;
  std::unique_ptr<Plans> plans_;
  std::unique_ptr<Saving> under_way_;
};

/// Contents of a checkpoint of any format that `load` reads.
struct CheckpointContents {
  struct Entry {
    DType dtype = DType::f32;
    Shape shape;
  };
  std::map<std::string, Entry> tensors;
  std::map<std::string, int64_t> numbers;
  /// Says from how many files the shapes were inferred, for shards that PyTorch wrote, which do not
  /// state their number. Empty for formats that state it.
  std::string note;
};
WEFT_API CheckpointContents checkpoint_contents(const std::string& path);

/// Fills the tensors of `into`, wherever and however they lie, and its numbers, from a checkpoint:
/// a directory of a CheckpointSaver, one of .safetensors shards of PyTorch's distributed
/// checkpoint, or a model in safetensors form. Each rank reads the blocks that hold its own
/// elements, checks them, and uses no more memory than the tensors have and four blocks of 4 MiB;
/// no communication. Of a run's directory it takes the newest complete checkpoint: one choice for
/// the mesh of the tensors, whose ranks must all call it, and another one on all of them where a
/// run removes it meanwhile. Each element is proven to be written once before any is.
/// std::invalid_argument naming file, tensor and block for unmatched keys, shapes and dtypes, and
/// whatever the verdict would be; what was filled until then is undefined.
WEFT_API void load(const std::string& path, StateDict& into);
/// The same for the keys that both have; gives the others.
[[nodiscard]] WEFT_API SkippedKeys load_common_keys(const std::string& path, StateDict& into);
/// Fills the tensors of all parts and gives them their numbers.
WEFT_API void load(const std::string& path, const TrainingState& into);

}  // namespace weft
