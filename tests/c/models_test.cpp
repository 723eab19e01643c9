// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <tuple>

#include "tests/c/calls.h"
#include "tests/support/scratch.h"

namespace weft {

static const std::string kReference = WEFT_SOURCE_DIR "/tests/reference/grouped";

static std::vector<float> floats_of(weft_tensor tensor) {
  std::vector<float> values(static_cast<size_t>(count_of(shape_of(tensor))));
  EXPECT_OK(weft_to_array(tensor, WEFT_F32, static_cast<int64_t>(values.size()), values.data()));
  return values;
}

/// A tensor of the reference, which transformers computed.
static weft_tensor reference(const char* name) {
  weft_tensor tensor = {0};
  EXPECT_OK(weft_load_tensor((kReference + "/reference.safetensors").c_str(), name, {0}, nullptr,
                             &tensor));
  return tensor;
}

/// The token ids [12, 10] of the reference's first batch.
static weft_tensor first_batch() {
  weft_tensor ids = {0};
  const int64_t shape[] = {12, 11};
  EXPECT_OK(weft_slice(reference("tokens"), 0, 0, 1, 1, &ids));
  EXPECT_OK(weft_reshape(ids, 2, shape, &ids));
  EXPECT_OK(weft_slice(ids, 1, 0, 10, 1, &ids));
  return ids;
}

TEST(Models, LogitsEqualThoseOfTransformers) {
  for (const auto& [ranks, axes] :
       {std::pair(1, "tp"), std::pair(2, "tp"), std::pair(3, "dp"), std::pair(4, "dp=2,tp=2")}) {
    on_ranks(ranks, [&] {
      const weft_mesh mesh = mesh_of(axes);
      weft_model model = {0};
      EXPECT_OK(weft_model_load(kReference.c_str(), mesh, &model));
      weft_tensor logits = {0};
      EXPECT_OK(weft_model_forward(model, first_batch(), &logits));
      EXPECT_EQ(shape_of(logits), (Sizes{12, 10, 89}));
      const auto found = floats_of(logits), expected = floats_of(reference("logits"));
      float largest = 0, difference = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        difference = std::max(difference, std::abs(found[i] - expected[i]));
      }
      EXPECT_LE(difference, 1e-5F * largest);
      EXPECT_OK(weft_model_free(model));
    });
  }
}

TEST(Models, GeneratesTheLikeliestTokens) {
  std::vector<int64_t> alone(8);
  const int64_t prompt[] = {3, 14, 15};
  const auto generate = [&](const char* axes, double temperature) {
    std::vector<int64_t> tokens(8);
    weft_model model = {0};
    int64_t written = 0;
    EXPECT_OK(weft_model_load(kReference.c_str(), mesh_of(axes), &model));
    EXPECT_OK(weft_model_generate(model, 3, prompt, temperature, 5, 8, tokens.data(), &written));
    EXPECT_EQ(written, 8);
    return tokens;
  };
  on_ranks(1, [&] {
    alone = generate("tp", 0);
    // Token by token, by the logits.
    weft_model model = {0};
    EXPECT_OK(weft_model_load(kReference.c_str(), mesh_of("tp"), &model));
    std::vector<int64_t> ids(prompt, prompt + 3);
    for (const int64_t token : alone) {
      weft_tensor in = {0}, logits = {0}, best = {0};
      const int64_t shape[] = {1, static_cast<int64_t>(ids.size())};
      EXPECT_OK(weft_from_array(ids.data(), WEFT_I64, 2, shape, {0}, nullptr, &in));
      EXPECT_OK(weft_model_forward(model, in, &logits));
      EXPECT_OK(weft_argmax(logits, -1, &best));
      std::vector<int64_t> all(ids.size());
      EXPECT_OK(weft_to_array(best, WEFT_I64, shape[1], all.data()));
      EXPECT_EQ(token, all.back());
      ids.push_back(token);
    }
    EXPECT_EQ(generate("tp", 1), generate("tp", 1));
  });
  on_ranks(2, [&] { EXPECT_EQ(generate("tp", 0), alone); });
  on_ranks(3, [&] { EXPECT_EQ(generate("dp", 0), alone); });
}

TEST(Models, CheckpointsLoadOnOtherRanks) {
  const Scratch scratch;
  const std::string folder = scratch.path("run");
  const auto a = some_numbers({7, 3}), b = some_numbers({4}, 1);
  const auto save = [&](int64_t step, double factor) {
    const weft_mesh mesh = mesh_of("all");
    weft_tensor x = {0};
    EXPECT_OK(weft_mul_number(tensor_of(a, {7, 3}, mesh, "S(0)"), factor, &x));
    const weft_tensor both[] = {x, tensor_of(b, {4}, mesh)};
    EXPECT_OK(weft_save(folder.c_str(), step, "a, b", 2, both));
  };
  on_ranks(3, [&] {
    save(1, 1);
    save(2, 2);
  });
  // A later run goes on.
  on_ranks(2, [&] { save(3, 3); });
  for (const auto& [ranks, axes, placements] :
       {std::tuple(1, "all", ""), std::tuple(2, "all", "S(1)"), std::tuple(4, "u=2,v", "v=S(0)")}) {
    on_ranks(ranks, [&] {
      const weft_mesh mesh = mesh_of(axes);
      weft_tensor x = tensor_of(std::vector<double>(21), {7, 3}, mesh, placements);
      EXPECT_OK(weft_load(folder.c_str(), "a", 1, &x));
      const auto found = values_of(x);
      for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], 3 * a[i]);
      EXPECT_OK(weft_load_tensor(folder.c_str(), "b", mesh, nullptr, &x));
      EXPECT_EQ(values_of(x), b);
    });
  }
}

}  // namespace weft
