// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "checkpoint/file_writer.h"
#include "weft/error.h"

namespace weft {

namespace {

/// A file of the file system: its bytes go to a temporary name, and `finish` syncs them, gives them
/// their name and syncs the directory.
class NewFile final : public StoreWriter {
 public:
  NewFile(const std::string& path, int64_t head, int64_t bytes) : path_(path), at_(head) {
    const std::filesystem::path whole(path);
    directory_ = whole.parent_path().string();
    temporary_ = concat(directory_, "/.", whole.filename().string(), ".tmp");
    struct stat status {};
    if (::lstat(path_.c_str(), &status) == 0) {
      fail("checkpoint: ", path_, " exists, expected no file; nothing is overwritten");
    }
    file_.emplace("checkpoint", temporary_, O_CREAT | O_TRUNC, true);
    // Tells at once that there is no space; file systems that cannot are left to write.
    if (file_->reserve(head + bytes) || errno == EOPNOTSUPP || errno == ENOSYS) return;
    const int reason = errno;
    file_.reset();
    ::unlink(temporary_.c_str());
    fail_call("fallocate", "checkpoint: ", temporary_, " of ", head + bytes,
              " bytes: ", std::strerror(reason));
  }

  ~NewFile() override {
    if (!file_) return;
    file_.reset();
    ::unlink(temporary_.c_str());
  }

  void write(std::span<const std::byte> bytes) override {
    // The last block is no whole sectors.
    if (bytes.size() % BlockBuffer::kAlignment != 0) file_->use_cache();
    file_->write(at_, bytes);
    at_ += std::ssize(bytes);
  }

  void finish(std::span<const std::byte> head) override {
    file_->use_cache();
    file_->write(0, head);
    file_->sync();
    rename_to_new(temporary_, path_);
    file_.reset();
    sync_directory(directory_);
  }

 private:
  std::string path_, directory_, temporary_;
  /// Empty once it has its name.
  std::optional<WrittenFile> file_;
  int64_t at_;
};

}  // namespace

std::unique_ptr<StoreWriter> new_file(const std::string& path, int64_t head, int64_t bytes) {
  if (is_object_path(path)) return create_object(path, head, bytes);
  return std::make_unique<NewFile>(path, head, bytes);
}

}  // namespace weft
