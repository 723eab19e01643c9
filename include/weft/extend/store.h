// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "weft/export.h"

namespace weft {

enum class PathKind : uint8_t { missing, file, directory, other };

/// One name in a directory.
struct StoredName {
  std::string name;
  /// A link is `other`, whatever it leads to.
  PathKind kind = PathKind::missing;
  /// Set for files in an object store only.
  int64_t bytes = 0;
};

/// A path that names no object when it is opened for reading.
class WEFT_API MissingObject : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// An object open for reading. It never changes while it is open: each request names the version.
class WEFT_API StoreReader {
 public:
  virtual ~StoreReader() = default;
  virtual int64_t size() const = 0;
  /// Another object of the same path has another one.
  virtual uint64_t version() const = 0;
  /// Fills `into`, which lies within the object. Several threads may read at once.
  virtual void read(int64_t offset, std::span<std::byte> into) const = 0;
};

/// A file that appears, whole, at `finish`, and never replaces one. What was written goes when the
/// writer is destroyed without it. The head is written last, because it may describe the rest.
class WEFT_API StoreWriter {
 public:
  virtual ~StoreWriter() = default;
  /// Appends bytes after the head. All calls but the last have equal sizes, of at most 4 MiB.
  virtual void write(std::span<const std::byte> bytes) = 0;
  virtual void finish(std::span<const std::byte> head) = 0;
};

/// The place of files: the file system or an object store. Paths have slashes; an object store has
/// no directories, but a prefix under which objects exist counts as one. Errors of the network, of
/// credentials and of the store are std::runtime_error.
class WEFT_API Store {
 public:
  virtual ~Store() = default;
  /// The store of a path: an object store for "s3://bucket/key", else the file system.
  static Store& of(const std::string& path);

  virtual PathKind kind(const std::string& path) = 0;
  /// The names directly in a directory, in no order; sets `error` as std::filesystem does.
  virtual std::vector<StoredName> list(const std::string& directory, std::error_code& error) = 0;
  /// The text of a small file; nothing when it is missing.
  virtual std::optional<std::string> get(const std::string& path) = 0;
  /// Makes a small file; false when one exists. One of several callers makes it.
  virtual bool put_new(const std::string& path, std::string_view text) = 0;
  /// Replaces a small file, or makes it.
  virtual void put(const std::string& path, std::string_view text) = 0;
  /// Given the text of a small file, what is to replace it; nothing: it stays.
  using Edit = std::function<std::optional<std::string>(const std::string& text)>;
  /// Edits a small file; false when it is missing, stays, or changed meanwhile.
  virtual bool update(const std::string& path, const Edit& edit) = 0;
  /// Removes a file; a missing one is no error.
  virtual void remove(const std::string& path) = 0;
  /// Removes a directory with all below it, so that others see all of it or nothing. What an
  /// interruption leaves has the name with kHiddenPrefix before it; removing that goes on.
  virtual void remove_directory(const std::string& path) = 0;
  /// The time of the last write in a directory; comparable within a store only. 0: unknown.
  virtual int64_t written(const std::string& directory) = 0;
  /// Makes a directory and those above it, so that they survive a crash.
  virtual void make_directories(const std::string& path) = 0;
};

/// Begins the name of what remains of a directory whose removal was interrupted.
inline constexpr std::string_view kHiddenPrefix = ".removed-";

/// True for "s3://..."; all other paths are of the file system.
WEFT_API bool is_object_path(std::string_view path);
/// The path without slashes at its end and, of an object, without empty parts there.
WEFT_API std::string object_path(std::string_view path);

/// Returns true when the path exists or cannot be examined.
WEFT_API bool may_exist(const std::string& path);
WEFT_API bool path_exists(const std::string& path);
WEFT_API bool path_is_directory(const std::string& path);
WEFT_API bool path_is_file(const std::string& path);
/// Returns true when two paths lead to one existing place.
WEFT_API bool is_same_place(const std::string& a, const std::string& b);
/// A path of the file system with the files of a directory: the path itself, or a temporary copy of
/// the objects directly below it, which goes at the end of the process.
WEFT_API std::string local_copy(const std::string& directory);

// Object stores only.

/// Opens an object. `what` (who asks) begins each error. MissingObject when there is none.
WEFT_API std::shared_ptr<const StoreReader> open_object(const std::string& what,
                                                        const std::string& path);
/// Writes an object of `head` + `bytes` bytes.
WEFT_API std::unique_ptr<StoreWriter> create_object(const std::string& path, int64_t head,
                                                    int64_t bytes);
/// All objects below a directory: paths and sizes, sorted. Names that begin with a dot, and what is
/// below those, are passed over.
WEFT_API std::vector<std::pair<std::string, int64_t>> objects_below(const std::string& directory);
/// Aborts uploads below a directory whose names in it, up to the first slash, satisfy `goes`.
WEFT_API void abort_uploads(const std::string& directory,
                            const std::function<bool(const std::string& name)>& goes);
/// While it exists, requests of this thread are given up after so many seconds.
class WEFT_API StoreDeadline {
 public:
  explicit StoreDeadline(double seconds);
  StoreDeadline(const StoreDeadline&) = delete;
  StoreDeadline& operator=(const StoreDeadline&) = delete;
  ~StoreDeadline();

 private:
  double before_;
};
/// Warns when the store does not honour conditional writes.
WEFT_API void check_conditional_writes(const std::string& directory);

}  // namespace weft
