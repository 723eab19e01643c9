// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "weft/state_dict.h"

namespace weft {

/// Keys of `to` that `from` lacks, and the other way round, in order.
template <class A, class B>
void add_unmatched_keys(const std::map<std::string, A>& to, const std::map<std::string, B>& from,
                        SkippedKeys& skipped) {
  for (const auto& [key, value] : to) {
    if (!from.contains(key)) skipped.missing.push_back(key);
  }
  for (const auto& [key, value] : from) {
    if (!to.contains(key)) skipped.unexpected.push_back(key);
  }
}

/// The first three names, and how many more there are: "a, b, c and 2 more".
std::string some_of(const std::vector<std::string>& names);

/// std::invalid_argument "<what>: ..." naming the first keys of each list, when there are any;
/// `source` is where the keys were looked for.
void check_no_keys_skipped(const char* what, const std::string& source, const SkippedKeys& skipped);

/// Fills this rank's part of a tensor, wherever it lies, from elements of `dtype`.
class TensorFill {
 public:
  TensorFill(const Tensor& whole, DType dtype);
  /// Takes the elements, dense and row-major.
  std::byte* memory() const { return static_cast<std::byte*>(dense_.block().data); }
  int64_t bytes() const { return dense_.numel() * static_cast<int64_t>(size_of(dense_.dtype())); }
  /// Call it once `memory` is filled.
  void finish() const;

 private:
  Tensor whole_;
  /// The tensor itself or memory for one that rests on disk, and its part or a dense copy of that.
  Tensor held_, dense_;
};

/// One parameter may be found under two names: std::invalid_argument, which begins with `what` and
/// names both, unless all their elements are equal (NaN to NaN). Collective where both are sharded.
void check_tied(const std::string& what, const std::string& name, const Tensor& tensor,
                const std::string& other_name, const Tensor& other);

}  // namespace weft
