// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/manifest.h"
#include "weft/checkpoint.h"
#include "weft/extend/file.h"
#include "weft/extend/pattern.h"
#include "weft/extend/store.h"
#include "weft/safetensors.h"
#include "weft/state_dict.h"

namespace weft {

[[noreturn]] void fail_removed(const std::string& path);
/// True for "step-<step>-<generation>".
bool has_checkpoint_name(const std::string& path);
/// Calls `read`. What it throws becomes CheckpointRemoved when `path` is missing afterwards, and
/// existed before or has the name of a checkpoint, which was chosen while it existed.
template <class Read> auto unless_removed(const std::string& path, const Read& read) {
  const bool existed = has_checkpoint_name(path) || path_exists(path);
  try {
    return read();
  } catch (const std::exception&) {
    if (!existed || may_exist(path)) throw;
    fail_removed(path);
  }
}

/// A fault of a file of a checkpoint, as a reader reports it.
class BadFile : public std::invalid_argument {
 public:
  BadFile(Verdict kind, const std::string& what, const std::string& path,
          std::string in_tensor = {}, int64_t number = -1)
      : std::invalid_argument(what),
        verdict(kind),
        file(std::filesystem::path(path).filename()),
        tensor(std::move(in_tensor)),
        block(number) {}

  Verdict verdict;
  /// The file's name, without its directory.
  std::string file, tensor;
  int64_t block;
};

/// A file that is open, its header checked.
struct OpenedFile {
  /// Any safetensors file; nothing in it is hashed.
  explicit OpenedFile(const std::string& path);
  /// A file of another format, of which one tensor is known.
  OpenedFile(const File& opened, const SafetensorsEntry& entry);

  File file;
  SafetensorsFile tensors;
  int64_t data_start;
  /// Hashes of the blocks of the data; empty when the file has none.
  std::vector<uint64_t> hashes;
  /// Empty when the file states no count: format 1, and files that weft did not write.
  std::optional<NonFinite> non_finite;

  /// Returns the manifest's text in the header of a rank's file.
  const std::string& manifest_text() const { return tensors.metadata().at("weft"); }
  int64_t data_bytes() const { return file.size() - data_start; }
  /// Checks block `number`, whose hash is what `read` gives. BadFile names tensor and block, of
  /// what `read` throws as well.
  void check_block(int64_t number, const std::function<uint64_t()>& read) const;
  /// The first tensor that has bytes in the block.
  std::string tensor_in(int64_t block) const;
};

/// A rank's file of a save, its own checks done: that of its header's hash, and that its entries
/// are whole. BadFile otherwise; INCOMPLETE when it is not there. std::runtime_error when the
/// system cannot open or read it: then nothing is known of it.
std::shared_ptr<const OpenedFile> open_rank_file(const std::string& path);
/// That such a file is the one of `rank` in this world.
void check_rank_file(const OpenedFile& opened, const RankFiles& world, int rank);

/// The places of tensors: boxes in files. Used by one thread at a time.
struct CheckpointSource {
  using Entry = CheckpointContents::Entry;
  struct StoredBox {
    size_t file;
    Box box;
  };

  std::string path;
  CheckpointContents contents = {};
  /// The boxes in which the tensor is stored.
  std::function<std::vector<StoredBox>(const std::string& name)> boxes_of = {};
  std::function<std::shared_ptr<const OpenedFile>(size_t number)> open = {};

  /// Opens it, and keeps the last few open: there may be more than a process may open.
  std::shared_ptr<const OpenedFile> file(size_t number) const;
  mutable std::map<size_t, std::shared_ptr<const OpenedFile>> opened = {};
};

/// The files of a directory that look like a save's, by rank and world: names only.
struct RankFileNames {
  /// Sorted by name.
  std::vector<std::string> names;
  /// Other .safetensors files.
  std::vector<std::string> strangers;
};
RankFileNames rank_files_in(const std::string& directory);

/// A sentence about a directory's name that its manifest contradicts; "" for the manifest's name
/// and for names that are not of the form "step-<step>-<generation>".
std::string wrong_name(const std::string& directory, const Manifest& manifest);
/// The step that the first sound file of a checkpoint states, or `otherwise`.
int64_t stated_step(const std::string& directory, int64_t otherwise);

/// The manifest that the files of a directory agree on: that of the step and generation which its
/// name says, else of most files. BadFile when no file has a sound header. One file is open at a
/// time.
struct AgreedManifest {
  std::shared_ptr<const RankFiles> world;
  /// Files with sound headers, by name: those of this world, and the others.
  std::set<std::string> own = {}, others = {};
  std::vector<BadFile> bad = {};
  /// The count over all files in `own`; empty when one of them does not state it.
  std::optional<NonFinite> non_finite = {};
};
AgreedManifest agreed_manifest(const std::string& directory, const RankFileNames& names);

/// A save, PyTorch's distributed checkpoint or its shards, or a model in safetensors form.
CheckpointSource open_source(const std::string& path);
/// True when the path is the directory of a run, with checkpoints in it.
bool holds_checkpoints(const std::string& path);

/// Calls `fill` with the checkpoint at `path`: the newest complete one of a run, chosen once for
/// all ranks over which the tensors are laid out, and chosen again where one was removed meanwhile.
void with_chosen(const std::string& path, const StateDict& into,
                 const std::function<void(const CheckpointSource&)>& fill);

/// Elements that are wanted: `box` of the tensor `name`, to go to `into`, dense and row-major.
struct Wish {
  std::string name;
  Box box;
  std::byte* into;
  /// No other rank wants them: what is read once need not stay in the page cache.
  bool is_own = false;
};

/// Proves that `boxes`, each inside `wanted`, together hold each element of it exactly once.
/// std::invalid_argument "checkpoint: <what>: ..." with the first hole's or overlap's sizes.
void check_covers_once(const std::string& what, const Box& wanted, const std::vector<Box>& boxes);

/// Fills all wishes. Each is first proven to be filled exactly once; each file is read once, by its
/// blocks that hold something wanted, a few at a time; where there are checksums they are checked.
/// Blocks of which all is wanted and own go past the page cache, unless it has them.
void read_wishes(const CheckpointSource& source, const std::vector<Wish>& wishes);

/// Keys of `to` that `from` lacks, and the other way round, in order.
template <class A, class B>
void add_unmatched_keys(const std::map<std::string, A>& to, const std::map<std::string, B>& from,
                        SkippedKeys& skipped) {
  for (const auto& [key, value] : to) {
    if (!from.contains(key)) skipped.missing.push_back(key);
  }
  for (const auto& [key, value] : from) {
    if (!to.contains(key)) skipped.unexpected.push_back(key);
  }
}

/// The first three names, and how many more there are: "a, b, c and 2 more".
std::string some_of(const std::vector<std::string>& names);
/// std::invalid_argument "<what>: ..." naming the first keys of each list, when there are any;
/// `source` is where the keys were looked for.
void check_no_keys_skipped(const char* what, const std::string& source, const SkippedKeys& skipped);

/// Fills this rank's part of a tensor, wherever it lies, from elements of `dtype`.
class TensorFill {
 public:
  TensorFill(const Tensor& whole, DType dtype);
  /// Takes the elements, dense and row-major.
  std::byte* memory() const { return static_cast<std::byte*>(dense_.block().data); }
  int64_t bytes() const { return dense_.numel() * static_cast<int64_t>(size_of(dense_.dtype())); }
  /// Call it once `memory` is filled.
  void finish() const;

 private:
  Tensor whole_;
  /// The tensor itself or memory for one that rests on disk, and its part or a dense copy of that.
  Tensor held_, dense_;
};

/// One parameter may be found under two names: std::invalid_argument, which begins with `what` and
/// names both, unless all their elements are equal (NaN to NaN). Collective where both are sharded.
void check_tied(const std::string& what, const std::string& name, const Tensor& tensor,
                const std::string& other_name, const Tensor& other);

}  // namespace weft
