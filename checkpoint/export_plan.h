// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/source.h"
#include "weft/hugging_face.h"
#include "weft/transformer_config.h"

namespace weft {

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
  ExportPlan(const CheckpointSource& source, const ExportOptions& options);

  std::vector<ModelFile> files;
  std::vector<ExportUnit> units;

  /// Of model.safetensors.index.json.
  std::string index() const;

 private:
  const CheckpointSource::Entry& entry(const std::string& parameter) const;
  /// The tensors to write, by name.
  std::map<std::string, WrittenTensor> tensors() const;
  void check_alike(const FileTensor& tensor, const FilePart& part, DType dtype) const;
  void choose_files();
  void name_files();
  void write_header(ModelFile& file);
  void add_units(const ModelFile& file);
  void add_rows(const WrittenTensor& tensor, const FilePart& part, size_t file, int64_t at);
  void add_columns(const WrittenTensor& tensor, const FilePart& part, size_t file, int64_t at);

  const CheckpointSource& source_;
  const ExportOptions& options_;
};

// The files of a model that hold no tensors (saved_model.cpp).

/// std::invalid_argument when `directory` has a config.json of another model.
void check_config_at(const std::string& directory, const TransformerConfig& config);

/// Returns the text of a config.json with the ids of tokens of the one in the folder `files`.
std::string with_token_ids(const std::string& config, const std::string& files);

/// Writes config.json, unless `config` is empty, and copies the other files of a model from the
/// folder `files`. Files that exist stay as they are; a warning names those copies that differ.
void write_model_files(const std::string& directory, const std::string& files,
                       const std::string& config);

}  // namespace weft
