// SPDX-License-Identifier: Apache-2.0
#include "ops/composed/labelled.h"

#include <algorithm>
#include <map>

#include "ops/contraction.h"
#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

namespace {

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) c == ',' ? void(parts.emplace_back()) : void(parts.back() += c);
  return parts;
}

/// The labels with "..." replaced by those of `dots` dims.
std::string expanded(std::string labels, int dots) {
  const size_t at = labels.find("...");
  if (at == labels.npos) return labels;
  std::string own;
  for (int d = kMaxDims - dots; d < kMaxDims; ++d) own += static_cast<char>(kFirstDot + d);
  return labels.replace(at, 3, own);
}

Labelled labelled(const Tensor& tensor, const std::string& given, size_t number) {
  check_tensor("einsum", tensor);
  const bool has_dots = given.find("...") != given.npos;
  const int named = static_cast<int>(given.size()) - (has_dots ? 3 : 0);
  const int dots = tensor.ndim() - named;
  if (has_dots ? dots < 0 : dots != 0) {
    fail("einsum: operand ", number, " is ", tensor.shape(), ", expected ",
         has_dots ? "at least " : "", named, " dims, the labels of ", in_quotes(given));
  }
  Labelled made{tensor, expanded(given, dots)};
  for (size_t i = 0; i < made.labels.size(); ++i) {
    for (size_t j = made.labels.find(made.labels[i], i + 1); j != made.labels.npos;
         j = made.labels.find(made.labels[i], i + 1)) {
      made.tensor = moveaxis(diagonal(made.tensor, 0, static_cast<int>(i), static_cast<int>(j)),
                             {-1}, {static_cast<int>(i)});
      made.labels.erase(j, 1);
    }
  }
  return made;
}

/// Repeats dims of size 1 to the size that the other operand has there.
Labelled fitted(const Labelled& a, const Labelled& b) {
  Shape shape = a.tensor.shape();
  for (size_t i = 0; i < a.labels.size(); ++i) {
    if (!b.has(a.labels[i])) continue;
    const int64_t size = size_of_label(b, a.labels[i]);
    int64_t& own = shape[static_cast<int>(i)];
    if (own != size && own != 1 && size != 1) {
      fail("einsum: sizes of one label are ", own, " in ", a.tensor.shape(), " and ", size, " in ",
           b.tensor.shape(), ", expected equal ones");
    }
    own = std::max(own, own == 0 ? 0 : size);
    if (size == 0) own = 0;
  }
  return {shape == a.tensor.shape() ? a.tensor : expand(a.tensor, shape), a.labels};
}

/// The labels that occur once, in alphabetical order, behind those of "...".
std::string implicit_result(const std::string& inputs) {
  std::map<char, int> counts;
  for (const char c : inputs) ++counts[c];
  std::string labels = counts.contains('.') ? "..." : "";
  for (const auto& [label, count] : counts) {
    if (std::isalpha(static_cast<unsigned char>(label)) && count == 1) labels += label;
  }
  return labels;
}

}  // namespace

Labelled summed(const Labelled& a, const std::set<char>& kept) {
  std::vector<int> dims;
  std::string labels;
  for (size_t i = 0; i < a.labels.size(); ++i) {
    kept.contains(a.labels[i]) ? void(labels += a.labels[i]) : void(dims.push_back(int(i)));
  }
  return {dims.empty() ? a.tensor : sum(a.tensor, dims), labels};
}

Labelled contracted(Labelled a, Labelled b, const std::set<char>& kept) {
  const auto needed_by = [&](const Labelled& other) {
    std::set<char> all = kept;
    all.insert(other.labels.begin(), other.labels.end());
    return all;
  };
  a = summed(a, needed_by(b));
  b = summed(b, needed_by(a));
  a = fitted(a, b);
  b = fitted(b, a);
  std::string result;
  for (const char label : a.labels + b.labels) {
    if (kept.contains(label) && result.find(label) == result.npos) result += label;
  }
  result = natural_order(a.labels, b.labels, result);
  return {contraction(a.tensor, a.labels, b.tensor, b.labels, result), result};
}

Einsum parsed_einsum(std::string_view equation, const Tensors& operands) {
  std::string text(equation);
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  const std::string inputs = text.substr(0, arrow);
  const std::vector<std::string> given = split_at_commas(inputs);
  if (given.size() != operands.size()) {
    fail("einsum: number of operands is ", operands.size(), ", expected ", given.size(),
         ", those of ", in_quotes(equation));
  }
  Einsum made{text, {}, {}};
  int dots = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    made.operands.push_back(labelled(operands[i], given[i], i));
    for (const char label : made.operands.back().labels) {
      if (label < kFirstDot + kMaxDims) dots = std::max(dots, kMaxDims - (label - kFirstDot));
    }
  }
  made.result =
      expanded(arrow == text.npos ? implicit_result(inputs) : text.substr(arrow + 2), dots);
  for (const char label : made.result) {
    const bool is_known =
        std::ranges::any_of(made.operands, [&](const Labelled& a) { return a.has(label); });
    if (is_known && std::count(made.result.begin(), made.result.end(), label) == 1) continue;
    fail("einsum: label ", in_quotes(std::string(1, label)), " of the result of ",
         in_quotes(equation), is_known ? " occurs twice" : " is in no operand", ", expected once");
  }
  return made;
}

}  // namespace weft
