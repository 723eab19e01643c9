// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/in_place.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "ops/complex.h"
#include "ops/engine/copied_view.h"
#include "ops/engine/engine.h"
#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "src/kernels/copy/copy.h"
#include "weft/extend/views.h"
#include "weft/ops/shapes.h"

namespace weft {

namespace {

enum class Values { any, floating };

/// The ops that have no kernel for complex numbers, but a function that keeps their dtype.
const std::set<std::string_view> kOfComplex = {"exp",  "log",  "neg",    "rsqrt", "sigmoid",
                                               "sign", "sqrt", "square", "tanh"};

/// A function of the family: an element-by-element op, and the same op writing over operand 0.
class InPlace {
 public:
  /// `values` are floating where the op has no integer results.
  explicit InPlace(const char* op, Values values = Values::any)
      : apart_(named(op)), over_(writing_over(apart_.spec())), values_(values) {}

  const Tensor& operator()(const Tensor& a) const;
  const Tensor& operator()(const Tensor& a, const Operand& b) const;
  /// The same by a function that makes new memory, for a complex tensor.
  const Tensor& of_complex(const Tensor& a, const std::function<Tensor(const Tensor&)>& function,
                           bool also_recorded = false) const;
  /// Throws what operator() would throw for the operands.
  void check_operands(const Tensor& a, const Operand& b) const;

 private:
  static Op named(const std::string& name) {
    const auto& ops = all_ops();
    return *std::find_if(ops.begin(), ops.end(),
                         [&](const Op& op) { return op.spec().name == name; });
  }
  static Op writing_over(const OpSpec& from);
  const char* name() const { return over_.spec().name.c_str(); }
  void check_dtype(DType to, DType result) const;
  const Tensor& run(const Tensor& a, const Tensors& operands) const;
  void record(const Tensor& a, Tensors operands) const;

  Op apart_, over_;
  Values values_;
};

}  // namespace

Op InPlace::writing_over(const OpSpec& from) {
  OpSpec spec;
  spec.name = from.name + "_";
  const std::string rule(from.rule.text());
  spec.rule_text = rule.substr(0, rule.find("->") + 2);
  for (const auto& set : from.linear) {
    if (std::find(set.begin(), set.end(), 0) != set.end()) spec.linear.push_back(set);
  }
  spec.takes = from.takes;
  spec.complex = from.complex;
  spec.positions = from.positions;
  spec.forward = from.forward;
  spec.writes = {0};
  spec.differentiable = false;
  return Op(std::move(spec));
}

/// 0 for bool, 1 for integers, 2 for floating, 3 for complex: a tensor takes results of its kind
/// and lower ones.
static int kind_of(DType dtype) {
  if (is_complex(dtype)) return 3;
  return is_floating(dtype) ? 2 : dtype != DType::boolean;
}

void InPlace::check_dtype(DType to, DType result) const {
  if (values_ == Values::floating && !is_floating(result)) result = DType::f32;
  if (kind_of(result) <= kind_of(to)) return;
  fail(name(), ": the result is ", result, ", expected one that the tensor of ", to,
       " takes; cast an operand, or make a new tensor");
}

/// The dtype of the tensor that holds a number next to a tensor of dtype `a`.
static DType number_dtype(DType a, const Number& b) {
  if (is_complex(a) || b.kind == Number::Kind::complex) return complex_dtype(a);
  if (is_floating(a)) return a == DType::f64 ? DType::f64 : DType::f32;
  return b.kind == Number::Kind::logical ? DType::boolean : promote(a, b);
}

const Tensor& InPlace::operator()(const Tensor& a) const {
  check_tensor(name(), a);
  check_dtype(a.dtype(), a.dtype());
  if (!is_complex(a) || kOfComplex.count(apart_.spec().name) == 0) return run(a, {a});
  return of_complex(a, [&](const Tensor& x) { return complex_function(apart_, x); });
}

void InPlace::check_operands(const Tensor& a, const Operand& b) const {
  check_tensor(name(), a);
  if (!b.is_number()) {
    check_tensor(name(), b.tensor);
    check_dtype(a.dtype(), promote(a.dtype(), b.tensor.dtype()));
    if (broadcasts_to(b.tensor.shape(), a.shape())) return;
    fail(name(), ": operand 1 is ", b.tensor.shape(),
         ", expected one that broadcasts to the tensor ", a.shape(), ", which keeps its shape");
  }
  const DType result = promote(a.dtype(), b.number);
  check_dtype(a.dtype(), result);
  if (!is_floating(result)) check_holds(name(), result, b.number);
}

const Tensor& InPlace::operator()(const Tensor& a, const Operand& b) const {
  check_operands(a, b);
  if (!b.is_number()) return run(a, {a, b.tensor});
  const DType dtype = number_dtype(a.dtype(), b.number);
  return run(a, {a, full({}, b.number, options_next_to(a, dtype))});
}

/// Throws std::invalid_argument for a leaf, or a view of one.
static void check_not_leaf(const char* what, const Tensor& a) {
  const Node* node = a.body()->node.get();
  while (node && node->is_view) node = node->edges()[0].node.get();
  if (!dynamic_cast<const LeafNode*>(node)) return;
  fail(what, ": the tensor ", a.shape(), " is a leaf that requires a gradient, or a view of ",
       "one, expected NoGrad (no_grad) around a change in place");
}

const Tensor& InPlace::run(const Tensor& a, const Tensors& operands) const {
  check_changeable(name(), a);
  if (std::none_of(operands.begin(), operands.end(), is_recorded)) {
    over_.call(operands);
    return a;
  }
  check_not_leaf(name(), a);
  record(a, operands);
  return a;
}

/// Gives `to`, whose memory is up to date, the place of `from` on the tape.
static const Tensor& computed_as(const Tensor& from, const Tensor& to) {
  TensorBody& body = *to.body();
  body.node = from.body()->node;
  body.result = from.body()->result;
  body.recorded_changes = body.storage->recorded_changes();
  return to;
}

/// A copy of `a` in its place on the tape.
static Tensor before_change(const Tensor& a) {
  const Tensor kept = snapshot_of(a.block());
  return computed_as(a, make_tensor(a.body()->layout, kept.storage(), 0, kept.body()->strides));
}

/// Copies a result, recorded, to `a`, and makes `a` that result.
static void become(const Tensor& a, Tensor result) {
  if (a.is_sharded() && result.sharding() != a.sharding()) {
    result = redistributed(result, a.sharding());
  }
  if (a.device().kind != DeviceKind::meta) copy(a.block(), result.block());
  changed(a, true);
  computed_as(result, a);
}

const Tensor& InPlace::of_complex(const Tensor& a,
                                  const std::function<Tensor(const Tensor&)>& function,
                                  bool also_recorded) const {
  check_changeable(name(), a);
  if (!is_recorded(a) && !also_recorded) {
    copy_(a, as_dtype(function(a), a.dtype()));
    return a;
  }
  check_not_leaf(name(), a);
  become(a, as_dtype(function(before_change(a)), a.dtype()));
  return a;
}

/// Computes the result in new memory and makes `a` that.
void InPlace::record(const Tensor& a, Tensors operands) const {
  if (apart_.body().saved_in & 1) {
    const Tensor before = before_change(a);
    for (Tensor& operand : operands) {
      if (operand.body() == a.body()) operand = before;
    }
  }
  DType dtype = a.dtype();
  for (const Tensor& operand : operands) dtype = promote(dtype, operand.dtype());
  for (Tensor& operand : operands) operand = as_dtype(operand, dtype);
  become(a, as_dtype(apart_(operands), a.dtype()));
}

/// The name of an op, as an argument of a template.
template <size_t N> struct OpName {
  consteval OpName(const char (&given)[N]) { std::copy_n(given, N, text); }  // NOLINT
  char text[N];
};

/// Made when it is first called: ops of other files exist then.
template <OpName kOp, Values kValues = Values::any> static const InPlace& in_place() {
  static const InPlace made(kOp.text, kValues);
  return made;
}
template <OpName kOp, Values kValues = Values::any, class... Others>
static const Tensor& over(const Tensor& a, const Others&... b) {
  return in_place<kOp, kValues>()(a, b...);
}
template <OpName kOp> static const Tensor& over_rounded(const Tensor& a) {
  return a && !is_floating(a.dtype()) ? a : over<kOp>(a);
}

const Tensor& add_(const Tensor& a, const Operand& b) { return over<"add">(a, b); }
const Tensor& sub_(const Tensor& a, const Operand& b) { return over<"sub">(a, b); }
const Tensor& mul_(const Tensor& a, const Operand& b) { return over<"mul">(a, b); }
const Tensor& div_(const Tensor& a, const Operand& b) {
  return over<"div", Values::floating>(a, b);
}
const Tensor& pow_(const Tensor& a, const Operand& b) {
  if (!is_complex(a)) return over<"pow">(a, b);
  in_place<"pow">().check_operands(a, b);
  const auto power = [&](const Tensor& x) {
    return b.is_number() ? pow(x, b.number) : pow(x, b.tensor);
  };
  return in_place<"pow">().of_complex(a, power, !b.is_number() && is_recorded(b.tensor));
}
const Tensor& floor_divide_(const Tensor& a, const Operand& b) {
  return over<"floor_divide">(a, b);
}
const Tensor& remainder_(const Tensor& a, const Operand& b) { return over<"remainder">(a, b); }
const Tensor& maximum_(const Tensor& a, const Operand& b) { return over<"maximum">(a, b); }
const Tensor& minimum_(const Tensor& a, const Operand& b) { return over<"minimum">(a, b); }
const Tensor& bitwise_and_(const Tensor& a, const Operand& b) { return over<"bitwise_and">(a, b); }
const Tensor& bitwise_or_(const Tensor& a, const Operand& b) { return over<"bitwise_or">(a, b); }
const Tensor& bitwise_xor_(const Tensor& a, const Operand& b) { return over<"bitwise_xor">(a, b); }
const Tensor& bitwise_left_shift_(const Tensor& a, const Operand& b) {
  return over<"bitwise_left_shift">(a, b);
}
const Tensor& bitwise_right_shift_(const Tensor& a, const Operand& b) {
  return over<"bitwise_right_shift">(a, b);
}

const Tensor& addcmul_(const Tensor& a, const Tensor& b, const Tensor& c, const Number& value) {
  return add_(a, is_real(value, 1) ? mul(b, c) : mul(mul(b, c), value));
}
const Tensor& addcdiv_(const Tensor& a, const Tensor& b, const Tensor& c, const Number& value) {
  return add_(a, is_real(value, 1) ? div(b, c) : mul(div(b, c), value));
}
const Tensor& lerp_(const Tensor& a, const Tensor& end, const Operand& weight) {
  const Tensor way = sub(end, a);
  return add_(a, weight.is_number() ? mul(way, weight.number) : mul(way, weight.tensor));
}

const Tensor& clamp_(const Tensor& a, const std::optional<Operand>& low,
                     const std::optional<Operand>& high) {
  if (!low && !high) fail("clamp_: neither min nor max is given, expected at least one");
  if (low && high) in_place<"minimum">().check_operands(a, *high);
  if (low) maximum_(a, *low);
  if (high) minimum_(a, *high);
  return a;
}

/// The gradients of `a` before a part of it was replaced, and of that part.
static Tensors gradients_of_assign(const Tensor& gradient,
                                   const std::function<Tensor(const Tensor&)>& part_of) {
  const Tensor rest = clone(gradient);
  fill_(part_of(rest), 0);
  return {rest, part_of(gradient)};
}

void assign_(const Tensor& a, const std::function<Tensor(const Tensor&)>& part_of,
             const Operand& b) {
  check_tensor("assign_", a);
  const auto without_tape = [&](const Tensor& x) {
    const NoGrad no_grad;
    return part_of(x);
  };
  const Tensor part = without_tape(a.detach());
  if (!is_view_of(part, a)) {
    fail("assign_: the part ", part.shape(), " of the tensor ", a.shape(),
         " is a copy, expected a view");
  }
  const bool is_there = !b.is_number() && shows_same(b.tensor, part);
  const uint32_t changes = a.storage()->recorded_changes();
  const uint32_t own = is_there ? recorded_through(b.tensor, a) : 0;
  const bool is_current = a.body()->recorded_changes + own >= changes;
  const bool grad_enabled = Context::current().grad_enabled;
  const bool is_recorded_b = !b.is_number() && is_recorded(b.tensor);
  const bool is_plain = !grad_enabled || (!a.body()->node && !is_recorded_b);
  if (is_plain && is_there) return;
  if (a.is_sharded() && a.sharding().has_partial()) {
    fail("assign_: the tensor ", a.shape(), " is laid out over ", a.sharding(),
         ", expected one without a Partial; redistribute it first");
  }
  if (is_plain) {
    return b.is_number() ? fill_(part, b.number) : copy_(part, expand(b.tensor, part.shape()));
  }
  check_not_leaf("assign_", a);
  if (!is_current) fail_outdated(a);
  Tensor value;
  if (!b.is_number()) {
    value = as_dtype(expand(b.tensor, part.shape()), a.dtype());
    if (a.is_sharded()) value = redistributed(value, part.sharding());
  }
  const Tensor before = computed_as(a, relabeled(a, layout_of(a)));
  const Tensor after = weft::record(
      "assign_", {before, value}, {before},
      [=](const Tensors& gradients) { return gradients_of_assign(gradients[0], part_of); })[0];
  if (!is_there) {
    const NoGrad no_grad;
    value ? copy_(part, value.detach()) : fill_(part, b.number);
    mark_recorded(a);
  }
  computed_as(after, a);
}

bool is_copied_view(const Tensor& tensor) {
  check_tensor("is_copied_view", tensor);
  return static_cast<bool>(tensor.body()->copied);
}

void check_writable(const char* what, const Tensor& tensor) {
  check_tensor(what, tensor);
  check_changeable(what, tensor);
}

void mark_written(const Tensor& tensor) {
  check_tensor("mark_written", tensor);
  changed(tensor);
}

const Tensor& neg_(const Tensor& a) { return over<"neg">(a); }
const Tensor& abs_(const Tensor& a) { return over<"abs">(a); }
const Tensor& sign_(const Tensor& a) { return over<"sign">(a); }
const Tensor& square_(const Tensor& a) { return over<"square">(a); }
const Tensor& relu_(const Tensor& a) { return over<"relu">(a); }
const Tensor& exp_(const Tensor& a) { return over<"exp", Values::floating>(a); }
const Tensor& log_(const Tensor& a) { return over<"log", Values::floating>(a); }
const Tensor& sqrt_(const Tensor& a) { return over<"sqrt", Values::floating>(a); }
const Tensor& rsqrt_(const Tensor& a) { return over<"rsqrt", Values::floating>(a); }
const Tensor& tanh_(const Tensor& a) { return over<"tanh", Values::floating>(a); }
const Tensor& sigmoid_(const Tensor& a) { return over<"sigmoid", Values::floating>(a); }
const Tensor& silu_(const Tensor& a) { return over<"silu", Values::floating>(a); }
const Tensor& floor_(const Tensor& a) { return over_rounded<"floor">(a); }
const Tensor& ceil_(const Tensor& a) { return over_rounded<"ceil">(a); }
const Tensor& trunc_(const Tensor& a) { return over_rounded<"trunc">(a); }
const Tensor& round_(const Tensor& a) { return over_rounded<"round">(a); }

}  // namespace weft
