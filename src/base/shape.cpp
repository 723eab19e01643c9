// SPDX-License-Identifier: Apache-2.0
#include "weft/shape.h"

#include <algorithm>
#include <ostream>

#include "weft/block.h"
#include "weft/error.h"

namespace weft {

Dims::Dims(std::span<const int64_t> values) {
  if (values.size() > kMaxDims)
    fail("shape: number of dims is ", values.size(), ", expected at most ", kMaxDims);
  std::copy(values.begin(), values.end(), values_.begin());
  ndim_ = static_cast<uint8_t>(values.size());
}

Dims Dims::filled(int ndim, int64_t value) {
  Dims dims;
  for (int i = 0; i < ndim; ++i) dims.push_back(value);
  return dims;
}

void Dims::push_back(int64_t value) { insert(ndim_, value); }

void Dims::insert(int dim, int64_t value) {
  if (ndim_ == kMaxDims)
    fail("shape: number of dims is ", kMaxDims + 1, ", expected at most ", kMaxDims);
  std::copy_backward(begin() + dim, end(), end() + 1);
  values_[static_cast<size_t>(dim)] = value;
  ++ndim_;
}

void Dims::erase(int dim) {
  std::copy(begin() + dim + 1, end(), begin() + dim);
  values_[--ndim_] = 0;
}

int64_t Dims::product() const {
  int64_t product = 1;
  for (int64_t value : *this) product *= value;
  return product;
}

Strides dense_strides(const Shape& shape) {
  Strides strides = Dims::filled(shape.ndim(), 1);
  for (int i = shape.ndim() - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

int normalized_dim(const char* what, int dim, int ndim) {
  if (dim < -ndim || dim >= ndim) {
    fail(what, ": dim is ", dim, ", expected one of the ", ndim, " dims");
  }
  return dim < 0 ? dim + ndim : dim;
}

std::ostream& operator<<(std::ostream& out, const Dims& dims) {
  out << '[';
  for (int i = 0; i < dims.ndim(); ++i) out << (i ? ", " : "") << dims[i];
  return out << ']';
}

bool MemoryBlock::is_dense() const {
  int64_t expected = 1;
  for (int i = shape.ndim() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

MemoryBlock MemoryBlock::part(const Box& box) const {
  int64_t offset = 0;
  for (int i = 0; i < shape.ndim(); ++i) offset += box.offset[i] * strides[i];
  auto* start = static_cast<char*>(data);
  if (start) start += offset * static_cast<int64_t>(size_of(dtype));
  // Copies only the strides in use, because each cache line may have to come from another core.
  MemoryBlock part{start, dtype, device, box.shape, box.shape};
  for (int i = 0; i < shape.ndim(); ++i) part.strides[i] = strides[i];
  return part;
}

MemoryBlock dense_block(void* data, DType dtype, const Shape& shape, Device device) {
  return {data, dtype, device, shape, dense_strides(shape)};
}

}  // namespace weft
