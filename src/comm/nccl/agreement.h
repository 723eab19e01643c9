// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/comm/nccl/lane.h"
#include "src/comm/transport.h"

namespace weft {

/// Detects ranks that make different calls on their GPUs: NCCL would hang or compute wrong numbers.
/// Ranks compare their calls, over the host, at the first call, every 64th and each all_to_all. A
/// difference in between hangs or gives wrong numbers until then.
class NcclAgreement {
 public:
  static constexpr uint64_t kCalls = 64;

  explicit NcclAgreement(std::shared_ptr<Transport> host)
      : host_transport_(std::move(host)), hashes_(kCalls), calls_(kCalls) {}

  /// Records a call and its variant; CommError naming a rank and a call when ranks differ.
  void add(const NcclCallName& call, uint64_t variant);
  /// Compares the calls so far, and an all_to_all's counts pair by pair; CommError naming a call or
  /// a pair that differs.
  void compare_counts(const NcclCallName& call, std::span<const int64_t> sent,
                      std::span<const int64_t> expected);

 private:
  void compare();
  /// Aborts the world with the first call in which a rank differs from rank 0, and throws.
  [[noreturn]] void fail_diverged();
  /// Aborts the world with that text; `at_fault` is a rank of the group.
  [[noreturn]] void fail(const NcclCallName& call, int at_fault, const std::string& text);
  std::vector<uint64_t> gathered(std::span<const uint64_t> own) const;

  std::shared_ptr<Transport> host_transport_;
  uint64_t last_ = 0, hash_ = 0;
  /// The last calls, by number.
  std::vector<uint64_t> hashes_;
  std::vector<NcclCallName> calls_;
};

}  // namespace weft
