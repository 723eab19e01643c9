// SPDX-License-Identifier: Apache-2.0
#include "cli/token_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "weft/error.h"
#include "weft/file.h"

namespace weft::cli {

namespace fs = std::filesystem;

// Below it a file is read: mappings are few (65,530 a process), source trees have more files.
static constexpr int64_t kMapFrom = int64_t{1} << 20;
static constexpr size_t kShardHeader = 256;

struct ShardForm {
  int32_t magic;
  int32_t version;
  int width;
};
static constexpr std::array<ShardForm, 2> kShardForms = {{{20240520, 1, 2}, {20240801, 7, 4}}};

static bool is_shard(const std::string& path) { return path.ends_with(".bin"); }

/// The files below a directory that hold something, sorted.
static std::vector<std::string> files_below(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator at(directory, error), end;
  while (!error && at != end) {
    const bool hidden = at->path().filename().native().starts_with('.');
    std::error_code broken_link;
    if (hidden) at.disable_recursion_pending();
    if (!hidden && at->is_regular_file(broken_link) && at->file_size(broken_link) > 0) {
      found.push_back(at->path().string());
    }
    at.increment(error);
  }
  if (error) fail("data: cannot list ", directory, ": ", error.message());
  if (found.empty()) fail("data: the directory ", directory, " has no file with anything in it");
  std::sort(found.begin(), found.end());
  return found;
}

static std::vector<std::string> files_of(std::span<const std::string> paths) {
  std::vector<std::string> files;
  for (const auto& path : paths) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      for (auto& file : files_below(path)) files.push_back(std::move(file));
    } else {
      files.push_back(path);
    }
  }
  if (files.empty()) fail("data: no path is given; name a file or a directory");
  for (const auto& file : files) {
    if (is_shard(file) == is_shard(files[0])) continue;
    const bool first = is_shard(files[0]);
    fail("data: ", first ? files[0] : file, " is a token shard (.bin) but ",
         first ? file : files[0], " is text; give one kind");
  }
  return files;
}

/// The whole file, mapped or read.
static std::shared_ptr<const std::byte> content_of(const File& file) {
  if (file.size() >= kMapFrom) return file.map();
  const auto bytes = static_cast<size_t>(file.size());
  std::shared_ptr<std::byte[]> content(new std::byte[bytes]);
  file.read(0, {content.get(), bytes});
  return {content, content.get()};
}

template <class Token>
static void check_tokens(const std::string& path, const std::byte* data, int64_t count,
                         int64_t vocabulary) {
  const auto* tokens = reinterpret_cast<const Token*>(data);
  Token largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, tokens[i]);
  if (static_cast<int64_t>(largest) < vocabulary) return;
  const auto beyond = [&](Token token) { return static_cast<int64_t>(token) >= vocabulary; };
  const Token* first = std::find_if(tokens, tokens + count, beyond);
  fail("data: ", path, ": token ", first - tokens, " is ", static_cast<int64_t>(*first),
       ", but the model's vocabulary has ", vocabulary, " ids");
}

TokenStream::TokenStream(std::span<const std::string> paths, int64_t vocabulary) {
  for (const auto& path : files_of(paths)) {
    if (is_shard(path)) {
      add_shard(path);
    } else {
      add_text(path);
    }
    ++files_;
  }
  for (const auto& part : parts_) {
    if (vocabulary >= int64_t{1} << (8 * part.width)) continue;
    const auto check = part.width == 1   ? check_tokens<uint8_t>
                       : part.width == 2 ? check_tokens<uint16_t>
                                         : check_tokens<uint32_t>;
    check(part.path, part.data.get(), part.count, vocabulary);
  }
}

void TokenStream::add(Part part) {
  part.start = size_;
  size_ += part.count;
  parts_.push_back(std::move(part));
}

void TokenStream::add_text(const std::string& path) {
  static constexpr std::byte newline{'\n'};
  const File file("data", path);
  if (file.size() == 0) fail("data: ", path, " is empty");
  if (!parts_.empty() && parts_.back().data.get()[parts_.back().count - 1] != newline) {
    add({path, {std::shared_ptr<void>(), &newline}, 1, 1});
  }
  add({path, content_of(file), file.size(), 1});
}

void TokenStream::add_shard(const std::string& path) {
  const File file("data", path);
  constexpr int64_t header_bytes = kShardHeader * sizeof(int32_t);
  if (file.size() < header_bytes) {
    fail("data: ", path, " has ", file.size(), " bytes; a token shard has a header of ",
         header_bytes);
  }
  std::array<int32_t, kShardHeader> header;
  file.read(0, std::as_writable_bytes(std::span(header)));
  const auto form = std::find_if(kShardForms.begin(), kShardForms.end(), [&](const ShardForm& f) {
    return f.magic == header[0] && f.version == header[1];
  });
  if (form == kShardForms.end()) {
    fail("data: ", path, " starts with ", header[0], ' ', header[1],
         "; a token shard (.bin) starts with 20240520 1 or 20240801 7");
  }
  const int64_t bytes = file.size() - header_bytes;
  const int64_t count = header[2];
  if (count < 0 || bytes != count * form->width) {
    fail("data: ", path, " should hold ", count, " tokens of ", form->width,
         " bytes after its header, but has ", bytes, " bytes there");
  }
  if (count == 0) fail("data: ", path, " holds no token");
  const auto content = content_of(file);
  add({path, {content, content.get() + header_bytes}, count, form->width});
}

template <class Token>
static void widen(const std::byte* data, int64_t from, std::span<int64_t> into) {
  const auto* tokens = reinterpret_cast<const Token*>(data) + from;
  for (size_t i = 0; i < into.size(); ++i) into[i] = static_cast<int64_t>(tokens[i]);
}

void TokenStream::copy(int64_t from, std::span<int64_t> into) const {
  const auto wanted = static_cast<int64_t>(into.size());
  if (from < 0 || from > size_ || wanted > size_ - from) {
    fail("data: asked for ", wanted, " tokens from ", from, " on; there are ", size_);
  }
  auto part = std::upper_bound(parts_.begin(), parts_.end(), from,
                               [](int64_t at, const Part& p) { return at < p.start + p.count; });
  for (; !into.empty(); ++part) {
    const int64_t skip = from - part->start;
    const auto count = std::min(static_cast<size_t>(part->count - skip), into.size());
    const auto convert = part->width == 1   ? widen<uint8_t>
                         : part->width == 2 ? widen<uint16_t>
                                            : widen<uint32_t>;
    convert(part->data.get(), skip, into.first(count));
    into = into.subspan(count);
    from += static_cast<int64_t>(count);
  }
}

std::string TokenStream::in_words() const {
  constexpr int64_t kPlaces = 1000;
  // FNV-1a.
  uint64_t hash = 0xcbf29ce484222325;
  int64_t token = 0;
  for (int64_t i = 0; i < std::min(kPlaces, size_); ++i) {
    copy(size_ <= kPlaces ? i : size_ / kPlaces * i, {&token, 1});
    hash = (hash ^ static_cast<uint64_t>(token)) * 0x100000001b3;
  }
  std::ostringstream text;
  text << size_ << " tokens of " << files_ << " files, with hash " << std::hex << hash;
  return text.str();
}

}  // namespace weft::cli
