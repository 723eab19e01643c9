// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "data/template/run.h"

namespace weft::jinja {

void Scope::set(const std::string& name, Value value) {
  const auto found = std::ranges::find(variables, name, [](const auto& row) { return row.first; });
  if (found == variables.end()) {
    variables.emplace_back(name, std::move(value));
  } else {
    found->second = std::move(value);
  }
}

Run::Run(Named variables, Clock clock) : clock_(std::move(clock)) {
  scope_->variables = std::move(variables);
  scope_ = std::make_shared<Scope>(Scope{{}, scope_});
}

Run::~Run() {
  // Namespaces, and macros and the variables around them, may hold each other.
  for (const auto& scope : scopes_) scope->variables.clear();
  for (const Value& value : namespaces_) value.to<Dict>()->items.clear();
}

Value Run::keep(Value made_namespace) {
  namespaces_.push_back(made_namespace);
  return made_namespace;
}

std::string Run::render(const Body& body) {
  execute(body);
  return std::move(out_);
}

void Run::write(const std::string& text) {
  spend_text(text.size());
  out_ += text;
}

Run::Flow Run::execute(const Body& body) {
  const Deeper deeper(*this);
  Flow flow = Flow::on;
  for (const Statement& statement : body) {
    if ((flow = execute(statement)) != Flow::on) break;
  }
  return flow;
}

/// A body with its variables.
Run::Flow Run::execute_inner(const Body& body) {
  const auto around = scope_;
  scope_ = std::make_shared<Scope>(Scope{{}, around});
  const Flow flow = execute(body);
  scope_ = around;
  return flow;
}

std::string Run::captured(const Body& body, Flow& flow) {
  std::string around = std::exchange(out_, {});
  ++captures_;
  flow = execute_inner(body);
  --captures_;
  return std::exchange(out_, std::move(around));
}

Run::Flow Run::execute_generation(const Body& body) {
  const size_t begin = out_.size();
  const Flow flow = execute_inner(body);
  // The place of a captured text is not known.
  if (captures_ == 0) generated_.emplace_back(begin, out_.size());
  return flow;
}

Run::Flow Run::execute(const Statement& statement) {
  using Kind = Statement::Kind;
  line_ = statement.line;
  spend(1);
  Flow flow = Flow::on;
  switch (statement.kind) {
    case Kind::data: write(statement.text); break;
    case Kind::output:
      for (const auto& value : statement.values) write(printed(evaluate(*value)));
      break;
    case Kind::choice:
      if (is_true(evaluate(*statement.condition))) return execute(*statement.body);
      if (statement.otherwise) return execute(*statement.otherwise);
      break;
    case Kind::loop: return execute_loop(statement);
    case Kind::set: assign(*statement.targets[0], evaluate(*statement.values[0])); break;
    case Kind::set_block:
    case Kind::filter: {
      Value text = captured(*statement.body, flow);
      if (statement.condition) text = filtered(*statement.condition, text);
      statement.kind == Kind::filter ? write(printed(text)) : assign(*statement.targets[0], text);
      break;
    }
    case Kind::macro: scope_->set(statement.text, macro_of(statement, statement.text)); break;
    case Kind::call: {
      const Value caller = macro_of(statement, "caller");
      write(printed(called(*statement.values[0], &caller)));
      break;
    }
    case Kind::with: return execute_with(statement);
    case Kind::generation: return execute_generation(*statement.body);
    case Kind::stop: return Flow::stop;
    case Kind::next: return Flow::next;
  }
  return flow;
}

Run::Flow Run::execute_with(const Statement& statement) {
  const auto around = scope_;
  const auto inner = std::make_shared<Scope>(Scope{{}, around});
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    const Value value = evaluate(*statement.values[i]);
    scope_ = inner;
    assign(*statement.targets[i], value);
    scope_ = around;
  }
  scope_ = inner;
  const Flow flow = execute(*statement.body);
  scope_ = around;
  return flow;
}

void Run::assign(const Expression& target, const Value& value) {
  using Kind = Expression::Kind;
  if (target.kind == Kind::name) return scope_->set(target.text, value);
  if (target.kind == Kind::attribute) {
    const Value held = variable(target.parts[0]->text);
    Dict* dict = held.to<Dict>();
    if (!dict || !dict->is_namespace) refuse("the tag set", held, "a namespace");
    if (target.text.starts_with('_')) {
      refuse(
          weft::concat("a namespace has the name ", target.text, ", expected none with _ first"));
    }
    return dict->set(target.text, value);
  }
  const Values items = elements(value, "an assignment to several names");
  if (items.size() != target.parts.size()) {
    refuse(weft::concat("an assignment has ", items.size(), " values, expected ",
                        target.parts.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i]);
}

Run::Flow Run::execute_loop(const Statement& statement) {
  const auto around = scope_;
  auto loop = std::make_shared<Loop>();
  loop->items = elements(evaluate(*statement.values[0]), "the tag for");
  const auto enter = [&](const Value& item) {
    spend(8);
    scope_ = std::make_shared<Scope>(Scope{{}, around});
    assign(*statement.targets[0], item);
  };
  if (statement.condition) {
    Values chosen;
    for (const Value& item : loop->items) {
      enter(item);
      if (is_true(evaluate(*statement.condition))) chosen.push_back(item);
    }
    loop->items = std::move(chosen);
  }
  Flow flow = Flow::on;
  for (loop->at = 0; loop->at < loop->items.size() && flow != Flow::stop; ++loop->at) {
    enter(loop->items[loop->at]);
    scope_->set("loop", loop);
    flow = execute(*statement.body);
  }
  scope_ = around;
  if (loop->items.empty() && statement.otherwise) return execute_inner(*statement.otherwise);
  return Flow::on;
}

Value Run::macro_of(const Statement& statement, const std::string& name) {
  if (scopes_.empty() || scopes_.back() != scope_) scopes_.push_back(scope_);
  spend(8);
  return make_function(name, [&statement, around = scope_](Call& call) {
    return call.run.run_macro(statement, around, call);
  });
}

Value Run::run_macro(const Statement& statement, const std::shared_ptr<Scope>& around, Call& call) {
  const Signature& signature = *statement.signature;
  const auto from = std::exchange(scope_, std::make_shared<Scope>(Scope{{}, around}));
  const size_t takes = signature.names.size(), has = call.plain.size();
  if (has > takes && !signature.takes_rest) {
    refuse(weft::concat(call.name, " has ", has, " arguments, expected at most ", takes));
  }
  Value caller = Undefined{std::make_shared<const std::string>("caller")};
  std::vector<std::pair<Value, Value>> rest;
  std::vector<std::optional<Value>> given(
      call.plain.begin(), call.plain.begin() + static_cast<std::ptrdiff_t>(std::min(has, takes)));
  given.resize(takes);
  for (const auto& [key, value] : call.named) {
    const auto at =
        static_cast<size_t>(std::ranges::find(signature.names, key) - signature.names.begin());
    const bool is_caller = at == takes && key == "caller" && signature.takes_caller;
    if (at < takes && !given[at]) {
      given[at] = value;
    } else if (is_caller) {
      caller = value;
    } else if (at == takes && signature.takes_named) {
      rest.emplace_back(key, value);
    } else {
      refuse(weft::concat(call.name, " has the argument ", in_quotes(key), ", expected one of ",
                          listed(signature.names), ", each once"));
    }
  }
  if (signature.takes_caller) scope_->set("caller", caller);
  for (size_t i = 0; i < takes; ++i) {
    const Value missing =
        Undefined{std::make_shared<const std::string>(in_quotes(signature.names[i]))};
    scope_->set(signature.names[i], given[i]                ? *given[i]
                                    : signature.defaults[i] ? evaluate(*signature.defaults[i])
                                                            : missing);
  }
  if (signature.takes_named) scope_->set("kwargs", make_dict(std::move(rest)));
  if (signature.takes_rest) {
    const size_t first = std::min(has, takes);
    Values items(call.plain.begin() + static_cast<std::ptrdiff_t>(first), call.plain.end());
    scope_->set("varargs", make_list(std::move(items), List::Kind::tuple));
  }
  const std::string around_text = std::exchange(out_, {});
  execute(*statement.body);
  scope_ = from;
  return std::exchange(out_, around_text);
}

}  // namespace weft::jinja
