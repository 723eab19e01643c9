// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export_plan.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <range/v3/view/enumerate.hpp>
#include <set>

#include "checkpoint/model_files.h"
#include "checkpoint/safetensors_header.h"
#include "weft/error.h"

namespace weft {

static constexpr int64_t kUnitBytes = int64_t{16} << 20;

ExportPlan::ExportPlan(const CheckpointSource& source, const ExportOptions& options)
    : source_(source), options_(options) {
  choose_files();
  name_files();
  for (ModelFile& file : files) write_header(file);
}

std::string ExportPlan::index() const {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  int64_t bytes = 0;
  for (const ModelFile& file : files) {
    for (const WrittenTensor& tensor : file.tensors) map[tensor.name()] = file.name;
    bytes += file.bytes;
  }
  return nlohmann::ordered_json{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump(2);
}

const CheckpointSource::Entry& ExportPlan::entry(const std::string& parameter) const {
  return source_.tensors().at(options_.prefix + parameter);
}

std::map<std::string, WrittenTensor> ExportPlan::tensors() const {
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

void ExportPlan::check_alike(const FileTensor& tensor, const FilePart& part, DType dtype) const {
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

void ExportPlan::choose_files() {
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

void ExportPlan::name_files() {
  for (auto&& [i, file] : ranges::views::enumerate(files)) {
    char name[64] = "model.safetensors";
    if (files.size() > 1) {
      std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, files.size());
    }
    file.name = name;
  }
}

void ExportPlan::write_header(ModelFile& file) {
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

void ExportPlan::add_units(const ModelFile& file) {
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

void ExportPlan::add_rows(const WrittenTensor& tensor, const FilePart& given, size_t file,
                          int64_t at) {
  const Shape& shape = entry(given.parameter).shape;
  FilePart part = given;
  Box box{Dims::filled(shape.ndim(), 0), shape};
  const int dim = part.slice >= 0 ? 1 : 0;
  if (part.slice >= 0) {
    box.offset[0] = part.slice, box.shape[0] = 1;
    part.rows = part.block = shape[1];
  }
  const int64_t row = tensor.bytes() / (shape.empty() ? 1 : tensor.shape[0]);
  const int64_t most = std::max<int64_t>(1, kUnitBytes / row);
  for (int64_t from = 0; from < part.rows;) {
    const int64_t within = from % part.block;
    const int64_t count = std::min({most, part.rows - from, part.block - within});
    if (!shape.empty()) box.offset[dim] = from, box.shape[dim] = count;
    const int64_t there = part.offset + from / part.block * part.stride + within;
    units.push_back({options_.prefix + part.parameter, file, at + there * row, box, count * row});
    from += count;
  }
}

void ExportPlan::add_columns(const WrittenTensor& tensor, const FilePart& part, size_t file,
                             int64_t at) {
  const Shape& shape = entry(part.parameter).shape;
  const auto element = static_cast<int64_t>(size_of(tensor.dtype));
  const int64_t column = part.rows * element, stride = tensor.shape[1] * element;
  const int64_t most = std::max<int64_t>(1, kUnitBytes / column);
  for (int64_t from = 0; from < shape[1]; from += most) {
    const int64_t count = std::min(most, shape[1] - from);
    units.push_back({options_.prefix + part.parameter, file,
                     at + from * stride + part.offset * element, Box{{0, from}, {part.rows, count}},
                     count * column, stride});
  }
}

}  // namespace weft
