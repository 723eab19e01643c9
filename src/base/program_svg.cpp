// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "src/base/program_run.h"
#include "weft/error.h"

namespace weft {

std::string xml_text(std::string_view text) {
  std::string made;
  for (const char c : text) {
    made += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return made;
}

/// The label of a box, or as much of it as fits; the whole one is then shown by the pointer.
static std::string label_in(const DrawnBox& box, double x, double y, double width) {
  auto most = static_cast<size_t>(std::max(0.0, (width - 4) / 5.5));
  const bool fits = box.label.size() <= most;
  // A character of UTF-8 is not cut.
  while (!fits && most > 0 && (static_cast<unsigned char>(box.label[most]) & 0xC0) == 0x80) --most;
  std::string text = formatted("<text x=\"%.1f\" y=\"%.1f\" font-size=\"10\">", x, y) +
                     xml_text(fits ? box.label : box.label.substr(0, most));
  if (!fits) text += "<title>" + xml_text(box.label) + "</title>";
  return text + "</text>\n";
}

std::string svg_of_rows(const std::string& title, const std::vector<DrawnRow>& rows, double scale) {
  constexpr double kRow = 26, kTop = 34;
  double left = 60, last = 0;
  for (const DrawnRow& row : rows) {
    left = std::max(left, 22 + 6 * static_cast<double>(row.name.size()));
    for (const DrawnBox& box : row.boxes) last = std::max(last, box.end);
  }
  std::string elements =
      formatted("<text x=\"10\" y=\"20\" font-size=\"13\">") + xml_text(title) + "</text>\n";
  double y = kTop;
  for (const DrawnRow& row : rows) {
    elements += formatted("<text x=\"10\" y=\"%.0f\" font-size=\"11\">", y + 15) +
                xml_text(row.name) + "</text>\n";
    for (const DrawnBox& box : row.boxes) {
      const double x = left + box.begin * scale, width = (box.end - box.begin) * scale;
      elements += formatted("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" ", x, y,
                            width, kRow - 4) +
                  concat("fill=\"", box.colour, "\" stroke=\"#888888\" stroke-width=\"0.5\"/>\n") +
                  label_in(box, x + 3, y + 15, width);
    }
    y += kRow;
  }
  const double width = std::max(left + last * scale, 7 * static_cast<double>(title.size())) + 10;
  return formatted("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" ",
                   width, y + 10) +
         "font-family=\"sans-serif\">\n" + elements + "</svg>\n";
}

static std::string_view colour_of(ProgramAct act) {
  constexpr std::array<std::string_view, 13> kColours = {
      "#dddddd", "#dddddd", "#eeeeee", "#ffbe7d", "#a0cbe8", "#8cd17d", "#d4a6c8",
      "#8cd17d", "#b6992d", "#b6992d", "#f1ce63", "#f1ce63", "#cccccc"};
  return kColours[static_cast<size_t>(act)];
}

/// The bytes that a rank holds, as a row of boxes from one change to the next.
static DrawnRow memory_row(const Program& program, const std::vector<ProgramRun::Span>& spans) {
  DrawnRow row{concat("memory of rank ", program.rank), {}};
  int64_t held = 0;
  for (const ProgramSlot& slot : program.slots) held += slot.held_before ? slot.bytes : 0;
  double since = 0;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    if (step.slot < 0 || (step.act != ProgramAct::acquire && step.act != ProgramAct::release))
      continue;
    if (spans[i].begin > since) {
      row.boxes.push_back({bytes_in_words(held), since, spans[i].begin, "#ffffff"});
      since = spans[i].begin;
    }
    const int64_t bytes = program.slots[static_cast<size_t>(step.slot)].bytes;
    held += step.act == ProgramAct::acquire ? bytes : -bytes;
  }
  const double end = spans.empty() ? 0 : spans.back().end;
  if (end > since) row.boxes.push_back({bytes_in_words(held), since, end, "#ffffff"});
  return row;
}

std::string svg_of(std::span<const Program> ranks) {
  constexpr double kWidest = 4000, kNarrowest = 90;
  const ProgramRun run(ranks);
  std::vector<DrawnRow> rows;
  double last = 0, shortest = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::map<int, DrawnRow> streams;
    for (size_t i = 0; i < run.spans()[r].size(); ++i) {
      const ProgramStep& step = ranks[r].steps[i];
      const auto& [begin, end] = run.spans()[r][i];
      if (step.verb.empty() || end <= begin) continue;
      shortest = shortest == 0 ? end - begin : std::min(shortest, end - begin);
      last = std::max(last, end);
      DrawnRow& row = streams[step.stream];
      row.boxes.push_back({words_of(step), begin, end, colour_of(step.act)});
    }
    for (auto& [stream, row] : streams) {
      row.name = concat("rank ", ranks[r].rank);
      if (streams.size() > 1) row.name += concat(", stream ", stream);
      rows.push_back(std::move(row));
    }
  }
  if (!ranks.empty() && run.spans()[0].size() == ranks[0].steps.size()) {
    rows.push_back(memory_row(ranks[0], run.spans()[0]));
  }
  const double scale =
      last == 0 ? 1 : std::max(std::min(kNarrowest / shortest, kWidest / last), 600 / last);
  return svg_of_rows(ranks.empty() ? "" : ranks[0].title, rows, scale);
}

}  // namespace weft
