// SPDX-License-Identifier: Apache-2.0

// Low-rank adaptation (Hu et al., 2021) of a frozen Llama, fully sharded over four ranks. A small
// model learns the bytes of one text. Adapters of a few per cent of its size then fit it to another
// text while its own weights stay frozen. Finally the adapters are merged into the weights.
//
//   lora BASE_TEXT NEW_TEXT

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "weft/adapters.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/fsdp.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"
#include "weft/transformer.h"

using namespace weft;

static constexpr int kRanks = 4;
static constexpr int64_t kRows = 8, kSequence = 64;

static void shard(TransformerModel& model, const DeviceMesh& mesh) {
  for (const auto& unit : model.units()) fully_shard(unit, mesh);
  fully_shard(model, mesh);
}

/// Rows of ids and the bytes that follow them: each rank's part of a batch.
struct Batch {
  Batch(const std::string& text, int64_t number, const DeviceMesh& mesh) {
    std::vector<double> bytes[2];
    const auto size = static_cast<int64_t>(text.size());
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t start = (number * kRows + row) * 997 % (size - kSequence - 1);
      for (int64_t i = 0; i <= kSequence; ++i) {
        const auto byte = static_cast<unsigned char>(text[static_cast<size_t>(start + i)]);
        if (i < kSequence) bytes[0].push_back(byte);
        if (i > 0) bytes[1].push_back(byte);
      }
    }
    const TensorOptions options{.dtype = i64, .sharding = Sharding(mesh, {Shard(0)})};
    ids = from_values(bytes[0], {kRows, kSequence}, options);
    targets = from_values(bytes[1], {kRows, kSequence}, options);
  }
  Tensor ids, targets;
};

/// The mean loss of the last ten steps.
static double train(TransformerModel& model, const std::string& text, const DeviceMesh& mesh,
                    int64_t steps, double rate) {
  AdamW optimizer(model.named_parameters(), {.learning_rate = rate, .weight_decay = 0});
  double last = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const Batch batch(text, step, mesh);
    const Tensor loss = model.loss(batch.ids, batch.targets);
    loss.backward();
    optimizer.step(clip_scale(gradient_norm(model.parameters()), 1));
    optimizer.zero_grad();
    if (steps - step <= 10) last += loss.full_tensor().item() / 10;
  }
  return last;
}

static double loss_on(TransformerModel& model, const std::string& text, const DeviceMesh& mesh) {
  NoGrad no_grad;
  const Batch batch(text, 1000, mesh);
  return model.loss(batch.ids, batch.targets).full_tensor().item();
}

static std::vector<float> logits_of(TransformerModel& model, const std::string& text,
                                    const DeviceMesh& mesh) {
  NoGrad no_grad;
  return model(Batch(text, 1000, mesh).ids).full_tensor().to_vector<float>();
}

/// max|a - b| / max|b|.
static double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i] - b[i])));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return most / largest;
}

static int64_t elements_of(const std::vector<ParameterPtr>& parameters, bool trainable_only) {
  int64_t elements = 0;
  for (const ParameterPtr& parameter : parameters) {
    if (parameter->is_trainable() || !trainable_only) elements += parameter->shape().product();
  }
  return elements;
}

/// The same model with its weights frozen and an adapter on each linear layer.
static void make_adapted(TransformerModel& adapted, const TransformerModel& base,
                         const DeviceMesh& mesh) {
  add_adapters(adapted, {.rank = 4, .alpha = 8, .targets = {"all-linear"}});
  shard(adapted, mesh);
  adapted.materialize();
  NoGrad no_grad;
  for (const NamedParameter& to : adapted.named_parameters()) {
    for (const NamedParameter& from : base.named_parameters()) {
      if (to.name() == from.name()) copy_(to.parameter->value(), from.parameter->value());
    }
  }
}

/// Returns true when all checks passed.
static bool run(const Communicator& world, const std::string& base_text,
                const std::string& new_text) {
  const DeviceMesh mesh(world, {{"dp", kRanks}});
  const TransformerConfig config{.dim = 64,
                                 .layers = 2,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 16,
                                 .ffn = 160,
                                 .vocabulary = 256,
                                 .max_sequence = kSequence};
  TransformerModel base(config);
  shard(base, mesh);
  base.materialize();
  const double learned = train(base, base_text, mesh, 120, 3e-3);

  TransformerModel model(config);
  make_adapted(model, base, mesh);
  const double before = loss_on(model, new_text, mesh);
  train(model, new_text, mesh, 80, 5e-3);
  const double after = loss_on(model, new_text, mesh);
  const int64_t gradients = measured_bytes(model).gradients;
  const auto adapted_logits = logits_of(model, new_text, mesh);
  const int64_t elements = elements_of(model.parameters(), true);
  merge_adapters(model);
  const double off = difference(logits_of(model, new_text, mesh), adapted_logits);
  if (mesh.rank() == 0) {
    std::printf("base text: loss %.3f\nnew text:  loss %.3f before, %.3f adapted\n", learned,
                before, after);
    std::printf("%lld of %lld parameters learned; gradients took %lld bytes of this rank\n",
                static_cast<long long>(elements),
                static_cast<long long>(elements_of(base.parameters(), false)),
                static_cast<long long>(gradients));
    std::printf("merged logits are those of the adapted model up to %.1e\n", off);
  }
  return after < before && off < 1e-4;
}

static std::string text_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (static_cast<int64_t>(text.size()) < 2 * kSequence) {
    fail(path, " has ", text.size(), " bytes; at least ", 2 * kSequence, " are needed");
  }
  return text;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: lora BASE_TEXT NEW_TEXT\n");
    return 2;
  }
  try {
    const std::string base_text = text_of(argv[1]), new_text = text_of(argv[2]);
    bool good = true;
    run_ranks(kRanks, [&](const Communicator& world) {
      if (!run(world, base_text, new_text) && world.rank() == 0) good = false;
    });
    return good ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
