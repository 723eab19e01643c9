// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/op.h"

#include <utility>

#include "ops/engine/backward_run.h"
#include "ops/engine/call_watch.h"
#include "ops/engine/deferred.h"
#include "ops/engine/definition.h"
#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/extend/views.h"
#include "weft/ops/reductions.h"

namespace weft {

/// Parses a stage's result: "-n" is operand 0 without factor n.
static RuleArray stage_array(const OpSpec& spec, ParsedRule& rule, const std::string& text) {
  if (!text.starts_with('-')) {
    try {
      return parse_array(rule, text);
    } catch (const char* mistake) {
      fail(spec.name, ": result of a stage is \"", text, "\", expected an array: ", mistake);
    }
  }
  const int left_out = rule.find(text.substr(1));
  RuleArray array = rule.operands[0];
  std::erase_if(array, [&](const RuleDim& dim) {
    return dim.factors.size() == 1 && dim.factors[0] == left_out;
  });
  return array;
}

static ParsedRule rule_with_stages(const OpSpec& spec, std::string_view text) {
  ParsedRule rule = parse_rule(spec.name, text);
  for (const Stage& stage : spec.stages) {
    rule.stages.push_back(stage_array(spec, rule, stage.result));
  }
  for (const std::string& name : spec.staged_over) {
    rule.staged.push_back(rule.find(name));
    if (rule.staged.back() >= 0) continue;
    fail(spec.name, ": stages reduce over ", name, ", expected a factor of the rule");
  }
  return rule;
}

ParsedRule rule_for(const OpBody& op, const Attributes& attributes, std::span<const Shape> shapes) {
  if (op.fixed_rule) return *op.fixed_rule;
  Rule rule = op.spec.rule_of(attributes, shapes);
  ParsedRule parsed = rule_with_stages(op.spec, rule.text);
  parsed.sizes = std::move(rule.sizes);
  if (rule.joined.first.empty()) return parsed;
  parsed.joined = {parsed.find(rule.joined.first), parsed.find(rule.joined.second)};
  if (parsed.joined.first < 0 || parsed.joined.second < 0) {
    fail(op.spec.name, ": joined factors are ", rule.joined.first, " and ", rule.joined.second,
         ", expected two of the rule \"", rule.text, '"');
  }
  return parsed;
}

static uint32_t mask_of(const std::vector<int>& numbers) {
  uint32_t mask = 0;
  for (int number : numbers) mask |= 1u << number;
  return mask;
}

static void check_numbers(const OpSpec& spec, const char* what, const std::vector<int>& numbers,
                          int count) {
  for (int number : numbers) {
    if (number >= 0 && number < count) continue;
    fail(spec.name, ": ", what, " is ", number, ", expected one below ", count);
  }
}

/// Checks the operand and result numbers. `rule` is null when it depends on attributes.
static void check_all_numbers(const OpSpec& spec, const ParsedRule* rule) {
  int operands = rule ? static_cast<int>(rule->operands.size()) : kMaxOperands;
  int results = rule ? static_cast<int>(rule->results.size()) : kMaxResults;
  for (const auto& set : spec.linear) check_numbers(spec, "linear", set, operands);
  check_numbers(spec, "writes", spec.writes, operands);
  if (spec.by_index) {
    const ByIndex& given = *spec.by_index;
    check_numbers(spec, "by_index", {given.rows, given.indices, std::max(given.into, 0)}, operands);
  }
  check_numbers(spec, "saves_in", spec.saves_in.value_or(std::vector<int>{}), operands);
  check_numbers(spec, "saves_out", spec.saves_out, results);
  check_numbers(spec, "accumulates", spec.accumulates, results);
}

static void check_spec(const OpSpec& spec) {
  int rules = !spec.rule.text().empty() + !spec.rule_text.empty() + (spec.rule_of != nullptr);
  if (spec.name.empty()) fail("op: name is empty, expected one");
  if (rules != 1)
    fail(spec.name, ": number of rules is ", rules,
         ", expected one of rule, rule_of and rule_text");
  if (!spec.forward && !spec.view)
    fail(spec.name, ": forward and view are missing, expected one of them");
  if ((spec.stages.empty() && !spec.across) != spec.staged_over.empty()) {
    fail(spec.name, ": staged_over names ", spec.staged_over.size(),
         " factors, expected some with stages or across, none without");
  }
  if (spec.stages.size() > kMaxResults) {
    fail(spec.name, ": number of stages is ", spec.stages.size(), ", expected at most ",
         kMaxResults);
  }
}

/// The operands that backward reads. The gradients of linear operands do not depend on one that is
/// in every linear set; a custom op saves it too.
static uint32_t saved_operands(const OpSpec& spec, bool built_in) {
  if (spec.definition && !spec.backward) return ~0u;
  if (spec.saves_in) return mask_of(*spec.saves_in);
  if (!spec.backward) return 0;
  uint32_t linear = built_in && !spec.linear.empty() ? ~0u : 0u;
  for (const auto& set : spec.linear) linear &= mask_of(set);
  return ~linear;
}

static std::shared_ptr<const OpBody> made_body(OpSpec spec, bool built_in) {
  static std::atomic<uint32_t> next_id{1};
  check_spec(spec);
  auto body = std::make_shared<OpBody>();
  std::string text = spec.rule_text.empty() ? std::string(spec.rule.text()) : spec.rule_text;
  if (!spec.rule_of) body->fixed_rule = rule_with_stages(spec, text);
  check_all_numbers(spec, body->fixed_rule ? &*body->fixed_rule : nullptr);
  body->saved_in = saved_operands(spec, built_in);
  body->saved_out = mask_of(spec.saves_out);
  if (built_in && !spec.positions) spec.positions.emplace();
  if (spec.takes.empty()) spec.takes = {built_in ? anything() : Takes{}};
  body->dense_in = 0;
  for (size_t i = 0; i < kMaxOperands; ++i) {
    if (!taken(spec, i).strides) body->dense_in |= 1u << i;
  }
  body->spec = std::move(spec);
  body->id = next_id.fetch_add(1);
  return body;
}

Op::Op(OpSpec spec) : Op(made_body(std::move(spec), false)) {}

const OpSpec& Op::spec() const { return body_->spec; }

Tensors Op::call(std::span<const Tensor> operands, const Attributes& attributes) const {
  const Results results = dispatch(body_, operands, attributes);
  return {results.all().begin(), results.all().end()};
}

Tensor Op::operator()(std::span<const Tensor> operands, const Attributes& attributes) const {
  return std::move(dispatch(body_, operands, attributes).tensors[0]);
}

void Op::into(const Tensor& destination, bool accumulate, std::span<const Tensor> operands,
              const Attributes& attributes) const {
  Place place{destination, accumulate};
  dispatch_into(body_, operands, attributes, std::span(&place, 1));
}

static std::vector<Op>& built_in_ops() {
  static std::vector<Op> ops;
  return ops;
}

Op register_op(OpSpec spec) {
  return built_in_ops().emplace_back(made_body(std::move(spec), true));
}

const std::vector<Op>& all_ops() { return built_in_ops(); }

Device device_of(const OpBody& op, std::span<const Tensor> operands) {
  Device device = operands.empty() ? cpu : operands[0].device();
  for (size_t i = 1; i < operands.size(); ++i) {
    if (operands[i].device() == device) continue;
    const bool lacks_memory =
        (device.kind == DeviceKind::meta) != (operands[i].device().kind == DeviceKind::meta);
    fail(op.spec.name, ": operand ", i, " is on ", operands[i].device(), ", expected ", device,
         ", as operand 0",
         lacks_memory ? "; a parameter has no memory before materialize() or a call of its module"
                      : "");
  }
  return device;
}

int Call::operands() const { return body_.ins.size(); }
const MemoryBlock& Call::in(int i) const { return body_.ins[i]; }
const MemoryBlock& Call::out(int i) const {
  return i < body_.outs.size() ? body_.outs[i] : body_.ins[i];
}
const MemoryBlock& Call::stage(int i) const { return body_.stages[i]; }
const Box& Call::stage_box(int i) const {
  return body_.route.stages[static_cast<size_t>(i)].partial->box;
}

const Shape& Call::in_shape(int i) const { return body_.route.operand(i).used->shape; }
const Shape& Call::out_shape(int i) const { return body_.route.result(i).shape; }
const Box& Call::in_box(int i) const { return body_.route.operand(i).box; }
const Box& Call::out_box(int i) const { return body_.route.result(i).box; }

static Region region_of(const Ref<Layout>& layout, const MemoryBlock& block, const Box& box) {
  if (!layout->sharding.has_inner()) return {block, box, layout->shape};
  const Ref<Layout> factors = in_factors(layout);
  return {divided(block, factors->box.shape), factors->box, factors->shape};
}
Region Call::in_region(int i) const {
  return region_of(body_.route.operand(i).used, in(i), in_box(i));
}
Region Call::out_region(int i) const {
  const auto& results = body_.route.results;
  return results.empty() ? in_region(i)
                         : region_of(results[static_cast<size_t>(i)], out(i), out_box(i));
}

const Attributes& Call::attributes() const { return body_.attributes; }
bool Call::accumulate(int i) const { return body_.accumulate[static_cast<size_t>(i)]; }
bool Call::counts_here() const { return body_.route.counts_here; }
bool Call::staged() const { return body_.route.staged; }

WEFT_STATIC_TLS static constinit thread_local uint64_t last_sequence = 0;

uint64_t next_sequence() { return ++last_sequence; }

/// Returns the same elements without a node: a saved result must not keep its own node alive.
static OpNode::Saved saved_result(const Tensor& tensor) {
  Tensor same = relabeled(tensor, layout_of(tensor));
  same.body()->copied = {};
  return {std::move(same), tensor.storage()->version()};
}

void record_op(const std::shared_ptr<const OpBody>& op, Ref<Route> route,
               const Attributes& attributes, std::span<const Tensor> operands,
               const UsedOperands& used, Results& results) {
  bool wanted = false;
  for (const Tensor& operand : operands) {
    check_current(operand);
    wanted = wanted || operand.body()->node;
  }
  if (!wanted) return;
  auto* node = new OpNode(op, std::move(route), attributes);
  node->is_view = op->spec.view && is_view_of(results.tensors[0], operands[0]);
  Ref<Node> shared(node);
  const CallWatch* watch = Engine::current().watch;
  const uint32_t wanted_in = watch && watch->reads_operands() ? ~0u : op->saved_in;
  const uint32_t saved_in = wanted_in & ((1u << operands.size()) - 1);
  for (size_t i = 0; i < operands.size(); ++i) {
    node->from.add_made([&] { return edge_of(operands[i]); });
    if (!saved_in) continue;
    const bool fetched = node->route->operands[i].fetched;
    const Tensor& kept = fetched ? operands[i] : *used[static_cast<int>(i)];
    const bool saves = saved_in >> i & 1;
    node->in.add(saves ? OpNode::Saved{apart(kept), kept.storage()->version()} : OpNode::Saved());
  }
  for (int i = 0; i < results.count; ++i) {
    Tensor& result = results.tensors[static_cast<size_t>(i)];
    const bool saves = op->saved_out >> i & 1;
    if (op->saved_out) node->out.add(saves ? saved_result(result) : OpNode::Saved());
    const bool last = i + 1 == results.count;
    // Indices, as those of a maximum, have no gradient.
    if (is_integer(result.dtype())) continue;
    result.body()->node = last ? std::move(shared) : shared;
    result.body()->result = i;
  }
}

void OpNode::run(BackwardRun& backward, std::span<const Tensor> gradients) {
  if (!op->spec.backward && !op->spec.definition) {
    fail(op->spec.name, ": it has no backward, expected one where a gradient is wanted; ",
         "differentiable = false stops gradients, and a definition states them");
  }
  if (released) {
    fail(op->spec.name, ": backward ran before and freed the saved tensors, expected one backward",
         "; retain_graph keeps them");
  }
  GradBody body{*this, backward, gradients};
  const Grad grad(body);
  CallWatch* watch = Engine::current().watch;
  Tensors passed(watch ? static_cast<size_t>(from.size()) : 0);
  if (watch) body.passed = &passed;
  op->spec.backward ? op->spec.backward(grad) : give_by_definition(grad, op->spec.definition);
  if (watch) watch->differentiated(*this, gradients, passed);
}

void OpNode::release() {
  in.clear();
  out.clear();
  released = true;
}

bool OpNode::release_own(Tensors& shared) {
  for (const auto saved : {in.all(), out.all()}) {
    for (const Saved& one : saved) {
      if (one.tensor && !is_only_reference(one.tensor)) shared.push_back(one.tensor);
    }
  }
  release();
  return true;
}

Tensor OpNode::saved(std::span<const Saved> list, int i, const char* kind) const {
  const auto at = static_cast<size_t>(i);
  if (at >= list.size() || !list[at].tensor) {
    fail(op->spec.name, ": gradient reads ", kind, " ", i, ", expected one that the op saves");
  }
  const Saved& saved = list[at];
  if (!saved.tensor.storage()->is_bound()) [[unlikely]]
    Engine::current().gather(*saved.tensor.storage());
  if (saved.tensor.storage()->version() != saved.version) {
    fail(op->spec.name, ": ", kind, " ", i, " ", saved.tensor.shape(),
         " was changed in place after forward, expected its values for the gradient");
  }
  return saved.tensor;
}

int Grad::operands() const { return body_.node.from.size(); }
int Grad::results() const { return static_cast<int>(body_.gradients.size()); }
const Tensor& Grad::grad(int i) const { return body_.gradients[static_cast<size_t>(i)]; }
Tensor Grad::in(int i) const {
  Tensor saved = body_.node.saved(body_.node.in.all(), i, "operand");
  if (!body_.backward.creates_graph()) return saved;
  return connected(saved, body_.node.from[i], body_.node.route->operand(i).given);
}
Tensor Grad::out(int i) const {
  Tensor saved = body_.node.saved(body_.node.out.all(), i, "result");
  if (!body_.backward.creates_graph()) return saved;
  return connected(saved, {Ref<Node>(&body_.node), i},
                   body_.node.route->results[static_cast<size_t>(i)]);
}
const Shape& Grad::in_shape(int i) const { return body_.node.route->operand(i).given->shape; }
Sharding Grad::in_sharding(int i) const { return body_.node.route->operand(i).given->sharding; }
DType Grad::in_dtype(int i) const { return body_.node.route->operand(i).given->dtype; }
const Attributes& Grad::attributes() const { return body_.node.attributes; }
bool Grad::wants(int i) const { return body_.backward.wants(body_.node.from[i]); }

Tensor summed_to(const Tensor& gradient, const Shape& shape) {
  if (gradient.shape() == shape) return gradient;
  int added = gradient.ndim() - shape.ndim();
  std::vector<int> dims;
  for (int d = 0; d < gradient.ndim(); ++d) {
    bool stretched = d < added || (shape[d - added] == 1 && gradient.size(d) != 1);
    if (stretched) dims.push_back(d);
  }
  return sum(gradient, dims, false).reshape(shape);
}

void Grad::give(int i, const Tensor& gradient) const {
  if (!wants(i)) return;
  Tensor passed = summed_to(gradient, in_shape(i));
  if (body_.passed) (*body_.passed)[static_cast<size_t>(i)] = passed;
  body_.backward.pass(body_.node.from[i], std::move(passed));
}

void Grad::give_all(std::span<const int> of, const Op& op, std::span<const Tensor> operands,
                    const Attributes& attributes) const {
  if (body_.backward.creates_graph() || body_.passed) {
    const Tensors gradients = op.call(operands, attributes);
    for (size_t r = 0; r < of.size(); ++r) give(of[r], gradients[r]);
    return;
  }
  const auto edge = [&](size_t r) -> const Node::Edge& { return body_.node.from[of[r]]; };
  if (is_deferring()) [[unlikely]] {
    DeferredProduct product{.op = op, .attributes = attributes};
    for (size_t r = 0; r < of.size(); ++r) {
      product.edges.push_back(edge(r));
      product.shapes.push_back(in_shape(of[r]));
    }
    product.operands.assign(operands.begin(), operands.end());
    if (defer(body_.backward, body_.node, std::move(product))) return;
  }
  pass_results(body_.backward, of.size(), op, operands, attributes, edge,
               [&](size_t r, const Tensor& gradient) { give(of[r], gradient); });
}

}  // namespace weft
