// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/extend/pattern.h"
#include "weft/mesh.h"
#include "weft/state_dict.h"

namespace weft {

/// The sharding of saved tensors, over a mesh that need not exist in this process. Without axes,
/// each rank holds the whole tensor.
struct SavedSharding {
  std::vector<MeshAxis> axes;
  Pattern pattern;
  bool operator==(const SavedSharding&) const = default;

  std::vector<int> sizes() const;
};

/// A tensor of a saved world: `layout` numbers the manifest's layouts.
struct SavedTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  size_t layout = 0;
  bool operator==(const SavedTensor&) const = default;
};

/// All that is the same on every rank of a save: what each rank's file holds, how it is called and
/// how long it is follow from it.
struct Manifest {
  /// What is written, and what is written when parts of a tensor have explicit sizes; all formats
  /// from 1 on are read.
  static constexpr int kFormat = 2, kFormatOfParts = 3;

  int format = kFormat;
  int ranks = 1;
  int64_t step = 0;
  /// Identifies the run: 16 hexadecimal digits.
  std::string generation;
  std::vector<SavedSharding> layouts;
  /// In the order of their bytes in a file: larger elements first, then by name.
  std::vector<SavedTensor> tensors;
  std::map<std::string, int64_t> numbers;
  bool operator==(const Manifest&) const = default;
};

/// Describes the tensors in their current layouts. std::invalid_argument naming the tensor when one
/// is Partial, or is on a mesh of another number of ranks.
Manifest manifest_of(const StateDict& state, int ranks, int64_t step,
                     const std::string& generation);

/// One line of JSON; equal manifests give equal text.
std::string text_of(const Manifest& manifest);
/// The manifest that `text` (found in the file `source`) says. std::invalid_argument for anything
/// that `manifest_of` would not have made, and for more than 2^20 ranks.
Manifest parsed_manifest(const std::string& source, const std::string& text);

/// "rank-00003-of-00008.safetensors".
std::string file_name_of(int rank, int ranks);
/// "step-00000100-0123456789abcdef".
std::string directory_name_of(int64_t step, const std::string& generation);
/// Parse such names; return false for other names.
bool parse_file_name(const std::string& name, int& rank, int& ranks);
bool parse_directory_name(const std::string& name, int64_t& step, std::string& generation);

/// 16 random hexadecimal digits.
std::string drawn_tag();

}  // namespace weft
