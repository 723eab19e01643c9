// SPDX-License-Identifier: Apache-2.0
#include "data/rows/cache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "data/rows/token_index.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft::rows {

namespace fs = std::filesystem;

/// Another number for each change of what write_token_files writes.
static constexpr uint64_t kVersion = 1;

TokenFolder::~TokenFolder() {
  std::error_code ignored;
  if (!is_kept_) fs::remove_all(path_, ignored);
}

/// Depends on all that decides the tokens, whatever the files are called.
static uint64_t key_of(std::span<const std::string> files, const TokenFileOptions& options) {
  uint64_t key = mixed(kVersion, options.tokenizer.digest());
  key = mixed(key, static_cast<uint64_t>(options.loss));
  key = xxh3_of(std::as_bytes(std::span(options.field)), key);
  for (const std::string& path : files) {
    const File file = opened_text(path);
    key = mixed(mixed(key, static_cast<uint64_t>(data_kind(path))),
                static_cast<uint64_t>(file.size()));
    key = hash_of(file, 0, key);
  }
  return key;
}

static void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail_call("mkdir", "data: ", path, ": ", error.message());
}

std::shared_ptr<const TokenFolder> tokenized(std::span<const std::string> files,
                                             const TokenFileOptions& options,
                                             const std::string& cache) {
  if (cache.empty()) {
    std::string path = (fs::temp_directory_path() / "weft-tokens-XXXXXX").string();
    if (!::mkdtemp(path.data())) {
      fail_call("mkdtemp", "data: ", path, ": ", std::strerror(errno));
    }
    auto folder = std::make_shared<TokenFolder>(path, false);
    write_token_files(files, options, path);
    return folder;
  }
  make_folder(cache);
  const std::string path =
      (fs::path(cache) /
       formatted("%016llx", static_cast<unsigned long long>(key_of(files, options))))
          .string();
  const OwnedDescriptor lock = opened_descriptor(path + ".lock", O_RDWR | O_CREAT);
  if (lock.get() < 0) fail_call("open", "data: ", path, ".lock: ", std::strerror(errno));
  const bool is_alone = TEMP_FAILURE_RETRY(::flock(lock.get(), LOCK_EX)) == 0;
  auto folder = std::make_shared<TokenFolder>(path, true);
  if (are_whole(path)) return folder;
  // Some file systems have no locks.
  const std::string partial = path + ".partial" + (is_alone ? "" : concat('.', ::getpid()));
  fs::remove_all(partial);
  make_folder(partial);
  write_token_files(files, options, partial);
  fs::remove_all(path);
  fs::rename(partial, path);
  return folder;
}

}  // namespace weft::rows
