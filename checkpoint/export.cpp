// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/slice.hpp>
#include <set>
#include <utility>

#include "checkpoint/file_writer.h"
#include "checkpoint/model_files.h"
#include "checkpoint/source.h"
#include "weft/checkpoint.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/export.h"
#include "weft/extend/saved_model.h"
#include "weft/extend/store.h"
#include "weft/hugging_face.h"
#include "weft/storage.h"

namespace weft {

namespace {

using Entries = std::map<std::string, CheckpointSource::Entry>;

/// A tensor of the model's files; `offset` counts from the start of a file's data.
struct WrittenTensor {
  FileTensor source;
  SafetensorsEntry entry;
};

/// A file of the model, and what stands in it in order.
struct ModelFile {
  std::string name;
  std::vector<WrittenTensor> tensors;
  int64_t bytes = 0;
  std::string header;
};

/// Elements of a parameter and their place in a file.
struct ExportUnit {
  std::string parameter;
  size_t file;
  int64_t offset;
  Box box;
  int64_t bytes;
  /// Columns that are written as rows, so many bytes apart; 0: the rows are written as they are.
  int64_t stride = 0;
};

/// The files that an export will write; equal on all ranks.
struct ExportPlan {
  std::vector<ModelFile> files;
  std::vector<ExportUnit> units;
};

/// The files of an export: each is written under a temporary name. Those that this rank made go
/// unless the export completes. The tag separates them from those of a concurrent export.
class ExportFiles : NotCopied {
 public:
  ExportFiles(const std::string& directory, const std::string& tag)
      : directory_(directory), tag_(tag) {}
  ~ExportFiles() {
    for (const std::string& path : made_) ::unlink(path.c_str());
  }

  std::string path_while_written(const std::string& name) const {
    return concat(directory_, "/.", name, '.', tag_, ".tmp");
  }
  void make(const std::string& name, const std::string& text) {
    const std::string path = path_while_written(name);
    WrittenFile out("export", path, O_CREAT | O_EXCL);
    made_.insert(path);
    out.write(0, std::as_bytes(std::span(text)));
    out.sync();
  }
  void name_finished(const std::string& name) {
    const std::string from = path_while_written(name), to = directory_ + "/" + name;
    rename_to_new(from, to);
    made_.erase(from);
    made_.insert(to);
  }
  void keep() { made_.clear(); }

 private:
  std::string directory_, tag_;
  std::set<std::string> made_;
};

}  // namespace

static constexpr int64_t kUnitBytes = int64_t{16} << 20;

/// The tensors to write, by name.
static std::map<std::string, WrittenTensor> written_tensors(
    const std::string& source, const Entries& entries,
    const std::optional<TransformerConfig>& config) {
  std::map<std::string, WrittenTensor> tensors;
  std::set<std::string> placed;
  const auto add = [&](const FileTensor& tensor) {
    const std::string& name = tensor.names[0];
    for (const FilePart& part : tensor.parts) {
      if (entries.contains(part.parameter)) continue;
      fail("export: ", source, ": tensor ", in_quotes(part.parameter), " is missing");
    }
    const auto& [dtype, first] = entries.at(tensor.parts[0].parameter);
    for (const FilePart& part : tensor.parts) {
      const auto found = entries.find(part.parameter);
      const auto& [other, shape] = found->second;
      const bool fits = part.slice >= 0 || (shape.empty() ? 1 : shape[0]) == part.rows;
      if (other != dtype || !fits) {
        fail("export: ", source, ": tensor ", in_quotes(part.parameter), " is ", other, ' ', shape,
             ", expected ", dtype, " and ", part.rows, " rows in ", in_quotes(name));
      }
      placed.insert(part.parameter);
    }
    const Shape shape = shape_in_file(tensor, first);
    const int64_t bytes = bytes_of(shape, dtype);
    if (!tensors.emplace(name, WrittenTensor{tensor, {name, dtype, shape, 0, bytes}}).second) {
      fail("export: ", source, ": tensors ", in_quotes(tensors.at(name).source.parts[0].parameter),
           " and ", in_quotes(tensor.parts[0].parameter), " are both named ", in_quotes(name),
           " in the files, expected one of them");
    }
  };
  const bool is_model = config && !entries.empty();
  const auto tied = is_model ? tied_names(*config) : std::map<std::string, std::string>();
  for (const FileTensor& tensor : is_model ? file_tensors(*config) : std::vector<FileTensor>()) {
    add(tensor);
  }
  for (const auto& [name, entry] : entries) {
    if (placed.contains(name) || tied.contains(name)) continue;
    for (const FileTensor& tensor : tensors_of(name, entry.shape)) add(tensor);
  }
  return tensors;
}

static std::vector<ModelFile> files_of(const std::map<std::string, WrittenTensor>& tensors,
                                       int64_t most) {
  std::vector<ModelFile> files;
  for (const auto& [name, tensor] : tensors) {
    const int64_t bytes = tensor.entry.bytes;
    if (files.empty() || (files.back().bytes > 0 && files.back().bytes + bytes > most)) {
      files.emplace_back();
    }
    files.back().tensors.push_back(tensor);
    files.back().bytes += bytes;
  }
  for (auto&& [i, file] : ranges::views::enumerate(files)) {
    file.name = files.size() > 1
                    ? formatted("model-%05zu-of-%05zu.safetensors", i + 1, files.size())
                    : "model.safetensors";
  }
  return files;
}

/// Brings the tensors of a file in order and makes its header.
static void write_header(ModelFile& file) {
  // Larger elements first, so that all are aligned.
  std::ranges::stable_sort(file.tensors, std::greater(),
                           [](const WrittenTensor& tensor) { return size_of(tensor.entry.dtype); });
  // A list of members: to look for each before it is added takes quadratic time; so below.
  nlohmann::ordered_json::object_t header{{"__metadata__", {{"format", "pt"}}}};
  int64_t at = 0;
  for (auto& [source, entry] : file.tensors) {
    entry.offset = std::exchange(at, at + entry.bytes);
    header.emplace_back(entry.name,
                        nlohmann::ordered_json{
                            {"dtype", safetensors_name_of(entry.dtype)},
                            {"shape", std::vector<int64_t>(entry.shape.begin(), entry.shape.end())},
                            {"data_offsets", {entry.offset, at}}});
  }
  file.header = nlohmann::ordered_json(std::move(header)).dump();
  file.header.resize((file.header.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<uint64_t>(file.header.size());
  file.header.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
}

/// Adds the units of a part of a tensor at byte `at` of a file; `shape` is that of the parameter.
static void add_rows(const SafetensorsEntry& tensor, FilePart part, const Shape& shape, size_t file,
                     int64_t at, std::vector<ExportUnit>& units) {
  Box box{Dims::filled(shape.ndim(), 0), shape};
  const int dim = part.slice >= 0 ? 1 : 0;
  if (part.slice >= 0) {
    box.offset[0] = part.slice, box.shape[0] = 1;
    part.rows = part.block = shape[1];
  }
  const int64_t row = tensor.bytes / (shape.empty() ? 1 : tensor.shape[0]);
  const int64_t most = std::max<int64_t>(1, kUnitBytes / row);
  for (int64_t from = 0; from < part.rows;) {
    const int64_t within = from % part.block;
    const int64_t count = std::min({most, part.rows - from, part.block - within});
    if (!shape.empty()) box.offset[dim] = from, box.shape[dim] = count;
    const int64_t there = part.offset + from / part.block * part.stride + within;
    units.push_back({part.parameter, file, at + there * row, box, count * row});
    from += count;
  }
}

/// The same for a matrix that is transposed in the file.
static void add_columns(const SafetensorsEntry& tensor, FilePart part, const Shape& shape,
                        size_t file, int64_t at, std::vector<ExportUnit>& units) {
  const auto element = static_cast<int64_t>(size_of(tensor.dtype));
  const int64_t column = part.rows * element, stride = tensor.shape[1] * element;
  const int64_t most = std::max<int64_t>(1, kUnitBytes / column);
  for (int64_t from = 0; from < shape[1]; from += most) {
    const int64_t count = std::min(most, shape[1] - from);
    units.push_back({part.parameter, file, at + from * stride + part.offset * element,
                     Box{{0, from}, {part.rows, count}}, count * column, stride});
  }
}

static ExportPlan export_plan(const CheckpointSource& source, const ExportOptions& options) {
  Entries entries;
  for (const auto& [key, entry] : source.contents.tensors) {
    if (key.starts_with(options.prefix)) entries.emplace(key.substr(options.prefix.size()), entry);
  }
  ExportPlan plan{
      files_of(written_tensors(source.path, entries, options.config), options.file_bytes), {}};
  if (plan.files.empty()) {
    fail("export: ", source.path, " has no tensor to export, expected keys that begin with ",
         in_quotes(options.prefix));
  }
  for (auto&& [number, file] : ranges::views::enumerate(plan.files)) {
    write_header(file);
    for (const auto& [tensor, entry] : file.tensors) {
      const int64_t at = static_cast<int64_t>(file.header.size()) + entry.offset;
      for (const FilePart& part : tensor.parts) {
        if (entry.bytes == 0) continue;
        const Shape& shape = entries.at(part.parameter).shape;
        (tensor.transposed ? add_columns : add_rows)(entry, part, shape, number, at, plan.units);
      }
    }
  }
  return plan;
}

/// The text of model.safetensors.index.json.
static std::string index_text(const ExportPlan& plan) {
  nlohmann::ordered_json::object_t map;
  int64_t bytes = 0;
  for (const ModelFile& file : plan.files) {
    for (const WrittenTensor& tensor : file.tensors) map.emplace_back(tensor.entry.name, file.name);
    bytes += file.bytes;
  }
  const nlohmann::ordered_json index{{"metadata", {{"total_size", bytes}}},
                                     {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

static constexpr const char* kIndexName = "model.safetensors.index.json";

static void check_no_model(const std::string& directory) {
  std::error_code ignored;
  for (const auto& [name, kind, bytes] : Store::of(directory).list(directory, ignored)) {
    if (!name.ends_with(".safetensors") && name != kIndexName) continue;
    fail("export: ", directory, " holds ", name,
         ", expected a directory without a model; nothing is overwritten");
  }
  // Programs that take models and checkpoints would take the model.
  if (path_is_directory(directory) && !list_checkpoints(directory).empty()) {
    fail("export: ", directory, " holds checkpoints, expected another directory");
  }
}

/// Writes what was read to `bytes` to its place in the file, columns as rows.
static void write_unit(const ExportUnit& unit, WrittenFile& file, const std::byte* bytes) {
  if (unit.stride == 0) {
    return file.write(unit.offset, {bytes, static_cast<size_t>(unit.bytes)});
  }
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
                        const ExportFiles& files, const Communicator& world,
                        const ExportOptions& options) {
  // Units are in the order of their files: one is open at a time.
  std::optional<WrittenFile> file;
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
    read_wishes(source, {{options.prefix + unit.parameter, unit.box, bytes}});
    if (unit.file != number) {
      if (file) file->sync();
      number = unit.file;
      file.emplace("export", files.path_while_written(plan.files[number].name), 0);
    }
    write_unit(unit, *file, bytes);
    written += unit.bytes;
    if (options.progress) options.progress(written);
  }
  if (file) file->sync();
}

/// The dtype that all tensors have, in PyTorch's words; "" when there is none such.
static const char* torch_dtype(const ExportPlan& plan) {
  static const std::map<DType, const char*> kNames = {
      {DType::f32, "float32"}, {DType::bf16, "bfloat16"}, {DType::f16, "float16"}};
  std::set<DType> dtypes;
  for (const ModelFile& file : plan.files) {
    for (const WrittenTensor& tensor : file.tensors) dtypes.insert(tensor.entry.dtype);
  }
  const auto found = dtypes.size() == 1 ? kNames.find(*dtypes.begin()) : kNames.end();
  return found == kNames.end() ? "" : found->second;
}

/// The options with what the run of the checkpoint keeps.
static ExportOptions completed(ExportOptions options, const std::string& checkpoint,
                               const CheckpointSource& source) {
  const auto& numbers = source.contents.numbers;
  if (!options.config && numbers.contains("config/dim")) {
    options.config = saved_config(numbers, checkpoint);
  }
  if (!options.files) {
    options.files = kept_model_files(checkpoint);
  } else if (!path_is_directory(*options.files)) {
    fail("export: files ", in_quotes(*options.files),
         " is missing or a file, expected a directory");
  }
  return options;
}

static void export_existing(const std::string& checkpoint, const std::string& directory,
                            const Communicator& world, const ExportOptions& given) {
  const auto source = open_source(checkpoint);
  const ExportOptions options = completed(given, checkpoint, source);
  const ExportPlan plan = export_plan(source, options);
  check_no_model(directory);
  const std::string wrong =
      told_by_first(world, [&] { return difference_of_tied(source, options); });
  if (!wrong.empty()) fail(wrong);
  std::string config;
  if (options.config) {
    check_config_at(directory, *options.config);
    config = with_token_ids(config_json(*options.config, torch_dtype(plan)), *options.files);
  }
  ExportFiles files(directory, told_by_first(world, drawn_tag));
  world.barrier();
  if (world.rank() == 0) {
    make_directories(directory);
    for (const ModelFile& file : plan.files) files.make(file.name, file.header);
  }
  world.barrier();
  write_units(plan, source, files, world, options);
  world.barrier();
  if (world.rank() == 0) {
    write_model_files(directory, *options.files, config);
    // Another export may have ended meanwhile, with files of other names.
    check_no_model(directory);
    for (const ModelFile& file : plan.files) files.name_finished(file.name);
    // The index last: who finds it finds all files.
    if (plan.files.size() > 1) {
      files.make(kIndexName, index_text(plan));
      files.name_finished(kIndexName);
    }
    sync_directory(directory);
    files.keep();
  }
  world.barrier();
}

void export_hugging_face(const std::string& checkpoint, const std::string& directory,
                         const Communicator& world, const ExportOptions& options) {
  unless_removed(checkpoint, [&] { export_existing(checkpoint, directory, world, options); });
}

}  // namespace weft
