// SPDX-License-Identifier: Apache-2.0
// All that stands in a file's header, in a manifest or in a name is refused in
// one sentence or understood, with memory in proportion to its length. The first byte chooses.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "checkpoint/blocks.h"
#include "checkpoint/manifest.h"
#include "checkpoint/source.h"
#include "tests/fuzz/targets.h"

namespace weft {

static void read_header(const std::string& text) {
  const auto start = static_cast<int64_t>(text.size()) + 8;
  const SafetensorsHeader header = parse_safetensors_header("fuzz", text, start, start + 64);
  int64_t bytes = 0;
  for (const SafetensorsEntry& entry : header.entries) bytes += entry.bytes;
  if (bytes != 64) std::abort();
}

/// A valid manifest is written as it was read, and each element of a small tensor has one owner.
static void read_manifest(const std::string& text) {
  const Manifest manifest = parsed_manifest("fuzz", text);
  if (!(parsed_manifest("fuzz", text_of(manifest)) == manifest)) std::abort();
  const auto parts = static_cast<int64_t>(manifest.tensors.size()) * manifest.ranks;
  if (parts > 4096) return;
  const RankFiles files(manifest);
  int64_t bytes = 0;
  for (int rank = 0; rank < manifest.ranks; ++rank) {
    if (__builtin_add_overflow(bytes, files.data_bytes(rank), &bytes)) return;
  }
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const Shape& shape = manifest.tensors[i].shape;
    check_covers_once("fuzz", {Dims::filled(shape.ndim(), 0), shape}, files.boxes_of(i));
  }
}

static void read_names(const std::string& text) {
  int rank = 0, ranks = 0;
  if (parse_file_name(text, rank, ranks) && file_name_of(rank, ranks) != text) std::abort();
  int64_t step = 0;
  std::string generation;
  if (parse_directory_name(text, step, generation) && directory_name_of(step, generation) != text) {
    std::abort();
  }
}

void fuzz::checkpoint(const std::string& input) {
  if (input.empty()) return;
  const std::string text = input.substr(1);
  if (input[0] == 'h') read_header(text);
  if (input[0] == 'm') read_manifest(text);
  if (input[0] == 'n') read_names(text);
}

}  // namespace weft
