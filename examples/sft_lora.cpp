// SPDX-License-Identifier: Apache-2.0

// Fine-tunes a Hugging Face model on conversations with adapters (LoRA), the base sharded.
//
//   sft_lora MODEL TOKENIZER CHAT.jsonl [ADAPTER OF PEFT TO START FROM] [FOLDER FOR THE ADAPTERS]
//
// The loss is on the assistant's tokens.

#include <cstdio>
#include <string>

#include "weft/adapters.h"
#include "weft/communicator.h"
#include "weft/fsdp.h"
#include "weft/hugging_face.h"
#include "weft/optimizers.h"
#include "weft/peft.h"
#include "weft/ranks.h"
#include "weft/text_dataset.h"
#include "weft/trainer.h"
#include "weft/transformer.h"

using namespace weft;

int main(int count, char** words) {
  if (count < 4) {
    return std::fputs("sft_lora: give a model, a tokenizer and conversations\n", stderr), 2;
  }
  const std::string folder = words[1], adapter = count > 4 ? words[4] : "";
  run_world(launched_ranks() > 1 ? 1 : 2, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", world.size()}});
    TransformerModel model(transformer_config(folder));
    const AdapterOptions fresh{.rank = 4, .alpha = 8, .targets = {"q_proj", "v_proj", "down_proj"}};
    add_adapters(model, adapter.empty() ? fresh : peft_options(model, adapter));
    for (const auto& unit : model.units()) fully_shard(unit, mesh);
    fully_shard(model, mesh);
    model.materialize();
    (void)load_common_hugging_face(model, folder);  // which has no adapters
    if (!adapter.empty()) load_peft(model, adapter);
    const auto data = text_dataset(
        {.paths = {words[3]}, .sequence = 64, .tokenizer = Tokenizer::from_directory(words[2])});
    AdamW optimizer(model.named_parameters(), {.learning_rate = 1e-2, .weight_decay = 0});
    TrainerOptions options;
    options.batch = 4;
    options.steps = 20;
    options.on_step = [&](const StepReport& report) {
      if (world.rank() == 0) std::printf("step %ld  loss %.5f\n", long(report.step), report.loss);
    };
    Trainer(model, data, optimizer, Sharding(mesh, {Shard(0)}), options).run();
    if (count > 5) save_peft(model, words[5], {.base_model = folder});
  });
}
