// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "src/base/store/s3_store.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft {

namespace fs = std::filesystem;

static PathKind kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::none:
    case fs::file_type::not_found: return PathKind::missing;
    case fs::file_type::regular: return PathKind::file;
    case fs::file_type::directory: return PathKind::directory;
    default: return PathKind::other;
  }
}

static void remove_all(const std::string& path) {
  std::error_code error;
  do {
    fs::remove_all(path, error);
  } while (error == std::errc::interrupted);
  // Network file systems keep files that are open under other names; the next save removes them.
  const bool is_later =
      error == std::errc::directory_not_empty && path.find(kHiddenPrefix) != path.npos;
  if (error && !is_later) fail_call("remove", "checkpoint: ", path, ": ", error.message());
}

static bool write_and_close(OwnedDescriptor& file, std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = TEMP_FAILURE_RETRY(
        ::pwrite(file.get(), text.data() + done, text.size() - done, static_cast<off_t>(done)));
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const int reason = errno;
  const bool closed = ::close(file.release()) == 0;
  if (closed) errno = reason;
  return closed && done == text.size();
}

/// Opens the file of a lease or another small one; no pipe blocks, and no link is followed.
static OwnedDescriptor open_small(const std::string& path, int flags) {
  return opened_descriptor(path, flags | O_NOFOLLOW | O_NONBLOCK);
}

namespace {

class FileStore final : public Store {
 public:
  PathKind kind(const std::string& path) override {
    std::error_code ignored;
    return kind_of(fs::status(path, ignored).type());
  }

  std::vector<StoredName> list(const std::string& directory, std::error_code& error) override {
    std::vector<StoredName> names;
    for (fs::directory_iterator at(directory, error), end; !error && at != end;
         at.increment(error)) {
      std::error_code ignored;
      names.push_back(
          {at->path().filename().string(), kind_of(at->symlink_status(ignored).type())});
    }
    return names;
  }

  std::optional<std::string> get(const std::string& path) override {
    const OwnedDescriptor file = open_small(path, O_RDONLY);
    if (file.get() < 0 && (errno == ENOENT || errno == ESTALE)) return {};
    if (file.get() < 0) fail_call("open", path, ": ", std::strerror(errno));
    std::string text(kMostSmall, '\0');
    const ssize_t got = TEMP_FAILURE_RETRY(::pread(file.get(), text.data(), text.size(), 0));
    if (got < 0) fail_call("pread", path, ": ", std::strerror(errno));
    text.resize(static_cast<size_t>(got));
    return text;
  }

  bool put_new(const std::string& path, std::string_view text) override {
    OwnedDescriptor file = open_small(path, O_WRONLY | O_CREAT | O_EXCL);
    if (file.get() < 0 && errno == EEXIST) return false;
    if (file.get() < 0) fail_call("open", path, ": ", std::strerror(errno));
    if (write_and_close(file, text)) return true;
    const int reason = errno;
    ::unlink(path.c_str());
    fail_call("pwrite", path, ": ", std::strerror(reason));
  }

  /// Writes under another name first: an interruption leaves no part of a file.
  void put(const std::string& path, std::string_view text) override {
    const fs::path to(path);
    fs::create_directories(to.parent_path());
    const fs::path unfinished = to.parent_path() / concat('.', to.filename().string(), ".tmp");
    OutputFile out("model files", unfinished.string(), OutputFile::Mode::replace);
    out.write(text);
    out.close();
    fs::rename(unfinished, to);
  }

  /// Writes in place, without creating the file.
  bool update(const std::string& path, const Edit& edit) override {
    const auto now = get(path);
    const auto text = now ? edit(*now) : std::nullopt;
    if (!text) return false;
    OwnedDescriptor file = open_small(path, O_WRONLY);
    return file.get() >= 0 && write_and_close(file, *text);
  }

  void remove(const std::string& path) override { ::unlink(path.c_str()); }

  /// Renames it first.
  void remove_directory(const std::string& path) override {
    const fs::path from(path);
    const std::string name = from.filename().string();
    if (name.starts_with(kHiddenPrefix)) return remove_all(path);
    const std::string hidden = (from.parent_path() / concat(kHiddenPrefix, name)).string();
    remove_all(::rename(path.c_str(), hidden.c_str()) == 0 ? hidden : path);
  }

  int64_t written(const std::string& directory) override {
    std::error_code ignored;
    return fs::last_write_time(directory, ignored).time_since_epoch().count();
  }

  void make_directories(const std::string& path) override {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) fail_call("mkdir", path, ": ", error.message());
  }

 private:
  static constexpr size_t kMostSmall = 1024;
};

}  // namespace

Store& Store::of(const std::string& path) {
  static FileStore files;
  static s3::S3Store objects;
  return is_object_path(path) ? static_cast<Store&>(objects) : files;
}

bool is_object_path(std::string_view path) { return path.starts_with("s3://"); }

bool path_exists(const std::string& path) {
  return Store::of(path).kind(path) != PathKind::missing;
}

bool may_exist(const std::string& path) {
  std::error_code error;
  if (!is_object_path(path)) return fs::exists(path, error) || error;
  try {
    return path_exists(path);
  } catch (const std::runtime_error&) {
    return true;
  }
}

bool path_is_directory(const std::string& path) {
  return Store::of(path).kind(path) == PathKind::directory;
}

bool path_is_file(const std::string& path) { return Store::of(path).kind(path) == PathKind::file; }

bool is_same_place(const std::string& a, const std::string& b) {
  std::error_code ignored;
  if (!is_object_path(a) && !is_object_path(b)) return fs::equivalent(a, b, ignored);
  return is_object_path(a) && is_object_path(b) && object_path(a) == object_path(b);
}

std::string object_path(std::string_view path) { return s3::place_of(std::string(path)).path(); }

namespace {

/// Temporary folders that go at the end of the process that made them.
struct Copies {
  std::mutex mutex;
  std::vector<std::string> folders;
  const pid_t owner = ::getpid();
  ~Copies() {
    std::error_code ignored;
    if (::getpid() != owner) return;
    for (const std::string& folder : folders) fs::remove_all(folder, ignored);
  }
};

}  // namespace

std::string local_copy(const std::string& directory) {
  if (!is_object_path(directory)) return directory;
  static Copies copies;
  std::string folder = (fs::temp_directory_path() / "weft-objects-XXXXXX").string();
  if (!::mkdtemp(folder.data())) fail_call("mkdtemp", folder, ": ", std::strerror(errno));
  {
    const std::lock_guard lock(copies.mutex);
    copies.folders.push_back(folder);
  }
  std::error_code ignored;
  for (const auto& [name, kind, bytes] : Store::of(directory).list(directory, ignored)) {
    if (kind != PathKind::file) continue;
    const std::string text = read_file("s3", concat(object_path(directory), '/', name));
    OutputFile out("s3", concat(folder, '/', name), OutputFile::Mode::replace);
    out.write(text);
    out.close();
  }
  return folder;
}

}  // namespace weft
