// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "weft/hugging_face.h"
#include "weft/module.h"
#include "weft/safetensors.h"
#include "weft/state_dict.h"
#include "weft/transformer_config.h"

namespace weft {

struct CheckpointSource;

/// Errors and warnings of models that are loaded begin with it.
inline constexpr const char* kLoadModel = "load_hugging_face";

/// The shape of a tensor in a file whose parts are of a parameter of this shape.
Shape shape_in_file(const FileTensor& tensor, const Shape& parameter);

/// True when a file's tensor has no parameter in the model and may be left out: see `is_left_out`.
bool leaves_out(const Module& model, const std::string& name);

/// The parameters of a model in Hugging Face's files, whatever the files call them and however they
/// stack them.
class ModelFiles {
 public:
  struct Parameter {
    DType dtype;
    Shape shape;
    /// Names of the tensor in the files: several of a tied parameter.
    std::vector<std::string> names;
    bool transposed = false;
    FilePart part = {};
    /// If not empty, the names of the tensors that are the parameter's slices.
    std::vector<std::string> slices = {};
  };

  /// Finds the model's parameters and persistent buffers: under the names of its family for a
  /// TransformerModel, else under their own, whole or as one tensor for each slice.
  /// Those that file_tensors does not list stand under their own names. std::invalid_argument when
  /// a tensor has another shape than its parameter, and unless `skipped` takes their names, when
  /// one is missing in the files, or a tensor has no parameter and may not be left out.
  ModelFiles(const Module& model, const TensorFiles& files, SkippedKeys* skipped = nullptr);

  const std::map<std::string, Parameter>& parameters() const { return parameters_; }
  /// Reads the elements of `box` of a parameter, from its first name or from name `alias`, to
  /// `into`, dense and row-major, in the parameter's dtype: that of the file, or f32 for blocks of
  /// fp8.
  void read_box(const std::string& parameter, const Box& box, void* into, size_t alias = 0) const;

 private:
  void add(const FileTensor& tensor);
  void add_part(const FileTensor& tensor, const FilePart& part,
                const std::vector<std::string>& there);
  void read_rows(const Parameter& parameter, const std::string& tensor, const Box& box,
                 void* into) const;

  const TensorFiles& files_;
  /// Shapes of the parameters and persistent buffers of the model.
  std::map<std::string, Shape> shapes_;
  std::map<std::string, Parameter> parameters_;
  /// Maps a parameter to the first name of a tensor that the files lack.
  std::map<std::string, std::string> missing_;
};

/// The tensors that Hugging Face's files hold of a parameter or buffer: one under its name, or the
/// slices of experts' stacked matrices ("mlp.experts.gate_proj" [experts, n, k]).
std::vector<FileTensor> tensors_of(const std::string& name, const Shape& shape);

/// Writes the matrix [rows, columns] of elements of so many bytes as [columns, rows].
void transpose_bytes(const std::byte* from, int64_t rows, int64_t columns, int64_t element,
                     std::byte* to);

// The files of a model that hold no tensors.

/// std::invalid_argument when `directory` has a config.json of another model.
void check_config_at(const std::string& directory, const TransformerConfig& config);

/// Returns the text of a config.json with the ids of tokens of the one in the folder `files`.
std::string with_token_ids(const std::string& config, const std::string& files);

/// Writes config.json, unless `config` is empty, and copies the other files of a model from the
/// folder `files`. Files that exist stay as they are; a warning names those copies that differ.
void write_model_files(const std::string& directory, const std::string& files,
                       const std::string& config);

/// Maps each further name of a tied parameter of a model to its first, which is the one written.
std::map<std::string, std::string> tied_names(const TransformerConfig& config);

/// Compares the tensors that a checkpoint has under two names of one parameter; returns an error's
/// sentence, or "" when they have the same bits.
std::string difference_of_tied(const CheckpointSource& source, const ExportOptions& options);

}  // namespace weft
