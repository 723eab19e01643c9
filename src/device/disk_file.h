// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/device/disk_queue.h"
#include "weft/export.h"
#include "weft/extend/descriptor.h"

namespace weft {

/// The file of one rank in a directory: without a name, read and written by its process only.
class DiskFile : NotCopied {
 public:
  /// The calling thread's file in `directory`, made if it has none.
  static std::shared_ptr<DiskFile> in(const std::string& directory);
  explicit DiskFile(std::string directory);

  /// Reserves so many bytes at the end, and returns the first of them; std::runtime_error where the
  /// file system has too little space.
  int64_t reserve(int64_t bytes);
  /// Gives the space back.
  void release(int64_t offset, int64_t bytes) noexcept;
  /// True if all files of the process fit into half of the memory that is available.
  static bool fit_page_cache();

  /// "a file in DIR".
  std::string title() const;
  /// The descriptor for aligned memory, past the page cache where the file system supports it.
  int direct() const { return direct_.get() >= 0 && !refused_ ? direct_.get() : buffered(); }
  int buffered() const { return buffered_.get(); }
  /// Performs a request that the file system refused past the page cache again, through it.
  void repeat(DiskRequest& request);
  DiskQueue& queue() const { return *queue_; }

 private:
  std::string directory_;
  OwnedDescriptor buffered_, direct_;
  /// Requests past the page cache fail.
  bool refused_ = false;
  int64_t end_ = 0;
  /// Last: it uses the descriptors.
  std::unique_ptr<DiskQueue> queue_;
};

}  // namespace weft
