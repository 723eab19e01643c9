// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
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
  /// The format that is written, and the one when parts of a tensor have explicit sizes; all
  /// formats from 1 on are read.
  static constexpr int kFormat = 2, kFormatOfParts = 3;

  int format = kFormat;
  int ranks = 1;
  int64_t step = 0;
  /// Identifies the run: 16 hexadecimal digits.
  std::string generation;
  std::vector<SavedSharding> layouts;
  /// Sorted by the order of their bytes in a file: larger elements first, then by name.
  std::vector<SavedTensor> tensors;
  std::map<std::string, int64_t> numbers;
  bool operator==(const Manifest&) const = default;
};

/// std::invalid_argument "<what>: ..." when the tensor has no memory or is Partial.
void check_has_elements(const char* what, const std::string& name, const Tensor& tensor);
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

/// The different boxes that a layout makes of a shape, and the ranks that hold each.
struct Partition {
  /// The boxes that have elements; for an empty tensor, the whole tensor as one box.
  std::vector<Box> boxes;
  /// holders[box]: ranks in order.
  std::vector<std::vector<int>> holders;
  /// Indexed by rank; -1: it holds nothing.
  std::vector<int> box_of_rank;
};

/// The number of elements of a file that are NaN or infinite.
struct NonFinite {
  int64_t count = 0;
  /// The first tensor that has some, by its number in the manifest; -1: none.
  int64_t tensor = -1;

  void add(const NonFinite& more) {
    count += more.count;
    if (more.count > 0 && (tensor < 0 || more.tensor < tensor)) tensor = more.tensor;
  }
};

/// The files of a world, by arithmetic from the manifest alone: what stands in each, where, and how
/// long it is. A box that one rank holds is written by that rank. A box that several ranks hold is
/// written by the one with the fewest bytes so far; the largest boxes are assigned first.
class RankFiles {
 public:
  /// A tensor's box in a rank's file: `offset` counts from the start of the data.
  struct Entry {
    size_t tensor;
    const Box* box;
    int64_t offset;
    int64_t bytes;
  };
  /// The data of a file starts at a multiple of so many bytes.
  static constexpr int64_t kAlignment = 4096;

  /// std::invalid_argument when tensors times ranks are more than 2^28, or a header is too long.
  explicit RankFiles(const Manifest& manifest);

  const Manifest& manifest() const { return manifest_; }
  const std::string& manifest_text() const { return text_; }

  /// Box of tensor `tensor` that the rank writes, or nullptr.
  const Box* box_of(size_t tensor, int rank) const;
  /// The boxes that all ranks together write, and who writes each.
  const std::vector<Box>& boxes_of(size_t tensor) const { return partitions_[tensor]->boxes; }
  int owner(size_t tensor, size_t box) const;
  std::vector<Entry> entries(int rank) const;
  /// Bytes of the length, the header and its padding.
  int64_t data_start(int rank) const;
  int64_t data_bytes(int rank) const { return bytes_[static_cast<size_t>(rank)]; }
  int64_t file_bytes(int rank) const { return data_start(rank) + data_bytes(rank); }
  /// The bytes before the data: length, header with the hashes of the blocks and its own, padding.
  std::string header(int rank, std::span<const uint64_t> block_hashes,
                     const NonFinite& non_finite) const;

 private:
  void cut_tensors();
  void give_shared();
  /// std::invalid_argument where a file's header would be longer than readers take.
  void check_headers() const;
  void write_header(int rank, const std::string& hashes, const NonFinite& non_finite,
                    struct HeaderText& header) const;

  Manifest manifest_;
  std::string text_;
  std::vector<std::shared_ptr<const Partition>> partitions_;
  /// Indexed by tensor; empty where each box has one holder.
  std::vector<std::vector<int>> owners_;
  /// Indexed by rank: bytes of the tensors that it writes.
  std::vector<int64_t> bytes_;
  /// Indexed by tensor: its name as JSON, and that as a part of a JSON string.
  std::vector<std::string> names_, names_in_string_;
  std::string text_in_string_;
};

/// XXH3 of the bytes before the data with zeros ('0') where the header's own hash stands; false
/// when there is no such place.
bool hash_header(std::string before_data, uint64_t& hash);

}  // namespace weft
