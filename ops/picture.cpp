// SPDX-License-Identifier: Apache-2.0
#include "weft/picture.h"

#include <algorithm>
#include <array>
#include <ostream>
#include <string_view>
#include <vector>

#include "weft/error.h"
#include "weft/extend/pattern.h"
#include "weft/mesh.h"
#include "weft/ops/factories.h"
#include "weft/program.h"

namespace weft {

namespace {

constexpr double kCell = 14, kGap = 10;
constexpr int kWidest = 8;
constexpr std::array<std::string_view, 16> kColours = {
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f",
    "#86bcb6", "#d37295", "#a0cbe8", "#ffbe7d", "#8cd17d", "#b6992d", "#499894", "#79706e"};

/// A rank's part: one box, or several where an inner factor of a dim is cut.
struct RankPart {
  std::string name;
  std::vector<Box> boxes;
};

/// The elements of an SVG file, and their width and height.
struct Drawing {
  double width = 0, height = 0;
  std::string elements;
};

/// "[0:3, 2:4]".
std::string slice_words(const Box& box) {
  if (box.shape.product() == 0) return "nothing";
  std::string text;
  for (int dim = 0; dim < box.shape.ndim(); ++dim) {
    text += concat(dim > 0 ? ", " : "", box.offset[dim], ':', box.offset[dim] + box.shape[dim]);
  }
  return concat('[', text, ']');
}

/// "[0:1, 2:4] [4:5, 2:4]", of many the first four.
std::string slice_words(const std::vector<Box>& boxes) {
  constexpr size_t kMost = 4;
  std::string text;
  for (size_t i = 0; i < std::min(boxes.size(), kMost); ++i) {
    text += concat(i > 0 ? " " : "", slice_words(boxes[i]));
  }
  return boxes.size() > kMost ? concat(text, " and ", boxes.size() - kMost, " more") : text;
}

/// "Tensor([5, 4], f32, cpu, [S(0), S(1)])".
std::string picture_title(const Tensor& tensor) {
  const std::string layout = tensor.is_sharded() ? concat(", ", tensor.sharding()) : "";
  return concat("Tensor(", tensor.shape(), ", ", tensor.dtype(), ", ", tensor.device(), layout,
                ')');
}

/// " (an addend: tp sum)" of a Partial.
std::string addend_note(const Sharding& sharding) {
  std::string sums;
  const DeviceMesh mesh = sharding.mesh();
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    const Placement& placement = sharding[axis];
    if (!placement.is_partial()) continue;
    sums += concat(sums.empty() ? "" : ", ", mesh.axis_name(axis), ' ', placement.op());
  }
  return sums.empty() ? "" : concat(" (an addend: ", sums, ')');
}

using Ranges = std::vector<Chunk>;

/// The ranges of a dim whose factors, from `first`, a box in factors cuts.
Ranges ranges_of(const Box& box, const Shape& factors, int first, int end) {
  Ranges ranges = {{0, 1}};
  for (int f = first; f < end; ++f) {
    const int64_t size = factors[f], length = box.shape[f];
    Ranges next;
    for (const Chunk& range : ranges) {
      if (length == size) {
        next.push_back({range.offset * size, range.length * size});
        continue;
      }
      for (int64_t i = 0; i < range.length; ++i) {
        next.push_back({(range.offset + i) * size + box.offset[f], length});
      }
    }
    ranges = std::move(next);
  }
  return ranges;
}

std::vector<Box> boxes_of(const Tensor& tensor, const std::vector<int>& sizes, int rank) {
  const Pattern& pattern = tensor.sharding().pattern();
  const Shape& shape = tensor.shape();
  if (!pattern.has_inner()) return {box_of(pattern, sizes, shape, rank)};
  const auto factors = factored(shape, {&pattern, 1}, sizes);
  const Box inner = box_of(factors->patterns[0], sizes, factors->shape, rank);
  if (inner.shape.product() == 0) return {Box{inner.offset, inner.shape}};
  std::vector<Box> boxes = {{Dims::filled(shape.ndim(), 0), shape}};
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    const auto next = static_cast<size_t>(dim) + 1;
    const int end = next < factors->first.size() ? factors->first[next] : factors->shape.ndim();
    const int first = factors->first[static_cast<size_t>(dim)];
    std::vector<Box> cut;
    for (const Box& box : boxes) {
      for (const Chunk& range : ranges_of(inner, factors->shape, first, end)) {
        Box& one = cut.emplace_back(box);
        one.offset[dim] = range.offset, one.shape[dim] = range.length;
      }
    }
    boxes = std::move(cut);
  }
  return boxes;
}

std::vector<RankPart> rank_parts_of(const Tensor& tensor) {
  if (!tensor.is_sharded()) return {{"here", {tensor.box()}}};
  const DeviceMesh mesh = tensor.sharding().mesh();
  std::vector<int> sizes;
  for (int axis = 0; axis < mesh.ndim(); ++axis) sizes.push_back(mesh.axis_size(axis));
  std::vector<RankPart> parts;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    std::string at;
    for (int axis = mesh.ndim() - 1, left = rank; axis >= 0; --axis) {
      const int size = sizes[static_cast<size_t>(axis)];
      at = concat(mesh.axis_name(axis), '=', left % size, at.empty() ? "" : ", ", at);
      left /= size;
    }
    parts.push_back({concat("rank ", rank, " (", at, ")", addend_note(tensor.sharding())),
                     boxes_of(tensor, sizes, rank)});
  }
  return parts;
}

std::string rectangle(double x, double y, double width, double height, std::string_view colour) {
  return formatted("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" ", x, y, width,
                   height) +
         concat("fill=\"", colour, "\" stroke=\"#888888\" stroke-width=\"0.5\"/>\n");
}

/// The size or offset of the last but one dim (0) or the last dim (1).
double picture_size(const Dims& dims, int which, int64_t otherwise) {
  const int dim = dims.ndim() - 2 + which;
  return static_cast<double>(dim >= 0 ? dims[dim] : otherwise);
}

Drawing drawing_of(const std::string& title, const Tensor& tensor,
                   const std::vector<RankPart>& parts) {
  const Shape& shape = tensor.shape();
  const double rows = picture_size(shape, 0, 1), columns = picture_size(shape, 1, 1);
  const double cell = kCell * std::min(1.0, 160 / std::max({1.0, rows * kCell, columns * kCell}));
  size_t longest = 0;
  for (const RankPart& part : parts) longest = std::max(longest, part.name.size());
  const double width = std::max({columns * cell, 150.0, 6.2 * static_cast<double>(longest)});
  const double height = rows * cell + 34;
  const int count = static_cast<int>(parts.size()), across = std::min(count, kWidest);
  const int down = (count + across - 1) / across;
  std::string elements = formatted("<text x=\"%.0f\" y=\"18\" font-size=\"13\">", kGap) +
                         xml_text(title) + "</text>\n";
  for (int i = 0; i < count; ++i) {
    const auto& [name, boxes] = parts[static_cast<size_t>(i)];
    const double x = kGap + i % across * (width + kGap), y = 30 + i / across * (height + kGap);
    const std::string words = shape.ndim() > 2 ? concat(name, ' ', slice_words(boxes)) : name;
    elements +=
        formatted("<text x=\"%.1f\" y=\"%.1f\">", x, y + 12) + xml_text(words) + "</text>\n";
    elements += rectangle(x, y + 18, columns * cell, rows * cell, "#eeeeee");
    for (const Box& box : boxes) {
      if (box.shape.product() == 0) continue;
      elements += rectangle(
          x + picture_size(box.offset, 1, 0) * cell, y + 18 + picture_size(box.offset, 0, 0) * cell,
          picture_size(box.shape, 1, 1) * cell, picture_size(box.shape, 0, 1) * cell,
          kColours[static_cast<size_t>(i) % kColours.size()]);
    }
  }
  const double least = kGap * 2 + 7 * static_cast<double>(title.size());
  return {std::max(across * (width + kGap) + kGap, least), down * (height + kGap) + 30, elements};
}

/// An SVG file that is readable on a ground of any colour.
std::string svg_file(const Drawing& drawing) {
  return formatted(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" "
             "font-size=\"11\" width=\"%.0f\" height=\"%.0f\">\n",
             drawing.width, drawing.height) +
         "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" + drawing.elements + "</svg>";
}

std::string text_of_parts(const std::string& title, const std::vector<RankPart>& parts) {
  size_t width = 0;
  for (const RankPart& part : parts) width = std::max(width, part.name.find(')') + 1);
  std::string text = title;
  for (const auto& [name, boxes] : parts) {
    const size_t end = std::min(name.find(')') + 1, name.size());
    const std::string rank = name.substr(0, end == 0 ? name.size() : end);
    text += concat('\n', rank, std::string(width - std::min(width, rank.size()), ' '), "  ",
                   slice_words(boxes), name.substr(rank.size()));
  }
  return text;
}

}  // namespace

Picture visualize(const Tensor& tensor) {
  const std::string title = picture_title(tensor);
  const std::vector<RankPart> parts = rank_parts_of(tensor);
  return {text_of_parts(title, parts), svg_file(drawing_of(title, tensor, parts))};
}

Picture visualize(const Tensor& tensor, const Placements& placements) {
  std::string plan = explain(tensor, placements);
  plan.erase(plan.find_last_not_of('\n') + 1);
  const Sharding to(tensor.sharding().mesh(), placements, tensor.ndim());
  const Tensor after = empty(tensor.shape(), {tensor.dtype(), meta, to});
  Drawing first = drawing_of(picture_title(tensor), tensor, rank_parts_of(tensor));
  const std::string title = concat("Tensor(", tensor.shape(), ", ", tensor.dtype(), ", ",
                                   tensor.device(), ", ", after.sharding(), ')');
  const Drawing second = drawing_of(title, after, rank_parts_of(after));
  // The first line is the layouts, which the pictures show.
  size_t lines = 0;
  for (size_t at = plan.find('\n'), end; at != plan.npos; at = end, ++lines) {
    end = plan.find('\n', at + 1);
    const std::string line = plan.substr(at + 1, end == plan.npos ? end : end - at - 1);
    first.elements += formatted("<text x=\"%.0f\" y=\"%.0f\" font-size=\"13\" fill=\"#555555\">",
                                kGap * 2, first.height + 16 + 18 * static_cast<double>(lines)) +
                      concat(lines > 0 ? "&#160;" : "&#8595;", ' ', xml_text(line), "</text>\n");
    const double least = kGap * 3 + 7 * static_cast<double>(line.size());
    first.width = std::max(first.width, least);
  }
  const double down = first.height + 18 * static_cast<double>(lines) + 8;
  const std::string moved = formatted("<g transform=\"translate(0 %.0f)\">\n", down);
  return {
      concat(visualize(tensor).text, '\n', plan, '\n', text_of_parts(title, rank_parts_of(after))),
      svg_file({std::max(first.width, second.width), down + second.height,
                first.elements + moved + second.elements + "</g>\n"})};
}

Picture visualize(const Program& program) { return {text_of(program), svg_of({&program, 1})}; }

Picture visualize(const std::vector<Program>& ranks) {
  return {ranks.empty() ? "" : text_of(ranks[0]), svg_of(ranks)};
}

std::ostream& operator<<(std::ostream& out, const Picture& picture) { return out << picture.text; }

}  // namespace weft
