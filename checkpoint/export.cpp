// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <range/v3/view/slice.hpp>
#include <set>

#include "checkpoint/export_plan.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/model_files.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/export.h"
#include "weft/extend/descriptor.h"
#include "weft/extend/saved_model.h"
#include "weft/extend/told_by_first.h"
#include "weft/hugging_face.h"
#include "weft/storage.h"

namespace weft {

namespace fs = std::filesystem;

namespace {

/// The directory of an export; the tag separates its files from those of a concurrent export.
struct ExportPlace {
  std::string directory, tag;

  std::string path_of(const std::string& name) const { return directory + "/" + name; }
  std::string path_while_written(const std::string& name) const {
    return concat(directory, "/.", name, '.', tag, ".tmp");
  }
};

/// Files that one rank of an export wrote; removes them unless the export completes.
class MadeFiles : NotCopied {
 public:
  MadeFiles() = default;
  ~MadeFiles() {
    for (const std::string& path : paths_) ::unlink(path.c_str());
  }

  void add(const std::string& path) { paths_.insert(path); }
  void name(const std::string& from, const std::string& to) {
    rename_to_new(from, to);
    paths_.erase(from);
    paths_.insert(to);
  }
  void keep() { paths_.clear(); }

 private:
  std::set<std::string> paths_;
};

/// A file that is written from several ranks; closed when it goes.
class SharedFile : NotCopied {
 public:
  SharedFile(const std::string& path, int flags) : path_(path) {
    open_standard_descriptors();
    descriptor_ =
        above_standard(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, 0666));
    if (descriptor_ < 0) fail_call("open", "export: ", path, ": ", std::strerror(errno));
  }
  ~SharedFile() { ::close(descriptor_); }

  void write(int64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t done = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail_call("pwrite", "export: ", path_, ": ", std::strerror(errno));
      offset += done;
      bytes = bytes.subspan(static_cast<size_t>(done));
    }
  }
  void sync() const {
    if (::fsync(descriptor_) != 0) {
      fail_call("fsync", "export: ", path_, ": ", std::strerror(errno));
    }
  }

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace

static constexpr const char* kIndexName = "model.safetensors.index.json";

static void check_no_model(const std::string& directory) {
  std::error_code ignored;
  for (fs::directory_iterator at(directory, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (!name.ends_with(".safetensors") && name != kIndexName) continue;
    fail("export: ", directory, " holds ", name,
         ", expected a directory without a model; nothing is overwritten");
  }
  // Programs that take models and checkpoints would take the model.
  if (fs::is_directory(directory, ignored) && !list_checkpoints(directory).empty()) {
    fail("export: ", directory, " holds checkpoints, expected another directory");
  }
}

static void begin_files(const ExportPlan& plan, const ExportPlace& place, MadeFiles& made) {
  make_directories(place.directory);
  for (const ModelFile& file : plan.files) {
    const std::string path = place.path_while_written(file.name);
    const SharedFile out(path, O_CREAT | O_EXCL);
    made.add(path);
    out.write(0, std::as_bytes(std::span(file.header)));
    out.sync();
  }
}

/// Writes the columns that were read to `bytes` as rows of the file.
static void write_columns(const ExportUnit& unit, const SharedFile& file, const std::byte* bytes) {
  const int64_t rows = unit.box.shape[0], columns = unit.box.shape[1];
  const int64_t column = unit.bytes / columns;
  std::vector<std::byte> turned(static_cast<size_t>(unit.bytes));
  transpose_bytes(bytes, rows, columns, column / rows, turned.data());
  for (int64_t c = 0; c < columns; ++c) {
    file.write(unit.offset + c * unit.stride,
               {turned.data() + c * column, static_cast<size_t>(column)});
  }
}

static void write_units(const ExportPlan& plan, const CheckpointSource& source,
                        const ExportPlace& place, const Communicator& world,
                        const ExportOptions& options) {
  // Units are in the order of their files: one is open at a time.
  std::optional<SharedFile> file;
  size_t number = plan.files.size();
  int64_t most = 0, written = 0;
  for (const ExportUnit& unit : plan.units) most = std::max(most, unit.bytes);
  const Ref<Storage> memory = Storage::allocate(static_cast<size_t>(most));
  auto* bytes = static_cast<std::byte*>(memory->data());
  const auto ranks = static_cast<size_t>(world.size());
  const auto rank = static_cast<size_t>(world.rank());
  // Neighbouring rows to one rank: each reads its own part of the files.
  const size_t first = plan.units.size() * rank / ranks;
  const size_t last = plan.units.size() * (rank + 1) / ranks;
  for (const ExportUnit& unit : plan.units | ranges::views::slice(first, last)) {
    read_wishes(source, {{unit.key, unit.box, bytes}});
    if (unit.file != number) {
      if (file) file->sync();
      number = unit.file;
      file.emplace(place.path_while_written(plan.files[number].name), 0);
    }
    if (unit.stride > 0) {
      write_columns(unit, *file, bytes);
    } else {
      file->write(unit.offset, {bytes, static_cast<size_t>(unit.bytes)});
    }
    written += unit.bytes;
    if (options.progress) options.progress(written);
  }
  if (file) file->sync();
}

/// The index last: who finds it finds all files.
static void name_finished(const ExportPlan& plan, const ExportPlace& place, MadeFiles& made) {
  // Another export may have ended meanwhile, with files of other names.
  check_no_model(place.directory);
  for (const ModelFile& file : plan.files) {
    made.name(place.path_while_written(file.name), place.path_of(file.name));
  }
  if (plan.files.size() > 1) {
    const std::string temporary = place.path_while_written(kIndexName);
    const SharedFile out(temporary, O_CREAT | O_EXCL);
    made.add(temporary);
    const std::string text = plan.index() + "\n";
    out.write(0, std::as_bytes(std::span(text)));
    out.sync();
    made.name(temporary, place.path_of(kIndexName));
  }
  sync_directory(place.directory);
  made.keep();
}

/// The dtype that all tensors have, in PyTorch's words; "" when there is none such.
static std::string torch_dtype(const ExportPlan& plan) {
  static const std::map<DType, std::string> names = {
      {DType::f32, "float32"}, {DType::bf16, "bfloat16"}, {DType::f16, "float16"}};
  std::set<DType> dtypes;
  for (const ModelFile& file : plan.files) {
    for (const WrittenTensor& tensor : file.tensors) dtypes.insert(tensor.dtype);
  }
  const auto found = dtypes.size() == 1 ? names.find(*dtypes.begin()) : names.end();
  return found == names.end() ? "" : found->second;
}

/// The options with what the run of the checkpoint keeps.
static ExportOptions completed(ExportOptions options, const std::string& checkpoint,
                               const CheckpointSource& source) {
  const auto& numbers = source.numbers();
  if (!options.config && numbers.contains("config/dim")) {
    options.config = saved_config(numbers, checkpoint);
  }
  if (!options.files) {
    options.files = kept_model_files(checkpoint);
  } else if (std::error_code ignored; !fs::is_directory(*options.files, ignored)) {
    fail("export: files ", in_quotes(*options.files),
         " is missing or a file, expected a directory");
  }
  return options;
}

void export_hugging_face(const std::string& checkpoint, const std::string& directory,
                         const Communicator& world, const ExportOptions& given) {
  const auto source = open_source(checkpoint);
  const ExportOptions options = completed(given, checkpoint, *source);
  const ExportPlan plan(*source, options);
  check_no_model(directory);
  std::string config;
  if (options.config) {
    check_config_at(directory, *options.config);
    config = with_token_ids(config_json(*options.config, torch_dtype(plan)), *options.files);
  }
  const ExportPlace place{directory, told_by_first(world, drawn_tag)};
  world.barrier();
  MadeFiles made;
  if (world.rank() == 0) begin_files(plan, place, made);
  world.barrier();
  write_units(plan, *source, place, world, options);
  world.barrier();
  if (world.rank() == 0) {
    write_model_files(directory, *options.files, config);
    name_finished(plan, place, made);
  }
  world.barrier();
}

}  // namespace weft
