// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>

#include "mesh/plan.h"
#include "ops/dims.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/mesh.h"

namespace weft {

std::string explain(const Tensor& tensor, const Placements& placements) {
  check_tensor("explain", tensor);
  if (!tensor.is_sharded()) {
    fail("explain: the tensor ", tensor.shape(), " has no mesh, expected one over a mesh");
  }
  Sharding target(tensor.sharding().mesh(), placements, tensor.ndim());
  Ref<Plan> plan =
      plan_between(layout_of(tensor), layout_of(target, tensor.shape(), tensor.dtype()));
  return to_string(plan_on(tensor.device().kind, *plan));
}

namespace {

/// A tensor of more elements is shown by the first and last three along each dim.
constexpr int64_t kShownElements = 1000;
constexpr int64_t kEdge = 3;
constexpr size_t kLineWidth = 80;

/// Dims of what is shown.
Shape shown_shape(Shape shape) {
  if (shape.product() <= kShownElements) return shape;
  for (int d = 0; d < shape.ndim(); ++d) shape[d] = std::min(shape[d], 2 * kEdge);
  return shape;
}

/// Copies the first and last elements along `dim` and those after it.
void copy_edges(const MemoryBlock& to, const MemoryBlock& from, int dim) {
  if (dim == from.shape.ndim()) return copy(to, from);
  const int64_t size = from.shape[dim], shown = to.shape[dim];
  const int64_t first = size == shown ? size : kEdge, last = shown - first;
  copy_edges(part_along(to, dim, 0, first), part_along(from, dim, 0, first), dim + 1);
  if (last == 0) return;
  copy_edges(part_along(to, dim, first, shown), part_along(from, dim, size - last, size), dim + 1);
}

/// Formats numbers as PyTorch does: whole numbers as "1.", others with four digits, in powers of
/// ten where they differ much in size.
std::vector<std::string> float_texts(const std::vector<double>& values) {
  double least = HUGE_VAL, greatest = 0;
  bool is_whole = true;
  for (const double value : values) {
    if (!std::isfinite(value) || value == 0) continue;
    least = std::min(least, std::abs(value));
    greatest = std::max(greatest, std::abs(value));
    is_whole = is_whole && value == std::trunc(value);
  }
  const bool has_powers =
      greatest > 0 && (greatest / least > 1000 || greatest > 1e8 || (!is_whole && least < 1e-4));
  std::vector<std::string> texts;
  for (const double value : values) {
    std::string text = formatted(has_powers ? "%.4e" : is_whole ? "%.0f" : "%.4f", value);
    if (!has_powers && is_whole && std::isfinite(value)) text += '.';
    texts.push_back(std::isnan(value) ? "nan" : std::move(text));
  }
  return texts;
}

/// Formats complex numbers as PyTorch does: "1.0000-2.0000j".
std::vector<std::string> complex_texts(const MemoryBlock& from, const Shape& shown) {
  std::vector<std::string> parts[2];
  for (const int i : {0, 1}) {
    std::vector<double> values(static_cast<size_t>(shown.product()));
    copy_edges(dense_block(values.data(), DType::f64, shown), part_of(from, i == 1), 0);
    parts[i] = float_texts(values);
  }
  for (size_t i = 0; i < parts[0].size(); ++i) {
    const std::string& imaginary = parts[1][i];
    parts[0][i] += (imaginary[0] == '-' ? "" : "+") + imaginary + 'j';
  }
  return parts[0];
}

std::vector<std::string> texts_of(const Tensor& tensor, const Shape& shown) {
  const auto count = static_cast<size_t>(shown.product());
  const MemoryBlock from = tensor.block();
  if (is_complex(tensor.dtype())) return complex_texts(from, shown);
  if (is_floating(tensor.dtype())) {
    std::vector<double> values(count);
    copy_edges(dense_block(values.data(), DType::f64, shown), from, 0);
    return float_texts(values);
  }
  std::vector<int64_t> values(count);
  copy_edges(dense_block(values.data(), DType::i64, shown), from, 0);
  std::vector<std::string> texts;
  for (const int64_t value : values) {
    if (tensor.dtype() == DType::boolean) {
      texts.push_back(value ? "True" : "False");
    } else if (tensor.dtype() == DType::u64) {
      texts.push_back(std::to_string(static_cast<uint64_t>(value)));
    } else {
      texts.push_back(std::to_string(value));
    }
  }
  return texts;
}

/// The elements as they are written.
struct Written {
  const Shape& shape;
  const Shape& shown;
  std::vector<std::string> texts;
  size_t width = 0;
};

/// Prints the elements from number `first` on, of the dims from `dim` on.
void print_values(std::ostream& out, const Written& written, int dim, size_t first, size_t indent) {
  const int behind = written.shape.ndim() - 1 - dim;
  if (behind < 0) {
    const std::string& text = written.texts[first];
    out << std::string(written.width - std::min(written.width, text.size()), ' ') << text;
    return;
  }
  const size_t room = kLineWidth - std::min(kLineWidth, indent);
  const size_t in_line = behind > 0 ? 1 : std::max<size_t>(1, room / (written.width + 2));
  const auto lines = static_cast<size_t>(std::max(1, behind));
  const std::string next_line = std::string(",").append(lines, '\n').append(indent + 1, ' ');
  size_t stride = 1, place = 0;
  for (int d = dim + 1; d <= dim + behind; ++d) stride *= static_cast<size_t>(written.shown[d]);
  const auto separate = [&] {
    if (place > 0) out << (place % in_line ? ", " : next_line);
    ++place;
  };
  out << '[';
  for (int64_t i = 0; i < written.shown[dim]; ++i) {
    if (written.shown[dim] < written.shape[dim] && i == kEdge) {
      separate();
      out << (behind > 0 ? "..." : " ...");
    }
    separate();
    print_values(out, written, dim + 1, first + static_cast<size_t>(i) * stride, indent + 1);
  }
  out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor) return out << "Tensor()";
  out << "Tensor(" << tensor.shape() << ", " << tensor.dtype() << ", " << tensor.device();
  if (tensor.is_sharded()) out << ", " << tensor.sharding();
  out << ')';
  if (tensor.device().kind == DeviceKind::meta || !tensor.storage()->is_bound()) return out;
  const Shape held = tensor.local().shape();
  if (tensor.is_sharded()) {
    out << "\nrank " << tensor.sharding().mesh().rank() << " holds " << held;
    if (!tensor.sharding().has_inner()) out << " from " << tensor.box().offset;
    out << ':';
  }
  if (held.product() == 0) return out << " []";
  const Shape shown = shown_shape(held);
  Written written{held, shown, texts_of(tensor, shown)};
  for (const std::string& text : written.texts) {
    // That of finite numbers, as in PyTorch; True and False have neither letter.
    if (text.find_first_of("ni") == text.npos) written.width = std::max(written.width, text.size());
  }
  out << (held.ndim() > 0 ? '\n' : ' ');
  print_values(out, written, 0, 0, 0);
  return out;
}

}  // namespace weft
