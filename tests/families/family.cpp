// SPDX-License-Identifier: Apache-2.0
#include "tests/families/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "weft/hugging_face.h"
#include "weft/ops.h"
#include "weft/optimizers.h"

namespace weft {

/// The weights of `weights_of` in make_families.py.
static std::vector<float> weights_of(const std::string& name, int64_t count, double center) {
  uint64_t seed = 0xCBF29CE484222325;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  std::vector<float> weights;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t z = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15 + seed;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    const double u = static_cast<double>((z ^ (z >> 31)) >> 40) / 8388608.0 - 1;
    weights.push_back(static_cast<float>(center + 0.25 * u));
  }
  return weights;
}

FamilyReference::FamilyReference(const std::string& name)
    : file_(WEFT_SOURCE_DIR "/tests/reference/families/" + name + ".safetensors"),
      parameters_(nlohmann::json::parse(file_.metadata().at("parameters"))) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  for (const auto& [parameter, info] : parameters_.items()) {
    if (!info.contains("shape")) continue;
    int64_t count = 1;
    for (const int64_t size : info["shape"]) count *= size;
    const std::vector<float> weights = weights_of(parameter, count, info["center"]);
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float));
    header[parameter] = {
        {"dtype", "F32"}, {"shape", info["shape"]}, {"data_offsets", {begin, data.size()}}};
  }
  scratch_.write_safetensors("model.safetensors", header.dump(), data);
  scratch_.write("config.json", file_.metadata().at("config"));
}

TransformerConfig FamilyReference::config() const {
  TransformerConfig config = transformer_config(folder());
  config.sinks = config.sinks || file_.metadata().contains("sinks");
  return config;
}

Tensor FamilyReference::tensor(const std::string& name) const {
  const SafetensorsEntry& entry = file_.entry(name);
  Tensor tensor = empty(entry.shape, {.dtype = entry.dtype});
  file_.read_box(entry, tensor.box(), tensor.block().data);
  return tensor;
}

namespace {

/// A model of a family and its batches.
struct FamilyRun {
  const FamilyReference& reference;
  const FamilySetup& setup;
  TransformerModel model{reference.config()};
  /// [batches, rows, sequence + 1].
  Tensor tokens = reference.tensor("tokens");

  Tensor columns(int64_t batch, int64_t start) const {
    const Tensor rows = squeeze(slice(tokens, 0, batch, batch + 1), 0);
    return laid_out(slice(rows, 1, start, start + rows.size(1) - 1));
  }
  /// Empty unless rows are packed.
  Tensor segments() const {
    if (setup.documents == 1) return {};
    const int64_t rows = tokens.size(1), length = tokens.size(2) - 1;
    const Tensor numbers = reshape(arange(rows), {rows, 1});
    return laid_out(mul(numbers, ones({rows, length}, {.dtype = i64})));
  }
  Tensor laid_out(const Tensor& part) const {
    const int64_t count = setup.documents;
    const Tensor packed = reshape(part, {part.size(0) / count, part.size(1) * count});
    return setup.batch ? setup.batch(packed) : packed;
  }
  void expect_samples(const std::string& what, const std::vector<double>& whole, int64_t rows,
                      const FilePart* part, bool transposed, double floor) const;
  void expect_gradients() const;
  Tensor loss(int64_t batch);
};

/// Compares the elements of a file's tensor that the reference has and that `part` holds.
void FamilyRun::expect_samples(const std::string& what, const std::vector<double>& whole,
                               int64_t rows, const FilePart* part, bool transposed,
                               double floor) const {
  const auto expected = reference.tensor(what).to_vector<double>();
  const std::string name = what.starts_with("grad.") ? what.substr(5) : what;
  const double largest = std::max(floor, reference.parameters()[name]["largest"].get<double>());
  const int64_t own = part ? part->rows : rows;
  const auto width = static_cast<int64_t>(whole.size()) / own;
  const int64_t step = std::max<int64_t>(1, (rows * width + 60) / 61);
  for (size_t sample = 0; sample < expected.size(); ++sample) {
    const int64_t at = static_cast<int64_t>(sample) * step;
    const int64_t row = transposed ? at % rows : at / width;
    const int64_t column = transposed ? at / rows : at % width;
    int64_t r = row;
    if (part) {
      const int64_t from = row - part->offset;
      if (from < 0 || from % part->stride >= part->block) continue;
      r = from / part->stride * part->block + from % part->stride;
      if (r >= part->rows) continue;
    }
    const double difference =
        std::abs(whole[static_cast<size_t>(r * width + column)] - expected[sample]);
    ASSERT_LE(difference / largest, 1e-5) << what << " sample " << sample;
  }
}

/// Gradients that are zero in exact arithmetic, as that of a key's bias without rotation, are
/// compared with the largest of their layer.
double floor_of(const FamilyReference& reference, const std::string& name) {
  const size_t layer = name.find_first_of("0123456789");
  double largest = 0;
  if (layer == std::string::npos) return 0;
  const std::string prefix = name.substr(0, name.find('.', layer) + 1);
  for (const auto& [other, info] : reference.parameters().items()) {
    if (!other.starts_with(prefix) || !info.contains("largest")) continue;
    largest = std::max(largest, info["largest"].get<double>());
  }
  return largest * 1e-2;
}

/// The elements of slice `number` of `slices`.
std::vector<double> slice_of(const std::vector<double>& whole, int64_t slices, int64_t number) {
  const auto size = static_cast<int64_t>(whole.size()) / slices;
  return {whole.begin() + number * size, whole.begin() + (number + 1) * size};
}

void FamilyRun::expect_gradients() const {
  std::map<std::string, Tensor> gradients;
  for (const NamedParameter& named : model.named_parameters()) {
    gradients[named.name()] = named.parameter->grad();
  }
  std::map<std::string, std::vector<double>> values;
  for (const auto& [name, gradient] : gradients) {
    ASSERT_TRUE(gradient) << name;
    values[name] = gradient.full_tensor().to_vector<double>();
  }
  size_t compared = 0;
  for (const FileTensor& tensor : file_tensors(model.config())) {
    if (!gradients.contains(tensor.parts[0].parameter)) {
      ++compared;  // a buffer
      continue;
    }
    const auto name = std::ranges::find_if(
        tensor.names, [&](const auto& each) { return reference.has("grad." + each); });
    ASSERT_NE(name, tensor.names.end()) << tensor.names[0];
    ++compared;
    int64_t rows = 0;
    for (const FilePart& part : tensor.parts) rows += part.rows;
    for (const FilePart& part : tensor.parts) {
      const std::vector<double>& whole = values[part.parameter];
      const double floor = floor_of(reference, *name);
      if (part.slice < 0) {
        expect_samples("grad." + *name, whole, rows, &part, tensor.transposed, floor);
        continue;
      }
      const Shape& shape = gradients[part.parameter].shape();
      expect_samples("grad." + *name, slice_of(whole, shape[0], part.slice), shape[1], nullptr,
                     false, floor);
    }
  }
  EXPECT_EQ(compared, reference.parameters().size() - 1);
}

Tensor FamilyRun::loss(int64_t batch) {
  const Tensor ids = columns(batch, 0), targets = columns(batch, 1);
  if (!setup.share) return model.loss(ids, targets, {.segments = segments()});
  const SharedSequence shared = setup.share(ids, targets, segments());
  return model.loss(shared.ids, shared.targets,
                    {.positions = shared.positions, .order = shared.order});
}

/// The values of logits [batch, sequence, vocabulary] whose tokens are at these places, if there
/// are any.
std::vector<double> in_order(const Tensor& logits, const Tensor& places) {
  const auto given = logits.full_tensor().to_vector<double>();
  if (!places) return given;
  const auto at = places.full_tensor().to_vector<int64_t>();
  const int64_t length = logits.size(1), width = logits.size(2);
  std::vector<double> made(given.size());
  for (size_t i = 0; i < at.size(); ++i) {
    const auto from = static_cast<int64_t>(i), row = from / length;
    std::copy_n(given.begin() + from * width, width, made.begin() + (row * length + at[i]) * width);
  }
  return made;
}

}  // namespace

void expect_as_transformers(const FamilyReference& reference, const FamilySetup& setup) {
  FamilyRun run{reference, setup};
  if (setup.shard) setup.shard(run.model);
  run.model.materialize();
  load_hugging_face(run.model, reference.folder());
  Tensors inputs = {run.columns(0, 0)};
  if (setup.documents > 1) inputs.push_back(run.segments());
  Tensor places;
  if (setup.share) {
    const SharedSequence shared = setup.share(inputs[0], {}, run.segments());
    inputs = {shared.ids, shared.order.segments, shared.positions, shared.order.places};
    places = shared.order.places;
  }
  const Tensor logits = run.model(inputs)[0];
  const std::vector<double> values = in_order(logits, places);
  const int64_t rows = logits.size(0) * setup.documents;
  run.expect_samples("logits", values, rows, nullptr, false, 0);
  AdamW optimizer(run.model.named_parameters(), {.learning_rate = reference.number("lr"),
                                                 .beta1 = reference.number("beta1"),
                                                 .beta2 = reference.number("beta2"),
                                                 .eps = reference.number("eps"),
                                                 .weight_decay = reference.number("weight_decay")});
  const auto losses = reference.tensor("losses").to_vector<double>();
  for (size_t step = 0; step < losses.size(); ++step) {
    const int64_t batch = static_cast<int64_t>(step) % run.tokens.size(0);
    optimizer.zero_grad();
    const Tensor loss = run.loss(batch);
    loss.backward();
    if (step == 0) run.expect_gradients();
    ASSERT_NEAR(loss.full_tensor().item(), losses[step], 1e-4) << "step " << step;
    optimizer.step();
  }
}

}  // namespace weft
