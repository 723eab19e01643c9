// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/adapters.h"
#include "weft/fsdp.h"
#include "weft/hugging_face.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/peft.h"
#include "weft/safetensors.h"
#include "weft/tensor_parallel.h"

namespace weft {
namespace {

// The reference is PEFT's: tests/reference/make_lora.py.
const std::string kReference = WEFT_SOURCE_DIR "/tests/reference/";
constexpr double kBound = 1e-5;

Tensor tensor_in(const std::string& path, const std::string& name) {
  const SafetensorsFile file(path);
  const SafetensorsEntry& entry = file.entry(name);
  Tensor tensor = empty(entry.shape, {.dtype = entry.dtype});
  file.read_box(entry, tensor.box(), tensor.block().data);
  return tensor;
}

/// max|a - b| / max|b|.
double relative_difference(const Tensor& value, const Tensor& expected) {
  const auto a = whole_values(value), b = expected.to_vector<double>();
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return INFINITY;
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference / largest;
}

struct AdapterCase {
  const char* name;
  /// The name of the reference.
  const char* adapters;
  /// None: without a mesh.
  std::vector<MeshAxis> axes = {};
  bool recompute = false, sequence_parallel = false;
  int parts = 1;
  /// The bits of the base weights; 0: f32.
  int bits = 0;
};
void PrintTo(const AdapterCase& way, std::ostream* out) { *out << way.name; }

/// A Llama with adapters, sharded, and its batches.
class AdaptedLlama {
 public:
  AdaptedLlama(const AdapterCase& way, const DeviceMesh& mesh)
      : folder_(kReference + "lora/" + way.adapters),
        mesh_(mesh),
        model(transformer_config(kReference + "grouped")),
        tokens_(tensor_in(kReference + "grouped/reference.safetensors", "tokens")) {
    add_adapters(model, peft_options(model, folder_ + "/initial"));
    if (way.bits > 0) quantize_base(model, way.bits);
    if (mesh && mesh.ndim() > 1) {
      parallelize(model, mesh["tp"],
                  transformer_styles(model.config(), {.sequence_parallel = way.sequence_parallel,
                                                      .parts = way.parts}));
    }
    for (Module* block : model.blocks()) block->set_recompute(way.recompute);
    if (mesh) {
      for (Module* block : model.blocks()) fully_shard(*block, mesh["dp"]);
      fully_shard(model, mesh["dp"]);
    }
    load_hugging_face(model, kReference + "grouped");
    load_peft(model, folder_ + "/initial");
  }

  Tensor reference(const std::string& name) const {
    return tensor_in(folder_ + "/reference.safetensors", name);
  }
  const std::string& folder() const { return folder_; }

  /// A batch without its last column (`start` 0) or without its first (`start` 1).
  Tensor columns(int64_t batch, int64_t start) const {
    const Tensor rows = squeeze(slice(tokens_, 0, batch, batch + 1), 0);
    const Tensor part = slice(rows, 1, start, start + rows.size(1) - 1);
    return mesh_ ? distribute(part, mesh_, {{"dp", Shard(0)}}) : part;
  }

  void train() {
    AdamW optimizer(
        model.named_parameters(),
        {.learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1});
    const auto losses = reference("losses").to_vector<double>();
    for (size_t step = 0; step < losses.size(); ++step) {
      const auto batch = static_cast<int64_t>(step % 2);
      optimizer.zero_grad();
      const Tensor loss = model.loss(columns(batch, 0), columns(batch, 1));
      loss.backward();
      if (step == 0) expect_gradients();
      EXPECT_NEAR(loss.full_tensor().item(), losses[step], kBound * losses[0]) << step;
      optimizer.step();
    }
  }

 private:
  /// Gradients of adapters are those of PEFT; the base has none.
  void expect_gradients() {
    for (const NamedParameter& named : model.named_parameters()) {
      const Tensor gradient = named.parameter->grad();
      EXPECT_EQ(static_cast<bool>(gradient), is_adapter_parameter(named.name())) << named.name();
      if (!gradient) continue;
      const Tensor expected = reference("grad.base_model.model." + named.name());
      EXPECT_LE(relative_difference(gradient, expected), kBound) << named.name();
    }
  }

  std::string folder_;
  DeviceMesh mesh_;

 public:
  TransformerModel model;

 private:
  Tensor tokens_;
};

void on_ranks(const AdapterCase& way, const std::function<void(const DeviceMesh&)>& body) {
  way.axes.empty() ? body(DeviceMesh()) : on_mesh(way.axes, body);
}

/// Each tensor of both files, to the bound.
void expect_equal_files(const std::string& actual, const std::string& expected) {
  const SafetensorsFile file(expected);
  EXPECT_EQ(SafetensorsFile(actual).entries().size(), file.entries().size());
  for (const SafetensorsEntry& entry : file.entries()) {
    EXPECT_LE(relative_difference(tensor_in(actual, entry.name), tensor_in(expected, entry.name)),
              kBound)
        << entry.name;
  }
}

class Adapters : public testing::TestWithParam<AdapterCase> {};

TEST_P(Adapters, TrainMergeAndSaveAsPeft) {
  Scratch scratch;
  const std::string saved = scratch.path("adapter");
  on_ranks(GetParam(), [&](const DeviceMesh& mesh) {
    AdaptedLlama llama(GetParam(), mesh);
    llama.train();
    save_peft(llama.model, saved, {.base_model = "grouped"});
    llama.model.set_training(false);
    const NoGrad no_grad;
    const Tensor logits = llama.model(llama.columns(0, 0));
    EXPECT_LE(relative_difference(logits, llama.reference("logits")), kBound);
    // The reference of these computes with the weights that the codes stand for.
    if (GetParam().bits > 0) return;
    merge_adapters(llama.model);
    for (const NamedParameter& named : llama.model.named_parameters()) {
      EXPECT_FALSE(is_adapter_parameter(named.name()));
      const SafetensorsFile file(llama.folder() + "/reference.safetensors");
      const std::string name = "merged.base_model.model." + named.name();
      if (!file.find(name)) continue;
      EXPECT_LE(relative_difference(named.parameter->value(), llama.reference(name)), kBound);
    }
    EXPECT_LE(relative_difference(llama.model(llama.columns(0, 0)), llama.reference("logits")),
              kBound);
  });
  const std::string folder = kReference + "lora/" + GetParam().adapters + "/trained/";
  expect_equal_files(saved + "/adapter_model.safetensors", folder + "adapter_model.safetensors");
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Adapters,
    testing::Values(
        AdapterCase{"attention_alone", "attention"},
        AdapterCase{"all_alone_recomputed", "all", {}, true},
        AdapterCase{"all_1", "all", {{"dp", 1}}},
        AdapterCase{"attention_3", "attention", {{"dp", 3}}},
        AdapterCase{"all_4_recomputed", "all", {{"dp", 4}}, true},
        AdapterCase{"all_1_tp2", "all", {{"dp", 1}, {"tp", 2}}},
        AdapterCase{"all_2_tp2", "all", {{"dp", 2}, {"tp", 2}}, true, true},
        AdapterCase{"attention_2_tp2_parts", "attention", {{"dp", 2}, {"tp", 2}}, false, true, 2},
        AdapterCase{"all_2_tp2_parts", "all", {{"dp", 2}, {"tp", 2}}, false, true, 2},
        AdapterCase{.name = "int4_alone", .adapters = "int4", .bits = 4},
        AdapterCase{.name = "int8_1", .adapters = "int8", .axes = {{"dp", 1}}, .bits = 8},
        AdapterCase{.name = "int4_3",
                    .adapters = "int4",
                    .axes = {{"dp", 3}},
                    .recompute = true,
                    .bits = 4},
        AdapterCase{.name = "int4_4", .adapters = "int4", .axes = {{"dp", 4}}, .bits = 4},
        AdapterCase{.name = "int8_2_tp2",
                    .adapters = "int8",
                    .axes = {{"dp", 2}, {"tp", 2}},
                    .recompute = true,
                    .sequence_parallel = true,
                    .bits = 8},
        AdapterCase{
            .name = "int4_2_tp2", .adapters = "int4", .axes = {{"dp", 2}, {"tp", 2}}, .bits = 4}),
    [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace weft
