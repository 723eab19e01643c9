// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// Results of some ops of a function, which a repeated run takes instead of computing them again.
class WEFT_API KeptResults {
 public:
  /// By the names of the ops. std::invalid_argument for a name that no built-in op has.
  explicit KeptResults(std::vector<std::string> ops);

  enum class Run : uint8_t { first, repeated };
  /// Keeps the results of the ops that the calling rank runs in the scope, or takes them in the
  /// same order. Null: neither, also within another scope.
  class WEFT_API Scope : NotCopied {
   public:
    Scope(KeptResults* results, Run run);
    ~Scope();

   private:
    KeptResults* before_;
    Run run_before_;
  };

  /// Hands over all results between the two runs, in order, and takes them back before the second.
  /// std::invalid_argument if one has changed in place.
  std::vector<Tensor> release();
  void restore(std::vector<Tensor> results);

  // For the engine.
  bool is_first() const { return run_ == Run::first; }
  bool names(const std::string& op) const;
  void keep(const std::string& op, std::vector<Tensor> results);
  /// The results of the next call in the order of the first run. std::invalid_argument if that was
  /// one of another op, or its results have changed in place.
  std::vector<Tensor> take(const std::string& op);

 private:
  struct Kept {
    std::string op;
    std::vector<Tensor> results;
    std::vector<uint64_t> versions;
    /// std::invalid_argument if a result has changed since it was kept.
    void check_versions() const;
  };
  std::vector<std::string> ops_;
  std::vector<Kept> kept_;
  size_t next_ = 0;
  Run run_ = Run::first;
};

}  // namespace weft
