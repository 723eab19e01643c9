// SPDX-License-Identifier: Apache-2.0
#include "weft/generate.h"

#include <gtest/gtest.h>

#include "data/generation/generation.h"
#include "tests/data/small_config.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/fsdp.h"
#include "weft/tensor_parallel.h"

namespace weft {
namespace {

/// The logits that NumPy computes with by hand: 0, log 2, log 4, log 8 have 1, 2, 4 and 8 parts.
const std::vector<double> kLogits = {0, std::log(2), std::log(4), std::log(8)};

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-12) << i;
}

TEST(Generate, AppliesTheSamplingOptions) {
  const auto next = [](const SamplingOptions& options, const std::vector<int64_t>& seen = {}) {
    return next_probabilities(kLogits, seen, options);
  };
  expect_near(next({.temperature = 1}), {1. / 15, 2. / 15, 4. / 15, 8. / 15});
  expect_near(next({.temperature = 0.5}), {1. / 85, 4. / 85, 16. / 85, 64. / 85});
  expect_near(next({.temperature = 0}), {0, 0, 0, 1});
  expect_near(next({.temperature = 1, .top_k = 2}), {0, 0, 4. / 12, 8. / 12});
  expect_near(next({.temperature = 1, .top_p = 0.7}), {0, 0, 4. / 12, 8. / 12});
  expect_near(next({.temperature = 1, .top_p = 0.01}), {0, 0, 0, 1});
  expect_near(next({.temperature = 1, .min_p = 0.2}), {0, 2. / 14, 4. / 14, 8. / 14});
  expect_near(next({.repetition_penalty = 3, .temperature = 1}, {3, 3, 99}),
              {1. / 9, 2. / 9, 4. / 9, 2. / 9});
  expect_near(next({.temperature = 1e-308}), {0, 0, 0, 1});
  EXPECT_EQ(error_of([&] { next({.top_p = 0}); }),
            "generate: top_p is 0, expected above 0 and at most 1");
  EXPECT_EQ(error_of([&] { next({.temperature = -1}); }),
            "generate: temperature is -1, expected at least 0");
}

TEST(Generate, TakesTheLikeliestTokensOnEveryMesh) {
  std::vector<int64_t> alone;
  for (const int ranks : {1, 2}) {
    on_small_model(ranks, [&](TransformerModel& model, const DeviceMesh& mesh) {
      const GenerateOptions options{.sampling = {.temperature = 0}, .tokens = 9};
      const std::vector<int64_t> prompt = {3, 1, 4};
      const auto ids = generate(model, mesh, prompt, options);
      EXPECT_EQ(ids.size(), 9u);
      // The expected token, without the cache, is the likeliest one after each prefix.
      const NoGrad no_grad;
      std::vector<double> all(prompt.begin(), prompt.end());
      for (const int64_t id : ids) {
        const auto size = static_cast<int64_t>(all.size());
        const Tensor logits =
            model(from_values(all, {1, size}, {DType::i64, cpu, Sharding(mesh, {})}));
        const auto last = slice(logits, 1, size - 1, size).full_tensor().to_vector<double>();
        EXPECT_EQ(std::max_element(last.begin(), last.end()) - last.begin(), id);
        all.push_back(static_cast<double>(id));
      }
      const auto ended = generate(
          model, mesh, prompt, {.sampling = {.temperature = 0}, .tokens = 9, .end_ids = {ids[4]}});
      EXPECT_LE(ended.size(), 4u);
      int64_t calls = 0;
      generate(model, mesh, prompt, options, [&](int64_t) { return ++calls < 3; });
      EXPECT_EQ(calls, 3);
    });
  }
}

/// With a window the model computes by its forward, so that it may be fully sharded.
TEST(Generate, ContinuesByAFullyShardedModelWithinAWindow) {
  std::vector<int64_t> whole;
  const std::vector<int64_t> prompt = {3, 1, 4};
  GenerateOptions options{.sampling = {.temperature = 0.7, .seed = 5}, .tokens = 9};
  on_small_model(1, [&](TransformerModel& model, const DeviceMesh& mesh) {
    whole = generate(model, mesh, prompt, options);
  });
  for (const int ranks : {1, 2, 3}) {
    on_mesh({{"dp", ranks}}, [&](const DeviceMesh& mesh) {
      GenerateOptions own = options;
      TransformerModel model(kSmallConfig);
      fully_shard(model, mesh);
      model.materialize();
      own.window = 16;
      EXPECT_EQ(generate(model, mesh, prompt, own), whole);
      own.tokens = 40;  // beyond the longest sequence of the model
      EXPECT_EQ(generate(model, mesh, prompt, own).size(), 40U);
      own.window = 1000;
      EXPECT_EQ(error_of([&] { generate(model, mesh, prompt, own); }),
                "generate: window is 1000, expected 0 to 32");
    });
  }
}

TEST(Generate, ContinuesSeveralPromptsAsEachAlone) {
  const std::vector<std::vector<int64_t>> prompts = {{3, 1, 4}, {5}, {9, 2, 6, 5, 3}, {5, 8}};
  TransformerConfig positions = kSmallConfig, windowed = kSmallConfig;
  positions.learned_positions = true;
  positions.rotary_fraction = 0;
  windowed.window = 3;
  for (const TransformerConfig& config : {kSmallConfig, positions, windowed}) {
    for (const int ranks : {1, 2}) {
      on_small_model(
          ranks,
          [&](TransformerModel& model, const DeviceMesh& mesh) {
            GenerateOptions options{.sampling = {.temperature = 0.9, .seed = 7}, .tokens = 9};
            std::vector<std::vector<int64_t>> alone;
            for (size_t i = 0; i < prompts.size(); ++i) {
              options.sampling.seed = 7 + i;
              alone.push_back(generate(model, mesh, prompts[i], options));
            }
            // One of them ends early, and the next begins in its place.
            options.sampling.seed = 7;
            for (const int64_t batch : {1, 2, 3, 16}) {
              options.batch = batch;
              std::vector<std::vector<int64_t>> seen(prompts.size());
              std::vector<int> ends(prompts.size());
              const auto use = [&](size_t prompt, std::optional<int64_t> id) {
                id ? seen[prompt].push_back(*id) : void(++ends[prompt]);
                return prompt != 1 || seen[prompt].size() < 4;
              };
              auto expected = alone;
              expected[1].resize(4);
              EXPECT_EQ(generate(model, mesh, prompts, options, use), expected) << batch;
              EXPECT_EQ(seen, expected);
              EXPECT_EQ(ends, std::vector<int>(prompts.size(), 1));
            }
            options.seeds = {10, 9, 8, 7};
            options.sampling.seed = 10;
            EXPECT_EQ(
                generate(model, mesh, prompts, options)[0],
                generate(model, mesh, prompts[0], {.sampling = options.sampling, .tokens = 9}));
          },
          config);
    }
  }
}

TEST(Generate, RefusesWrongBatches) {
  on_small_model(1, [&](TransformerModel& model, const DeviceMesh& mesh) {
    const std::vector<std::vector<int64_t>> prompts = {{3}, {}, {4}};
    const auto error = [&](const GenerateOptions& options, size_t count) {
      return error_of([&] { generate(model, mesh, std::span(prompts).first(count), options); });
    };
    EXPECT_EQ(error({}, 3), "generate: prompt 1 has 0 tokens, expected at least 1");
    EXPECT_EQ(error({.batch = 0}, 1), "generate: batch is 0, expected at least 1");
    EXPECT_EQ(error({.seeds = {1, 2}}, 1),
              "generate: number of seeds is 2, expected that of the prompts, 1");
    EXPECT_EQ(generate(model, mesh, std::span(prompts).first(0)).size(), 0u);
    KeyValueCache a{.context = 4}, b{.context = 4};
    const std::vector<KeyValueCache*> caches = {&a, &b};
    EXPECT_EQ(error_of([&] {
                model.decode(zeros({3, 1}, {.dtype = i64}), caches);
              }),
              "decode: number of caches is 2, expected 1 or that of the rows, 3");
  });
}

TEST(Generate, RefusesLogitsThatOverflow) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double temperature : {0., 1.}) {
    const auto next = [&](const std::vector<double>& logits) {
      return next_probabilities(logits, {}, {.temperature = temperature});
    };
    EXPECT_EQ(error_of([&] {
                next({1, infinity, 2});
              }),
              "generate: a logit is inf, expected a finite number");
    EXPECT_EQ(error_of([&] {
                next({-infinity, -infinity});
              }),
              "generate: every logit is -inf, expected a finite number");
    expect_near(next({-infinity, 0}), {0, 1});
  }
}

TEST(Generate, FollowsTheFirstRank) {
  std::vector<std::vector<int64_t>> made(2);
  on_small_model(2, [&](TransformerModel& model, const DeviceMesh& mesh) {
    const int rank = mesh.rank();
    const std::vector<int64_t> prompt(static_cast<size_t>(3 + rank), 4 + rank);
    const GenerateOptions options{.sampling = {.seed = static_cast<uint64_t>(rank)},
                                  .tokens = 9 + rank};
    int64_t calls = 0;
    made[static_cast<size_t>(rank)] = generate(model, mesh, prompt, options, [&](int64_t) {
      ++calls;
      return rank == 1 ? calls < 2 : calls < 5;
    });
    EXPECT_EQ(calls, 5);
  });
  EXPECT_EQ(made[0].size(), 5u);
  EXPECT_EQ(made[0], made[1]);
}

/// Seeds and sampling of the other ranks do not count, right or wrong; errors are those of all.
TEST(Generate, TakesTheOptionsOfTheFirstRank) {
  const std::vector<std::vector<int64_t>> prompts = {{3, 1, 4}, {5}};
  std::vector<std::vector<std::vector<int64_t>>> made(3);
  on_mesh({{"tp", 3}}, [&](const DeviceMesh& mesh) {
    TransformerConfig config = kSmallConfig;
    config.heads = config.kv_heads = 3;
    TransformerModel model(config);
    parallelize(model, mesh["tp"], transformer_styles(config));
    model.materialize();
    const bool is_first = mesh.rank() == 0;
    const std::span<const std::vector<int64_t>> own = std::span(prompts).first(is_first ? 2 : 1);
    const auto with = [&](const GenerateOptions& first, const GenerateOptions& other) {
      return generate(model, mesh, own, is_first ? first : other);
    };
    const GenerateOptions good{.tokens = 5, .seeds = {7, ~uint64_t{0}}};
    for (const GenerateOptions& other :
         {GenerateOptions{.seeds = {1, 2, 3}}, GenerateOptions{.sampling = {.temperature = -1}}}) {
      made[static_cast<size_t>(mesh.rank())] = with(good, other);
    }
    EXPECT_EQ(error_of([&] {
                with({.seeds = {1, 2, 3}}, good);
              }),
              "generate: number of seeds is 3, expected that of the prompts, 2");
    EXPECT_EQ(error_of([&] { with({.sampling = {.top_p = 2}}, good); }),
              "generate: top_p is 2, expected above 0 and at most 1");
  });
  EXPECT_EQ(made[0].size(), 2u);
  EXPECT_EQ(made[1], made[0]);
  EXPECT_EQ(made[2], made[0]);
}

TEST(Generate, StopsAtTheLongestSequence) {
  on_small_model(1, [&](TransformerModel& model, const DeviceMesh& mesh) {
    const std::vector<int64_t> prompt(30, 5);
    // The last token comes from a full context.
    EXPECT_EQ(generate(model, mesh, prompt).size(), 3u);
    EXPECT_EQ(generate(model, mesh, prompt, {.tokens = INT64_MAX}).size(), 3u);
    EXPECT_EQ(error_of([&] { generate(model, mesh, std::vector<int64_t>(33, 5)); }),
              "generate: the prompt has 33 tokens, expected at most 32");
    EXPECT_EQ(error_of([&] { generate(model, mesh, std::vector<int64_t>{31}); }),
              "generate: a token of the prompt is 31, expected 0 to 30");
    EXPECT_EQ(error_of([&] { generate(model, mesh, std::vector<int64_t>{}); }),
              "generate: the prompt has 0 tokens, expected at least 1");
  });
}

TEST(Generate, HoldsBackTheStartOfAStopText) {
  StopTexts stop({"END", "\n\n"});
  EXPECT_EQ(stop.push("abc E"), "abc ");
  EXPECT_EQ(stop.push("N"), "");
  EXPECT_EQ(stop.push("d\n"), "ENd");
  EXPECT_FALSE(stop.has_stopped());
  EXPECT_EQ(stop.push("x\n"), "\nx");
  EXPECT_EQ(stop.push("\nEND"), "");
  EXPECT_TRUE(stop.has_stopped());
  EXPECT_EQ(stop.push("more"), "");
  StopTexts open({"END"});
  EXPECT_EQ(open.push("EN"), "");
  EXPECT_EQ(open.finish(), "EN");
}

}  // namespace
}  // namespace weft
