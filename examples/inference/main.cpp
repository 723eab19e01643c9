// SPDX-License-Identifier: Apache-2.0

// Data-parallel inference: each rank has the whole model and answers its part of the questions,
// which arrive on rank 0. The answers equal those of one device.
//
//   inference                       # 3 ranks as threads of this process
//   weft run -n 3 -- inference      # 3 processes

#include <cstdio>

#include "weft/weft.h"

using namespace weft;

static constexpr int64_t kQuestions = 10, kPrompt = 5, kNew = 4;

/// Appends `kNew` tokens to the prompts [rows, tokens], each the likeliest one.
static Tensor continued(TransformerModel& model, Tensor ids) {
  NoGrad no_grad;
  for (int64_t i = 0; i < kNew; ++i) {
    const Tensor logits = model(ids);
    const int64_t last = ids.size(1) - 1;
    ids = cat({ids, argmax(slice(logits, 1, last, last + 1), 2)}, 1);
  }
  return ids;
}

static void answer(const Communicator& world) {
  const TransformerConfig config = transformer_config("tiny");
  const DeviceMesh mesh(world, {{"dp", world.size()}});
  TransformerModel single(config), model(config);
  single.materialize();
  model.set_training(false);
  // Under ddp the parameters are whole on each rank. A checkpoint would be read here by
  // `load(path, state)`, each rank its own copy.
  fully_shard(model, mesh, {.strategy = Strategy::ddp()});
  model.materialize();
  load_state_dict(model, state_dict(single));

  // Other ranks pass a tensor of the shape and dtype that they expect.
  Tensor questions = zeros({kQuestions, kPrompt}, {.dtype = i64});
  if (world.rank() == 0) questions = randint({kQuestions, kPrompt}, 0, config.vocabulary);
  const Tensor mine = scatter(questions, mesh, {Shard(0)});
  const int64_t before = mesh.traffic().bytes;
  const Tensor answers = continued(model, mine);
  const int64_t moved = mesh.traffic().bytes - before;
  const Tensor whole = answers.full_tensor();

  if (world.rank() != 0) return;
  const bool equal_to_one = all(equal(whole, continued(single, questions))).item() != 0;
  std::printf("%lld questions on %d ranks, %lld of them on rank 0\n",
              static_cast<long long>(kQuestions), world.size(),
              static_cast<long long>(mine.local().size(0)));
  std::printf("bytes received while the model ran: %lld\n", static_cast<long long>(moved));
  std::printf("answers equal those of one device: %s\n", equal_to_one ? "yes" : "no");
}

int main() { run_world(3, answer); }
