// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/extend/file.h"
#include "weft/text_dataset.h"
#include "weft/tokenizer.h"

namespace weft {

/// The files of `paths`, which are files or directories: of those every file below, sorted by path;
/// names that start with a dot, empty files and links to directories are passed over.
/// std::invalid_argument when there is none, or when text and token shards are mixed.
WEFT_API std::vector<std::string> data_files(std::span<const std::string> paths);
/// Text as bytes, lines of JSON (.jsonl, .ndjson), or token shards (.bin).
enum class DataKind : uint8_t { text, lines, tokens };
WEFT_API DataKind data_kind(const std::string& path);
/// int32 at the start of a token shard.
inline constexpr size_t kShardHeader = 256;
/// A form of llm.c's token shards: the header (magic number, version, count of tokens, zeros), then
/// unsigned ids of `width` bytes.
struct ShardForm {
  int32_t magic, version;
  int width;
};
inline constexpr std::array<ShardForm, 2> kShardForms = {{{20240520, 1, 2}, {20240801, 7, 4}}};
/// Opens a file of text or JSON. std::invalid_argument when it is missing, empty or compressed, or
/// a table (Parquet, Arrow).
WEFT_API File opened_text(const std::string& path);

/// The tokens of files, one after the other, as one sequence. Text is bytes (ids 0 to 255), and a
/// file that does not end with a newline gets one before the next; `.bin` files are token shards.
/// Files of less than 1 MiB are held in memory, the others read where they are
/// wanted. Several threads may read at once.
class WEFT_API TokenStream {
 public:
  /// The tokens of data_files(paths). std::invalid_argument naming the path when one is missing,
  /// empty or malformed, when text and shards are mixed, and at the first token that is not below
  /// `vocabulary` (the shards are read through once for it).
  TokenStream(std::span<const std::string> paths, int64_t vocabulary);

  /// Number of tokens.
  int64_t size() const { return size_; }
  /// True when the tokens are the bytes of text.
  bool is_text() const { return parts_[0].width == 1; }
  /// The files in the order of their tokens.
  const std::vector<std::string>& paths() const { return paths_; }
  /// The number of tokens of each of them, where they are shards.
  std::vector<int64_t> file_sizes() const;
  /// Whether nothing is opened again, so that the files may be removed.
  bool is_open() const;
  /// Fills `into` with the tokens from `from` on. std::invalid_argument where there are fewer,
  /// std::runtime_error naming file and offset when a file has become shorter or cannot be read.
  void copy(int64_t from, std::span<int64_t> into) const;

 private:
  /// `count` tokens of `width` bytes each, from byte `first` of `content` on, or where that is
  /// none, of the file, which is to be the one that was there when the run began.
  struct Part {
    std::string path;
    std::shared_ptr<const std::byte> content;
    int64_t bytes = 0;
    std::pair<uint64_t, uint64_t> identity = {};
    int64_t first = 0;
    int64_t count = 0;
    int width = 1;
    int64_t start = 0;
  };
  void add_text(const std::string& path);
  void add_shard(const std::string& path);
  /// Adds the part; its bytes are those of `file`, unless that is null.
  void add(Part part, const File* file);
  void keep_open(const File& file) const;
  /// Opens the part's file again where it is closed. std::runtime_error names the file and the
  /// offset that is wanted when another file has its name meanwhile.
  File opened(const Part& part, int64_t offset) const;
  void check_tokens(const Part& part, int64_t vocabulary) const;
  /// Reads the part's tokens from `from` on; calls `use` with pieces of them, which fit a cache.
  template <class Use>
  void for_tokens(const Part& part, int64_t from, int64_t count, const Use& use) const;

  /// The few files that were read last, the latest first.
  mutable std::list<File> open_;
  mutable std::mutex mutex_;
  std::vector<Part> parts_;
  int64_t size_ = 0;
  std::vector<std::string> paths_;
};

/// Options of turning texts into token files.
struct TokenFileOptions {
  Tokenizer tokenizer;
  /// Means the same as in DataOptions.
  std::string field = {};
  LossOn loss = LossOn::automatic;
  /// True when the tokens that the tokenizer expects around a text are added, and the token that
  /// ends a text.
  bool adds_special = true;
  /// The most tokens of a file.
  int64_t file_tokens = 100'000'000;
  /// 0: those of the caller's kernels.
  int threads = 0;
};

struct TokenCounts {
  int64_t tokens = 0, documents = 0, bytes = 0;
  int files = 0;
};

/// Writes the tokens of files of one kind, text or lines of JSON, to the directory as token shards
/// "tokens-00000.bin", each with an index "tokens-00000.idx": where documents begin, and which
/// tokens count as targets. A text file is one document, and so is a line of JSON.
/// std::invalid_argument names the file and line that is wrong.
WEFT_API TokenCounts write_token_files(std::span<const std::string> files,
                                       const TokenFileOptions& options,
                                       const std::string& directory);

/// Warns on stderr when a model whose tokens are bytes has many more tokens than there are bytes.
WEFT_API void warn_of_bytes(int64_t vocabulary);

/// A token of a model whose tokens are bytes: the byte, or the number of another token.
WEFT_API std::string byte_text(int64_t token);

/// XXH3 of the files' sizes and bytes, taken as one sequence: of all bytes up to 256 MiB, else of
/// 64 blocks of 1 MiB spread evenly over them. std::runtime_error or std::invalid_argument names a
/// file that cannot be read.
WEFT_API uint64_t digest_of(std::span<const std::string> files);

/// XXH3 of the files' names in their order, each relative to the one of `given` (directories and
/// files) below which it lies: hosts may mount the same data at different places. A file that was
/// given itself counts by its last name.
WEFT_API uint64_t digest_of_names(std::span<const std::string> files,
                                  std::span<const std::string> given);

}  // namespace weft
