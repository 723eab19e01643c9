// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace weft {

/// The right of one process to save into a directory: a file ".lease-<number>" there, which a
/// background thread renews. checkpoint/README.md has the protocol.
class Lease {
 public:
  /// Takes the lease of `directory`. Waits while another job's may be alive: `tell` gets a sentence
  /// first. std::invalid_argument naming the holder when it is alive; std::runtime_error when the
  /// directory cannot hold a lease.
  Lease(const std::string& directory, std::chrono::milliseconds lifetime,
        const std::function<void(const std::string& sentence)>& tell);
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  /// Releases it.
  ~Lease();

  /// std::runtime_error when another process has taken the lease over, or it was removed.
  void check() const;

 private:
  void take(const std::function<void(const std::string&)>& tell);
  bool claim(int64_t number);
  void renew();
  void keep_alive();
  bool write(int descriptor, bool is_free);
  std::string path_of(int64_t number) const;

  const std::string directory_;
  const std::chrono::milliseconds lifetime_;
  const std::string tag_;
  /// The process that took the lease: a forked child does not release it.
  const int pid_;
  int64_t number_ = 0, count_ = 0;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace weft
