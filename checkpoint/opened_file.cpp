// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "checkpoint/blocks.h"
#include "checkpoint/source.h"
#include "weft/error.h"

namespace weft {

template <class... Parts>
[[noreturn]] static void fail_corrupt(const std::string& path, const Parts&... parts) {
  throw BadFile(Verdict::corrupt, concat("checkpoint: ", path, ": ", parts...), path);
}

void OpenedFile::check_block(int64_t number, const std::function<uint64_t()>& read) const {
  std::string mistake;
  try {
    if (read() == hashes[static_cast<size_t>(number)]) return;
    mistake = concat("checkpoint: ", file.path(), ": block ", number, " (tensor ",
                     in_quotes(tensor_in(number)), ") does not have its checksum");
  } catch (const std::runtime_error& error) {
    mistake = error.what();
  }
  throw BadFile(Verdict::corrupt, mistake, file.path(), tensor_in(number), number);
}

std::string OpenedFile::tensor_in(int64_t block) const {
  const int64_t begin = data_start + block * kBlockBytes;
  for (const SafetensorsEntry& entry : tensors.entries()) {
    if (entry.bytes > 0 && entry.offset + entry.bytes > begin) return entry.name;
  }
  return {};
}

/// Its JSON is sound; but a changed byte need not break that.
static void check_header_hash(const OpenedFile& opened) {
  const std::string& path = opened.file.path();
  const auto& metadata = opened.tensors.metadata();
  const auto stated = metadata.find(kHeaderKey);
  std::vector<uint64_t> hash;
  uint64_t actual = 0;
  const bool known = stated != metadata.end() && parse_hex(stated->second, hash) &&
                     hash.size() == 1 &&
                     hash_header(opened.file.text(0, opened.data_start), actual);
  if (!known) fail_corrupt(path, "the header has no checksum");
  if (actual != hash[0]) fail_corrupt(path, "the header does not have its checksum");
}

static OpenedFile opened_as_it_is(const std::string& path) {
  OpenedFile opened{File("checkpoint", path), SafetensorsFile(path), 0, {}, {}, {}};
  int64_t bytes = 0;
  for (const SafetensorsEntry& entry : opened.tensors.entries()) bytes += entry.bytes;
  opened.data_start = opened.file.size() - bytes;
  return opened;
}

static std::shared_ptr<OpenedFile> opened_safetensors(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::file_status status = fs::symlink_status(path, failed);
  if (status.type() == fs::file_type::not_found) {
    throw BadFile(Verdict::incomplete, concat("checkpoint: ", path, " is missing"), path);
  }
  if (fs::is_symlink(status)) fail_corrupt(path, "it is a link, not a file");
  // A file that cannot be examined is an error, but not known to be corrupt.
  if (failed) fail_call("stat", "checkpoint: ", path, ": ", failed.message());
  if (::access(path.c_str(), R_OK) != 0) {
    fail_call("access", "checkpoint: ", path, ": ", std::strerror(errno));
  }
  try {
    return std::make_shared<OpenedFile>(opened_as_it_is(path));
  } catch (const std::invalid_argument& error) {
    throw BadFile(Verdict::corrupt, error.what(), path);
  }
}

std::shared_ptr<const OpenedFile> open_rank_file(const std::string& path) {
  const auto opened = opened_safetensors(path);
  check_header_hash(*opened);
  const auto& metadata = opened->tensors.metadata();
  for (const char* key : {kManifestKey, kBlocksKey, kRankKey}) {
    if (!metadata.contains(key)) fail_corrupt(path, "the header has no ", in_quotes(key));
  }
  opened->manifest_text = metadata.at(kManifestKey);
  const auto blocks = static_cast<size_t>(blocks_in(opened->data_bytes()));
  if (!parse_hex(metadata.at(kBlocksKey), opened->hashes) || opened->hashes.size() != blocks) {
    fail_corrupt(path, "the checksums are not those of ", blocks, " blocks");
  }
  const auto finite = metadata.find(kFiniteKey);
  if (finite == metadata.end()) return opened;
  std::vector<uint64_t> numbers;
  if (!parse_hex(finite->second, numbers) || numbers.size() != 2) {
    fail_corrupt(path, "the count of elements that are not finite is not a number");
  }
  opened->non_finite = {static_cast<int64_t>(numbers[0]), static_cast<int64_t>(numbers[1])};
  return opened;
}

static bool has_entries(const OpenedFile& opened, const RankFiles& world, int rank) {
  const auto& actual = opened.tensors.entries();
  const std::vector<RankFiles::Entry> expected = world.entries(rank);
  if (actual.size() != expected.size()) return false;
  for (const RankFiles::Entry& entry : expected) {
    const SavedTensor& tensor = world.manifest().tensors[entry.tensor];
    const SafetensorsEntry* found = opened.tensors.find(tensor.name);
    const bool same = found && found->dtype == tensor.dtype && found->shape == entry.box->shape &&
                      found->offset == opened.data_start + entry.offset;
    if (!same) return false;
  }
  return true;
}

void check_rank_file(const OpenedFile& opened, const RankFiles& world, int rank) {
  const std::string& path = opened.file.path();
  const std::string& own_rank = opened.tensors.metadata().at(kRankKey);
  if (opened.manifest_text != world.manifest_text() || own_rank != std::to_string(rank)) {
    throw BadFile(Verdict::mixed,
                  concat("checkpoint: ", path, " is not of step ", world.manifest().step,
                         " of generation ", world.manifest().generation, ", rank ", rank, " of ",
                         world.manifest().ranks, ", as the others are"),
                  path);
  }
  const auto tensors = static_cast<int64_t>(world.manifest().tensors.size());
  const std::optional<NonFinite>& marked = opened.non_finite;
  const bool good = marked ? marked->count >= 0 && marked->tensor < tensors &&
                                 (marked->count > 0) == (marked->tensor >= 0)
                           : world.manifest().format < 2;
  if (!good) fail_corrupt(path, "the count of elements that are not finite is none of this world");
  if (!has_entries(opened, world, rank)) {
    fail_corrupt(path, "its tensors are not those that its manifest says");
  }
}

std::shared_ptr<const OpenedFile> open_foreign_file(const std::string& path) {
  return std::make_shared<const OpenedFile>(opened_as_it_is(path));
}

}  // namespace weft
