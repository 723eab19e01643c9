// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "checkpoint/keys.h"
#include "checkpoint/source.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/ops/factories.h"

namespace weft {

static void check_fits_source(const CheckpointSource& source, const std::string& name,
                              const Tensor& tensor) {
  const CheckpointSource::Entry& entry = source.tensors().at(name);
  if (entry.shape == tensor.shape() && entry.dtype == tensor.dtype()) return;
  fail("load: ", source.path(), ": tensor ", in_quotes(name), " is ", entry.shape, ' ', entry.dtype,
       ", expected ", tensor.shape(), ' ', tensor.dtype());
}

static void check_can_be_filled(const std::string& name, const Tensor& tensor) {
  if (tensor.device().kind == DeviceKind::meta) {
    fail("load: tensor ", in_quotes(name), " has no memory, expected some; call materialize first");
  }
  if (tensor.is_sharded() && tensor.sharding().has_partial()) {
    fail("load: tensor ", in_quotes(name), " is laid out as ", tensor.sharding(),
         ", expected no Partial");
  }
}

/// Whether each element is on one rank only: every axis cuts it.
static bool is_on_one_rank(const Tensor& tensor) {
  if (!tensor.is_sharded()) return false;
  const Sharding sharding = tensor.sharding();
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    if (!sharding[axis].is_shard() && sharding.mesh().axis_size(axis) > 1) return false;
  }
  return true;
}

/// Fills the tensors that the source has; those that are not dense go by way of a copy.
static void fill_tensors(const CheckpointSource& source, const StateDict& into) {
  const NoGrad no_grad;
  std::vector<Wish> wishes;
  std::vector<std::pair<Tensor, Tensor>> copies;
  std::vector<Tensor> filled;
  std::vector<std::pair<std::string, Tensor>> on_disk;
  for (const auto& [name, tensor] : into.tensors) {
    if (!source.tensors().contains(name)) continue;
    check_fits_source(source, name, tensor);
    check_can_be_filled(name, tensor);
    Tensor local = tensor.local();
    // Includes empty parts: all ranks must react to a change alike.
    filled.push_back(local);
    if (local.numel() == 0) continue;
    if (rests_on_disk(local)) {
      on_disk.push_back({name, tensor});
      continue;
    }
    if (!local.block().is_dense() || local.device().kind != DeviceKind::cpu) {
      const Tensor dense = empty(local.shape(), {.dtype = local.dtype()});
      copies.emplace_back(local, dense);
      local = dense;
    }
    auto* memory = static_cast<std::byte*>(local.block().data);
    wishes.push_back({name, tensor.box(), memory, is_on_one_rank(tensor)});
  }
  read_wishes(source, wishes);
  for (const auto& [local, dense] : copies) copy_(local, dense);
  // One at a time, so that only one is in memory.
  for (const auto& [name, tensor] : on_disk) {
    const Tensor read = memory_like(tensor);
    auto* memory = static_cast<std::byte*>(read.block().data);
    read_wishes(source, {{name, tensor.box(), memory, is_on_one_rank(tensor)}});
    write_to_disk(tensor, read);
  }
  for (const Tensor& local : filled) local.storage()->mark_changed();
}

/// The checkpoint at `path`: the newest complete one of a run, chosen once for all ranks over which
/// the tensors are laid out.
static std::string chosen_at(const std::string& path, const StateDict& into) {
  if (!holds_checkpoints(path)) return path;
  const auto laid_out = std::ranges::find_if(
      into.tensors, [](const auto& named) { return named.second.is_sharded(); });
  const std::string chosen =
      laid_out == into.tensors.end()
          ? newest_complete_checkpoint(path)
          : newest_complete_checkpoint(laid_out->second.sharding().mesh().communicator(), path);
  if (chosen.empty()) fail("load: ", path, " has no complete checkpoint, expected at least one");
  return chosen;
}

CheckpointContents checkpoint_contents(const std::string& path) {
  return open_source(path)->contents();
}

/// Fills what both have, or throws before if `needs_all` and something is left over.
static SkippedKeys filled(const CheckpointSource& source, const std::string& path, StateDict& into,
                          bool needs_all) {
  SkippedKeys skipped;
  add_unmatched_keys(into.tensors, source.tensors(), skipped);
  add_unmatched_keys(into.numbers, source.numbers(), skipped);
  if (needs_all) check_no_keys_skipped("load", path, skipped);
  fill_tensors(source, into);
  for (auto& [key, number] : into.numbers) {
    const auto found = source.numbers().find(key);
    if (found != source.numbers().end()) number = found->second;
  }
  return skipped;
}

void load(const std::string& path, StateDict& into) {
  filled(*open_source(chosen_at(path, into)), path, into, true);
}

SkippedKeys load_common_keys(const std::string& path, StateDict& into) {
  return filled(*open_source(chosen_at(path, into)), path, into, false);
}

void load(const std::string& path, const TrainingState& into) {
  const auto source = open_source(chosen_at(path, into.state_dict()));
  StateDict state = into.state_dict_with(source->numbers());
  filled(*source, path, state, true);
  into.take_numbers(state.numbers);
}

}  // namespace weft
