// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/extend/token_files.h"
#include "weft/text_dataset.h"

namespace weft::cli {

/// Shape of the input of one step over all ranks.
struct BatchShape {
  int64_t vocabulary = 256;
  int64_t rows = 1;
  int64_t seq = 1;
};

/// The rows of a run by its steps.
class TokenData {
 public:
  TokenData(const std::vector<std::string>& paths, const BatchShape& batch, uint64_t seed)
      : stream_(paths, batch.vocabulary),
        batch_(batch),
        rows_(split_text_dataset({paths, batch.seq, batch.vocabulary, seed}, batch.rows)) {}

  const TokenStream& stream() const { return stream_; }
  const BatchShape& batch() const { return batch_; }
  int64_t validation_rows() const { return rows_.held_out->rows(); }
  void train(int64_t step, int64_t first, std::span<int64_t> ids,
             std::span<int64_t> targets) const {
    rows_.train->read(step * batch_.rows + first, {ids, targets});
  }
  void validation(int64_t first, std::span<int64_t> ids, std::span<int64_t> targets) const {
    rows_.held_out->read(first, {ids, targets});
  }

 private:
  TokenStream stream_;
  BatchShape batch_;
  DataSplit rows_;
};

}  // namespace weft::cli
