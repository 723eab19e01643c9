// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/op.h"

#include <atomic>

#include "ops/engine/binding.h"
#include "ops/engine/dispatch.h"
#include "weft/error.h"

namespace weft {

/// Parses a stage's result: "-n" is operand 0 without factor n.
static RuleArray stage_array(ParsedRule& rule, const std::string& text) {
  if (!text.starts_with('-')) return parse_array(rule, text);
  const int left_out = rule.find(text.substr(1));
  RuleArray array = rule.operands[0];
  std::erase_if(array, [&](const RuleDim& dim) {
    return dim.factors.size() == 1 && dim.factors[0] == left_out;
  });
  return array;
}

static ReadyRule ready_rule(const OpSpec& spec, std::string_view text,
                            std::vector<std::pair<std::string, int64_t>> sizes) {
  ReadyRule ready{parse_rule(spec.name, text), std::move(sizes), {}, {}, {-1, -1}};
  for (const Stage& stage : spec.stages)
    ready.stages.push_back(stage_array(ready.rule, stage.result));
  for (const std::string& name : spec.staged_over) {
    int factor = ready.rule.find(name);
    if (factor < 0)
      fail(spec.name, ": stages reduce over ", name, ", expected a factor of the rule");
    ready.staged.push_back(factor);
  }
  return ready;
}

ReadyRule rule_for(const OpBody& op, const Attributes& attributes, std::span<const Shape> shapes) {
  if (op.fixed_rule) return *op.fixed_rule;
  Rule rule = op.spec.rule_of(attributes, shapes);
  ReadyRule ready = ready_rule(op.spec, rule.text, std::move(rule.sizes));
  if (rule.joined.first.empty()) return ready;
  ready.joined = {ready.rule.find(rule.joined.first), ready.rule.find(rule.joined.second)};
  if (ready.joined.first < 0 || ready.joined.second < 0) {
    fail(op.spec.name, ": joined factors are ", rule.joined.first, " and ", rule.joined.second,
         ", expected two of the rule \"", rule.text, '"');
  }
  return ready;
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
static void check_all_numbers(const OpSpec& spec, const ReadyRule* rule) {
  int operands = rule ? static_cast<int>(rule->rule.operands.size()) : kMaxOperands;
  int results = rule ? static_cast<int>(rule->rule.results.size()) : kMaxResults;
  for (const auto& set : spec.linear) check_numbers(spec, "linear", set, operands);
  check_numbers(spec, "writes", spec.writes, operands);
  if (spec.by_index) {
    check_numbers(spec, "by_index", {spec.by_index->rows, spec.by_index->indices}, operands);
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

/// `saved`: the operands that backward reads unless the spec states them.
static std::shared_ptr<const OpBody> made_body(OpSpec spec, uint32_t saved) {
  static std::atomic<uint32_t> next_id{1};
  check_spec(spec);
  auto body = std::make_shared<OpBody>();
  std::string text = spec.rule_text.empty() ? std::string(spec.rule.text()) : spec.rule_text;
  if (!spec.rule_of) body->fixed_rule = ready_rule(spec, text, {});
  check_all_numbers(spec, body->fixed_rule ? &*body->fixed_rule : nullptr);
  body->saved_in = spec.saves_in ? mask_of(*spec.saves_in) : (spec.backward ? saved : 0u);
  body->saved_out = mask_of(spec.saves_out);
  if (spec.takes.empty()) spec.takes = {Takes{}};
  body->dense_in = 0;
  for (size_t i = 0; i < kMaxOperands; ++i) {
    if (!taken(spec, i).strides) body->dense_in |= 1u << i;
  }
  body->spec = std::move(spec);
  body->id = next_id.fetch_add(1);
  return body;
}

Op::Op(OpSpec spec) : Op(made_body(std::move(spec), ~0u)) {}

const OpSpec& Op::spec() const { return body_->spec; }

Tensors Op::call(std::span<const Tensor> operands, const Attributes& attributes) const {
  Results results = dispatch(body_, operands, attributes);
  return Tensors(results.tensors.begin(), results.tensors.begin() + results.count);
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
  if (spec.takes.empty()) spec.takes = {anything()};
  // Gradients of linear operands do not depend on one that is in every linear set.
  uint32_t linear = spec.linear.empty() ? 0u : ~0u;
  for (const auto& set : spec.linear) linear &= mask_of(set);
  return built_in_ops().emplace_back(made_body(std::move(spec), ~linear));
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

const Attributes& Call::attributes() const { return body_.attributes; }
bool Call::accumulate(int i) const { return body_.accumulate[static_cast<size_t>(i)]; }
bool Call::counts_here() const { return body_.route.counts_here; }
bool Call::staged() const { return body_.route.staged; }

}  // namespace weft
