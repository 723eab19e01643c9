// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <utility>

#include "ops/engine/backward_run.h"
#include "ops/engine/deferred.h"
#include "ops/engine/tensor_body.h"
#include "src/device/memory.h"
#include "src/kernels/copy/copy.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/fixed_sums.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/trace.h"

namespace weft {

static bool is_older(const std::pair<uint64_t, Ref<Node>>& a,
                     const std::pair<uint64_t, Ref<Node>>& b) {
  return a.first < b.first;
}

BackwardRun::BackwardRun(SideWork& side, const BackwardRequest& request)
    : side_(side), request_(request), is_default_(request.is_default()) {
  for (const Tensor& target : request.targets) {
    targets_.push_back({receiver_of(target.body()->node.get()), target.body()->result, {}});
  }
  for (const Tensor& leaf : request.leaves) leaves_.insert(receiver_of(leaf.body()->node.get()));
}

void BackwardRun::run(const Tensors& roots, const Tensors& gradients) {
  const ContextSetting<&Context::grad_enabled> recording(request_.create_graph);
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i].body()->node) {
      fail("backward: root ", i, " ", roots[i].shape(),
           " does not require a gradient, expected one that does");
    }
    Node* root = receiver_of(roots[i].body()->node.get());
    count_users(root);
    ++slots_[root].waiting;
  }
  if (request_.is_selective) mark_needed();
  for (size_t i = 0; i < roots.size(); ++i) {
    Node::Edge edge = edge_of(roots[i]);
    pass(edge, gradients[i]);
    mark_passed();
    user_done(edge);
  }
  while (!ready_.empty()) {
    std::ranges::pop_heap(ready_, is_older);
    Ref<Node> node = std::move(ready_.back().second);
    ready_.pop_back();
    run_node(node);
  }
}

/// Counts, for each node that `root` depends on, the nodes that will pass a gradient to it.
void BackwardRun::count_users(Node* root) {
  if (slots_.contains(root)) return;
  slots_[root];
  std::vector<Node*> todo{root};
  while (!todo.empty()) {
    Node* node = todo.back();
    todo.pop_back();
    side_.expect(*node);
    if (ends_at(*node)) continue;
    for (const Node::Edge& edge : node->edges()) {
      Node* next = receiver_of(edge.node.get());
      if (!next) continue;
      auto [found, fresh] = slots_.try_emplace(next);
      ++found->second.waiting;
      if (fresh) todo.push_back(next);
      if (request_.is_selective) users_[next].push_back(node);
    }
  }
}

void BackwardRun::user_done(const Node::Edge& edge) {
  Node* node = receiver_of(edge.node.get());
  Slot& slot = slots_[node];
  slot.subject = SubjectScope::current();
  if (--slot.waiting > 0) return;
  ready_.emplace_back(node->sequence, Ref<Node>(node));
  std::ranges::push_heap(ready_, is_older);
}

bool is_only_reference(const Tensor& tensor) {
  const Storage& storage = *tensor.storage();
  return tensor.body()->use_count() == 1 && storage.use_count() == 1 && storage.is_own();
}

void add_gradient(Tensor& sum, Tensor gradient) {
  if (!sum) {
    sum = std::move(gradient);
  } else if (Context::current().grad_enabled) {
    sum = add(sum, gradient);
  } else if (is_only_reference(sum) && layout_of(sum) == layout_of(gradient) &&
             sum.block().is_dense() && sum.device().kind != DeviceKind::meta) {
    accumulate(sum.block(), gradient.block());
  } else {
    sum = add(sum, gradient);
  }
}

void BackwardRun::run_node(const Ref<Node>& node) {
  Slot slot = std::move(slots_[node.get()]);
  const SideWork::Turn turn(side_, *node, slot.awaited);
  slot.gradients.resize(std::max<size_t>(slot.gradients.size(), node->results().size()));
  for (auto& [result, gradient] : slot.later) {
    add_gradient(slot.gradients[static_cast<size_t>(result)], gradient);
    if (side_.are_apart()) side_.keep(std::move(gradient));
  }
  TrafficScope policy(node->traffic);
  RunScope scope(node->scope);
  const bool is_leaf = node->is_leaf;
  const SubjectScope subject(is_leaf ? slot.subject : node->subject, "a gradient in a module");
  bool any = false;
  for (size_t i = 0; i < slot.gradients.size(); ++i) {
    if (!slot.gradients[i]) continue;
    any = true;
    if (node->takes_any_layout()) continue;
    slot.gradients[i] = brought_to(slot.gradients[i], *node->results()[i], *node);
  }
  if (node->hooks && any) [[unlikely]]
    run_hooks(*node, slot.gradients);
  const bool runs = !ends_at(*node) && (!request_.is_selective || slot.needed);
  running_ = node.get();
  if (runs && ((any && !slot.delivered) || is_leaf)) node->run(*this, slot.gradients);
  mark_passed();
  side_.free(node, std::move(slot.gradients), request_.retain_graph || !runs);
  if (ends_at(*node)) return;
  for (const Node::Edge& edge : node->edges()) {
    if (edge.node) user_done(edge);
  }
}

void BackwardRun::pass(const Node::Edge& edge, Tensor gradient) {
  if (!edge.node || !gradient) return;
  if (gradient.body()->copied) gradient = apart(gradient);
  if (const FixedSums* sums = FixedSums::current()) [[unlikely]]
    gradient = sums->reduced(gradient);
  Node* node = receiver_of(edge.node.get());
  if (node->is_leaf && node->hooks) [[unlikely]] {
    if (BackwardRun* around = completing(*node)) return around->pass(edge, std::move(gradient));
  }
  if (!is_default_ && !capture(*node, edge.result, gradient)) return;
  if (node->is_leaf && static_cast<LeafNode*>(node)->sink && !request_.create_graph) {
    return pass_to_sink(static_cast<LeafNode&>(*node), gradient);
  }
  Slot& slot = slots_[node];
  if (slot.gradients.size() <= static_cast<size_t>(edge.result)) {
    slot.gradients.resize(static_cast<size_t>(edge.result) + 1);
  }
  if (side_.changes_stream(*node)) [[unlikely]] {
    slot.changes_stream = true;
    side_.part();
    passed_.push_back(&slot);
  }
  Tensor& sum = slot.gradients[static_cast<size_t>(edge.result)];
  if (sum && slot.changes_stream) [[unlikely]] {
    slot.later.emplace_back(edge.result, std::move(gradient));
  } else {
    add_gradient(sum, std::move(gradient));
  }
}

void BackwardRun::mark_passed() {
  // Only now, because a leaf that is complete may lose the memory of its value, which the node
  // reads.
  for (LeafNode* leaf : writes_) side_.end_write(*leaf);
  writes_.clear();
  if (passed_.empty()) return;
  const Event end = side_.mark();
  for (Slot* slot : passed_) slot->awaited.push_back(end);
  passed_.clear();
}

Place BackwardRun::place_for(const Node::Edge& edge) {
  if (!is_default_ || Engine::current().watch) return {};
  OpNode* view = nullptr;
  Node* node = receiver_of(edge.node.get());
  auto* leaf = node->is_leaf ? static_cast<LeafNode*>(node) : nullptr;
  if (!leaf) {
    view = dynamic_cast<OpNode*>(edge.node.get());
    // A view of some elements, or of some twice, cannot receive the whole gradient.
    bool direct =
        view && view->op->spec.view && view->edges().size() == 1 && !view->route->moves &&
        !view->hooks && slots_[view].waiting == 1 && slots_[view].gradients.empty() &&
        view->route->result(0).shape.product() == view->route->operand(0).used->shape.product();
    if (direct) leaf = dynamic_cast<LeafNode*>(receiver_of(view->edges()[0].node.get()));
  }
  if (!leaf || !leaf->sink) return {};
  auto [tensor, accumulate] = leaf->sink->destination();
  side_.begin_write(*leaf);
  writes_.push_back(leaf);
  if (!view) return {tensor, accumulate};
  Tensor seen = Op(view->op)(std::span<const Tensor>(&tensor, 1), view->attributes);
  slots_[view].delivered = true;
  return {seen, accumulate};
}

namespace {

/// The running backwards of a rank, outermost first, with their streams, and functions to run when
/// that one has ended.
struct BackwardStack {
  std::vector<BackwardRun*> runs;
  std::optional<SideWork> side;
  std::vector<std::function<void(bool)>> afterwards;
};

}  // namespace

static BackwardStack& backward_stack() {
  WEFT_STATIC_TLS static thread_local const auto stack = std::make_unique<BackwardStack>();
  return *stack;
}

bool BackwardRun::expects(const Node& node) const {
  const auto found = slots_.find(&node);
  return found != slots_.end() && found->second.waiting > 0;
}

BackwardRun* BackwardRun::completing(const Node& leaf) const {
  if (request_.is_selective && !request_.outer) return nullptr;
  const auto& runs = backward_stack().runs;
  // Runs within this one come after it; they may expect the leaf too.
  const auto own = std::ranges::find(runs, this);
  const auto found =
      std::find_if(runs.begin(), own, [&](const BackwardRun* run) { return run->expects(leaf); });
  return found == own ? nullptr : *found;
}

/// True when an outer backward expects more gradients for the leaf, and will complete it.
static bool expects_more(const LeafNode& leaf) {
  const auto& runs = backward_stack().runs;
  return std::ranges::any_of(runs, [&](const BackwardRun* run) { return run->expects(leaf); });
}

void LeafNode::run(BackwardRun& backward, std::span<const Tensor> gradients) {
  if (!backward.accumulates(*this)) return;
  add(gradients);
  // A run around this one may have got the gradient.
  if (!hooks || hooks->after.empty() || gradients.empty() || !gradients[0]) return;
  const Tensor leaf = relabeled(hooks->leaf, layout);
  leaf.body()->node = Ref<Node>(this);
  const auto all = hooks->after;  // a hook may add or remove hooks
  for (const NodeHooks::AfterEntry& entry : all) entry.run(leaf);
}

void LeafNode::add(std::span<const Tensor> gradients) {
  const bool records = backward_creates_graph();
  if (sink && !records) {
    if (!expects_more(*this)) sink->complete();
    return;
  }
  if (gradients.empty() || !gradients[0]) return;
  if (sink) return sink->receive(gradients[0]);
  Tensor before;  // destroyed after the lock: destruction may wait for a thread that waits for it
  const std::lock_guard lock(mutex_);
  if (gradient_) {
    before = std::exchange(gradient_, weft::add(gradient_, gradients[0]));
    return;
  }
  if (gradients[0].body()->node) {  // backward records
    gradient_ = is_only_reference(gradients[0]) ? gradients[0] : clone(gradients[0]);
    return;
  }
  // Elements with other references may change; a leaf's gradient needs separate memory.
  if (is_only_reference(gradients[0]) && gradients[0].block().is_dense()) {
    gradient_ = gradients[0];
    return;
  }
  gradient_ = new_tensor(layout_of(gradients[0]), gradients[0].device());
  if (gradient_.device().kind != DeviceKind::meta) copy(gradient_.block(), gradients[0].block());
}

Tensor LeafNode::current_gradient() const {
  const std::lock_guard lock(mutex_);
  return gradient_;
}

void LeafNode::set_gradient(Tensor value) {
  const std::lock_guard lock(mutex_);
  std::swap(gradient_, value);
}

BackwardRun* backward_under_way() {
  return backward_stack().runs.empty() ? nullptr : backward_stack().runs.back();
}

bool backward_fills_sinks() {
  const BackwardRun* run = backward_under_way();
  while (run && run->request().outer) run = run->request().outer;
  if (!run) return true;
  return !run->creates_graph() && (!run->is_selective() || !run->request().leaves.empty());
}

bool is_nested_backward() { return backward_stack().runs.size() > 1; }

bool is_in_backward() { return !backward_stack().runs.empty(); }

void after_backward(std::function<void(bool)> function) {
  BackwardStack& stack = backward_stack();
  if (stack.runs.empty()) return function(false);
  stack.afterwards.push_back(std::move(function));
}

Stream backward_stream(Device device) {
  const std::optional<SideWork>& side = backward_stack().side;
  return side ? side->home(device) : current_stream(device);
}

/// Runs all functions that wait for the end of the outermost backward, and returns what the first
/// of them threw: a hook of the user may.
static std::exception_ptr end_backward(bool failed) {
  BackwardStack& stack = backward_stack();
  stack.runs.pop_back();
  if (!stack.runs.empty()) return nullptr;
  stack.side.reset();
  std::exception_ptr thrown;
  for (auto& function : std::exchange(stack.afterwards, {})) {
    try {
      function(failed);
    } catch (...) {
      if (!thrown) thrown = std::current_exception();
    }
  }
  return thrown;
}

Tensors run_backward(const Tensors& roots, const Tensors& gradients,
                     const BackwardRequest& request) {
  BackwardStack& stack = backward_stack();
  if (stack.runs.empty()) stack.side.emplace();
  BackwardRun run(*stack.side, request);
  stack.runs.push_back(&run);
  Tensors captured;
  try {
    run.run(roots, gradients);
    captured = run.captured();
    if (stack.runs.size() == 1) stack.side->finish();
  } catch (...) {
    end_backward(true);
    throw;
  }
  if (const std::exception_ptr thrown = end_backward(false)) std::rethrow_exception(thrown);
  return captured;
}

}  // namespace weft
