// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <iterator>
#include <optional>

#include "ops/testing/sweep.h"
#include "tests/support/ranks.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/testing.h"

namespace weft {

// Programs of random ops on random shapes, run with random layouts and redistributions in between,
// and on one device. All is in f64, so that rounding hides no errors.

static constexpr double kProgramBound = 1e-9;

namespace {

/// One op of a program, applied to earlier values.
struct ProgramStep {
  std::string name;
  std::vector<size_t> operands;
  std::function<Tensor(const Tensors&)> apply;
};

struct Program {
  std::vector<SweepArray> inputs;
  std::vector<ProgramStep> steps;
};

/// Writes a program op by op, keeping the shapes.
class ProgramWriter {
 public:
  explicit ProgramWriter(uint64_t seed) : random_(seed) {}

  Program write() {
    const int64_t inputs = 2 + random_.below(3), steps = 5 + random_.below(11);
    for (int64_t i = 0; i < inputs; ++i) add_input(random_shape());
    while (static_cast<int64_t>(program_.steps.size()) < steps) add_step();
    return std::move(program_);
  }

 private:
  Shape random_shape() {
    Shape shape;
    for (int64_t d = 1 + random_.below(3); d > 0; --d) shape.push_back(1 + random_.below(7));
    return shape;
  }

  /// Inputs must come before all steps: values are numbered inputs first.
  size_t add_input(const Shape& shape) {
    program_.inputs.push_back(random_array(shape, f64, -2, 2, random_.next()));
    shapes_.push_back(shape);
    return shapes_.size() - 1;
  }

  size_t any() { return static_cast<size_t>(random_.below(static_cast<int64_t>(shapes_.size()))); }
  int any_dim(const Shape& shape) { return static_cast<int>(random_.below(shape.ndim())); }

  /// A value whose shape satisfies `fits`, if a few random tries find one.
  template <class Fits> std::optional<size_t> find(Fits fits) {
    for (int tries = 0; tries < 12; ++tries) {
      size_t value = any();
      if (fits(shapes_[value])) return value;
    }
    return std::nullopt;
  }

  void add(std::string name, std::vector<size_t> operands,
           std::function<Tensor(const Tensors&)> apply, const Shape& shape) {
    if (shape.product() == 0 || shape.product() > 2000) return;
    program_.steps.push_back({std::move(name), std::move(operands), std::move(apply)});
    shapes_.push_back(shape);
  }

  void add_step() {
    switch (random_.below(6)) {
      case 0: return add_function();
      case 1: return add_pair();
      case 2: return add_view();
      case 3: return add_slice_or_cat();
      case 4: return add_reduction();
      default: return add_product();
    }
  }

  void add_function() {
    struct Function {
      const char* name;
      Tensor (*apply)(const Tensor&);
    };
    static const Function kFunctions[] = {
        {"tanh", tanh},
        {"sigmoid", sigmoid},
        {"gelu", gelu},
        {"silu", silu},
        {"neg", neg},
        {"softmax", softmax},
        {"exp of tanh", [](const Tensor& a) { return exp(tanh(a)); }},
        {"log of sigmoid", [](const Tensor& a) { return log(sigmoid(a)); }},
        {"square of tanh", [](const Tensor& a) { return square(tanh(a)); }},
        {"twice and one more", [](const Tensor& a) { return a * 2.0 + 1.0; }},
        {"less half", [](const Tensor& a) { return 0.5 - a; }},
        {"dropout", [](const Tensor& a) { return dropout(a, 0.3); }},
        {"sine", sin},
        {"relu", relu},
        {"sums of tanh", [](const Tensor& a) { return cumulative_sum(tanh(a), -1); }},
        {"products of tanh", [](const Tensor& a) { return cumulative_prod(tanh(a), 0); }},
        {"flip", [](const Tensor& a) { return flip(a); }},
        {"square root of more than a square", [](const Tensor& a) { return hypot(a, a + 3.0); }},
    };
    size_t a = any();
    const Function& function = kFunctions[random_.below(std::ssize(kFunctions))];
    add(
        function.name, {a}, [&](const Tensors& t) { return function.apply(t[0]); }, shapes_[a]);
  }

  /// The shape that both broadcast to, if any.
  static std::optional<Shape> common(const Shape& a, const Shape& b) {
    const Shape& longer = a.ndim() >= b.ndim() ? a : b;
    const Shape& shorter = a.ndim() >= b.ndim() ? b : a;
    Shape shape = longer;
    for (int d = 0; d < shorter.ndim(); ++d) {
      int64_t& size = shape[d + longer.ndim() - shorter.ndim()];
      if (size != shorter[d] && size != 1 && shorter[d] != 1) return std::nullopt;
      size = std::max(size, shorter[d]);
    }
    return shape;
  }

  void add_pair() {
    struct Pair {
      const char* name;
      Tensor (*apply)(const Tensor&, const Tensor&);
    };
    static const Pair kPairs[] = {
        {"add", [](const Tensor& a, const Tensor& b) { return a + b; }},
        {"sub", [](const Tensor& a, const Tensor& b) { return a - b; }},
        {"mul", [](const Tensor& a, const Tensor& b) { return tanh(a) * b; }},
        {"div", [](const Tensor& a, const Tensor& b) { return a / (square(tanh(b)) + 1.0); }},
        {"maximum", maximum},
        {"minimum", minimum},
        {"where", [](const Tensor& a, const Tensor& b) { return where(less(a, b), b, a * 0.5); }},
    };
    size_t a = any();
    auto b = find([&](const Shape& shape) { return common(shapes_[a], shape).has_value(); });
    if (!b) return;
    const Pair& pair = kPairs[random_.below(7)];
    add(
        pair.name, {a, *b}, [&](const Tensors& t) { return pair.apply(t[0], t[1]); },
        *common(shapes_[a], shapes_[*b]));
  }

  void add_view() {
    size_t a = any();
    Shape shape = shapes_[a];
    if (random_.below(2) && shape.ndim() >= 2) {
      int d0 = any_dim(shape), d1 = any_dim(shape);
      std::swap(shape[d0], shape[d1]);
      return add(
          "transpose", {a}, [=](const Tensors& t) { return transpose(t[0], d0, d1); }, shape);
    }
    if (random_.below(3) == 0 && shape.ndim() < 4) {
      int at = static_cast<int>(random_.below(shape.ndim() + 1));
      shape.insert(at, 1);
      Shape wide = shape;
      wide[at] = 3;
      return add(
          "unsqueeze and expand", {a},
          [=](const Tensors& t) { return expand(unsqueeze(t[0], at), wide); }, wide);
    }
    add_reshape(a);
  }

  /// Merges two neighbouring dims, or splits a dim in two.
  void add_reshape(size_t a) {
    Shape shape = shapes_[a];
    const int d = any_dim(shape);
    if (d + 1 < shape.ndim() && random_.below(2)) {
      shape[d] *= shape[d + 1];
      shape.erase(d + 1);
    } else if (shape.ndim() < 4) {
      int64_t factor = 2 + random_.below(2);
      if (shape[d] % factor) return;
      shape[d] /= factor;
      shape.insert(d + static_cast<int>(random_.below(2)), factor);
    }
    add(
        "reshape", {a}, [=](const Tensors& t) { return reshape(t[0], shape); }, shape);
  }

  void add_slice_or_cat() {
    size_t a = any();
    Shape shape = shapes_[a];
    const int d = any_dim(shape);
    if (random_.below(2)) {
      const int64_t start = random_.below(shape[d]), step = 1 + random_.below(2);
      const int64_t stop = start + 1 + random_.below(shape[d] - start);
      shape[d] = (stop - start + step - 1) / step;
      return add(
          "slice", {a}, [=](const Tensors& t) { return slice(t[0], d, start, stop, step); }, shape);
    }
    auto fits = [&](const Shape& other) {
      bool alike = other.ndim() == shape.ndim();
      for (int i = 0; alike && i < shape.ndim(); ++i) alike = i == d || other[i] == shape[i];
      return alike;
    };
    size_t b = find(fits).value_or(a);
    shape[d] += shapes_[b][d];
    add(
        "cat", {a, b}, [=](const Tensors& t) { return cat(t, d); }, shape);
  }

  void add_reduction() {
    struct Reduction {
      const char* name;
      Tensor (*apply)(const Tensor&, int);
    };
    static const Reduction kReductions[] = {
        {"sum", [](const Tensor& a, int d) { return sum(a, {d}, true); }},
        {"mean", [](const Tensor& a, int d) { return mean(a, {d}, true); }},
        {"max", [](const Tensor& a, int d) { return max(a, {d}, true); }},
        {"min", [](const Tensor& a, int d) { return min(a, {d}, true); }},
        {"logsumexp", [](const Tensor& a, int d) { return logsumexp(a, d, true); }},
        {"norm", [](const Tensor& a, int d) { return norm(a + 3.0, {d}, true); }},
    };
    size_t a = any();
    Shape shape = shapes_[a];
    const int d = any_dim(shape);
    shape[d] = 1;
    const Reduction& reduction = kReductions[random_.below(6)];
    add(
        reduction.name, {a}, [&, d](const Tensors& t) { return reduction.apply(t[0], d); }, shape);
  }

  void add_product() {
    auto a = find([](const Shape& shape) { return shape.ndim() >= 2; });
    if (!a) return;
    const Shape& left = shapes_[*a];
    const int64_t k = left.back();
    const int64_t kind = random_.below(3);
    auto b = find([&](const Shape& s) {
      if (kind == 2) return s.ndim() == 1 && s[0] == k;
      return s.ndim() == 2 && s[kind == 0 ? 0 : 1] == k;
    });
    if (!b) return;
    Shape shape = left;
    if (kind == 2) {
      return add(
          "rms_norm", {*a, *b}, [](const Tensors& t) { return rms_norm(t[0], t[1]); }, shape);
    }
    shape[shape.ndim() - 1] = shapes_[*b][kind == 0 ? 1 : 0];
    if (kind == 0) {
      return add(
          "matmul", {*a, *b}, [](const Tensors& t) { return tanh(matmul(t[0], t[1])); }, shape);
    }
    add(
        "linear", {*a, *b}, [](const Tensors& t) { return linear(t[0], t[1]) * 0.25; }, shape);
  }

  SweepRandom random_;
  Program program_;
  std::vector<Shape> shapes_;
};

/// Every value of a run, inputs first, and the inputs' gradients.
struct ProgramRun {
  Tensors values;
  Tensors gradients;
};

/// Changes the layout of a program's values; on one device it returns them unchanged.
using Relayout = std::function<Tensor(const Tensor&)>;

}  // namespace

/// Runs a program; the loss contains every value, so that each has a gradient.
static ProgramRun run_program(const Program& program, Tensors inputs, const Relayout& relayout) {
  manual_seed(11);
  for (Tensor& input : inputs) input.set_requires_grad();
  Tensors values = inputs;
  for (const ProgramStep& step : program.steps) {
    Tensors operands;
    for (size_t i : step.operands) operands.push_back(values[i]);
    values.push_back(relayout(step.apply(operands)));
  }
  Tensor total;
  for (const Tensor& value : values) {
    Tensor part = mean(square(tanh(value)));
    total = total ? total + part : part;
  }
  total.backward();
  ProgramRun run{values, {}};
  for (const Tensor& input : inputs) run.gradients.push_back(input.grad());
  return run;
}

static std::string listing(const Program& program, size_t upto) {
  std::string text;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    text += concat(" %", i, " = input ", program.inputs[i].shape, ";");
  }
  for (size_t i = 0; i < program.steps.size() && i + program.inputs.size() <= upto; ++i) {
    text += concat(" %", i + program.inputs.size(), " = ", program.steps[i].name);
    for (size_t operand : program.steps[i].operands) text += concat(" %", operand);
    text += ";";
  }
  return text;
}

/// Sometimes makes cuts of whole dims those of inner factors.
static Sharding with_inner_cuts(const Sharding& given, const Shape& shape, SweepRandom& random) {
  Pattern pattern = given.pattern();
  std::vector<int> sizes;
  for (int axis = 0; axis < pattern.axes(); ++axis) {
    sizes.push_back(given.mesh().axis_size(axis));
    if (!pattern[axis].is_shard() || random.below(3) != 0) continue;
    const int dim = pattern[axis].dim();
    const int64_t outer = 1 + random.below(4);
    Pattern inner = pattern;
    if (shape[dim] % outer == 0) inner.set(axis, Shard{dim, {}, outer});
    pattern = inner;
  }
  const bool fits = factored(shape, {&pattern, 1}, sizes).has_value();
  return fits ? Sharding::of(given.mesh(), pattern) : given;
}

/// This rank's part of `whole` in a random layout, including terms of a Partial.
static Tensor at_random(const SweepArray& whole, const DeviceMesh& mesh, SweepRandom& random) {
  std::vector<Sharding> all = all_shardings(mesh, whole.shape.ndim(), whole.dtype);
  const Sharding sharding = with_inner_cuts(
      all[static_cast<size_t>(random.below(int64_t(all.size())))], whole.shape, random);
  int parts = 1, index = 0;
  ReduceOp op = ReduceOp::sum;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (!sharding[axis].is_partial()) continue;
    op = sharding[axis].op();
    parts *= mesh.axis_size(axis);
    index = index * mesh.axis_size(axis) + mesh.coordinate(axis);
  }
  SweepArray part = parts > 1 ? part_of(whole, op, parts, index) : whole;
  return from_values(part.values, part.shape, {.dtype = part.dtype, .sharding = sharding});
}

/// Sometimes moves the values to another layout.
static Tensor maybe_moved(const Tensor& tensor, SweepRandom& random) {
  if (random.below(4) != 0) return tensor;
  std::vector<Placement> placements;
  for (int axis = 0; axis < tensor.sharding().axes(); ++axis) {
    const int64_t choice = random.below(tensor.ndim() + 1);
    placements.push_back(choice == 0 ? Placement(Replicate()) : Shard{int(choice) - 1});
  }
  const Sharding chunks(tensor.sharding().mesh(),
                        Placements(std::span<const Placement>(placements)));
  return redistributed(tensor, with_inner_cuts(chunks, tensor.shape(), random));
}

static std::string off_by(const Tensor& actual, const Tensor& whole) {
  if (!(actual.shape() == whole.shape())) return concat("is ", actual.shape());
  SweepArray expected{whole.shape(), whole.dtype(), whole.to_vector<double>()};
  return difference(actual.full_tensor().to_vector<double>(), expected.values, expected.greatest(),
                    kProgramBound);
}

static void check_program(uint64_t seed, const DeviceMesh& mesh) {
  const Program program = ProgramWriter(seed).write();
  Tensors wholes, inputs;
  SweepRandom random(seed + 1'000'000);
  for (const SweepArray& input : program.inputs) {
    wholes.push_back(from_values(input.values, input.shape, {.dtype = input.dtype}));
    inputs.push_back(at_random(input, mesh, random));
  }
  ProgramRun expected = run_program(program, wholes, [](const Tensor& t) { return t; });
  ProgramRun actual =
      run_program(program, inputs, [&](const Tensor& t) { return maybe_moved(t, random); });
  for (size_t i = 0; i < actual.values.size(); ++i) {
    std::string off = off_by(actual.values[i].detach(), expected.values[i]);
    if (off.empty()) continue;
    ADD_FAILURE() << "program " << seed << " on " << mesh << ": value " << i << " " << off << ";"
                  << listing(program, i);
    return;
  }
  for (size_t i = 0; i < actual.gradients.size(); ++i) {
    std::string off = off_by(actual.gradients[i], expected.gradients[i]);
    if (off.empty()) continue;
    ADD_FAILURE() << "program " << seed << " on " << mesh << ": gradient of input " << i << " "
                  << off << ";" << listing(program, program.steps.size() + program.inputs.size());
    return;
  }
}

static void check_programs(const std::vector<MeshAxis>& axes, uint64_t first, uint64_t count) {
  on_mesh(axes, [&](const DeviceMesh& mesh) {
    for (uint64_t seed = first; seed < first + count; ++seed) check_program(seed, mesh);
  });
}

/// A tenth of the programs under sanitizers.
static uint64_t some_of(uint64_t programs) {
  return sweep_percent() > 2 ? programs : programs / 10;
}

TEST(RandomProgram, EqualsOneDeviceOnFourRanks) { check_programs({{"a", 4}}, 0, some_of(120)); }
TEST(RandomProgram, EqualsOneDeviceOnThreeRanks) { check_programs({{"a", 3}}, 1000, some_of(80)); }
TEST(RandomProgram, EqualsOneDeviceOnTwoByTwo) {
  check_programs({{"a", 2}, {"b", 2}}, 2000, some_of(120));
}
TEST(RandomProgram, EqualsOneDeviceOnThreeAxes) {
  check_programs({{"a", 2}, {"b", 1}, {"c", 2}}, 3000, some_of(60));
}
TEST(RandomProgram, EqualsOneDeviceOnOneRank) { check_programs({{"a", 1}}, 4000, some_of(20)); }

}  // namespace weft
