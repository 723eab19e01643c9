// SPDX-License-Identifier: Apache-2.0
#include "weft/summary.h"

#include <algorithm>
#include <array>
#include <vector>

#include "weft/error.h"

namespace weft {

namespace {

constexpr size_t kColumns = 8;
using Cells = std::array<std::string, kColumns>;

/// Equal parameters of numbered modules.
struct SummaryLine {
  std::string name, shape, dtype, layout;
  bool trained = true;
  int64_t count = 0, elements = 0, bytes = 0;

  bool is_like(const SummaryLine& other) const {
    return name == other.name && shape == other.shape && dtype == other.dtype &&
           layout == other.layout && trained == other.trained;
  }
  Cells cells() const {
    return {name,   std::to_string(count),    shape,
            dtype,  std::to_string(elements), trained ? "yes" : "no",
            layout, std::to_string(bytes)};
  }
};

}  // namespace

/// The name with `*` for each part that is a number.
static std::string without_numbers(const std::string& name) {
  std::string made;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    made += (begin > 0 ? "." : "") + (is_number ? "*" : part);
    begin = end + 1;
  }
  return made;
}

static std::vector<SummaryLine> lines_of(const Module& module) {
  std::vector<SummaryLine> lines;
  for (const NamedParameter& named : module.named_parameters()) {
    const Tensor& value = named.parameter->value();
    SummaryLine line{.name = without_numbers(named.name()),
                     .shape = concat(named.parameter->shape()),
                     .dtype = concat(named.parameter->dtype()),
                     .layout = value.is_sharded() ? concat(value.sharding()) : "-",
                     .trained = named.parameter->is_trainable()};
    const auto same =
        std::ranges::find_if(lines, [&](const SummaryLine& other) { return other.is_like(line); });
    SummaryLine& into = same == lines.end() ? lines.emplace_back(line) : *same;
    const int64_t own = value.local().numel();
    ++into.count;
    into.elements += named.parameter->shape().product();
    into.bytes += own * size_of(named.parameter->dtype());
  }
  return lines;
}

std::string summary(const Module& module) {
  const std::vector<SummaryLine> lines = lines_of(module);
  std::vector<Cells> rows = {
      {"parameter", "count", "shape", "dtype", "elements", "trained", "layout", "bytes"}};
  int64_t elements = 0, trained = 0, bytes = 0;
  for (const SummaryLine& line : lines) {
    rows.push_back(line.cells());
    elements += line.elements;
    bytes += line.bytes;
    if (line.trained) trained += line.elements;
  }
  std::array<size_t, kColumns> widths{};
  for (const Cells& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line;
    for (size_t i = 0; i < kColumns; ++i) {
      const std::string blanks(widths[i] - row[i].size(), ' ');
      const bool is_number = i == 1 || i == 4 || i == 7;
      line += (i > 0 ? "  " : "") + (is_number ? blanks + row[i] : row[i] + blanks);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text +
         concat(elements, " elements, ", trained, " trained; ", bytes, " bytes on this rank\n");
}

}  // namespace weft
