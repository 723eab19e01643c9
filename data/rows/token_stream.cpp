// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "weft/error.h"
#include "weft/extend/store.h"
#include "weft/extend/token_files.h"

namespace weft {

namespace fs = std::filesystem;

/// A process has 1,024 descriptors by default, shared by all of its ranks.
static constexpr size_t kMostOpen = 64;
/// Smaller files are held in memory: source trees have more than can be open.
static constexpr int64_t kLarge = int64_t{1} << 20;
/// Bytes that are read at once.
static constexpr size_t kPiece = size_t{1} << 14;

DataKind data_kind(const std::string& path) {
  if (path.ends_with(".bin")) return DataKind::tokens;
  return path.ends_with(".jsonl") || path.ends_with(".ndjson") ? DataKind::lines : DataKind::text;
}

/// True when it is the index of a shard.
static bool is_index(const fs::path& path) {
  std::error_code ignored;
  return path.extension() == ".idx" &&
         fs::exists(fs::path(path).replace_extension(".bin"), ignored);
}

/// The files below a directory that hold something, sorted.
static std::vector<std::string> files_below(const std::string& directory) {
  std::vector<std::string> found;
  if (is_object_path(directory)) {
    const auto objects = objects_below(directory);
    std::set<std::string> paths;
    for (const auto& [path, bytes] : objects) paths.insert(path);
    for (const auto& [path, bytes] : objects) {
      const std::string shard = path.substr(0, path.rfind('.')) + ".bin";
      const bool is_index_of_shard = path.ends_with(".idx") && paths.contains(shard);
      if (bytes > 0 && !is_index_of_shard) found.push_back(path);
    }
    if (!found.empty()) return found;
  }
  std::error_code error;
  fs::recursive_directory_iterator at, end;
  if (!is_object_path(directory)) at = fs::recursive_directory_iterator(directory, error);
  while (!error && at != end) {
    const bool hidden = at->path().filename().native().starts_with('.');
    std::error_code broken_link;
    if (hidden) at.disable_recursion_pending();
    if (!hidden && at->is_regular_file(broken_link) && at->file_size(broken_link) > 0 &&
        !is_index(at->path())) {
      found.push_back(at->path().string());
    }
    at.increment(error);
  }
  if (error) fail("data: cannot list ", directory, ": ", error.message());
  if (found.empty())
    fail("data: the directory ", directory, " has no text, expected a file that is not empty");
  std::sort(found.begin(), found.end());
  return found;
}

/// Refuses a table that was named itself: among others of a directory it is text.
static void check_is_no_table(const std::string& path) {
  constexpr std::pair<const char*, const char*> kTables[] = {
      {".json", "read_json('"}, {".csv", "read_csv('"}, {".tsv", "read_table('"}};
  for (const auto& [ending, read] : kTables) {
    if (!path.ends_with(ending)) continue;
    fail("data: ", path, " is a table or one JSON value, expected text or lines of JSON (.jsonl); ",
         "convert it: python -c \"import pandas as p; p.", read, path,
         "').to_json('data.jsonl', orient='records', lines=True, force_ascii=False)\"");
  }
}

std::vector<std::string> data_files(std::span<const std::string> paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    const PathKind kind = Store::of(path).kind(path);
    if (kind == PathKind::file) check_is_no_table(path);
    const auto found =
        kind == PathKind::directory ? files_below(path) : std::vector<std::string>{path};
    files.insert(files.end(), found.begin(), found.end());
  }
  if (files.empty()) fail("data: number of paths is 0, expected a file or a directory");
  for (const auto& file : files) {
    // The kinds in the order of their names in the sentence.
    const DataKind a = data_kind(file), b = data_kind(files[0]);
    if (a == b) continue;
    static constexpr std::array<const char*, 3> names = {"text", "lines of JSON",
                                                         "a token shard (.bin)"};
    const bool first = b > a;
    fail("data: ", first ? files[0] : file, " is ", names[static_cast<size_t>(std::max(a, b))],
         " and ", first ? file : files[0], ' ', names[static_cast<size_t>(std::min(a, b))],
         ", expected one kind");
  }
  return files;
}

TokenStream::TokenStream(std::span<const std::string> paths, int64_t vocabulary)
    : paths_(data_files(paths)) {
  for (const std::string& path : paths_) {
    data_kind(path) == DataKind::tokens ? add_shard(path) : add_text(path);
  }
  for (const Part& part : parts_) {
    if (vocabulary < int64_t{1} << (8 * part.width)) check_tokens(part, vocabulary);
  }
}

void TokenStream::keep_open(const File& file) const {
  if (open_.size() == kMostOpen) open_.pop_back();
  open_.push_front(file);
}

bool TokenStream::is_open() const {
  const auto is_file = [](const Part& part) { return !part.content; };
  return std::ranges::count_if(parts_, is_file) <= static_cast<std::ptrdiff_t>(kMostOpen);
}

File TokenStream::opened(const Part& part, int64_t offset) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(open_, part.identity, &File::identity);
  if (found != open_.end()) {
    open_.splice(open_.begin(), open_, found);
    return open_.front();
  }
  std::optional<File> again;
  try {
    again.emplace("data", part.path);
  } catch (const std::invalid_argument& error) {  // the path was right when the run began
    fail_call("open", error.what(), ", wanted from byte ", offset, " on");
  }
  if (again->size() != part.bytes || again->identity() != part.identity) {
    fail_call("open", "data: ", part.path, ", wanted from byte ", offset,
              " on, is another file of ", again->size(), " bytes, expected the one of ", part.bytes,
              " bytes that was there when the run began");
  }
  keep_open(*again);
  return *again;
}

template <class Use>
void TokenStream::for_tokens(const Part& part, int64_t from, int64_t count, const Use& use) const {
  alignas(uint32_t) std::array<std::byte, kPiece> buffer;
  while (count > 0) {
    const int64_t tokens = std::min(count, static_cast<int64_t>(kPiece) / part.width);
    const int64_t at = part.first + from * part.width;
    const std::byte* bytes = part.content ? part.content.get() + at : buffer.data();
    if (!part.content) {
      opened(part, at).read(at, std::span(buffer).first(static_cast<size_t>(tokens * part.width)));
    }
    const auto of = [&]<class Token>(Token) {
      use(from, std::span(reinterpret_cast<const Token*>(bytes), static_cast<size_t>(tokens)));
    };
    part.width == 1 ? of(uint8_t{}) : part.width == 2 ? of(uint16_t{}) : of(uint32_t{});
    from += tokens;
    count -= tokens;
  }
}

void TokenStream::check_tokens(const Part& part, int64_t vocabulary) const {
  for_tokens(part, 0, part.count, [&](int64_t from, const auto& tokens) {
    const auto beyond = [&](auto token) { return static_cast<int64_t>(token) >= vocabulary; };
    if (!beyond(*std::ranges::max_element(tokens))) return;
    const auto first = std::ranges::find_if(tokens, beyond);
    fail("data: ", part.path, ": token ", from + (first - tokens.begin()), " is ",
         static_cast<int64_t>(*first), ", but the model's vocabulary has ", vocabulary, " ids");
  });
}

void TokenStream::add(Part part, const File* file) {
  if (file && file->size() >= kLarge) {
    part.bytes = file->size();
    part.identity = file->identity();
    keep_open(*file);
  } else if (file) {
    const auto bytes = static_cast<size_t>(file->size());
    std::shared_ptr<std::byte[]> content(new std::byte[bytes]);
    file->read(0, {content.get(), bytes});
    part.content = {content, content.get()};
  }
  part.start = size_;
  size_ += part.count;
  parts_.push_back(std::move(part));
}

/// A format that is not text: how it starts or is called, and how it becomes text.
struct OtherFormat {
  std::string_view start, ending;
  const char *name, *command, *after = "";
};
static constexpr OtherFormat kOtherFormats[] = {
    {"\x1f\x8b", ".gz", "compressed", "gzip -dk "},
    {"\x28\xb5\x2f\xfd", ".zst", "compressed", "zstd -dk "},
    {"\xfd"
     "7zXZ",
     ".xz", "compressed", "xz -dk "},
    {"BZh", ".bz2", "compressed", "bzip2 -dk "},
    {"PK\x03\x04", ".zip", "an archive", "unzip "},
    {"PAR1", ".parquet", "a Parquet table", "python -c \"import pandas as p; p.read_parquet('",
     "').to_json('data.jsonl', orient='records', lines=True, force_ascii=False)\""},
    {"ARROW1", ".arrow", "an Arrow table",
     "python -c \"from datasets import Dataset as d; d.from_file('",
     "').to_json('data.jsonl', force_ascii=False)\""}};

File opened_text(const std::string& path) {
  File file("data", path);
  if (file.size() == 0) fail("data: ", path, " is empty, expected text");
  const std::string start = file.text(0, std::min<int64_t>(file.size(), 8));
  for (const OtherFormat& format : kOtherFormats) {
    if (!start.starts_with(format.start) && !path.ends_with(format.ending)) continue;
    fail("data: ", path, " is ", format.name, ", expected text; convert it: ", format.command, path,
         format.after);
  }
  return file;
}

void TokenStream::add_text(const std::string& path) {
  static constexpr std::byte newline{'\n'};
  const File file = opened_text(path);
  int64_t last = '\n';
  if (size_ > 0) copy(size_ - 1, {&last, 1});
  if (last != '\n') {
    add({.path = path, .content = {std::shared_ptr<void>(), &newline}, .count = 1}, nullptr);
  }
  add({.path = path, .content = {}, .count = file.size()}, &file);
}

void TokenStream::add_shard(const std::string& path) {
  const File file("data", path);
  constexpr int64_t header_bytes = kShardHeader * sizeof(int32_t);
  if (file.size() < header_bytes) {
    fail("data: ", path, " has ", file.size(), " bytes, expected at least ", header_bytes,
         ", the header of a token shard");
  }
  std::array<int32_t, kShardHeader> header;
  file.read(0, std::as_writable_bytes(std::span(header)));
  const auto form = std::find_if(kShardForms.begin(), kShardForms.end(), [&](const ShardForm& f) {
    return f.magic == header[0] && f.version == header[1];
  });
  if (form == kShardForms.end()) {
    fail("data: ", path, " starts with ", header[0], ' ', header[1],
         ", expected 20240520 1 or 20240801 7, as a token shard (.bin)");
  }
  const int64_t bytes = file.size() - header_bytes;
  const int64_t count = header[2];
  if (count < 0 || bytes != count * form->width) {
    fail("data: ", path, " has ", bytes, " bytes after its header, expected ", count, " tokens of ",
         form->width, " bytes");
  }
  if (count == 0) fail("data: ", path, ": it holds no token");
  add({.path = path, .content = {}, .first = header_bytes, .count = count, .width = form->width},
      &file);
}

std::vector<int64_t> TokenStream::file_sizes() const {
  std::vector<int64_t> sizes;
  for (const Part& part : parts_) sizes.push_back(part.count);
  return sizes;
}

void TokenStream::copy(int64_t from, std::span<int64_t> into) const {
  const auto wanted = static_cast<int64_t>(into.size());
  if (from < 0 || from > size_ || wanted > size_ - from) {
    fail("data: tokens are ", wanted, " from ", from, " on, expected some of ", size_);
  }
  auto part = std::upper_bound(parts_.begin(), parts_.end(), from,
                               [](int64_t at, const Part& p) { return at < p.start + p.count; });
  for (; !into.empty(); ++part) {
    const int64_t skip = from - part->start;
    const auto count = std::min(static_cast<size_t>(part->count - skip), into.size());
    int64_t* to = into.data();
    for_tokens(*part, skip, static_cast<int64_t>(count), [&](int64_t, const auto& tokens) {
      to = std::ranges::transform(tokens, to, [](auto token) { return int64_t{token}; }).out;
    });
    into = into.subspan(count);
    from += static_cast<int64_t>(count);
  }
}

void warn_of_bytes(int64_t vocabulary) {
  // "small" has 4096.
  if (vocabulary <= 4096) return;
  warn("warning: the bytes of the text are the tokens, but the model has ", vocabulary,
       " tokens, which a tokenizer made");
}

std::string byte_text(int64_t token) {
  return token < 256 ? std::string(1, static_cast<char>(token)) : concat('<', token, '>');
}

}  // namespace weft
