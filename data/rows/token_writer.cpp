// SPDX-License-Identifier: Apache-2.0
#include "data/rows/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft::rows {

namespace fs = std::filesystem;

TokenWriter::TokenWriter(std::string directory, const TokenFileOptions& options, bool has_rows)
    : directory_(std::move(directory)),
      form_(kShardForms[options.tokenizer.size() > 1 << 16]),
      most_(options.file_tokens),
      has_rows_(has_rows) {
  if (most_ < 1 || most_ > INT32_MAX) {
    fail("data: tokens of a file must be at least 1 and at most ", INT32_MAX, ", got ", most_);
  }
}

void TokenWriter::add(const Document& document) {
  if (document.ids.empty()) return;
  if (descriptor_.get() < 0 || header_.tokens == most_) open();
  if (!document.continues) {
    starts_.push_back(header_.tokens);
    ++documents_;
  }
  for (size_t i = 0; i < document.ids.size(); ++i) {
    if (header_.tokens == most_) open();
    add_token(document.ids[i], document.counts.empty() || document.counts[i]);
  }
}

void TokenWriter::add_token(int64_t id, bool counts) {
  const auto value = static_cast<uint32_t>(id);
  buffer_.append(reinterpret_cast<const char*>(&value), static_cast<size_t>(form_.width));
  const auto at = static_cast<size_t>(header_.tokens++);
  if (at % 8 == 0) marks_.push_back(0);
  if (counts) marks_.back() = static_cast<uint8_t>(marks_.back() | 1 << at % 8);
  if (!counts) header_.has_marks = 1;
  if (buffer_.size() >= kHashBlock) flush();
}

void TokenWriter::open() {
  if (descriptor_.get() >= 0) close(false);
  path_ = (fs::path(directory_) / formatted("tokens-%05d.bin", files_++)).string();
  open_standard_descriptors();
  descriptor_ = opened_descriptor(path_, O_WRONLY | O_CREAT | O_TRUNC);
  if (descriptor_.get() < 0) fail_call("open", "data: ", path_, ": ", std::strerror(errno));
  offset_ = kShardHeader * sizeof(int32_t);
}

void TokenWriter::write(const void* bytes, size_t size, int64_t offset) const {
  for (size_t done = 0; done < size;) {
    const ssize_t wrote =
        ::pwrite(descriptor_.get(), static_cast<const char*>(bytes) + done, size - done,
                 static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail_call("pwrite", "data: ", path_, ": ", std::strerror(errno));
    done += static_cast<size_t>(wrote);
  }
}

void TokenWriter::flush() {
  write(buffer_.data(), buffer_.size(), offset_);
  header_.shard_hash = xxh3_of(std::as_bytes(std::span(buffer_)), header_.shard_hash);
  offset_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
}

void TokenWriter::close(bool is_last) {
  if (!buffer_.empty()) flush();
  const std::array<int32_t, kShardHeader> shard = {form_.magic, form_.version,
                                                   static_cast<int32_t>(header_.tokens)};
  write(shard.data(), sizeof shard, 0);
  if (::fsync(descriptor_.get()) != 0) {
    fail_call("fsync", "data: ", path_, ": ", std::strerror(errno));
  }
  descriptor_.close();
  std::string rest(reinterpret_cast<const char*>(starts_.data()), starts_.size() * 8);
  if (header_.has_marks) rest.append(reinterpret_cast<const char*>(marks_.data()), marks_.size());
  header_.documents = std::ssize(starts_);
  header_.has_rows = has_rows_;
  header_.is_last = is_last;
  for (size_t at = 0; at < rest.size(); at += kHashBlock) {
    const std::string_view block = std::string_view(rest).substr(at, kHashBlock);
    header_.rest_hash = xxh3_of(std::as_bytes(std::span(block)), header_.rest_hash);
  }
  OutputFile index("data", index_path(path_), OutputFile::Mode::replace);
  index.write({reinterpret_cast<const char*>(&header_), sizeof header_});
  index.write(rest);
  index.close();
  tokens_ += header_.tokens;
  header_ = {};
  starts_.clear();
  marks_.clear();
}

void TokenWriter::finish() {
  if (descriptor_.get() >= 0) close(true);
}

}  // namespace weft::rows
