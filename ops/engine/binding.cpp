// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/route.h"

#include "weft/error.h"

namespace weft {

int Binding::dim_of(const BoundArray& array, int factor) {
  const auto found =
      std::ranges::find_if(array, [&](const BoundDim& dim) { return contains(dim, factor); });
  return found == array.end() ? -1 : static_cast<int>(found - array.begin());
}

namespace {

/// Binds one call; exists only during bind_rule.
class Binder {
 public:
  Binder(const std::string& op, const ParsedRule& rule, std::span<const Shape> shapes)
      : op_(op), rule_(rule), shapes_(shapes), told_by_(rule.factors.size(), -1) {
    out_.factors = rule.factors;
  }

  Binding bind() {
    for (const auto& [name, size] : rule_.sizes) {
      int factor = rule_.find(name);
      if (factor >= 0) out_.factors[static_cast<size_t>(factor)].size = size;
    }
    check_ndims();
    make_leading_factors();
    for (size_t i = 0; i < shapes_.size(); ++i) bind_operand(i);
    for (size_t i = 0; i < shapes_.size(); ++i) check_merged(i);
    for (const RuleArray& array : rule_.results) add(array, out_.results, out_.result_shapes);
    for (const RuleArray& array : rule_.stages) add(array, out_.stages, out_.stage_shapes);
    return std::move(out_);
  }

 private:
  static int named_dims(const RuleArray& array) {
    return static_cast<int>(
        std::ranges::count_if(array, [](const RuleDim& dim) { return !dim.ellipsis; }));
  }
  static bool has_ellipsis(const RuleArray& array) {
    return named_dims(array) != static_cast<int>(array.size());
  }
  /// Dims that `...` stands for.
  int leading_dims(size_t i) const { return shapes_[i].ndim() - named_dims(rule_.operands[i]); }

  void check_ndims() const {
    if (shapes_.size() != rule_.operands.size()) {
      fail(op_, ": number of operands is ", shapes_.size(), ", expected ", rule_.operands.size(),
           ", those of the rule \"", rule_.text, '"');
    }
    for (size_t i = 0; i < shapes_.size(); ++i) {
      int named = named_dims(rule_.operands[i]), ndim = shapes_[i].ndim();
      bool fits = has_ellipsis(rule_.operands[i]) ? ndim >= named : ndim == named;
      if (!fits) {
        fail(op_, ": number of dims of operand ", i, " ", shapes_[i], " is ", ndim, ", expected ",
             has_ellipsis(rule_.operands[i]) ? "at least " : "", named, ", those of the rule \"",
             rule_.text, '"');
      }
    }
  }

  /// Makes the factors of `...`, aligned from the right: leading_[k] is the k-th from the last.
  void make_leading_factors() {
    int most = 0;
    for (size_t i = 0; i < shapes_.size(); ++i) most = std::max(most, leading_dims(i));
    for (int k = 0; k < most; ++k) {
      leading_.push_back(static_cast<int>(out_.factors.size()));
      out_.factors.push_back({.name = concat("...", most - 1 - k)});
      told_by_.push_back(-1);
    }
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const int count = leading_dims(i);
      for (int k = 0; k < count; ++k) {
        tell(i, leading_[static_cast<size_t>(k)], shapes_[i][count - 1 - k], true);
      }
    }
  }

  /// Records the size of a factor. Size 1 of a leading dim is replaced where another operand has
  /// more.
  void tell(size_t operand, int factor, int64_t size, bool leading) {
    auto& known = out_.factors[static_cast<size_t>(factor)];
    if (known.size == size) return;
    if (known.size == -1 || (leading && known.size == 1)) {
      known.size = size;
      told_by_[static_cast<size_t>(factor)] = static_cast<int>(operand);
    } else if (!leading || size != 1) {
      disagree(factor, operand, size);
    }
  }

  [[noreturn]] void disagree(int factor, size_t operand, int64_t size) const {
    const auto& known = out_.factors[static_cast<size_t>(factor)];
    int teller = told_by_[static_cast<size_t>(factor)];
    fail(op_, ": factor ", known.name, " is ", size, " in operand ", operand, " ", shapes_[operand],
         ", expected ", known.size,
         teller < 0
             ? ", as by the attributes"
             : concat(", as in operand ", teller, " ", shapes_[static_cast<size_t>(teller)]));
  }

  void bind_operand(size_t i) {
    Binding::BoundArray bound;
    int dim = 0;
    for (const RuleDim& term : rule_.operands[i]) {
      if (term.ellipsis) {
        const int count = leading_dims(i);
        for (; dim < count; ++dim) {
          int factor = leading_[static_cast<size_t>(count - 1 - dim)];
          bool broadcast = shapes_[i][dim] != out_.factors[static_cast<size_t>(factor)].size;
          bound.push_back(broadcast ? Binding::BoundDim{} : Binding::BoundDim{factor});
        }
        continue;
      }
      bound.push_back(term.factors);
      if (term.factors.size() == 1) tell(i, term.factors[0], shapes_[i][dim], false);
      ++dim;
    }
    out_.operands.push_back(std::move(bound));
  }

  /// Checks merged dims: at most one factor's size is unknown, and the product must be the dim's
  /// size.
  void check_merged(size_t i) {
    int dim = leading_dims(i);
    for (const RuleDim& term : rule_.operands[i]) {
      if (term.ellipsis) continue;
      int64_t size = shapes_[i][dim++];
      if (term.factors.size() < 2) continue;
      int64_t product = 1;
      int unknown = -1;
      for (int factor : term.factors) {
        int64_t known = out_.factors[static_cast<size_t>(factor)].size;
        if (known >= 0) {
          product *= known;
        } else if (unknown < 0) {
          unknown = factor;
        } else {
          fail(op_, ": sizes of two factors of a merged dim of operand ", i,
               " are unknown, expected one at most");
        }
      }
      if (unknown >= 0 && product > 0 && size % product == 0) {
        out_.factors[static_cast<size_t>(unknown)].size = size / product;
      } else if (product != size || unknown >= 0) {
        fail(op_, ": size of a merged dim of operand ", i, " ", shapes_[i], " is ", size,
             ", expected a multiple of ", product, ", the product of its factors");
      }
    }
  }

  void add(const RuleArray& array, std::vector<Binding::BoundArray>& arrays,
           std::vector<Shape>& shapes) const {
    Binding::BoundArray bound;
    Shape shape;
    for (const RuleDim& term : array) {
      if (term.ellipsis) {
        for (size_t k = leading_.size(); k-- > 0;) bound.push_back({leading_[k]});
      } else {
        bound.push_back(term.factors);
      }
    }
    for (const auto& dim : bound) {
      int64_t size = 1;
      for (int factor : dim) size *= size_of_factor(factor);
      shape.push_back(size);
    }
    arrays.push_back(std::move(bound));
    shapes.push_back(shape);
  }

  int64_t size_of_factor(int factor) const {
    const auto& known = out_.factors[static_cast<size_t>(factor)];
    if (known.size < 0)
      fail(op_, ": size of factor ", known.name,
           " is unknown, expected it in an operand or an attribute");
    return known.size;
  }

  const std::string& op_;
  const ParsedRule& rule_;
  std::span<const Shape> shapes_;
  std::vector<int> told_by_;
  std::vector<int> leading_;
  Binding out_;
};

}  // namespace

Binding bind_rule(const std::string& op, const ParsedRule& rule, std::span<const Shape> shapes) {
  return Binder(op, rule, shapes).bind();
}

ParsedRule parse_rule(const std::string& op, std::string_view text) {
  try {
    return rule_grammar::parse(text);
  } catch (const char* mistake) {
    fail(op, ": the rule is \"", text, "\", expected operands -> results: ", mistake);
  }
}

}  // namespace weft
