// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "src/base/numeric.h"
#include "src/kernels/attention/tiles.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"

namespace weft {

static std::optional<DType> products_asked_for;

void multiply_attention_in(std::optional<DType> dtype) { products_asked_for = dtype; }

bool multiplies_in_bf16(DType dtype) {
  if (dtype != DType::bf16) return false;
  if (products_asked_for) return *products_asked_for == DType::bf16;
#ifdef WEFT_WITH_ONEDNN
  return has_bf16_instructions();
#else
  return false;
#endif
}

static void check_operand(const char* name, const MemoryBlock& x, const Shape& shape, DType dtype) {
  if (x.shape != shape) fail("attention: ", name, " is ", x.shape, ", expected ", shape);
  if (x.dtype != dtype) fail("attention: ", name, " is ", x.dtype, ", expected ", dtype);
  const int last = shape.ndim() - 1;
  if (last == 3 && shape[last] > 1 && x.strides[last] != 1) {
    fail("attention: stride of the last dim of ", name, " is ", x.strides[last], ", expected 1");
  }
}

static AttentionSizes checked_sizes(const MemoryBlock& q, const MemoryBlock& k,
                                    const MemoryBlock& v, const MemoryBlock& out,
                                    const AttentionArguments& options) {
  if (q.shape.ndim() != 4 || k.shape.ndim() != 4) {
    fail("attention: q and k are ", q.shape, " and ", k.shape,
         ", expected [batch, heads, sequence, head_dim]");
  }
  if (!is_floating(q.dtype)) fail("attention: dtype is ", q.dtype, ", expected a floating one");
  if (q.device.kind != DeviceKind::cpu && !cuda::on_cuda(q)) {
    fail("attention: device is ", q.device, ", expected cpu or cuda");
  }
  if (q.shape[3] == 0) fail("attention: q is ", q.shape, ", expected heads with elements");
  const int64_t heads = q.shape[1], kv_heads = k.shape[1];
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    fail("attention: number of query heads is ", heads, ", expected a multiple of ", kv_heads,
         ", the key heads");
  }
  check_operand("q", q, q.shape, q.dtype);
  check_operand("k", k, {q.shape[0], kv_heads, k.shape[2], q.shape[3]}, q.dtype);
  check_operand("v", v, k.shape, q.dtype);
  check_operand("out", out, q.shape, q.dtype);
  const int64_t group = kv_heads == 0 ? 0 : heads / kv_heads;
  const auto width = static_cast<double>(q.shape[3]);
  AttentionSizes sizes{
      .batch = q.shape[0],
      .heads = heads,
      .kv_heads = kv_heads,
      .group = group,
      .queries = q.shape[2],
      .keys = k.shape[2],
      .width = q.shape[3],
      .scale = options.scale ? *options.scale : 1 / std::sqrt(width),
      .causal = options.causal,
      .offset = options.query_offset.value_or(k.shape[2] - q.shape[2]),
      .window = options.window,
      .first_batch = options.origin.batch,
      .first_head = options.origin.head,
      .all_heads = options.origin.all_heads ? options.origin.all_heads : heads,
      .all_queries = options.origin.all_queries ? options.origin.all_queries : q.shape[2],
      .block_queries = 0};
  sizes.block_queries = std::clamp<int64_t>(128 / std::max<int64_t>(group, 1), 16, 64);
  sizes.block_queries = std::clamp<int64_t>(sizes.queries, 1, sizes.block_queries);
  return sizes;
}

void attention(const MemoryBlock& q, const MemoryBlock& k, const MemoryBlock& v,
               const AttentionArguments& options, const MemoryBlock& out, const MemoryBlock& lse) {
  const AttentionSizes sizes = checked_sizes(q, k, v, out, options);
  if (lse.data) {
    check_operand("lse", lse, {sizes.batch, sizes.heads, sizes.queries}, compute_dtype(q.dtype));
  }
  if (out.numel() == 0) return;
  attend(sizes, {q, k, v, out, lse, options});
}

void attention_backward(const MemoryBlock& q, const MemoryBlock& k, const MemoryBlock& v,
                        const MemoryBlock& out, const MemoryBlock& lse, const MemoryBlock& dout,
                        const AttentionArguments& options, const MemoryBlock& dq,
                        const MemoryBlock& dk, const MemoryBlock& dv, const MemoryBlock& dmask) {
  const AttentionSizes sizes = checked_sizes(q, k, v, out, options);
  check_operand("lse", lse, {sizes.batch, sizes.heads, sizes.queries}, compute_dtype(q.dtype));
  check_operand("dout", dout, q.shape, q.dtype);
  check_operand("dq", dq, q.shape, q.dtype);
  check_operand("dk", dk, k.shape, q.dtype);
  check_operand("dv", dv, v.shape, q.dtype);
  if (dmask.data) {
    check_operand("dmask", dmask, options.mask.shape, compute_dtype(q.dtype));
    fill(dmask, 0);
  }
  if (k.numel() == 0 && q.numel() == 0) return;
  attend_backward(sizes, {{q, k, v, out, lse, options}, dout, dq, dk, dv, dmask});
}

}  // namespace weft
