// SPDX-License-Identifier: Apache-2.0
#include "cli/data.h"

#include <algorithm>
#include <bit>

#include "weft/error.h"

namespace weft::cli {

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): every bit of the result depends on every one
/// of x.
static uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

int64_t permuted(int64_t index, int64_t count, uint64_t key) {
  // A Feistel network permutes [0, 4^half); walking its cycle until it is back below `count`, which
  // takes fewer than four steps on average, permutes [0, count).
  const auto width = std::bit_width(static_cast<uint64_t>(count - 1) | 1);
  const auto half = (static_cast<uint64_t>(width) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (mixed(mixed(key + round) ^ right) & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

static void check_batch_shape(const BatchShape& batch) {
  if (batch.rows < 1) fail("data: rows of a batch must be at least 1, got ", batch.rows);
  if (batch.seq < 1) fail("data: tokens of a row must be at least 1, got ", batch.seq);
}

TokenData::TokenData(std::span<const std::string> paths, const BatchShape& batch, uint64_t seed)
    : stream_(paths, batch.vocabulary), batch_(batch), seed_(seed) {
  check_batch_shape(batch);
  constexpr int64_t one_in = 20, most_batches = 16;
  const int64_t rows = (stream_.size() - 1) / batch.seq;
  if (rows <= batch.rows) {
    fail("data: number of tokens is ", stream_.size(), ", expected at least ",
         (batch.rows + 1) * batch.seq + 1, ": a row of ", batch.seq, " to train on and a batch of ",
         batch.rows, " held out");
  }
  const int64_t batches = std::clamp(rows / one_in / batch.rows, int64_t{1}, most_batches);
  validation_rows_ = batches * batch.rows;
  train_rows_ = rows - validation_rows_;
}

void TokenData::train(int64_t step, int64_t first, std::span<int64_t> inputs,
                      std::span<int64_t> targets) const {
  const int64_t rows = rows_in(inputs, targets);
  if (step < 0 || first < 0 || first + rows > batch_.rows) {
    fail("data: rows are ", first, " to ", first + rows, " of step ", step,
         ", expected some of the ", batch_.rows, " of a batch");
  }
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t index = step * batch_.rows + first + i;
    const auto epoch = static_cast<uint64_t>(index / train_rows_);
    const uint64_t key = mixed(mixed(seed_) ^ epoch);
    copy_row(permuted(index % train_rows_, train_rows_, key), i, inputs, targets);
  }
}

void TokenData::validation(int64_t first, std::span<int64_t> inputs,
                           std::span<int64_t> targets) const {
  const int64_t rows = rows_in(inputs, targets);
  if (first < 0 || first + rows > validation_rows_) {
    fail("data: held-out rows are ", first, " to ", first + rows, ", expected some of ",
         validation_rows_);
  }
  for (int64_t i = 0; i < rows; ++i) copy_row(train_rows_ + first + i, i, inputs, targets);
}

int64_t TokenData::rows_in(std::span<int64_t> inputs, std::span<int64_t> targets) const {
  const auto size = static_cast<int64_t>(inputs.size());
  if (inputs.size() != targets.size() || size % batch_.seq != 0) {
    fail("data: numbers are ", inputs.size(), " inputs and ", targets.size(),
         " targets, expected equal numbers, in rows of ", batch_.seq);
  }
  return size / batch_.seq;
}

void TokenData::copy_row(int64_t row, int64_t to, std::span<int64_t> inputs,
                         std::span<int64_t> targets) const {
  const auto at = static_cast<size_t>(to * batch_.seq);
  const auto count = static_cast<size_t>(batch_.seq);
  stream_.copy(row * batch_.seq, inputs.subspan(at, count));
  stream_.copy(row * batch_.seq + 1, targets.subspan(at, count));
}

}  // namespace weft::cli
