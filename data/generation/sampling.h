// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/generate.h"

namespace weft {

/// std::invalid_argument names an option that is out of its range.
void check_sampling(const SamplingOptions& options);

/// Passes text on until one of several texts begins; text that may be the start of one is held
/// back.
class StopTexts {
 public:
  /// std::invalid_argument when one of them is empty.
  explicit StopTexts(std::vector<std::string> stops);
  /// The part that is certain; `has_stopped` afterwards.
  std::string push(const std::string& text);
  /// What is held back, at the end.
  std::string finish();
  bool has_stopped() const { return has_stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool has_stopped_ = false;
};

}  // namespace weft
