// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/packed.h"

#include "ops/promotion.h"
#include "src/kernels/quantize/packed.h"
#include "weft/context.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/pattern.h"
#include "weft/extend/tape.h"
#include "weft/ops/in_place.h"
#include "weft/ops/products.h"
#include "weft/ops/shapes.h"

namespace weft {

static int64_t packed_blocks(int64_t columns) {
  return (columns + kPackedBlock - 1) / kPackedBlock;
}

// These ops are not among all_ops(): any bytes are no records.

static const std::vector<DType> packable = {DType::f32, DType::bf16, DType::f16, DType::f64};

/// structure: bits of a code.
static const Op pack_op = Op({
    .name = "pack_rows",
    .rule_of = [](const Attributes& a, std::span<const Shape> shapes) -> Rule {
      const int64_t blocks = packed_blocks(shapes[0][1]);
      const int64_t bytes = packed_bytes(static_cast<int>(a.structure[0]));
      if (shapes[0][1] % kPackedBlock != 0) {
        return {"n [k] -> n [+b] [+c]", {{"b", blocks}, {"c", bytes}}};
      }
      return {"n (b e) -> n b [+c]", {{"b", blocks}, {"e", kPackedBlock}, {"c", bytes}}};
    },
    .takes = {{.dtypes = packable, .strides = true}},
    .structure = {"bits",
                  [](const Dims& numbers, std::span<const Shape> shapes) {
                    return (numbers[0] == 4 || numbers[0] == 8) && shapes[0].ndim() == 2;
                  }},
    .dtype = [](const Attributes&, std::span<const DType>, int) { return DType::u8; },
    .forward = [](const Call& c) { pack_matrix(c.in(0), c.out()); },
    .differentiable = false,
});

static bool is_packed(std::span<const Shape> shapes) {
  return shapes.back().ndim() == 3 && packed_bits(shapes.back()[2]) != 0;
}

/// structure: the dtype. Result [rows, blocks, kPackedBlock].
static const Op unpack_op = Op({
    .name = "unpack_rows",
    .rule_of = [](const Attributes&, std::span<const Shape>) -> Rule {
      return {"n b [c] -> n b [+e]", {{"e", kPackedBlock}}};
    },
    .takes = {{.dtypes = {DType::u8}}},
    .structure = {"dtype", [](const Dims&, std::span<const Shape> s) { return is_packed(s); }},
    .dtype = [](const Attributes& a, std::span<const DType>,
                int) { return static_cast<DType>(a.structure[0]); },
    .forward =
        [](const Call& c) {
          MemoryBlock out = c.out();
          out = dense_block(out.data, out.dtype, {out.shape[0], out.shape[1] * kPackedBlock},
                            out.device);
          if (out.numel() > 0) unpack_matrix(c.in(0), out);
        },
    .differentiable = false,
});

Tensor pack_rows(const Tensor& matrix, int bits) {
  if (!matrix || matrix.ndim() != 2 || !is_floating(matrix.dtype())) {
    fail("pack_rows: ",
         matrix ? concat("tensor is ", matrix.shape(), ' ', matrix.dtype())
                : std::string("no tensor is given"),
         ", expected a floating matrix");
  }
  if (bits != 4 && bits != 8) fail("pack_rows: bits of a code are ", bits, ", expected 4 or 8");
  return pack_op({matrix}, {.structure = {bits}});
}

static void check_packed(const char* what, const Tensor& packed, int64_t columns) {
  const bool fits = packed && packed.dtype() == DType::u8 && packed.ndim() == 3 &&
                    packed_bits(packed.size(2)) != 0;
  if (!fits || packed.size(1) != packed_blocks(columns)) {
    fail(what, ": matrix is ", packed ? concat(packed.shape(), ' ', packed.dtype()) : "undefined",
         ", expected u8 [rows, ", packed_blocks(columns), ", 36 or 68], packed of ", columns,
         " columns");
  }
}

Tensor unpack_rows(const Tensor& packed, int64_t columns, DType dtype) {
  check_packed("unpack_rows", packed, columns);
  if (!is_floating(dtype) || size_of(dtype) == 1) {
    fail("unpack_rows: dtype is ", dtype, ", expected f32, bf16, f16 or f64");
  }
  const Tensor blocks = unpack_op({packed}, {.structure = {static_cast<int64_t>(dtype)}});
  const int64_t width = blocks.size(1) * kPackedBlock;
  const Tensor whole = reshape(blocks, {blocks.size(0), width});
  return width == columns ? whole : slice(whole, 1, 0, columns);
}

Tensor packed_linear(const Tensor& x, const Tensor& packed) {
  if (!x || x.ndim() == 0 || !is_floating(x.dtype())) {
    fail("packed_linear: ",
         x ? concat("input is ", x.shape(), ' ', x.dtype()) : std::string("no input is given"),
         ", expected a floating one with at least 1 dim");
  }
  const int64_t columns = x.size(x.ndim() - 1);
  check_packed("packed_linear", packed, columns);
  const auto matrix = [packed, columns, dtype = x.dtype()] {
    const NoGrad no_grad;
    return unpack_rows(packed, columns, dtype);
  };
  Tensor y;
  {
    const NoGrad no_grad;
    y = linear(x.detach(), matrix());
  }
  if (!Context::current().grad_enabled || !x.requires_grad()) return y;
  // Keeps the codes until backward, not the matrix.
  return record("packed_linear", {x}, {y}, [matrix](const Tensors& gradients) {
    return Tensors{matmul(gradients[0], matrix())};
  })[0];
}

Tensor unpacked_like(const Tensor& packed, int64_t columns) {
  TensorOptions options{.dtype = DType::f32, .device = packed.device()};
  if (packed.is_sharded()) {
    Pattern pattern = packed.sharding().pattern();
    for (int axis = 0; axis < packed.sharding().mesh().ndim(); ++axis) {
      if (!(pattern[axis] == Placement(Shard(0)))) pattern.set(axis, Replicate());
    }
    options.sharding = Sharding::of(packed.sharding().mesh(), pattern);
  }
  return empty({packed.size(0), columns}, options);
}

void pack_into(const Tensor& packed, const Tensor& matrix) {
  const NoGrad no_grad;
  const bool on_disk = rests_on_disk(packed);
  const Tensor filled = on_disk ? memory_like(packed) : packed;
  copy_(filled, pack_rows(matrix, packed_bits(packed.size(2))));
  if (on_disk) write_to_disk(packed, filled);
}

}  // namespace weft
