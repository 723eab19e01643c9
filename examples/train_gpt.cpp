// SPDX-License-Identifier: Apache-2.0

// Trains a model on the characters of a text with weft::Trainer, after nanoGPT; continues a run.
//
//   train_gpt TEXT [CONFIG OR HUGGING FACE MODEL] [FOLDER FOR CHECKPOINTS]
//   weft run -n 4 -- train_gpt TEXT

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>

#include "weft/communicator.h"
#include "weft/dataset.h"
#include "weft/fsdp.h"
#include "weft/hugging_face.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"
#include "weft/trainer.h"
#include "weft/transformer.h"

using namespace weft;

/// Rows of characters, whose targets are the characters that follow.
class Characters final : public Dataset {
 public:
  explicit Characters(const char* path) {
    std::ifstream file(path);
    text_.assign(std::istreambuf_iterator<char>(file), {});
    const std::set<char> sorted(text_.begin(), text_.end());
    alphabet_.assign(sorted.begin(), sorted.end());
  }
  int64_t sequence() const override { return 32; }
  int64_t rows() const override { return std::ssize(text_) / sequence(); }
  void read(int64_t first, const RowSpans& into) const override {
    for (int64_t at = 0; at < std::ssize(into.ids); ++at) {
      const int64_t start = (first + at / 32) * 7919 % (std::ssize(text_) - 32) + at % 32;
      into.ids[static_cast<size_t>(at)] = id(start);
      into.targets[static_cast<size_t>(at)] = id(start + 1);
    }
  }

 private:
  int64_t id(int64_t place) const {
    return static_cast<int64_t>(alphabet_.find(text_[static_cast<size_t>(place)]));
  }
  std::string text_, alphabet_;
};

int main(int count, char** words) {
  if (count < 2) return std::fputs("train_gpt: give a text\n", stderr), 2;
  const std::string model_name = count > 2 ? words[2] : "tiny", folder = count > 3 ? words[3] : "";
  run_world(launched_ranks() > 1 ? 1 : 2, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", world.size()}});
    TransformerModel model(transformer_config(model_name));
    for (const auto& unit : model.units()) fully_shard(unit, mesh);
    fully_shard(model, mesh);
    model.materialize();
    if (model_name.find('/') != std::string::npos) load_hugging_face(model, model_name);
    AdamW optimizer(model.named_parameters(), {.beta2 = 0.95, .weight_decay = 0.1});
    TrainerOptions options;
    options.batch = 8;
    options.steps = 20;
    options.schedule = [](int64_t step) { return 3e-3 * std::min(1.0, double(step + 1) / 5); };
    options.checkpoints.save = options.checkpoints.resume = folder;
    options.on_step = [&](const StepReport& report) {
      if (world.rank() == 0) std::printf("step %ld  loss %.5f\n", long(report.step), report.loss);
    };
    const Sharding rows(mesh, {Shard(0)});
    Trainer(model, std::make_shared<Characters>(words[1]), optimizer, rows, options).run();
  });
}
