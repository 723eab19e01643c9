// SPDX-License-Identifier: Apache-2.0
#include "weft/to_mesh.h"

#include <numeric>
#include <ostream>
#include <utility>

#include "ops/engine/engine.h"
#include "ops/engine/tensor_body.h"
#include "ops/mesh_moves.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/tape.h"
#include "weft/ops/factories.h"

namespace weft {

static constexpr const char* kNoSecondDerivative = "move it between meshes of the same ranks";

static bool is_source(const MoveItem& item) { return static_cast<bool>(item.given); }
static bool is_target(const MoveItem& item) { return static_cast<bool>(item.target); }

static std::vector<MemoryBlock> blocks_of(const Tensors& tensors) {
  std::vector<MemoryBlock> blocks;
  for (const Tensor& tensor : tensors) blocks.push_back(tensor.block());
  return blocks;
}

/// Moves gradients of the recorded tensors to the mesh that they came from (`back`), or gradients
/// of those gradients the other way; empty ones count as zeros. Returns those of this rank in the
/// mesh that they move to.
static Tensors moved_gradients(const std::shared_ptr<MeshMove::State>& state, bool back,
                               const Tensors& gradients) {
  if (!state->same_ranks) check_first_order("to_mesh", kNoSecondDerivative);
  Tensors in, out;
  for (size_t i = 0; i < state->recorded.size(); ++i) {
    const MoveItem& item = state->items[state->recorded[i]];
    const Ref<Layout>& from = back ? item.received : item.sent;
    const Ref<Layout>& to = back ? item.sent : item.received;
    if (back ? is_target(item) : is_source(item)) {
      const TensorOptions like{
          .dtype = item.dtype, .device = state->device, .sharding = from->sharding};
      in.push_back(gradients[i] ? gradients[i] : zeros(item.shape, like));
    }
    if (back ? is_source(item) : is_target(item)) out.push_back(new_tensor(to, state->device));
  }
  if (!back && !state->again) {
    std::vector<size_t> all(state->recorded.size());
    std::iota(all.begin(), all.end(), size_t{0});
    state->again.emplace(state->back->reversed(all));
  }
  run(back ? *state->back : *state->again, state->ranks,
      {blocks_of(in), blocks_of(out), state->device});
  if (!state->same_ranks || !Context::current().grad_enabled) return out;
  return record_repeated("to_mesh", in, out, [state, back](const Tensors& seconds) {
    return moved_gradients(state, !back, seconds);
  });
}

/// Records the results of the recorded tensors, or scalars in their place on ranks that have none,
/// as computed from what was sent.
static void record_move_of(const std::shared_ptr<MeshMove::State>& state, const Tensors& sent,
                           Tensors& received) {
  if (!state->back) state->back.emplace(state->plan->reversed(state->recorded));
  Tensors inputs, outputs;
  for (const size_t i : state->recorded) {
    if (is_source(state->items[i])) inputs.push_back(sent[i]);
    outputs.push_back(received[i] ? received[i] : zeros({}));
  }
  outputs = record_repeated("to_mesh", inputs, outputs, [state](const Tensors& gradients) {
    return moved_gradients(state, true, gradients);
  });
  for (size_t i = 0; i < outputs.size(); ++i) received[state->recorded[i]] = outputs[i];
}

/// Returns the tensor of an item, as it is sent; empty on ranks outside of its mesh.
static Tensor sent_tensor(const MoveItem& item, const TensorsByName& tensors) {
  const auto found = tensors.find(item.name);
  const bool is_given = found != tensors.end() && found->second;
  if (!is_source(item)) {
    if (!is_given) return {};
    fail("to_mesh: tensor ", in_quotes(item.name), " is given on a rank outside of the mesh ",
         "that tensors move from, expected none");
  }
  if (!is_given) fail("to_mesh: tensor ", in_quotes(item.name), " is missing, expected one");
  const Tensor& tensor = found->second;
  if (layout_of(tensor) == item.given) return redistributed(tensor, item.sent->sharding);
  fail("to_mesh: tensor ", in_quotes(item.name), " is ", *layout_of(tensor), ", expected ",
       *item.given, ", for which the move was made");
}

static Tensors sent_tensors(const MeshMove::State& state, const TensorsByName& tensors) {
  if (!state.items.empty() && is_source(state.items[0]) && tensors.size() != state.items.size()) {
    fail("to_mesh: number of tensors is ", tensors.size(), ", expected ", state.items.size(),
         ", for which the move was made");
  }
  Tensors sent;
  for (const MoveItem& item : state.items) sent.push_back(sent_tensor(item, tensors));
  return sent;
}

/// Moves the elements from `sent` to `received`; both have empty handles outside of their mesh.
static void move_elements(const MeshMove::State& state, const Tensors& sent,
                          const Tensors& received) {
  MovedBlocks blocks{{}, {}, state.device};
  for (size_t i = 0; i < state.items.size(); ++i) {
    if (sent[i]) blocks.in.push_back(sent[i].block());
    if (received[i]) blocks.out.push_back(received[i].block());
  }
  run(*state.plan, state.ranks, blocks);
}

MeshMove::MeshMove(const TensorsByName& tensors, const DeviceMesh& to,
                   const ChosenPlacements& placements, const MeshMoveOptions& options)
    : state_(agreed_move(tensors, to, placements, options)) {}

MeshMove::~MeshMove() = default;

TensorsByName MeshMove::run(const TensorsByName& tensors) const {
  const Tensors sent = sent_tensors(*state_, tensors);
  Tensors received;
  for (const MoveItem& item : state_->items) {
    received.push_back(is_target(item) ? new_tensor(item.received, state_->device) : Tensor());
  }
  move_elements(*state_, sent, received);
  if (!state_->recorded.empty() && Context::current().grad_enabled) {
    record_move_of(state_, sent, received);
  }
  TensorsByName results;
  for (size_t i = 0; i < received.size(); ++i) {
    const MoveItem& item = state_->items[i];
    const bool is_done = !is_target(item) || item.received == item.target;
    results[item.name] = is_done ? received[i] : redistributed(received[i], item.target->sharding);
  }
  return results;
}

void MeshMove::run(const TensorsByName& tensors, const TensorsByName& into) const {
  const NoGrad no_grad;
  const Tensors sent = sent_tensors(*state_, tensors);
  Tensors received;
  for (const MoveItem& item : state_->items) {
    received.emplace_back();
    if (!is_target(item)) continue;
    const auto found = into.find(item.name);
    const bool fits = found != into.end() && found->second &&
                      layout_of(found->second) == item.target && item.received == item.target &&
                      found->second.device() == state_->device;
    if (!fits) {
      fail("to_mesh: tensor ", in_quotes(item.name), " to move into is ",
           found != into.end() && found->second ? concat(*layout_of(found->second)) : "missing",
           ", expected ", *item.received, " on ", state_->device);
    }
    check_changeable("to_mesh", found->second);
    received.back() = found->second;
  }
  move_elements(*state_, sent, received);
  for (const Tensor& tensor : received) {
    if (tensor) changed(tensor);
  }
}

int64_t MeshMove::received_bytes() const {
  return state_->plan->received_bytes(state_->ranks.rank());
}
int64_t MeshMove::kept_bytes() const { return state_->plan->kept_bytes(state_->ranks.rank()); }
const Communicator& MeshMove::ranks() const { return state_->ranks; }
std::string MeshMove::explain() const { return state_->plan->in_words(); }

std::ostream& operator<<(std::ostream& out, const MeshMove& move) { return out << move.explain(); }

TensorsByName to_mesh(const TensorsByName& tensors, const DeviceMesh& mesh,
                      const ChosenPlacements& placements, const MeshMoveOptions& options) {
  return MeshMove(tensors, mesh, placements, options).run(tensors);
}

Tensor to_mesh(const Tensor& tensor, const DeviceMesh& mesh, const Placements& placements,
               const MeshMoveOptions& options) {
  TensorsByName tensors;
  if (tensor) tensors.emplace("", tensor);
  const auto chosen = [&](const std::string&, const Shape&) { return placements; };
  return to_mesh(tensors, mesh, chosen, options).begin()->second;
}

}  // namespace weft
