// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/slice.hpp>
#include <set>

#include "checkpoint/file_writer.h"
#include "checkpoint/model_files.h"
#include "checkpoint/read_parts.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/stacked.h"
#include "checkpoint/tag.h"
#include "checkpoint/transposed_bytes.h"
#include "weft/error.h"
#include "weft/extend/descriptor.h"
#include "weft/hugging_face.h"
#include "weft/storage.h"

namespace weft {

namespace fs = std::filesystem;

namespace {

/// A tensor of the model's files.
struct WrittenTensor {
  FileTensor source;
  DType dtype;
  Shape shape;
  const std::string& name() const { return source.names[0]; }
  int64_t bytes() const { return shape.product() * static_cast<int64_t>(size_of(dtype)); }
};

/// A file of the model, and what stands in it in order.
struct ModelFile {
  std::string name;
  std::vector<WrittenTensor> tensors;
  int64_t bytes = 0;
  std::string header;
};

/// Elements of a saved tensor and their place in a file.
struct ExportUnit {
  std::string key;
  size_t file;
  int64_t offset;
  Box box;
  int64_t bytes;
  /// Columns that are written as rows, so many bytes apart; 0: the rows are written as they are.
  int64_t stride = 0;
};

/// The files that an export will write; equal on all ranks.
class ExportPlan {
 public:
  ExportPlan(const CheckpointSource& source, const ExportOptions& options)
      : source_(source), options_(options) {
    choose_files();
    name_files();
    for (ModelFile& file : files) write_header(file);
  }

  std::vector<ModelFile> files;
  std::vector<ExportUnit> units;

  /// Of model.safetensors.index.json.
  std::string index() const {
    nlohmann::ordered_json map = nlohmann::ordered_json::object();
    int64_t bytes = 0;
    for (const ModelFile& file : files) {
      for (const WrittenTensor& tensor : file.tensors) map[tensor.name()] = file.name;
      bytes += file.bytes;
    }
    return nlohmann::ordered_json{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump(
        2);
  }

 private:
  static constexpr int64_t kUnitBytes = int64_t{16} << 20;

  const CheckpointSource::Entry& entry(const std::string& parameter) const {
    return source_.tensors().at(options_.prefix + parameter);
  }

  /// The tensors to write, by name.
  std::map<std::string, WrittenTensor> tensors() const {
    std::map<std::string, WrittenTensor> tensors;
    std::set<std::string> placed;
    const auto add = [&](const FileTensor& tensor) {
      const auto& [dtype, shape] = entry(tensor.parts[0].parameter);
      for (const FilePart& part : tensor.parts) {
        check_alike(tensor, part, dtype);
        placed.insert(part.parameter);
      }
      tensors.emplace(tensor.names[0], WrittenTensor{tensor, dtype, shape_in_file(tensor, shape)});
    };
    if (options_.config) {
      for (const FileTensor& tensor : file_tensors(*options_.config)) {
        if (source_.tensors().contains(options_.prefix + tensor.parts[0].parameter)) add(tensor);
      }
    }
    for (const auto& [key, entry] : source_.tensors()) {
      if (!key.starts_with(options_.prefix)) continue;
      const std::string name = key.substr(options_.prefix.size());
      if (placed.contains(name)) continue;
      for (const FileTensor& tensor : tensors_of(name, entry.shape)) add(tensor);
    }
    return tensors;
  }

  void check_alike(const FileTensor& tensor, const FilePart& part, DType dtype) const {
    const auto found = source_.tensors().find(options_.prefix + part.parameter);
    if (found == source_.tensors().end()) {
      fail("export: ", source_.path(), ": tensor ", in_quotes(part.parameter), " is missing");
    }
    const auto& [other, shape] = found->second;
    const bool fits = part.slice >= 0 || (shape.empty() ? 1 : shape[0]) == part.rows;
    if (other == dtype && fits) return;
    fail("export: ", source_.path(), ": tensor ", in_quotes(part.parameter), " is ", other, ' ',
         shape, ", expected ", dtype, " and ", part.rows, " rows in ", in_quotes(tensor.names[0]));
  }

  void choose_files() {
    for (const auto& [name, tensor] : tensors()) {
      const int64_t bytes = tensor.bytes();
      if (files.empty() ||
          (files.back().bytes > 0 && files.back().bytes + bytes > options_.file_bytes)) {
        files.emplace_back();
      }
      files.back().tensors.push_back(tensor);
      files.back().bytes += bytes;
    }
    if (files.empty()) {
      fail("export: ", source_.path(), " has no tensor to export, expected keys that begin with ",
           in_quotes(options_.prefix));
    }
  }

  void name_files() {
    for (auto&& [i, file] : ranges::views::enumerate(files)) {
      char name[64] = "model.safetensors";
      if (files.size() > 1) {
        std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, files.size());
      }
      file.name = name;
    }
  }

  void write_header(ModelFile& file) {
    // Larger elements first, so that all are aligned.
    std::stable_sort(file.tensors.begin(), file.tensors.end(),
                     [](const WrittenTensor& a, const WrittenTensor& b) {
                       return size_of(a.dtype) > size_of(b.dtype);
                     });
    nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
    int64_t at = 0;
    for (const WrittenTensor& tensor : file.tensors) {
      const int64_t end = at + tensor.bytes();
      header[tensor.name()] = {
          {"dtype", safetensors_name_of(tensor.dtype)},
          {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())},
          {"data_offsets", {at, end}}};
      at = end;
    }
    file.header = header.dump();
    file.header.resize((file.header.size() + 7) / 8 * 8, ' ');
    const auto length = static_cast<uint64_t>(file.header.size());
    file.header.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
    add_units(file);
  }

  void add_units(const ModelFile& file) {
    auto at = static_cast<int64_t>(file.header.size());
    const auto number = static_cast<size_t>(&file - files.data());
    for (const WrittenTensor& tensor : file.tensors) {
      for (const FilePart& part : tensor.source.parts) {
        if (tensor.bytes() == 0) continue;
        tensor.source.transposed ? add_columns(tensor, part, number, at)
                                 : add_rows(tensor, part, number, at);
      }
      at += tensor.bytes();
    }
  }

  void add_slice(const WrittenTensor& tensor, const FilePart& part, size_t file, int64_t at) {
    const Shape& shape = entry(part.parameter).shape;
    Box box{Dims::filled(shape.ndim(), 0), shape};
    const int64_t rows = box.shape[1], row = tensor.bytes() / rows;
    const int64_t most = std::max<int64_t>(1, kUnitBytes / row);
    box.offset[0] = part.slice, box.shape[0] = 1;
    for (int64_t from = 0; from < rows; from += most) {
      box.offset[1] = from, box.shape[1] = std::min(most, rows - from);
      units.push_back(
          {options_.prefix + part.parameter, file, at + from * row, box, box.shape[1] * row});
    }
  }

  void add_rows(const WrittenTensor& tensor, const FilePart& part, size_t file, int64_t at) {
    if (part.slice >= 0) return add_slice(tensor, part, file, at);
    const Shape& shape = entry(part.parameter).shape;
    const int64_t row = tensor.bytes() / (shape.empty() ? 1 : tensor.shape[0]);
    const int64_t most = std::max<int64_t>(1, kUnitBytes / row);
    for (int64_t from = 0; from < part.rows;) {
      const int64_t within = from % part.block;
      const int64_t count = std::min({most, part.rows - from, part.block - within});
      Box box{Dims::filled(shape.ndim(), 0), shape};
      if (!shape.empty()) box.offset[0] = from, box.shape[0] = count;
      const int64_t there = part.offset + from / part.block * part.stride + within;
      units.push_back({options_.prefix + part.parameter, file, at + there * row, box, count * row});
      from += count;
    }
  }

  void add_columns(const WrittenTensor& tensor, const FilePart& part, size_t file, int64_t at) {
    const Shape& shape = entry(part.parameter).shape;
    const auto element = static_cast<int64_t>(size_of(tensor.dtype));
    const int64_t column = part.rows * element, stride = tensor.shape[1] * element;
    const int64_t most = std::max<int64_t>(1, kUnitBytes / column);
    for (int64_t from = 0; from < shape[1]; from += most) {
      const int64_t count = std::min(most, shape[1] - from);
      units.push_back({options_.prefix + part.parameter, file,
                       at + from * stride + part.offset * element,
                       Box{{0, from}, {part.rows, count}}, count * column, stride});
    }
  }

  const CheckpointSource& source_;
  const ExportOptions& options_;
};

/// The directory of an export; the tag separates its files from those of a concurrent export.
struct ExportPlace {
  std::string directory, tag;

  std::string path_of(const std::string& name) const { return directory + "/" + name; }
  std::string path_while_written(const std::string& name) const {
    return concat(directory, "/.", name, '.', tag, ".tmp");
  }
};

/// Files that one rank of an export wrote; removes them unless the export completes.
class MadeFiles {
 public:
  MadeFiles() = default;
  MadeFiles(const MadeFiles&) = delete;
  MadeFiles& operator=(const MadeFiles&) = delete;
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
class SharedFile {
 public:
  SharedFile(const std::string& path, int flags) : path_(path) {
    open_standard_descriptors();
    descriptor_ =
        above_standard(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, 0666));
    if (descriptor_ < 0) fail_call("open", "export: ", path, ": ", std::strerror(errno));
  }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
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
}

static void begin_files(const ExportPlan& plan, const ExportPlace& place, MadeFiles& made) {
  make_directories(place.directory);
  for (const ModelFile& file : plan.files) {
    const std::string path = place.path_while_written(file.name);
    const SharedFile out(path, O_CREAT | O_EXCL);
    made.add(path);
    out.write(0, std::as_bytes(std::span(file.header)));
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
  std::vector<std::unique_ptr<SharedFile>> files;
  for (const ModelFile& file : plan.files) {
    files.push_back(std::make_unique<SharedFile>(place.path_while_written(file.name), 0));
  }
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
    if (unit.stride > 0) {
      write_columns(unit, *files[unit.file], bytes);
    } else {
      files[unit.file]->write(unit.offset, {bytes, static_cast<size_t>(unit.bytes)});
    }
    written += unit.bytes;
    if (options.progress) options.progress(written);
  }
  for (const auto& file : files) file->sync();
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

void export_hugging_face(const std::string& checkpoint, const std::string& directory,
                         const Communicator& world, const ExportOptions& options) {
  const auto source = open_source(checkpoint);
  const ExportPlan plan(*source, options);
  check_no_model(directory);
  const ExportPlace place{directory, drawn_tag(world)};
  world.barrier();
  MadeFiles made;
  if (world.rank() == 0) begin_files(plan, place, made);
  world.barrier();
  write_units(plan, *source, place, world, options);
  world.barrier();
  if (world.rank() == 0) name_finished(plan, place, made);
  world.barrier();
}

}  // namespace weft
