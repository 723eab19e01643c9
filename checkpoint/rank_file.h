// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace weft {

/// The different boxes that a layout makes of a shape, and the ranks that hold each.
struct Partition {
  /// The boxes that have elements; for an empty tensor, the whole tensor as one box.
  std::vector<Box> boxes;
  /// holders[box]: ranks in order.
  std::vector<std::vector<int>> holders;
  /// By rank; -1: it holds nothing.
  std::vector<int> box_of_rank;
};

/// Which rank writes which box, computed from the manifest alone. A box that one rank holds belongs
/// to that rank. A box that several ranks hold belongs to the one with the fewest bytes so far;
/// the largest boxes are assigned first.
class Ownership {
 public:
  /// std::invalid_argument when tensors times ranks are more than 2^28.
  explicit Ownership(const Manifest& manifest);

  /// Box of tensor `tensor` that the rank writes, or nullptr.
  const Box* box_of(size_t tensor, int rank) const;
  /// The boxes that all ranks together write, and who writes each.
  const std::vector<Box>& boxes_of(size_t tensor) const { return partitions_[tensor]->boxes; }
  int owner(size_t tensor, size_t box) const;
  /// Bytes that a rank writes of tensors.
  int64_t bytes_of(int rank) const { return bytes_[static_cast<size_t>(rank)]; }

 private:
  void give_single_holders(const Manifest& manifest);
  void give_shared(const Manifest& manifest);

  std::vector<std::shared_ptr<const Partition>> partitions_;
  /// By tensor; empty where each box has one holder.
  std::vector<std::vector<int>> owners_;
  std::vector<int64_t> bytes_;
};

/// How many elements of a file are NaN or infinite.
struct NonFinite {
  int64_t count = 0;
  /// The first tensor that has some, by its number in the manifest; -1: none.
  int64_t tensor = -1;

  void add(const NonFinite& more) {
    count += more.count;
    if (more.count > 0 && (tensor < 0 || more.tensor < tensor)) tensor = more.tensor;
  }
};

/// The files of a world, by arithmetic: what stands in each, where, and how long it is.
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

  explicit RankFiles(const Manifest& manifest);

  const Manifest& manifest() const { return manifest_; }
  const std::string& manifest_text() const { return text_; }
  const Ownership& ownership() const { return ownership_; }

  std::vector<Entry> entries(int rank) const;
  /// Bytes of the length, the header and its padding.
  int64_t data_start(int rank) const;
  int64_t data_bytes(int rank) const { return ownership_.bytes_of(rank); }
  int64_t file_bytes(int rank) const { return data_start(rank) + data_bytes(rank); }
  /// The bytes before the data: length, header with the hashes of the blocks and its own, padding.
  std::string header(int rank, std::span<const uint64_t> block_hashes,
                     const NonFinite& non_finite) const;

 private:
  /// std::invalid_argument where a file's header would be longer than readers take.
  void check_headers() const;
  void write_header(int rank, const std::string& hashes, const NonFinite& non_finite,
                    struct HeaderText& header) const;

  Manifest manifest_;
  std::string text_;
  Ownership ownership_;
  /// By tensor: its name as JSON, and that as a part of a JSON string.
  std::vector<std::string> names_, names_in_string_;
  std::string text_in_string_;
};

/// XXH3 of the bytes before the data with zeros ('0') where the header's own hash stands; false
/// when there is no such place.
bool hash_header(std::string before_data, uint64_t& hash);

/// Keys of the header's __metadata__.
inline constexpr const char* kManifestKey = "weft";
inline constexpr const char* kRankKey = "weft.rank";
inline constexpr const char* kBlocksKey = "weft.blocks";
/// From format 2 on: NonFinite's two numbers, 16 hex digits each.
inline constexpr const char* kFiniteKey = "weft.finite";
inline constexpr const char* kHeaderKey = "weft.header";

}  // namespace weft
