// SPDX-License-Identifier: Apache-2.0
#include "src/device/cuda/runtime.h"
#include "src/device/kernel/elements.h"
#include "src/device/kernel/launch.h"
#include "src/kernels/quantize/packed.h"

namespace weft::cuda {

namespace {

/// A thread packs one block after another.
struct PackKernel {
  const void* matrix;
  DType dtype;
  int64_t row_stride, column_stride, columns;
  uint8_t* packed;
  int64_t blocks, bytes, count;
  int bits;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t at = thread.index; at < count; at += thread.count) {
      const int64_t row = at / blocks, first = at % blocks * kPackedBlock;
      const auto value = [&](int i) {
        if (first + i >= columns) return 0.0f;
        return load_element<float>(matrix, dtype, row * row_stride + (first + i) * column_stride);
      };
      pack_record(value, bits, packed + at * bytes);
    }
  }
};

/// Each thread unpacks elements.
struct UnpackKernel {
  const uint8_t* packed;
  int64_t bytes;
  int bits;
  void* out;
  DType dtype;
  int64_t count;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < count; i += thread.count) {
      const uint8_t* record = packed + i / kPackedBlock * bytes;
      const float code = packed_code(record, bits, i % kPackedBlock);
      store_element(out, dtype, i, code * record_scale(record));
    }
  }
};

}  // namespace

void pack_matrix(const MemoryBlock& matrix, const MemoryBlock& packed) {
  const int64_t count = packed.shape[0] * packed.shape[1], bytes = packed.shape[2];
  const PackKernel kernel{matrix.data,       matrix.dtype,    matrix.strides[0],
                          matrix.strides[1], matrix.shape[1], packed.as<uint8_t>(),
                          packed.shape[1],   bytes,           count,
                          packed_bits(bytes)};
  launch(kernel, count, current_stream(packed.device));
}

void unpack_matrix(const MemoryBlock& packed, const MemoryBlock& out) {
  const int64_t bytes = packed.shape[2];
  const UnpackKernel kernel{packed.as<uint8_t>(), bytes, packed_bits(bytes), out.data, out.dtype,
                            out.numel()};
  launch(kernel, kernel.count, current_stream(out.device));
}

}  // namespace weft::cuda
