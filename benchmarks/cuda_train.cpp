// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/cuda.h"

#include <functional>
#include <memory>

#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/extend/module_sharder.h"
#include "weft/fsdp.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"
#include "weft/storage.h"
#include "weft/transformer.h"

namespace weft::bench {

namespace {

constexpr double kLearningRate = 3e-4, kBeta2 = 0.95, kWeightDecay = 0.1;

/// Updates the weights from their gradients, and clears the gradients.
using Update = std::function<void()>;

/// Parameters and gradients in the engine's memory, contiguous per unit.
Update update_by_engine(TransformerModel& model) {
  const AdamWOptions options{
      .learning_rate = kLearningRate, .beta2 = kBeta2, .eps = 1e-8, .weight_decay = kWeightDecay};
  const auto optimizer = std::make_shared<AdamW>(model.named_parameters(), options);
  return [optimizer] {
    optimizer->step();
    optimizer->zero_grad();
  };
}

/// Forward uses bf16 copies of the weights; their gradients update the weights, then the copies.
Update plain_update(TransformerModel& model) {
  struct Slot {
    Tensor weight, used, m, v;
  };
  const NoGrad no_grad;
  std::vector<Slot> slots;
  for (const ParameterPtr& parameter : model.parameters()) {
    const Tensor weight = parameter->value();
    const Tensor used = weight.to(DType::bf16).detach().set_requires_grad();
    ModuleSharder::set_used(*parameter, used);
    slots.push_back({weight, used, zeros_like(weight), zeros_like(weight)});
  }
  const Tensor one = ones({}, {.device = slots[0].weight.device()});
  AdamWStep step{
      .learning_rate = kLearningRate, .beta2 = kBeta2, .weight_decay = kWeightDecay, .step = 0};
  return [slots, one, step]() mutable {
    const NoGrad within;
    ++step.step;
    for (const Slot& slot : slots) {
      adamw_(slot.weight, slot.m, slot.v, slot.used.grad(), one, step);
      copy_(slot.used, slot.weight);
      slot.used.set_grad({});
    }
  };
}

/// Times of one step, in seconds.
struct StepTimes {
  /// Time from the first call until the device is done, until all is queued; the device's time.
  double whole = 0, queued = 0, device = 0;
};

class DeviceSteps {
 public:
  DeviceSteps(const Communicator& world, Device device, const DeviceTraining& training,
              bool by_engine)
      : device_(device), training_(training), mesh_(world, {{"dp", 1}}), model_(training.model) {
    if (by_engine) {
      FullyShardOptions options;
      options.precision = {.compute = DType::bf16, .gather = DType::bf16, .reduce = DType::f32};
      for (const auto& unit : model_.units()) fully_shard(unit, mesh_, options);
      fully_shard(model_, mesh_, options);
    }
    model_.materialize(device);
    update_ = by_engine ? update_by_engine(model_) : plain_update(model_);
    rows_ = by_engine ? Sharding(mesh_, {Shard(0)}) : Sharding();
    for (int64_t i = 0; i < kBatches; ++i) batches_.push_back(batch(i));
  }

  StepTimes take(int64_t step) {
    const auto& [ids, targets] = batches_[static_cast<size_t>(step % kBatches)];
    const Stream stream = current_stream(device_);
    StepTimes times;
    const auto began = Clock::now();
    const Moment start = Moment::on(stream);
    Tensor loss = model_.loss(ids, targets);
    loss.backward();
    update_();
    const Moment end = Moment::on(stream);
    times.queued = seconds_since(began);
    losses_.push_back(loss.detach().full_tensor().item());
    end.wait();
    times.whole = seconds_since(began);
    times.device = end.seconds_after(start);
    return times;
  }

  int64_t parameters() const {
    int64_t count = 0;
    for (const ParameterPtr& parameter : model_.parameters()) count += parameter->shape().product();
    return count;
  }
  const std::vector<double>& losses() const { return losses_; }

 private:
  static constexpr int64_t kBatches = 4;
  struct Batch {
    Tensor ids, targets;
  };

  /// Ids from steps of a linear generator, so that the next id can be learned.
  Batch batch(int64_t number) const {
    const TensorOptions integers{DType::i64, cpu, rows_};
    const Shape shape{training_.batch, training_.sequence};
    const Batch made{empty(shape, integers), empty(shape, integers)};
    const int64_t vocabulary = training_.model.vocabulary;
    int64_t id = (12345 + number) % vocabulary;
    auto* ids = made.ids.block().as<int64_t>();
    auto* targets = made.targets.block().as<int64_t>();
    for (int64_t i = 0; i < shape.product(); ++i) {
      ids[i] = id;
      id = (id * 1103 + 12289 + i % 7) % vocabulary;
      targets[i] = id;
    }
    return {made.ids.to(device_), made.targets.to(device_)};
  }

  const Device device_;
  const DeviceTraining& training_;
  const DeviceMesh mesh_;
  TransformerModel model_;
  Sharding rows_;
  Update update_;
  std::vector<Batch> batches_;
  std::vector<double> losses_;
};

Spread spread_of_times(const std::vector<StepTimes>& steps, double StepTimes::*part) {
  std::vector<double> times;
  for (const StepTimes& step : steps) times.push_back(step.*part);
  return spread_of(std::move(times));
}

}  // namespace

static void print_training(const DeviceTraining& training, bool by_engine, const DeviceSteps& run,
                           const std::vector<StepTimes>& steps) {
  const Spread whole = spread_of_times(steps, &StepTimes::whole);
  const double tokens = static_cast<double>(training.batch * training.sequence) / whole.median;
  const double operations = training_operations_a_token(training.model, training.sequence);
  const MemoryStatistics memory = memory_statistics(DeviceKind::cuda);
  const auto milliseconds = [](double seconds) { return rounded(seconds * 1e3, 3); };
  Line line{{"bench", "weft_cuda"},
            {"case", by_engine ? "train, FSDP engine" : "train"},
            {"value", rounded(tokens, 1)},
            {"unit", "tokens/s"},
            {"mfu", nullptr},
            {"tflops", rounded(tokens * operations / 1e12, 3)},
            {"step_ms", milliseconds(whole.median)},
            {"step_ms_p10", milliseconds(whole.p10)},
            {"step_ms_p90", milliseconds(whole.p90)},
            {"device_ms", milliseconds(spread_of_times(steps, &StepTimes::device).median)},
            {"queued_ms", milliseconds(spread_of_times(steps, &StepTimes::queued).median)},
            {"peak_bytes", memory.total.peak},
            {"kept_bytes", memory.cached},
            {"rows", training.batch},
            {"sequence", training.sequence},
            {"params", run.parameters()},
            {"first_loss", rounded(run.losses().front(), 5)},
            {"last_loss", rounded(run.losses().back(), 5)},
            {"steps", steps.size()}};
  if (training.peak > 0) {
    line["mfu"] = rounded(tokens * operations / training.peak, 4);
    line["peak_tflops"] = training.peak / 1e12;
  }
  print(line);
}

void measure_training(Device device, const DeviceTraining& training, bool by_engine) {
  run_ranks(1, [&](const Communicator& world) {
    DeviceSteps run(world, device, training, by_engine);
    std::vector<StepTimes> steps;
    for (int64_t step = 0; step < training.warmup; ++step) run.take(step);
    reset_peak_memory(DeviceKind::cuda);
    for (int64_t step = 0; step < training.steps; ++step) {
      steps.push_back(run.take(training.warmup + step));
    }
    print_training(training, by_engine, run, steps);
  });
}

}  // namespace weft::bench
