// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/step_reference.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/run_folder.h"
#include "weft/ops.h"

namespace weft::cli {

namespace {

/// Options of `weft check-step`.
struct CheckStepOptions {
  /// A Hugging Face model, a checkpoint, or a run's directory.
  std::string model;
  std::string batch;
  std::string against;
  double tolerance = 1e-4;
  std::string device = "cpu";
};

/// Ids, targets and segments [batch, sequence]; segments may be empty.
struct StepBatch {
  Tensor ids, targets, segments;
};

/// The norm, sum and largest element of a gradient.
struct Digest {
  double norm = 0, sum = 0, largest = 0;

  explicit Digest(const std::vector<double>& values) {
    for (const double value : values) {
      norm += value * value;
      sum += value;
      raise(largest, std::abs(value));
    }
    norm = std::sqrt(norm);
  }
};

}  // namespace

/// The tensor of one of these names, as i64, or empty.
static Tensor integers_in(const SafetensorsFile& file, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const SafetensorsEntry* entry = file.find(name);
    if (!entry) continue;
    if (!is_integer(entry->dtype) || entry->shape.ndim() != 2) {
      fail("--batch: ", in_quotes(name), " of ", file.path(), " is ", entry->dtype, ' ',
           entry->shape, ", expected integers [batch, sequence]");
    }
    Tensor tensor = empty(entry->shape, {.dtype = entry->dtype});
    file.read_box(*entry, tensor.box(), tensor.block().data);
    return cast(tensor, i64);
  }
  return {};
}

/// x [batch, sequence] without its first column, and with kIgnoredTarget behind the last.
static Tensor shifted(const Tensor& x) {
  const Tensor last = full({x.size(0), 1}, kIgnoredTarget, {.dtype = i64});
  return cat({slice(x, 1, 1, x.size(1)), last}, 1);
}

/// Refuses what a step would leave out: other tensors, a mask with zeros, positions that do not
/// count up from 0.
static void check_all_used(const SafetensorsFile& file) {
  static constexpr const char* kUsed[] = {"ids", "input_ids", "targets", "labels", "segments"};
  for (const SafetensorsEntry& entry : file.entries()) {
    if (std::ranges::find(kUsed, entry.name) != std::end(kUsed)) continue;
    const bool is_mask = entry.name == "attention_mask", is_types = entry.name == "token_type_ids";
    if (!is_mask && !is_types && entry.name != "position_ids") {
      fail("--batch: ", file.path(), " has the tensor ", in_quotes(entry.name), ", expected ",
           listed(kUsed));
    }
    const std::vector<int64_t> values =
        integers_in(file, {entry.name.c_str()}).to_vector<int64_t>();
    const int64_t columns = entry.shape[1];
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t expected = is_mask ? 1 : is_types ? 0 : static_cast<int64_t>(i) % columns;
      if (values[i] == expected) continue;
      fail("--batch: element ", i, " of ", in_quotes(entry.name), " of ", file.path(), " is ",
           values[i], ", expected ", expected,
           "; a step has no padding, and \"segments\" number packed documents");
    }
  }
}

static StepBatch batch_in(const std::string& path, const TransformerConfig& config) {
  const SafetensorsFile file(path);
  check_all_used(file);
  StepBatch batch{integers_in(file, {"ids", "input_ids"}), integers_in(file, {"targets"}),
                  integers_in(file, {"segments"})};
  if (!batch.ids) fail("--batch: ", path, " lacks the tensor \"ids\", expected [batch, sequence]");
  const Tensor labels = integers_in(file, {"labels"});
  if (!batch.targets && !config.causal) batch.targets = labels;
  if (!batch.targets && !config.causal) {
    fail("--batch: ", path, " lacks the tensor \"labels\", expected it for an encoder");
  }
  if (!batch.targets) batch.targets = shifted(labels ? labels : batch.ids);
  if (!batch.targets || !(batch.targets.shape() == batch.ids.shape())) {
    fail("--batch: shape of targets in ", path, " is ", batch.targets.shape(),
         ", expected that of the ids, ", batch.ids.shape());
  }
  if (!labels && !file.find("targets") && batch.segments) {
    // The first token of a document is not a target of the one before.
    const Tensor is_last = not_equal(shifted(batch.segments), batch.segments);
    batch.targets = masked_fill(batch.targets, is_last, kIgnoredTarget);
  }
  return batch;
}

/// A floor for the elements of gradients: some are zero but for rounding, as those of keys' biases
/// without rotation.
static constexpr double kGradientFloor = 1e-4;

/// Prints the digests in the model's order and compares from the last parameter to the first, the
/// order in which backward computes them.
static void report_gradients(const TransformerModel& model, StepReference* reference) {
  std::map<std::string, Tensor> gradients;
  for (const NamedParameter& named : model.named_parameters()) {
    const Tensor gradient = named.parameter->grad();
    gradients[named.name()] = gradient ? gradient : zeros_like(named.parameter->value().detach());
  }
  std::vector<std::pair<FileTensor, Digest>> all;
  double squares = 0, largest = 0;
  for (const FileTensor& tensor : file_tensors(model.config())) {
    if (!gradients.contains(tensor.parts[0].parameter)) continue;  // a buffer
    const Digest digest(in_file_form(tensor, gradients));
    all.emplace_back(tensor, digest);
    squares += digest.norm * digest.norm;
    raise(largest, digest.largest);
  }
  print(formatted("gradient norm  %.9g\n\n%-60s %14s %14s %14s\n", std::sqrt(squares),
                  "gradient of", "norm", "sum", "abs max"));
  for (const auto& [tensor, digest] : all) {
    print(formatted("%-60s %14.7g %14.7g %14.7g\n", tensor.names[0].c_str(), digest.norm,
                    digest.sum, digest.largest));
  }
  if (!reference) return;
  for (auto each = all.rbegin(); each != all.rend(); ++each) {
    const FileTensor& tensor = each->first;
    const std::string words = "gradient of " + tensor.names[0];
    bool is_there = false;
    for (const std::string& name : tensor.names) {
      if (!reference->has("grad." + name)) continue;
      is_there = true;
      reference->compare("grad." + name, words, in_file_form(tensor, gradients),
                         kGradientFloor * largest);
    }
    if (!is_there && reference->has_kind("grad." + tensor.names[0])) reference->miss(words);
  }
}

/// Prints what was compared. Returns the exit code: 1 after a difference.
static int conclude(const StepReference& reference) {
  if (!reference.difference().empty()) {
    print("\nfirst difference: ", reference.difference(), '\n');
    return 1;
  }
  if (const std::string unused = reference.unused(); !unused.empty()) {
    print("\nnot compared: ", unused, ", expected the names of the Hugging Face model, as ",
          "examples/check_step_reference.py writes them\n");
    return 1;
  }
  print("\nequal to ", reference.path(), ": ", reference.compared(),
        " tensors, the largest difference ", formatted("%.2g", reference.largest()), '\n');
  return 0;
}

/// Runs a step on one rank. Returns the exit code. Throws what went wrong.
static int check_step(const CheckStepOptions& options) {
  check_directory("check-step:", options.model);
  if (options.device == "meta") fail("--device is meta, expected cpu or cuda");
  check_available(device_named(options.device));
  const Device device = device_named(options.device);
  const std::string weights = weights_in("check-step:", options.model);
  TransformerModel model(config_of_weights(weights));
  StepBatch batch = batch_in(options.batch, model.config());
  std::optional<StepReference> reference;
  if (!options.against.empty()) reference.emplace(options.against, options.tolerance);
  model.materialize(device);
  std::fprintf(stderr, "weft: reading %s\n", escaped(weights).c_str());
  load_weights(model, weights);
  model.set_training(false);
  batch.ids = batch.ids.to(device), batch.targets = batch.targets.to(device);
  if (batch.segments) batch.segments = batch.segments.to(device);
  if (reference) {
    const NoGrad no_grad;
    Tensors inputs = {batch.ids};
    if (batch.segments) inputs.push_back(batch.segments);
    const std::vector<HookHandle> hooks = compare_activations(model, *reference);
    const Tensor logits = model(inputs)[0];
    for (HookHandle hook : hooks) hook.remove();
    if (reference->has("logits")) reference->compare("logits", "logits", values_of(logits));
  }
  const Tensor loss = model.loss(batch.ids, batch.targets, {.segments = batch.segments});
  loss.backward();
  print(formatted("loss           %.9g\n", loss.item()));
  if (reference) reference->compare("loss", "loss", values_of(loss));
  report_gradients(model, reference ? &*reference : nullptr);
  return reference ? conclude(*reference) : 0;
}

void add_check_step(CLI::App& program, int& code) {
  const auto options = std::make_shared<CheckStepOptions>();
  CheckStepOptions& o = *options;
  CLI::App* command = program.add_subcommand(
      "check-step", "Compare a step of a model with one of another framework");
  add_named(*command, "MODEL", o.model, "DIR",
            "A Hugging Face model, a checkpoint, or a run's directory")
      ->required();
  command->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_named(*command, "--batch", o.batch, "FILE",
            "A safetensors file with \"ids\" [batch, sequence], and \"labels\" (alike) or "
            "\"targets\" (labels shifted by one); \"segments\" number packed documents")
      ->required();
  takes_text(add_named(*command, "--against", o.against, "FILE",
                       "Step of the other framework, by examples/check_step_reference.py"));
  add_number(*command, "--tolerance", o.tolerance,
             "The largest difference of a tensor, as a fraction of its largest element", above(0));
  takes_text(add_shown(*command, "--device", o.device, "cpu or cuda"));
  command->footer(
      "Prints the loss, the norm of all gradients, and of each gradient its norm, sum and largest\n"
      "element. With --against: names the first tensor that differs, of activations in the order\n"
      "of forward, then of gradients in that of backward, and exits with 1.\n"
      "Example: python examples/check_step_reference.py llama batch.safetensors torch.safetensors\n"
      "         weft check-step llama --batch batch.safetensors --against torch.safetensors");
  command->callback([options, &code] { code = cli::check_step(*options); });
}

}  // namespace weft::cli
