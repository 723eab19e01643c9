// SPDX-License-Identifier: Apache-2.0
#include "weft/trainer.h"

#include <utility>

#include "train/run.h"
#include "weft/error.h"

namespace weft {

/// Returns the loss, which a reproducible run takes from its model.
static Trainer::Loss checked(Trainer::Loss loss, const TrainerOptions& options) {
  if (options.reproducible && loss) {
    fail("trainer: loss is given, expected the loss of a TransformerModel for reproducible");
  }
  return loss;
}

Trainer::Trainer(Module& model, std::shared_ptr<const Dataset> data, Optimizer& optimizer,
                 const Sharding& rows, TrainerOptions options, Loss loss)
    : run_(std::make_unique<Run>(model, std::move(data), optimizer, rows, options,
                                 checked(std::move(loss), options))) {}

Trainer::~Trainer() = default;

void Trainer::add(RunItem item) { run_->add(std::move(item)); }
int64_t Trainer::resume() { return run_->resume(); }
bool Trainer::run() { return run_->run(); }
double Trainer::evaluate() { return run_->evaluate(); }
void Trainer::stop() { run_->stop(); }
int64_t Trainer::step() const { return run_->step(); }

}  // namespace weft
