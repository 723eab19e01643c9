// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/file_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/run_directory.h"
#include "checkpoint/source.h"
#include "weft/checkpoint.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/extend/disk_memory.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/store.h"
#include "weft/ops/factories.h"
#include "weft/storage.h"

namespace weft {

/// A rank's bytes in the order of its file, where they lie in memory. Parts that are on another
/// device, or not dense, are copied when they are visited, one at a time; those on disk pass
/// through a buffer.
class Snapshot {
 public:
  Snapshot(const RankFiles& files, int rank, const StateDict& state) {
    for (const RankFiles::Entry& entry : files.entries(rank)) {
      if (entry.bytes == 0) continue;
      const std::string& name = files.manifest().tensors[entry.tensor].name;
      const Tensor local = state.tensors.at(name).local();
      if (!(local.shape() == entry.box->shape)) {
        fail("save: tensor ", in_quotes(name), " has a part ", local.shape(), ", expected ",
             entry.box->shape, ", that of its layout");
      }
      pieces_.push_back({local, entry.bytes, rests_on_disk(local)});
    }
  }

  /// Bytes from `begin` to `end` of the data, piece by piece.
  void for_bytes(int64_t begin, int64_t end,
                 const std::function<void(std::span<const std::byte>)>& visit) {
    int64_t at = 0;
    for (const Piece& piece : pieces_) {
      const int64_t to = std::min(end - at, piece.bytes);
      for (int64_t from = std::max<int64_t>(begin - at, 0); from < to;) {
        const std::span<const std::byte> part = bytes_at(piece, from, to);
        visit(part);
        from += static_cast<int64_t>(part.size());
      }
      at += piece.bytes;
    }
  }

  /// Bytes up to the end of the last piece that rests on disk.
  int64_t end_on_disk() const {
    int64_t at = 0, end = 0;
    for (const Piece& piece : pieces_) {
      at += piece.bytes;
      if (piece.on_disk) end = at;
    }
    return end;
  }

  /// Lets go of all tensors.
  void clear() { pieces_.clear(), copy_ = {}, copied_ = nullptr, read_ = {}; }

 private:
  struct Piece {
    Tensor local;
    int64_t bytes;
    bool on_disk;
  };

  /// Bytes of a piece from `begin` on, at most up to `end`.
  std::span<const std::byte> bytes_at(const Piece& piece, int64_t begin, int64_t end) {
    if (piece.on_disk) {
      constexpr int64_t kMost = 4 * DiskMemory::kBlock;
      if (!read_.storage()) read_ = DiskBuffer(kMost);
      const int64_t from = begin / DiskMemory::kBlock * DiskMemory::kBlock;
      const int64_t size = std::min(kMost, piece.bytes - from);
      const DiskPlace place = disk_place(piece.local);
      place.memory->read(place.offset + from, size, read_.data(), true).wait();
      return {read_.data() + (begin - from),
              static_cast<size_t>(std::min(end, from + size) - begin)};
    }
    const bool is_here =
        piece.local.block().is_dense() && piece.local.device().kind == DeviceKind::cpu;
    if (!is_here && copied_ != &piece) {
      const NoGrad no_grad;
      copy_ = {};
      copy_ = empty(piece.local.shape(), {.dtype = piece.local.dtype()});
      weft::copy_(copy_, piece.local);
      copied_ = &piece;
    }
    const void* data = (is_here ? piece.local : copy_).block().data;
    return {static_cast<const std::byte*>(data) + begin, static_cast<size_t>(end - begin)};
  }

  std::vector<Piece> pieces_;
  /// A copy of piece `copied_`.
  Tensor copy_;
  const Piece* copied_ = nullptr;
  /// Blocks that were read from disk.
  DiskBuffer read_;
};

struct CheckpointSaver::Plans {
  Ref<Storage> copies;
  OwnCheckpoints own;
  std::shared_ptr<Lease> lease;
  /// The last save's path and step.
  std::string last;
  int64_t last_step = 0;
  /// The checkpoints that were there when the first rank took the lease.
  std::set<std::string> known;
  /// No other run may have saved a later step than this one since.
  int64_t newest = 0;

  void check_newest(const std::string& directory) const {
    check_no_newer_run(directory, newest, own.generation, known);
  }
};

/// A rank's file being written, in this thread or another.
struct CheckpointSaver::Saving {
  /// It outlives this.
  const CheckpointSaver& saver;
  std::string path;
  std::shared_ptr<const RankFiles> files;
  Snapshot snapshot;
  FileWriter writer;
  int rank;
  std::string previous;
  std::thread thread = {};
  std::atomic<bool> done = false;
  std::exception_ptr error = {};

  void write(int64_t begin, int64_t end) {
    snapshot.for_bytes(begin, end, [&](std::span<const std::byte> piece) { writer.write(piece); });
  }
  void check_finite() const {
    const auto [count, tensor] = writer.non_finite();
    if (count == 0) return;
    const Manifest& manifest = files->manifest();
    fail_call("save", "tensor ", in_quotes(manifest.tensors[static_cast<size_t>(tensor)].name),
              " at step ", manifest.step, " is not finite on rank ", rank, " (", count,
              " elements of its file are NaN or infinite), expected finite values; clear "
              "refuse_non_finite (weft train --save-non-finite) to save them marked");
  }
  void finish() {
    if (saver.options_.refuse_non_finite) check_finite();
    // A process that was stopped while it wrote leaves its checkpoint incomplete.
    if (saver.plans_->lease) saver.plans_->lease->check();
    // Requests to an object store are made here, where training does not wait for them.
    if (saver.plans_->lease && is_object_path(path)) saver.plans_->check_newest(saver.directory_);
    writer.finish();
    if (rank == 0) look_after_others();
  }
  /// The work of rank 0 once its file is safe; none of it makes the save fail.
  void look_after_others() const {
    const int64_t step = files->manifest().step;
    const auto attempt = [&](const auto& work) {
      try {
        work();
      } catch (const std::exception& problem) {
        warn("the checkpoint of step ", step, " is saved, but ", problem.what());
      }
    };
    if (!previous.empty()) attempt([&] { check_previous(); });
    const int keep = saver.options_.keep;
    if (keep > 0) attempt([&] { retain_newest(saver.directory_, step, keep, saver.plans_->own); });
  }
  /// A save makes no collective: that ranks do not fit together is seen in their files only. One
  /// that lacks files may still be written by slower ranks.
  void check_previous() const {
    // The checkpoint may have been moved to an archive.
    const auto report = inspect_existing(previous, {.depth = Inspection::headers});
    if (!report || report->verdict == Verdict::complete) return;
    if (report->verdict == Verdict::incomplete) return;
    warn(previous, " is ", name_of(report->verdict), ": ", report->reason);
  }
};

CheckpointSaver::CheckpointSaver(const Communicator& world, const std::string& directory,
                                 const CheckpointOptions& options)
    : world_(world), directory_(directory), options_(options), plans_(std::make_unique<Plans>()) {
  if (directory.empty()) fail("checkpoint: the directory is empty, expected a name");
  if (options.keep < 0)
    fail("checkpoint: keep must be at least 0, got ", options.keep, "; 0 keeps all");
  if (!(options.lease_seconds >= 0.001 && options.lease_seconds <= 86400)) {
    fail("checkpoint: lease_seconds is ", options.lease_seconds, ", expected 0.001 to 86400");
  }
  const std::chrono::milliseconds lifetime(static_cast<int64_t>(options.lease_seconds * 1000));
  OwnCheckpoints& own = plans_->own;
  std::shared_ptr<Lease>& lease = plans_->lease;
  const auto begin = [&]() -> std::string {
    make_directories(directory_);
    if (!lease) lease = std::make_shared<Lease>(directory_, lifetime);
    if (!lease->take()) return {};
    check_can_rename(directory_);
    // While the lease is held, all others' uploads to checkpoints are abandoned.
    if (is_object_path(directory_)) abort_uploads(directory_, &has_checkpoint_name);
    for (const NamedCheckpoint& there : named_checkpoints(directory_)) {
      plans_->known.insert(there.path);
      if (options.continues) own.earlier.insert(there.generation);
    }
    if (options.continues) add_hidden(directory_, own);
    return drawn_tag();
  };
  // The wait for another job may be longer than the deadline of the other ranks.
  while (generation_.empty()) generation_ = told_by_first(world, begin);
  make_directories(directory_);
  own.generation = generation_;
  own.resumed_step = options_.resumed_step;
}

CheckpointSaver::~CheckpointSaver() {
  try {
    try {
      wait();
    } catch (const std::exception& error) {
      warn("a save without a later wait() failed: ", error.what());
    }
  } catch (...) {  // the warning handler threw, and a destructor must not
  }
}

void CheckpointSaver::check_may_save() const {
  if (!plans_->lease) return;
  plans_->newest = std::max({int64_t{0}, options_.resumed_step, plans_->last_step});
  if (is_object_path(directory_)) return plans_->lease->check_last_seen();
  plans_->lease->check();
  plans_->check_newest(directory_);
}

void CheckpointSaver::note_saved() const {
  if (plans_->lease) plans_->lease->note_saved(generation_);
}

void CheckpointSaver::set_resumed_step(int64_t step) {
  options_.resumed_step = plans_->own.resumed_step = step;
}

bool CheckpointSaver::is_saving() const { return under_way_ && !under_way_->done; }

void CheckpointSaver::wait() {
  if (!under_way_) return;
  if (under_way_->thread.joinable()) under_way_->thread.join();
  const std::unique_ptr<Saving> ended = std::move(under_way_);
  if (ended->error) std::rethrow_exception(ended->error);
}

std::string CheckpointSaver::wait_all(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  wait();
  const std::string& path = plans_->last;
  if (path.empty()) fail("wait_all: number of saves is 0, expected at least 1");
  const std::chrono::milliseconds pause(is_object_path(path) ? 250 : 20);
  for (;; std::this_thread::sleep_for(pause)) {
    const bool is_late = std::chrono::steady_clock::now() >= end;
    // Names first: only a whole file has one.
    if (!is_late && std::ssize(rank_files_in(path).names) < world_.size()) continue;
    const CheckpointReport report = inspect_checkpoint(path, {.depth = Inspection::headers});
    if (report.verdict == Verdict::complete) return path;
    if (report.verdict == Verdict::incomplete && !is_late) continue;
    fail_call("wait_all", path, " is ", name_of(report.verdict), ": ", report.reason);
  }
}

static void check_ranks(const StateDict& state, int rank) {
  for (const auto& [name, tensor] : state.tensors) {
    if (!tensor.is_sharded() || tensor.sharding().mesh().rank() == rank) continue;
    fail("save: tensor ", in_quotes(name), " is laid out over a mesh with rank ",
         tensor.sharding().mesh().rank(), ", expected ", rank, ", the rank that saves");
  }
}

std::unique_ptr<CheckpointSaver::Saving> CheckpointSaver::start(int64_t step,
                                                                const StateDict& state) {
  wait();
  if (step < 0) fail("save: step must be at least 0, got ", step);
  const int rank = world_.rank();
  const auto files =
      std::make_shared<const RankFiles>(manifest_of(state, world_.size(), step, generation_));
  check_ranks(state, rank);
  check_may_save();
  plans_->last_step = step;
  const std::string path = directory_ + "/" + directory_name_of(step, generation_);
  make_directory(path);
  if (plans_->last.empty() && options_.resumed_step < 0) {
    plans_->own.resumed_step = step - 1;
  }
  return std::unique_ptr<Saving>(new Saving{.saver = *this,
                                            .path = path,
                                            .files = files,
                                            .snapshot = Snapshot(*files, rank, state),
                                            .writer = FileWriter(path, *files, rank),
                                            .rank = rank,
                                            .previous = std::exchange(plans_->last, path)});
}

std::string CheckpointSaver::save(int64_t step, const StateDict& state) {
  const std::unique_ptr<Saving> saving = start(step, state);
  saving->write(0, saving->files->data_bytes(saving->rank));
  saving->finish();
  return saving->path;
}

std::string CheckpointSaver::save_async(int64_t step, const StateDict& state) {
  std::unique_ptr<Saving> saving = start(step, state);
  const int64_t bytes = saving->files->data_bytes(saving->rank);
  const int64_t budget = options_.async_bytes < 0 ? bytes : std::min(options_.async_bytes, bytes);
  // Whole elements.
  // Arrays on disk, and all arrays before them, are not copied to memory.
  const int64_t direct =
      std::max(saving->snapshot.end_on_disk(), std::min(bytes, (bytes - budget + 7) / 8 * 8));
  const int64_t most = bytes - direct;
  saving->write(0, direct);
  if (!plans_->copies || static_cast<int64_t>(plans_->copies->bytes()) < most) {
    plans_->copies = {};
    plans_->copies = Storage::allocate(static_cast<size_t>(most));
  }
  auto* to = static_cast<std::byte*>(plans_->copies->data());
  saving->snapshot.for_bytes(direct, bytes, [&](std::span<const std::byte> piece) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  });
  saving->snapshot.clear();
  under_way_ = std::move(saving);
  under_way_->thread = std::thread([job = under_way_.get(), copies = plans_->copies, most] {
    try {
      job->writer.write({static_cast<const std::byte*>(copies->data()), static_cast<size_t>(most)});
      job->finish();
    } catch (...) {
      job->error = std::current_exception();
    }
    job->done = true;
  });
  return under_way_->path;
}

}  // namespace weft
