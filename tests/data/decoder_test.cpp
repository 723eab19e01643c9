// SPDX-License-Identifier: Apache-2.0
#include "data/generation/generation.h"

#include <gtest/gtest.h>

#include "tests/data/small_config.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"

namespace weft {
namespace {

std::vector<int64_t> tokens() { return {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}; }

TEST(Decoder, GivesTheLogitsOfTheWholeModel) {
  for (const int ranks : {1, 2}) {
    on_small_model(ranks, [&](TransformerModel& model, const DeviceMesh& mesh) {
      const NoGrad no_grad;
      const std::vector<int64_t> ids = tokens();
      const auto count = static_cast<int64_t>(ids.size());
      const std::vector<double> values(ids.begin(), ids.end());
      const Tensor whole =
          model(from_values(values, {1, count}, {DType::i64, cpu, Sharding(mesh, {})}));
      Decoder decoder(model, mesh, 16);
      std::vector<double> logits = decoder.next(std::span(ids).first(4));
      for (int64_t i = 4;; ++i) {
        expect_values(logits, whole_values(slice(whole, 1, i - 1, i)), 1e-5);
        if (i == count) break;
        logits = decoder.next(std::span(ids).subspan(static_cast<size_t>(i), 1));
      }
      EXPECT_EQ(decoder.position(), count);
      // Both caches of both layers, 16 tokens, the kv heads cut over the ranks.
      int64_t bytes = 0;
      for (const auto& [k, v] : decoder.cache().layers) {
        for (const Tensor& cached : {k, v}) {
          bytes += cached.local().numel() * static_cast<int64_t>(size_of(cached.dtype()));
        }
      }
      EXPECT_EQ(bytes, 2 * 2 * 16 * (2 / ranks) * 4 * 4);
    });
  }
}

TEST(Decoder, RefusesWhatItHasNoRoomFor) {
  on_small_model(1, [&](TransformerModel& model, const DeviceMesh& mesh) {
    EXPECT_EQ(error_of([&] { Decoder(model, mesh, 33); }),
              "decode: number of tokens is 33, expected 1 to 32, those of the model");
    Decoder decoder(model, mesh, 4);
    const std::vector<int64_t> ids = tokens();
    EXPECT_EQ(error_of([&] { decoder.next(std::span(ids).first(5)); }),
              "decode: number of tokens is 5 after 0, expected at least 1, and 4 in all at most");
    decoder.next(std::span(ids).first(2));
    EXPECT_EQ(error_of([&] { decoder.next(std::span(ids).first(2)); }),
              "decode: number of tokens is 2 after 2, expected one at a time after the prompt");
  });
}

}  // namespace
}  // namespace weft
