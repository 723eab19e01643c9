// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "mesh/mesh_body.h"
#include "ops/engine/tensor_body.h"
#include "ops/mesh_move_message.h"
#include "ops/mesh_moves.h"
#include "src/comm/transport.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

namespace {

/// Facts about one rank that all ranks compare.
struct RankFacts {
  int64_t is_wrong, from, from_size, to, to_size, device, records, from_hash, to_hash, round_bytes;
};
constexpr size_t kFacts = sizeof(RankFacts) / sizeof(int64_t);

/// Leaves what ranks agree on out of the traffic, as predictions do.
struct Uncounted : NotCopied {
  Transport& transport;
  explicit Uncounted(const Communicator& ranks) : transport(*ranks.transport()) {
    transport.count(false);
  }
  ~Uncounted() { transport.count(true); }
};

}  // namespace

/// The layout in which a tensor is sent: Partial axes cut a dim that is long enough, so that each
/// rank reduces its own part only; other Partials and cuts of inner factors are made whole.
static Ref<Layout> sent_layout(const Ref<Layout>& layout) {
  Pattern pattern = layout->sharding.pattern();
  const std::span<const int> sizes = layout->grid->sizes();
  for (int axis = 0; axis < pattern.axes(); ++axis) {
    if (pattern[axis].outer() > 1) pattern.set(axis, Replicate());
  }
  for (const int axis : pattern.partial_axes()) {
    const auto ranks = static_cast<int64_t>(sizes[static_cast<size_t>(axis)]);
    Placement placement = Replicate();
    for (int dim = layout->shape.ndim(); dim-- > 0;) {
      int64_t parts = ranks;
      for (const int other : pattern.cutting(dim)) parts *= sizes[static_cast<size_t>(other)];
      if (layout->shape[dim] >= parts) placement = Shard{dim};
    }
    pattern.set(axis, placement);
  }
  return layout_of(Sharding::of(layout->sharding.mesh(), pattern), layout->shape, layout->dtype);
}

/// The layout in which a tensor arrives that is wanted in layout `target`.
static Ref<Layout> received_layout(const Ref<Layout>& target) {
  const Sharding& sharding = target->sharding;
  const Sharding whole = keeping(
      sharding, [&](int axis) { return sharding[axis].is_shard() && sharding[axis].outer() == 1; });
  return layout_of(whole, target->shape, target->dtype);
}

static void check_tensors(const TensorsByName& tensors) {
  const Tensor* first = nullptr;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor || !tensor.is_sharded()) {
      fail("to_mesh: tensor ", in_quotes(name), " has no mesh, expected one over a mesh; ",
           "use distribute, or pass none on ranks outside of its mesh");
    }
    if (!first) first = &tensor;
    if (!(tensor.sharding().mesh() == first->sharding().mesh())) {
      fail("to_mesh: mesh of tensor ", in_quotes(name), " is ", tensor.sharding().mesh(),
           ", expected that of the others, ", first->sharding().mesh());
    }
    if (tensor.device().kind != first->device().kind) {
      fail("to_mesh: device of tensor ", in_quotes(name), " is ", tensor.device(),
           ", expected the kind of the others, ", first->device());
    }
  }
}

/// The group to use where the caller names none.
static Communicator greater_of(const Communicator& from, const Communicator& to) {
  if (!from && !to)
    fail("to_mesh: this rank has neither a tensor nor the mesh, expected one of them");
  if (!from || !to) return from ? from : to;
  if (from.contains(to)) return from;
  if (to.contains(from)) return to;
  fail("to_mesh: ranks are missing, expected a group of the ranks of both meshes, of which ",
       "neither has all ranks of the other");
}

static void check_in_group(const Communicator& ranks, const DeviceMesh& mesh) {
  if (!mesh || ranks.contains(mesh.communicator())) return;
  fail("to_mesh: ", mesh, " has ranks outside of the group ", in_quotes(ranks.name()),
       ", expected a group of the ranks of both meshes, in one world");
}

namespace {

/// Agrees on one move.
class MoveAgreement {
 public:
  MoveAgreement(const TensorsByName& tensors, const DeviceMesh& to,
                const ChosenPlacements& placements, const MeshMoveOptions& options)
      : tensors_(tensors),
        to_(to ? to.root() : to),
        view_(to),
        placements_(placements),
        options_(options) {}

  std::shared_ptr<MeshMove::State> run() {
    std::string mistake = mistake_of([&] { check_tensors(tensors_); });
    if (mistake.empty() && !tensors_.empty()) {
      from_ = tensors_.begin()->second.sharding().mesh();
    }
    if (!mistake.empty() && !options_.ranks && !to_) fail(mistake);
    state_->ranks = options_.ranks ? options_.ranks : chosen_group();
    const Uncounted uncounted(state_->ranks);
    if (mistake.empty()) mistake = mistake_of([&] { check_here(); });
    exchange_facts(mistake);
    check_facts();
    agree_on_tensors();
    agree_on_targets();
    return state_;
  }

 private:
  template <class Check> static std::string mistake_of(const Check& check) {
    try {
      check();
      return {};
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  }

  Communicator chosen_group() const {
    return greater_of(from_ ? from_.communicator() : Communicator(),
                      to_ ? to_.communicator() : Communicator());
  }

  void check_here() {
    if (state_->ranks.size() > 1 && !state_->ranks.transport()->world()) {
      fail("to_mesh: the world of ", in_quotes(state_->ranks.name()),
           " is simulated, expected ranks that exist");
    }
    check_in_group(state_->ranks, from_);
    check_in_group(state_->ranks, to_);
    if (options_.round_bytes < 0) {
      fail("to_mesh: bytes of a round must be at least 0, got ", options_.round_bytes);
    }
    if (to_) state_->device = view_.device();
    if (from_) state_->device = tensors_.begin()->second.device();
    if (from_ && to_ && to_.device_type() != state_->device.kind &&
        state_->device.kind != DeviceKind::meta) {
      fail("to_mesh: devices of ", to_, " are ", to_.device(), ", expected the kind of the ",
           "tensors', ", state_->device);
    }
  }

  void exchange_facts(const std::string& mistake) {
    RankFacts own{.is_wrong = !mistake.empty(),
                  .from = from_ ? from_.rank() : -1,
                  .from_size = from_ ? from_.size() : 0,
                  .to = to_ ? to_.rank() : -1,
                  .to_size = to_ ? to_.size() : 0,
                  .device = static_cast<int64_t>(state_->device.kind),
                  .records = Context::current().grad_enabled,
                  .from_hash = static_cast<int64_t>(hash_of_tensors()),
                  .to_hash = static_cast<int64_t>(hash_of_mesh()),
                  .round_bytes = options_.round_bytes};
    std::array<int64_t, kFacts> numbers{};
    std::memcpy(numbers.data(), &own, sizeof own);
    const std::vector<int64_t> all = state_->ranks.all_gather_numbers(numbers);
    facts_.resize(all.size() / kFacts);
    std::memcpy(facts_.data(), all.data(), all.size() * sizeof(int64_t));
    const auto is_wrong = [](const RankFacts& facts) { return facts.is_wrong != 0; };
    if (std::ranges::any_of(facts_, is_wrong)) fail_on_all_ranks(state_->ranks, mistake);
  }

  uint64_t hash_of_mesh() const {
    const std::string words = to_ ? concat(to_) : "";
    return xxh3_of(std::as_bytes(std::span(words)));
  }

  /// Names, layouts, and which require a gradient.
  uint64_t hash_of_tensors() const {
    uint64_t hash = 0;
    if (!from_) return hash;
    for (const auto& [name, tensor] : tensors_) {
      hash = xxh3_of(std::as_bytes(std::span(name)), mixed(hash, layout_of(tensor)->hash));
      hash = mixed(hash, tensor.requires_grad());
    }
    return hash;
  }

  /// Numbers the ranks of a mesh; all ranks of the group find the same mistakes.
  MeshRanks ranks_of(int64_t RankFacts::*index, int64_t RankFacts::*size, const char* which) const {
    MeshRanks mesh;
    int64_t count = 0;
    for (const RankFacts& facts : facts_) count = std::max(count, facts.*size);
    mesh.ranks.assign(static_cast<size_t>(count), -1);
    int64_t found = 0;
    for (size_t rank = 0; rank < facts_.size(); ++rank) {
      const RankFacts& facts = facts_[rank];
      if (facts.*index < 0) continue;
      int& place = mesh.ranks[static_cast<size_t>(facts.*index)];
      if (facts.*size != count || place >= 0) {
        fail("to_mesh: ranks pass different meshes that tensors move ", which, ", expected one");
      }
      place = static_cast<int>(rank);
      ++found;
    }
    if (found == count && count > 0) return mesh;
    fail("to_mesh: number of ranks of ", in_quotes(state_->ranks.name()),
         " in the mesh that tensors move ", which, " is ", found, ", expected ",
         count > 0 ? concat(count, ", all of its ranks") : "at least 1",
         "; pass a group of the ranks of both meshes");
  }

  void check_facts() {
    from_ranks_ = ranks_of(&RankFacts::from, &RankFacts::from_size, "from");
    to_ranks_ = ranks_of(&RankFacts::to, &RankFacts::to_size, "to");
    const RankFacts& first = facts_[static_cast<size_t>(from_ranks_.ranks[0])];
    for (size_t rank = 0; rank < facts_.size(); ++rank) {
      const RankFacts& facts = facts_[rank];
      if (facts.from < 0 && facts.to < 0) {
        fail("to_mesh: rank ", rank, " of ", in_quotes(state_->ranks.name()),
             " is in neither mesh, expected a group of the ranks of both; make it by subgroup");
      }
      if (facts.device != first.device && first.device != static_cast<int64_t>(DeviceKind::meta)) {
        fail("to_mesh: devices of ranks ", from_ranks_.ranks[0], " and ", rank,
             " are of two kinds, expected one");
      }
      const RankFacts& target = facts_[static_cast<size_t>(to_ranks_.ranks[0])];
      if (facts.to >= 0 && facts.to_hash != target.to_hash) {
        fail("to_mesh: ranks pass different meshes that tensors move to, expected one");
      }
      if (facts.round_bytes != first.round_bytes) {
        fail("to_mesh: bytes of a round are ", first.round_bytes, " and ", facts.round_bytes,
             ", expected equal ones on all ranks");
      }
      if (facts.from >= 0 && facts.from_hash != first.from_hash) {
        fail("to_mesh: tensors of ranks ", from_ranks_.ranks[0], " and ", rank,
             " have different names or layouts, expected equal ones");
      }
    }
    const auto records = [](const RankFacts& facts) { return facts.records != 0; };
    records_ = std::ranges::all_of(facts_, records);
    if (first.device == static_cast<int64_t>(DeviceKind::meta)) {
      state_->device = {DeviceKind::meta, 0};
    }
  }

  /// The first rank of the mesh that tensors come from tells all ranks their names and layouts.
  void agree_on_tensors() {
    const int teller = from_ranks_.ranks[0];
    MoveMessage message;
    if (from_) {
      for (const auto& [name, tensor] : tensors_) {
        const Ref<Layout>& given = layout_of(tensor);
        state_->items.push_back({name,
                                 tensor.shape(),
                                 tensor.dtype(),
                                 tensor.requires_grad(),
                                 given,
                                 sent_layout(given),
                                 {},
                                 {}});
      }
      message.add(concat(from_));
      message.add_all(from_.body()->grid().sizes());
      message.add(static_cast<int64_t>(tensors_.size()));
      for (const MoveItem& item : state_->items) {
        message.add(item.name);
        message.add(static_cast<int64_t>(item.dtype));
        message.add(item.requires_grad);
        message.add_all(item.shape);
        add_pattern(message, item.sent->sharding.pattern());
      }
    }
    MoveMessage told(state_->ranks.broadcast(message.text(), teller));
    from_ranks_.words = told.words();
    from_ranks_.sizes = told.all<int>();
    state_->items.resize(static_cast<size_t>(told.number()));
    for (MoveItem& item : state_->items) {
      item.name = told.words();
      item.dtype = static_cast<DType>(told.number());
      item.requires_grad = told.number() != 0;
      item.shape = Shape(std::span<const int64_t>(told.all<int64_t>()));
      moved_.push_back({item.name, item.shape, item.dtype, pattern_in(told), {}});
    }
  }

  /// The first rank of the other mesh tells all ranks the layouts that are asked for.
  void agree_on_targets() {
    MoveMessage message;
    const std::string mistake = mistake_of([&] { to_ ? choose_targets(message) : void(); });
    const auto hash = static_cast<int64_t>(xxh3_of(std::as_bytes(std::span(message.text()))));
    const int64_t own[] = {!mistake.empty(), hash};
    const std::vector<int64_t> all = state_->ranks.all_gather_numbers(own);
    const auto teller = static_cast<size_t>(to_ranks_.ranks[0]);
    for (size_t rank = 0; rank < facts_.size(); ++rank) {
      if (all[2 * rank] != 0) fail_on_all_ranks(state_->ranks, mistake);
    }
    for (const int rank : to_ranks_.ranks) {
      if (all[2 * static_cast<size_t>(rank) + 1] == all[2 * teller + 1]) continue;
      fail("to_mesh: placements of ranks ", teller, " and ", rank, " differ, expected equal ones");
    }
    MoveMessage told(state_->ranks.broadcast(message.text(), static_cast<int>(teller)));
    to_ranks_.words = told.words();
    to_ranks_.sizes = told.all<int>();
    for (MovedTensor& moved : moved_) moved.to = pattern_in(told);
    make_plan();
  }

  void choose_targets(MoveMessage& message) {
    message.add(concat(to_));
    message.add_all(to_.body()->grid().sizes());
    for (MoveItem& item : state_->items) {
      const Placements placements = placements_(item.name, item.shape);
      check_sizes("to_mesh", placements, item.shape);
      const Sharding sharding(view_, placements, item.shape.ndim());
      item.target = layout_of(sharding, item.shape, item.dtype);
      item.received = received_layout(item.target);
      add_pattern(message, item.received->sharding.pattern());
    }
  }

  void make_plan() {
    std::vector<int> hosts;
    for (int rank = 0; rank < state_->ranks.size(); ++rank) {
      hosts.push_back(state_->ranks.transport()->host_of(rank));
    }
    for (size_t i = 0; i < moved_.size(); ++i) {
      if (records_ && state_->items[i].requires_grad) state_->recorded.push_back(i);
    }
    state_->same_ranks = std::ssize(from_ranks_.ranks) == state_->ranks.size() &&
                         std::ssize(to_ranks_.ranks) == state_->ranks.size();
    state_->plan.emplace(std::move(moved_), std::move(from_ranks_), std::move(to_ranks_),
                         std::move(hosts), options_.round_bytes);
  }

  const TensorsByName& tensors_;
  const DeviceMesh to_, view_;
  DeviceMesh from_;
  const ChosenPlacements& placements_;
  const MeshMoveOptions& options_;
  const std::shared_ptr<MeshMove::State> state_ = std::make_shared<MeshMove::State>();
  std::vector<RankFacts> facts_;
  MeshRanks from_ranks_, to_ranks_;
  std::vector<MovedTensor> moved_;
  bool records_ = false;
};

}  // namespace

std::shared_ptr<MeshMove::State> agreed_move(const TensorsByName& tensors, const DeviceMesh& to,
                                             const ChosenPlacements& placements,
                                             const MeshMoveOptions& options) {
  return MoveAgreement(tensors, to, placements, options).run();
}

}  // namespace weft
