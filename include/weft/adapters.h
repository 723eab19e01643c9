// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/layers.h"

namespace weft {

/// Low-rank adapters (LoRA: Hu et al., 2021) of the Linear modules of a model.
struct AdapterOptions {
  int64_t rank = 8;
  double alpha = 16;
  /// Probability with which elements of the input of the adapters are zeroed while training.
  double dropout = 0;
  /// The factor of the adapters' product is alpha / sqrt(rank), not alpha / rank.
  bool rslora = false;
  /// Last parts of the paths of Linear modules, such as "q_proj" or "self_attn.q_proj". The only
  /// entry "all-linear" means each Linear but the head.
  std::vector<std::string> targets = {"q_proj", "v_proj"};

  double scale() const;
};

/// The first matrix of an adapter, `lora_A` [rank, in], a child of the Linear that it adapts.
class WEFT_API AdapterInput final : public Linear {
 public:
  AdapterInput(int64_t in, const AdapterOptions& options);
  const AdapterOptions& options() const { return options_; }
  /// Makes `a` and `b` children of `linear` and adds their product to its output from now on.
  static void attach(Linear& linear, const std::shared_ptr<AdapterInput>& a,
                     const std::shared_ptr<Linear>& b);
  /// Undoes `attach`.
  void detach(Linear& linear);

 private:
  AdapterOptions options_;
  HookHandle hook_;
};

/// A Linear with an adapter.
struct AdaptedLinear {
  std::string path;
  Linear* linear = nullptr;
  std::shared_ptr<AdapterInput> a;
  /// `lora_B` [out, rank].
  std::shared_ptr<Linear> b;
};

/// Freezes all parameters of `model` and adds an adapter to each Linear of `options.targets`: its
/// output becomes W x + scale * B A dropout(x). A and B are its children "lora_A" and "lora_B",
/// without biases; A begins as the weight of a Linear, B as zeros, as in PEFT. Returns the paths of
/// the Linear modules. Call it before `parallelize`, `fully_shard` and before an optimizer is made;
/// parameters may have values or be declared only. Styles of `parallelize` cut the adapters as
/// their modules: Colwise cuts B, Rowwise cuts A.
///
/// std::invalid_argument, and nothing is changed, when a target matches no Linear, or is the head,
/// the model is sharded or has adapters, or a number of the options is out of range.
WEFT_API std::vector<std::string> add_adapters(Module& model, const AdapterOptions& options = {});

/// Returns the modules with an adapter, in the order of `named_modules`.
WEFT_API std::vector<AdaptedLinear> adapted_linears(Module& model);
/// Returns whether a parameter's name is like that of an adapter, "....lora_A.weight".
WEFT_API bool is_adapter_parameter(const std::string& name);

/// Adds scale * B A to the weight of each adapted module and removes the adapters. The parameters
/// stay frozen. Works on any layout, but not while `fully_shard` holds the model gathered.
/// std::invalid_argument when the model has no adapters.
WEFT_API void merge_adapters(Module& model);

/// Stores the weight of each Linear but the head, and of adapters, in 8 or 4 bits, in blocks of 64
/// elements of a row that have a scale each: 1.06 or 0.57 bytes an element (QLoRA: Dettmers et al.,
/// 2023). The weights are rounded from the values that they have or get by `materialize` or
/// `load_hugging_face`, and not trained any more; products unpack them into temporary memory.
/// Returns the paths of the Linear modules. Call it before `parallelize` and `fully_shard`.
/// std::invalid_argument, and nothing is changed, for other bits, a sharded model, a weight that is
/// tied, or a Linear with another product, as of float8.
WEFT_API std::vector<std::string> quantize_base(Module& model, int bits);

/// Returns the size of the last dim of a Linear's input.
WEFT_API int64_t in_features(const Linear& linear);
/// The same if the weight is quantized.
WEFT_API std::optional<int64_t> packed_columns(const Linear& linear);
/// Returns the quantized weights of a model by name, with their number of columns.
WEFT_API std::map<std::string, int64_t> packed_weights(const Module& model);

}  // namespace weft
