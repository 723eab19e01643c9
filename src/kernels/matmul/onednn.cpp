// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/onednn.h"

#include <sys/mman.h>

#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/kernels/matmul/product.h"
#include "src/kernels/matmul/tasks.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

/// Everything that a primitive depends on.
struct PrimitiveKey {
  int64_t m, n, k, a_leading, b_leading, c_leading;
  uint32_t beta_bits;
  uint16_t threads;
  DType operands, result;
  bool a_transposed, b_transposed, bias;
  uint8_t unused[5] = {};  // keys are compared and hashed as bytes
  bool operator==(const PrimitiveKey& other) const {
    return std::memcmp(this, &other, sizeof other) == 0;
  }
};
static_assert(sizeof(PrimitiveKey) == 64 && std::has_unique_object_representations_v<PrimitiveKey>);

struct PrimitiveHash {
  size_t operator()(const PrimitiveKey& key) const {
    return xxh3_of(std::as_bytes(std::span(&key, 1)));
  }
};

void check_onednn_runtime(unsigned cpu_runtime) {
  if (cpu_runtime != DNNL_RUNTIME_SYCL) return;
  fail_call("oneDNN", "the CPU runtime of the loaded libdnnl is SYCL, expected OpenMP; remove its ",
            "folder from LD_LIBRARY_PATH");
}

dnnl::engine& onednn_engine() {
  static auto* engine = [] {
    check_onednn_runtime(dnnl_version()->cpu_runtime);
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives every thread
  }();
  return *engine;
}

static dnnl::memory::desc matrix_desc(int64_t rows, int64_t columns, DType dtype, int64_t leading,
                                      bool transposed = false) {
  const auto strides = transposed ? dnnl::memory::dims{1, leading} : dnnl::memory::dims{leading, 1};
  return {{rows, columns}, onednn_type(dtype), strides};
}

/// A primitive with its memory objects, whose addresses are set at each call. Uses the C interface,
/// because the C++ one builds a hash map per call.
class MatmulPrimitive {
 public:
  explicit MatmulPrimitive(const PrimitiveKey& key);
  void run(void* a, void* b, void* c, void* bias, dnnl::stream& stream);

 private:
  void add_argument(int name, const dnnl::memory::desc& desc) {
    memories_.push_back(dnnl::memory(desc, onednn_engine(), DNNL_MEMORY_NONE));
    arguments_.push_back({name, memories_.back().get()});
  }
  void set_address(size_t argument, void* address) {
    dnnl_memory_set_data_handle(arguments_[argument].memory, address);
  }

  PrimitiveKey key_;
  dnnl::matmul primitive_;
  size_t scratch_bytes_ = 0;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

MatmulPrimitive::MatmulPrimitive(const PrimitiveKey& key) : key_(key) {
  ThreadLimit as_when_run(key.threads);  // oneDNN divides the work at creation
  const auto a = matrix_desc(key.m, key.k, key.operands, key.a_leading, key.a_transposed);
  const auto b = matrix_desc(key.k, key.n, key.operands, key.b_leading, key.b_transposed);
  const auto c = matrix_desc(key.m, key.n, key.result, key.c_leading);
  const auto bias = matrix_desc(1, key.n, DType::f32, key.n);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (const float beta = std::bit_cast<float>(key.beta_bits); beta != 0) {
    dnnl::post_ops sum;
    sum.append_sum(beta);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc chosen =
      key.bias ? described<dnnl::matmul>(attributes, a, b, bias, c)
               : described<dnnl::matmul>(attributes, a, b, c);
  primitive_ = dnnl::matmul(chosen);
  scratch_bytes_ = chosen.scratchpad_desc().get_size();
  add_argument(DNNL_ARG_SRC, a);
  add_argument(DNNL_ARG_WEIGHTS, b);
  add_argument(DNNL_ARG_DST, c);
  add_argument(DNNL_ARG_SCRATCHPAD, chosen.scratchpad_desc());
  if (key.bias) add_argument(DNNL_ARG_BIAS, bias);
}

void MatmulPrimitive::run(void* a, void* b, void* c, void* bias, dnnl::stream& stream) {
  ScratchMemory scratch;
  set_address(0, a);
  set_address(1, b);
  set_address(2, c);
  if (scratch_bytes_ > 0) set_address(3, scratch.take_bytes(scratch_bytes_));
  if (bias) set_address(4, bias);
  const auto status = dnnl_primitive_execute(
      primitive_.get(), stream.get(), static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success) {
    fail_call("dnnl_primitive_execute", "matmul of ", key_.m, " x ", key_.k, " by ", key_.k, " x ",
              key_.n, " gave status ", static_cast<int>(status));
  }
}

/// Throws when a new primitive could lack memory: oneDNN does not check whether it got memory for
/// the code of its kernels, at most 14 times 256 KiB in our tests.
void check_memory_for_primitive() {
  constexpr size_t kBytes = size_t{16} << 20;
  void* const probe = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED) {
    fail_call("mmap", kBytes, " bytes of memory for the kernels of a product are not available");
  }
  ::munmap(probe, kBytes);
}

/// The primitives of one thread, by key: a lookup takes about 20 ns, in oneDNN's own cache 1.1 µs.
struct PrimitiveTable {
  dnnl::stream stream{onednn_engine()};
  std::unordered_map<PrimitiveKey, MatmulPrimitive, PrimitiveHash> primitives;

  MatmulPrimitive& primitive(const PrimitiveKey& key) {
    constexpr size_t kMostPrimitives = 512;
    const auto found = primitives.find(key);
    if (found != primitives.end()) return found->second;
    // Too many shapes: starts over; oneDNN's cache keeps the latest.
    if (primitives.size() == kMostPrimitives) primitives.clear();
    check_memory_for_primitive();
    return primitives.try_emplace(key, key).first->second;
  }
};

static PrimitiveTable& thread_primitives() {
  WEFT_STATIC_TLS static thread_local const auto table = std::make_unique<PrimitiveTable>();
  return *table;
}

dnnl::stream& onednn_stream() { return thread_primitives().stream; }

static bool has_instructions(dnnl::cpu_isa needed) {
  const auto bits = static_cast<unsigned>(needed);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

bool has_avx512_kernels() {
  static const bool has = has_instructions(dnnl::cpu_isa::avx512_core);
  return has;
}

// Without bf16 instructions oneDNN computes bf16 at 30 GFLOP/s and f32 at 150.
bool has_bf16_instructions() {
  static const bool has = has_instructions(dnnl::cpu_isa::avx512_core_bf16);
  return has;
}

/// Returns `x` itself when oneDNN accepts it as `dtype`; else a dense copy that keeps x's order of
/// dims. A transposed x stays transposed: on the shapes of a 256 or 512 wide Llama, A^T B (a
/// weight's gradient) runs at 78-90 % of the peak and A B at 82-94 %, a smaller difference than the
/// 8 % that transposing A costs.
static Matrix onednn_operand(const Matrix& x, int64_t rows, int64_t columns, DType dtype,
                             ScratchMemory& scratch) {
  const DenseRows layout = dense_rows(x, rows, columns);
  if (x.dtype == dtype && layout.possible) return x;
  if (!layout.transposed) return copied(x, rows, columns, dtype, scratch);
  return copied(x.transposed(), columns, rows, dtype, scratch).transposed();
}

static void run_primitive(const Product& p) {
  const DenseRows a_rows = dense_rows(p.a, p.m, p.k), b_rows = dense_rows(p.b, p.k, p.n);
  const PrimitiveKey key{.m = p.m,
                         .n = p.n,
                         .k = p.k,
                         .a_leading = a_rows.leading,
                         .b_leading = b_rows.leading,
                         .c_leading = dense_rows(p.c, p.m, p.n).leading,
                         .beta_bits = std::bit_cast<uint32_t>(p.beta),
                         .threads = static_cast<uint16_t>(usable_threads()),
                         .operands = p.a.dtype,
                         .result = p.c.dtype,
                         .a_transposed = a_rows.transposed,
                         .b_transposed = b_rows.transposed,
                         .bias = p.bias != nullptr};
  PrimitiveTable& table = thread_primitives();
  table.primitive(key).run(p.a.data, p.b.data, p.c.data, const_cast<void*>(p.bias), table.stream);
}

void multiply_onednn(const Product& given) {
  Product p = given;
  const DenseRows result = dense_rows(p.c, p.m, p.n);
  if (result.possible && result.transposed && !p.bias) p = p.transposed();
  const bool in_bf16 =
      p.a.dtype == DType::bf16 && p.c.dtype != DType::f16 && has_bf16_instructions();
  const DType compute = in_bf16 ? DType::bf16 : DType::f32;
  ScratchMemory scratch;
  p.a = onednn_operand(p.a, p.m, p.k, compute, scratch);
  p.b = onednn_operand(p.b, p.k, p.n, compute, scratch);
  p.bias = bias_in(DType::f32, p, scratch);
  const DenseRows c_rows = dense_rows(p.c, p.m, p.n);
  const bool stored_type = p.c.dtype == DType::f32 || (in_bf16 && p.c.dtype == DType::bf16);
  if (stored_type && c_rows.possible && !c_rows.transposed) return run_primitive(p);
  const Matrix to = p.c;
  const float beta = std::exchange(p.beta, 0.0f);
  p.c = {scratch.take<float>(p.m * p.n), DType::f32, p.n, 1};
  run_primitive(p);
  store_matrix(p.c, p.m, p.n, to, beta);
}

std::string onednn_in_words() {
  const dnnl_version_t* version = dnnl_version();
  return concat("oneDNN ", version->major, '.', version->minor, '.', version->patch, " isa ",
                static_cast<int>(dnnl_get_effective_cpu_isa()));
}

}  // namespace weft
