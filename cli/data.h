// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cli/token_stream.h"

namespace weft::cli {

/// Shape of the input of one step over all ranks.
struct BatchShape {
  int64_t vocabulary = 256;
  int64_t rows = 1;
  int64_t seq = 1;
};

/// Rows of tokens to train on and rows held out. Row i of the sequence is `seq` inputs, tokens
/// [i seq, (i + 1) seq), and as targets the tokens that follow each. The last rows are held out: a
/// twentieth of them in whole batches, at least 1 batch and at most 16. The others come in an order
/// shuffled by `seed`, each once an epoch; the step is the only state, and a row depends on its
/// index in the global batch alone, so that any number of ranks sees the same.
class TokenData {
 public:
  /// `paths` as TokenStream. std::invalid_argument also when there are too few tokens for one row
  /// to train on and one batch held out.
  TokenData(std::span<const std::string> paths, const BatchShape& batch, uint64_t seed);

  const TokenStream& stream() const { return stream_; }
  const BatchShape& batch() const { return batch_; }
  /// Rows of an epoch.
  int64_t train_rows() const { return train_rows_; }
  /// Rows held out: a multiple of the batch's.
  int64_t validation_rows() const { return validation_rows_; }

  /// Rows [first, first + n) of the batch of `step`, where n = inputs.size() / seq: both spans are
  /// [n, seq], row-major.
  void train(int64_t step, int64_t first, std::span<int64_t> inputs,
             std::span<int64_t> targets) const;
  /// Held-out rows [first, first + n), in the order of the text.
  void validation(int64_t first, std::span<int64_t> inputs, std::span<int64_t> targets) const;

 private:
  int64_t rows_in(std::span<int64_t> inputs, std::span<int64_t> targets) const;
  void copy_row(int64_t row, int64_t to, std::span<int64_t> inputs,
                std::span<int64_t> targets) const;

  TokenStream stream_;
  BatchShape batch_;
  uint64_t seed_;
  int64_t train_rows_ = 0;
  int64_t validation_rows_ = 0;
};

/// Maps `index` in [0, count) by the permutation that `key` selects.
int64_t permuted(int64_t index, int64_t count, uint64_t key);

}  // namespace weft::cli
