// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weft/safetensors.h"
#include "weft/transformer.h"

namespace weft::cli {

/// Returns a parameter's gradient as a file of the model's family would have it: transposed,
/// joined with others, a tensor for each expert.
std::vector<double> in_file_form(const FileTensor& tensor,
                                 const std::map<std::string, Tensor>& gradients);

/// The names of modules in Hugging Face's model, by their paths in weft's: those whose parameters
/// one module there holds.
std::map<std::string, std::string> module_names(const TransformerConfig& config);

/// A step that another framework wrote: "output.<module>" and "input.<module>", "logits", "loss"
/// and "grad.<parameter>". Compares ours with it and keeps the first difference.
class StepReference {
 public:
  /// std::invalid_argument names a file without "loss".
  StepReference(const std::string& path, double tolerance);

  const std::string& path() const { return file_.path(); }
  /// True when the reference has the tensor, or the same one of another layer.
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  /// A sentence about tensors that nothing was compared with, although the model should have them:
  /// a gradient, all activations, or a name of another form. Empty: there are none.
  std::string unused() const;
  bool has_kind(const std::string& name) const;
  /// Compares one tensor: max |ours - reference| / max(max |reference|, floor) with the tolerance.
  void compare(const std::string& name, const std::string& words, const std::vector<double>& ours,
               double floor = 0);
  /// Counts as a difference that the reference lacks a tensor.
  void miss(const std::string& words);

  /// A sentence about the first difference, or empty.
  const std::string& difference() const { return difference_; }
  int compared() const { return compared_; }
  /// The largest of the differences within the tolerance.
  double largest() const { return largest_; }

 private:
  SafetensorsFile file_;
  double tolerance_;
  std::set<std::string> kinds_, used_;
  std::string difference_;
  int compared_ = 0;
  double largest_ = 0;
};

/// The larger one; NaN stays.
void raise(double& most, double value);
/// All elements.
std::vector<double> values_of(const Tensor& tensor);
/// Lets each call of a module of `model` compare its first input and output with the reference,
/// until the hooks are removed.
std::vector<HookHandle> compare_activations(TransformerModel& model, StepReference& reference);

}  // namespace weft::cli
