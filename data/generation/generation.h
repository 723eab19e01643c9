// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/generate.h"
#include "weft/mesh.h"
#include "weft/transformer.h"

namespace weft {

/// Computes the logits of one sequence token by token, with a cache, alone or with others. With a
/// cache the model is cut by its styles or whole, not fully sharded. Collective over the mesh.
class Decoder {
 public:
  /// Takes at most `context` tokens. With a `window` the model sees only the last ones, uncached.
  Decoder(TransformerModel& model, const DeviceMesh& mesh, int64_t context, int64_t window = 0);

  /// The logits [vocabulary] that follow the last of `tokens`, which follow those given before: the
  /// prompt at first, then one a call. std::invalid_argument beyond the context.
  std::vector<double> next(std::span<const int64_t> tokens);
  /// The logits of several sequences of one model after one more token each.
  static std::vector<std::vector<double>> next(std::span<Decoder* const> decoders,
                                               std::span<const int64_t> tokens);
  /// Tokens given so far.
  int64_t position() const { return window_ > 0 ? std::ssize(seen_) : cache_.position; }
  const KeyValueCache& cache() const { return cache_; }

 private:
  std::vector<double> next_of_window();
  /// True when `count` tokens more change the rotation of those before.
  bool changes_rotation(int64_t count) const;
  /// ids [rows, n] on the model's device.
  Tensor ids_of(std::span<const int64_t> tokens, int64_t rows) const;

  TransformerModel& model_;
  DeviceMesh mesh_;
  KeyValueCache cache_;
  int64_t window_;
  /// The tokens given so far.
  std::vector<int64_t> seen_;
};

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
  /// Returns at the end what was held back.
  std::string finish();
  bool has_stopped() const { return has_stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool has_stopped_ = false;
};

}  // namespace weft
