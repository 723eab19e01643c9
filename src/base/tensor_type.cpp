// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <ostream>

#include "weft/block.h"
#include "weft/dtype.h"
#include "weft/error.h"
#include "weft/placement.h"
#include "weft/shape.h"

namespace weft {

static constexpr std::array<std::string_view, kDTypes> kDTypeNames = {
    "f32", "bf16", "f16", "f64", "i32",     "i64",     "u8",  "bool", "i8",
    "i16", "u16",  "u32", "u64", "f8_e4m3", "f8_e5m2", "c64", "c128"};

std::string_view name_of(DType dtype) { return kDTypeNames[static_cast<size_t>(dtype)]; }

DType dtype_named(std::string_view name) {
  const auto found = std::ranges::find(kDTypeNames, name);
  if (found != kDTypeNames.end()) return static_cast<DType>(found - kDTypeNames.begin());
  fail("dtype: name is \"", name, "\", expected f32, bf16, f16, f64, i8, i16, i32, i64, u8, u16, ",
       "u32, u64, f8_e4m3, f8_e5m2, c64, c128 or bool");
}

static DType promote_integers(DType a, DType b) {
  if (a == DType::boolean || b == DType::boolean) return a == DType::boolean ? b : a;
  if (is_unsigned(a) == is_unsigned(b)) return size_of(a) >= size_of(b) ? a : b;
  const DType with_sign = is_unsigned(a) ? b : a, without = is_unsigned(a) ? a : b;
  if (size_of(with_sign) > size_of(without)) return with_sign;
  switch (size_of(without)) {
    case 1: return DType::i16;
    case 2: return DType::i32;
    case 4: return DType::i64;
    default:
      fail("promote: dtypes are ", a, " and ", b,
           ", expected ones whose values an integer dtype holds; cast one first");
  }
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_float8(a) || is_float8(b)) {
    fail("promote: dtypes are ", a, " and ", b, ", expected ones with arithmetic; cast ",
         is_float8(a) ? a : b, " first");
  }
  if (is_complex(a) || is_complex(b)) {
    return complex_dtype(promote(real_dtype(a), real_dtype(b)));
  }
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (!is_floating(a)) return promote_integers(a, b);
  return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

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
  return std::accumulate(begin(), end(), int64_t{1}, std::multiplies<>());
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
  return out << '[' << listed(dims) << ']';
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

Placement::Placement(Shard shard) : kind_(Kind::shard), dim_(static_cast<int8_t>(shard.dim)) {
  if (shard.dim < -kMaxDims || shard.dim >= kMaxDims) {
    fail("placement: dim of Shard is ", shard.dim, ", expected ", -kMaxDims, " to ", kMaxDims - 1);
  }
  for (const int64_t size : shard.sizes) {
    if (size < 0) {
      fail("placement: a size of Shard(", shard.dim, ") must be at least 0, got ", size);
    }
  }
  if (shard.outer < 1) {
    fail("placement: outer of Shard(", shard.dim, ") must be at least 1, got ", shard.outer);
  }
  outer_ = shard.outer;
  const size_t count = shard.sizes.size();
  if (count == 0) return;
  shard.sizes.resize(2 * count + 1, 0);
  std::partial_sum(shard.sizes.begin(), shard.sizes.begin() + static_cast<ptrdiff_t>(count),
                   shard.sizes.begin() + static_cast<ptrdiff_t>(count) + 1);
  sizes_ = std::make_shared<const std::vector<int64_t>>(std::move(shard.sizes));
}

std::span<const int64_t> Placement::sizes() const {
  return sizes_ ? std::span(*sizes_).first(sizes_->size() / 2) : std::span<const int64_t>();
}

std::span<const int64_t> Placement::begins() const {
  return sizes_ ? std::span(*sizes_).subspan(sizes_->size() / 2) : std::span<const int64_t>();
}

bool Placement::has_equal_sizes(const Placement& other) const {
  return sizes_ && other.sizes_ && *sizes_ == *other.sizes_;
}

Placement Placement::counted(int ndim) const {
  if (!is_shard() || dim_ >= 0) return *this;
  if (dim_ >= -ndim) {
    Placement placement = *this;
    placement.dim_ = static_cast<int8_t>(dim_ + ndim);
    return placement;
  }
  fail("placement: it is ", *this, ", expected a dim of the ", ndim, " that the tensor has");
}

Placements Placements::cut_in_order(int dim, std::vector<std::string> axes) const {
  Placements ordered = *this;
  ordered.orders_.push_back({dim, std::move(axes)});
  return ordered;
}

std::string_view name_of(ReduceOp op) {
  static constexpr std::array<std::string_view, 4> names = {"sum", "avg", "max", "min"};
  return names[static_cast<size_t>(op)];
}

std::ostream& operator<<(std::ostream& out, ReduceOp op) { return out << name_of(op); }

/// "3+1+4"; of more than eight sizes the first five and the last.
static std::string sizes_in_words(std::span<const int64_t> sizes) {
  if (sizes.size() <= 8) return listed(sizes, {}, "+");
  return concat(listed(sizes.first(5), {}, "+"), "+...+", sizes.back());
}

std::ostream& operator<<(std::ostream& out, const Placement& placement) {
  if (placement.is_replicate()) return out << 'R';
  if (placement.is_shard()) {
    out << "S(" << placement.dim();
    if (placement.outer() > 1) out << " in " << placement.outer() << "x*";
    if (placement.has_sizes()) out << ": " << sizes_in_words(placement.sizes());
    return out << ')';
  }
  return out << "P(" << placement.op() << ')';
}

}  // namespace weft
