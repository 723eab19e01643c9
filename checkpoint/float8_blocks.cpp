// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/float8_blocks.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "weft/error.h"

namespace weft {

static constexpr int64_t kBlock = 128;

static std::array<float, 256> e4m3_values() {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    float value = exponent > 0 ? std::ldexp(static_cast<float>(8 + fraction), exponent - 10)
                               : std::ldexp(static_cast<float>(fraction), -9);
    if ((code & 127) == 127) value = std::numeric_limits<float>::quiet_NaN();
    values[static_cast<size_t>(code)] = code < 128 ? value : -value;
  }
  return values;
}

static int64_t blocks_of(int64_t size) { return (size + kBlock - 1) / kBlock; }

std::string name_of_scales(const std::string& name) { return name + "_scale_inv"; }

bool is_in_float8_blocks(const TensorFiles& files, const std::string& name) {
  if (!files.contains(name_of_scales(name))) return false;
  const DType dtype = files.entry(name).dtype;
  return dtype == DType::f8_e4m3 || dtype == DType::u8;
}

void check_float8_blocks(const std::string& what, const TensorFiles& files,
                         const std::string& name) {
  const SafetensorsEntry& entry = files.entry(name);
  const SafetensorsEntry& scales = files.entry(name_of_scales(name));
  if (entry.shape.ndim() != 2) {
    fail(what, ": ", files.path(), ": tensor ", in_quotes(name), " is ", entry.shape,
         ", expected a matrix of fp8");
  }
  const Shape expected{blocks_of(entry.shape[0]), blocks_of(entry.shape[1])};
  if (scales.dtype == DType::f32 && scales.shape == expected) return;
  fail(what, ": ", files.path(), ": tensor ", in_quotes(name_of_scales(name)), " is ", scales.dtype,
       ' ', scales.shape, ", expected f32 ", expected, ", a factor for each block of ", kBlock,
       " x ", kBlock);
}

void read_float8_blocks(const TensorFiles& files, const std::string& name, const Box& box,
                        float* into) {
  static const std::array<float, 256> values = e4m3_values();
  const int64_t rows = box.shape[0], columns = box.shape[1];
  if (rows == 0 || columns == 0) return;
  std::vector<uint8_t> codes(static_cast<size_t>(rows * columns));
  files.read_box(name, box, codes.data());
  Box around{box.offset, box.shape};
  for (int dim = 0; dim < 2; ++dim) {
    const int64_t first = box.offset[dim] / kBlock;
    around.offset[dim] = first;
    around.shape[dim] = blocks_of(box.offset[dim] + box.shape[dim]) - first;
  }
  std::vector<float> scales(static_cast<size_t>(around.shape.product()));
  files.read_box(name_of_scales(name), around, scales.data());
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t block_row = (box.offset[0] + r) / kBlock - around.offset[0];
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t block = (box.offset[1] + c) / kBlock - around.offset[1];
      const auto at = static_cast<size_t>(r * columns + c);
      into[at] =
          values[codes[at]] * scales[static_cast<size_t>(block_row * around.shape[1] + block)];
    }
  }
}

}  // namespace weft
