// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>

#include "pipeline/timeline.h"
#include "weft/error.h"
#include "weft/pipeline_program.h"

namespace weft {

using Act = PipelineAct;

static constexpr std::string_view kLetters[] = {"F", "B", "I", "W"};
static constexpr std::array<std::string_view, 4> kActColours = {"#a0cbe8", "#8cd17d", "#ffbe7d",
                                                                "#d4a6c8"};

/// "F2", or "F2.4" of stage 4 where ranks have several stages.
static std::string label_of(const PipelineProgram& program, const PipelineStep& step) {
  const bool has_chunks = program.stages() > program.ranks();
  return concat(kLetters[static_cast<size_t>(step.act)], step.microbatch,
                has_chunks ? concat('.', step.stage) : "");
}

static std::string title_of(const PipelineProgram& program, const PipelinePrediction& predicted) {
  return concat(program.name, ": ", program.stages(), " stages on ", program.ranks(), " ranks, ",
                program.microbatches, " microbatches, ",
                formatted("%.1f %% bubble", 100 * predicted.bubble));
}

/// A row of one rank: each step at the column of its time.
static std::string row_of(const PipelineProgram& program, const std::vector<PipelineSpan>& spans,
                          double unit, size_t width) {
  std::string row;
  for (const PipelineSpan& span : spans) {
    const auto column = static_cast<size_t>(span.begin / unit + 0.5) * width;
    if (row.size() < column) row.append(column - row.size(), ' ');
    row += label_of(program, span.step) + ' ';
  }
  while (!row.empty() && row.back() == ' ') row.pop_back();
  return row;
}

Picture visualize(const PipelineProgram& program, const PipelineTimes& times) {
  const PipelinePrediction predicted = predict(program, times);
  double unit = predicted.seconds;
  size_t width = 3;
  for (const auto& spans : predicted.spans) {
    for (const PipelineSpan& span : spans) {
      if (span.end > span.begin) unit = std::min(unit, span.end - span.begin);
      width = std::max(width, label_of(program, span.step).size() + 1);
    }
  }
  Picture made{.text = title_of(program, predicted), .svg = {}};
  std::vector<DrawnRow> rows;
  for (size_t r = 0; r < predicted.spans.size(); ++r) {
    DrawnRow& row = rows.emplace_back(DrawnRow{concat("rank ", r), {}});
    for (const PipelineSpan& span : predicted.spans[r]) {
      row.boxes.push_back({label_of(program, span.step), span.begin, span.end,
                           kActColours[static_cast<size_t>(span.step.act)]});
    }
  }
  made.svg = svg_of_rows(made.text, rows, 9.0 * static_cast<double>(width) / unit);
  for (size_t r = 0; r < rows.size(); ++r) {
    made.text += concat("\nrank ", r, ": ", row_of(program, predicted.spans[r], unit, width));
  }
  return made;
}

}  // namespace weft
