// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/dataset.h"
#include "weft/fsdp.h"
#include "weft/hugging_face.h"
#include "weft/optimizers.h"
#include "weft/trainer.h"
#include "weft/transformer.h"

namespace weft {

inline constexpr int64_t kFormulaVocabulary = 89, kFormulaSequence = 24;

/// The rows "masked" of tests/reference/make_trainer.py, from row `first` on.
class FormulaRows : public Dataset {
 public:
  explicit FormulaRows(int64_t rows = 600, int64_t first = 0, uint64_t digest = 7)
      : rows_(rows), first_(first), digest_(digest) {}
  int64_t sequence() const override { return kFormulaSequence; }
  int64_t rows() const override { return rows_; }
  void read(int64_t first, const RowSpans& into) const override {
    for (size_t at = 0; at < into.ids.size(); ++at) {
      const int64_t i = first_ + (first + static_cast<int64_t>(at) / sequence()) % rows_;
      const int64_t j = static_cast<int64_t>(at) % sequence();
      into.ids[at] = token(i, j);
      const bool counts = (i + 2 * j) % 5 >= i % 4 && i / 6 != 3;
      into.targets[at] = counts ? token(i, j + 1) : kIgnoredTarget;
    }
  }
  std::vector<std::pair<std::string, uint64_t>> digests() const override {
    return {{"data", digest_}};
  }

 private:
  static int64_t token(int64_t i, int64_t j) {
    return (i * i * 31 + j * j * 7 + i * j * 13 + 5) % kFormulaVocabulary;
  }
  int64_t rows_, first_;
  uint64_t digest_;
};

inline std::string grouped_model() { return WEFT_SOURCE_DIR "/tests/reference/grouped"; }

inline nlohmann::json trainer_reference() {
  return nlohmann::json::parse(std::ifstream(WEFT_SOURCE_DIR "/tests/reference/trainer.json"));
}

/// Options of "masked": 20 steps of six rows, two micro-steps each.
inline TrainerOptions formula_options() {
  TrainerOptions options;
  options.batch = 6;
  options.accumulate = 2;
  options.steps = 20;
  options.schedule = [](int64_t) { return 2e-3; };
  options.validation = std::make_shared<FormulaRows>(7, 1000);
  return options;
}

/// The model of grouped/ over the ranks of a mesh, fully sharded, with AdamW.
struct FormulaRun {
  explicit FormulaRun(const DeviceMesh& mesh, const FullyShardOptions& sharding = {})
      : model(transformer_config(grouped_model())) {
    for (Module* block : model.blocks()) fully_shard(*block, mesh, sharding);
    fully_shard(model, mesh, sharding);
    model.materialize();
    load_hugging_face(model, grouped_model());
    optimizer = std::make_unique<AdamW>(
        model.named_parameters(),
        AdamWOptions{.learning_rate = 2e-3, .beta2 = 0.95, .weight_decay = 0.1});
    const std::vector<Placement> cut(static_cast<size_t>(mesh.ndim()), Shard(0));
    rows = Sharding(mesh, Placements(std::span<const Placement>(cut)));
  }
  /// Trains, and returns the loss of each step.
  std::vector<double> losses(TrainerOptions options,
                             std::shared_ptr<const Dataset> data = nullptr) {
    std::vector<double> all;
    options.on_step = [&](const StepReport& report) { all.push_back(report.loss); };
    if (!data) data = std::make_shared<FormulaRows>();
    Trainer(model, data, *optimizer, rows, options).run();
    return all;
  }

  TransformerModel model;
  std::unique_ptr<AdamW> optimizer;
  Sharding rows;
};

}  // namespace weft
