// SPDX-License-Identifier: Apache-2.0
#include "weft/adapters.h"

#include "python/bindings/bindings.h"
#include "python/bindings/modules.h"
#include "weft/peft.h"

namespace weft::python {

void bind_adapters(py::module_& m) {
  def(m, "add_adapters(model, *, rank=8, alpha=16.0, dropout=0.0, rslora=False, targets=None)",
      "Freezes all parameters and adds a low-rank adapter (LoRA) to each Linear that `targets` "
      "name by the last parts of its path (None: q_proj and v_proj; ['all-linear']: all but the "
      "head). Its output becomes "
      "W x + alpha / rank B A dropout(x), with rslora alpha / sqrt(rank); A and B are its children "
      "'lora_A' and 'lora_B'. Gives the paths. Call it before parallelize, fully_shard and before "
      "an optimizer is made",
      [](Module& model, int64_t rank, double alpha, double dropout, bool rslora,
         const std::optional<std::vector<std::string>>& targets) {
        AdapterOptions options{rank, alpha, dropout, rslora, AdapterOptions().targets};
        if (targets) options.targets = *targets;
        return add_adapters(model, options);
      });
  def(m, "quantize_base(model, bits)",
      "Stores the weight of each Linear but the head, and of adapters, in 8 or 4 bits, in blocks "
      "of "
      "64 elements of a row that have a scale each. They are not trained any more. Gives the "
      "paths. "
      "Call it before parallelize and fully_shard",
      &quantize_base);
  def(m, "merge_adapters(model)",
      "Adds the product of each adapter to the weight of its Linear and removes the adapters; the "
      "parameters stay frozen",
      &merge_adapters);
  def(m, "adapter_state_dict(model)",
      "The parameters of the adapters by their names in the model; its tensors alias. No traffic",
      &adapter_state_dict);
  def(m, "save_peft(model, directory, *, base_model='', task='CAUSAL_LM', world=None)",
      "Writes the adapters as adapter_model.safetensors and adapter_config.json of the PEFT "
      "library. All ranks of a sharded model, or of `world`, call it, and the first one writes. "
      "base_model: the directory or the hub's name of the model that they belong to",
      [](Module& model, const std::string& directory, const std::string& base_model,
         const std::string& task, const std::optional<Communicator>& world) {
        save_peft(model, directory, {base_model, task, world});
      });
  def(m, "peft_options(model, directory)",
      "The options of the adapters in such files, as add_adapters takes them before a model is "
      "sharded: rank, alpha, dropout, rslora and targets, which are paths in the model",
      [](const Module& model, const std::string& directory) {
        const AdapterOptions o = peft_options(model, directory);
        return py::dict("rank"_a = o.rank, "alpha"_a = o.alpha, "dropout"_a = o.dropout,
                        "rslora"_a = o.rslora, "targets"_a = o.targets);
      });
  def(m, "load_peft(model, directory)",
      "Fills the adapters from such files; a model without adapters gets those of the files. "
      "ValueError, before anything is changed, names what does not fit",
      [](Module& model, const std::string& directory) { load_peft(model, directory); });
}

}  // namespace weft::python
