// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/scratch.h"
#include "weft/safetensors.h"
#include "weft/transformer.h"

namespace weft {

/// A model of tests/reference/families, with its Hugging Face directory, which is made here.
class FamilyReference {
 public:
  explicit FamilyReference(const std::string& name);

  /// The directory, with config.json and model.safetensors.
  std::string folder() const { return scratch_.root(); }
  TransformerConfig config() const;
  const nlohmann::json& parameters() const { return parameters_; }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  Tensor tensor(const std::string& name) const;
  double number(const std::string& name) const { return std::stod(file_.metadata().at(name)); }

 private:
  SafetensorsFile file_;
  nlohmann::json parameters_;
  Scratch scratch_;
};

/// Hooks to shard a model and its input; both do nothing by default.
struct FamilySetup {
  std::function<void(TransformerModel& model)> shard = {};
  std::function<Tensor(const Tensor& whole)> batch = {};
  /// Orders and cuts the sequences of a batch: `share_sequence`.
  std::function<SharedSequence(const Tensor& ids, const Tensor& targets, const Tensor& segments)>
      share = {};
  /// Rows of the reference that are packed into one as documents.
  int64_t documents = 1;
};

/// Compares samples of logits and gradients with those of transformers to 1e-5 of the largest value
/// of each, and the losses of 20 AdamW steps to 1e-4. All ranks call it.
void expect_as_transformers(const FamilyReference& reference, const FamilySetup& setup = {});

}  // namespace weft
