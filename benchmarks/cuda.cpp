// SPDX-License-Identifier: Apache-2.0
// Kernels and training steps on a GPU, or tiny ones on the emulated device.

#include <algorithm>

#include "benchmarks/cuda.h"
#include "cli/step_cost.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft::bench {

static constexpr const char* kAbout =
    R"(Kernels and training steps of one GPU, one JSON line a case. rows: copies, elementwise ops,
norms, softmax, cross entropy and AdamW in GB/s of the least traffic, and as a fraction of
the copy's; products and attention: TFLOP/s, compared with cuBLASLt and cuDNN called directly;
train, train_engine: steps of a Llama of 1.1 billion parameters in bf16 with weights in f32,
without and with the FSDP engine.)";

namespace {

struct Options {
  std::string device = "cuda";
  std::vector<std::string> parts{"rows", "products", "attention", "train", "train_engine"};
  bool smoke = false;
  double seconds = 0.02;
  double peak_tflops = 0;
  DeviceTraining training;

  void add_to(CLI::App& app) {
    app.add_option("--device", device, "cuda or cuda:1");
    app.add_option("--parts", parts, "Parts to run, e.g. rows,train")
        ->delimiter(',')
        ->check(CLI::IsMember({"rows", "products", "attention", "train", "train_engine"}));
    app.add_flag("--smoke", smoke, "Tiny sizes, to see that all runs");
    app.add_option("--seconds", seconds, "Seconds of each repetition of a kernel")
        ->check(CLI::PositiveNumber);
    app.add_option("--batch", training.batch, "Rows of 2048 tokens a step")
        ->check(CLI::PositiveNumber);
    app.add_option("--steps", training.steps, "Measured steps")->check(CLI::PositiveNumber);
    app.add_option("--warmup", training.warmup, "Steps before them")->check(CLI::NonNegativeNumber);
    app.add_option("--peak-tflops", peak_tflops,
                   "The device's, for MFU (default: the data sheet's, where the GPU is known)")
        ->check(CLI::NonNegativeNumber)
        ->default_str("");
  }
};

/// Runs and prints the cases of one device.
class DeviceKernels {
 public:
  explicit DeviceKernels(const Options& options)
      : options_(options), device_(device_named(options.device)) {}

  /// Bytes per second that a copy reads and writes; other kernels are reported as fractions of it.
  void rows() {
    copy_ceiling();
    for (const DType dtype : {DType::f32, DType::bf16}) {
      elementwise(dtype);
      row_kernels(dtype);
    }
    losses();
    updates();
  }

  /// The products of the 1B Llama: forward, and the gradients of the input and of the weight.
  void products() const {
    const TransformerConfig& c = options_.training.model;
    const int64_t tokens = options_.training.batch * options_.training.sequence;
    for (const auto& [n, k] : {std::pair{c.heads * c.head_dim, c.dim},
                               {c.kv_heads * c.head_dim, c.dim},
                               {c.ffn, c.dim},
                               {c.dim, c.ffn},
                               {c.vocabulary, c.dim}}) {
      const Tensor x = random({tokens, k}), w = random({n, k}), dy = random({tokens, n});
      product("forward", x, w.t());
      product("input's", dy, w);
      product("weight's", dy.t(), x);
    }
  }

  void attention_cases() const {
    const TransformerConfig& c = options_.training.model;
    const int64_t batch = options_.training.batch, s = options_.training.sequence;
    const Tensor q = random({batch, s, c.heads, c.head_dim}).set_requires_grad();
    const Tensor k = random({batch, s, c.kv_heads, c.head_dim}).set_requires_grad();
    const Tensor v = random({batch, s, c.kv_heads, c.head_dim}).set_requires_grad();
    // Two products of 2 s s d per head, half of each masked; backward is 2.5 times that.
    const auto forward = static_cast<double>(2 * batch * c.heads * s * s * c.head_dim);
    compare(
        "attention, forward", forward,
        [&] {
          const NoGrad no_grad;
          attention(q, k, v);
        },
        cudnn_attention(q.detach(), k.detach(), v.detach(), false));
    const Tensor ones = ones_like(q.detach());
    compare(
        "attention, both", forward * 3.5,
        [&] {
          backward({attention(q, k, v)}, {ones});
          for (const Tensor& leaf : {q, k, v}) leaf.set_grad({});
        },
        cudnn_attention(q.detach(), k.detach(), v.detach(), true));
  }

 private:
  using Function = std::function<void()>;

  Tensor random(const Shape& shape, DType dtype = DType::bf16) const {
    const NoGrad no_grad;
    return normal(shape, 0, 1, {.device = device_}).to(dtype).detach();
  }
  int64_t scaled(int64_t size) const {
    return options_.smoke ? std::max<int64_t>(1, size / 256) : size;
  }
  static std::string dtype_name(DType dtype) { return dtype == DType::f32 ? "f32" : "bf16"; }

  /// GB/s, counting the minimum of bytes that a call must read and write.
  double bytes_case(const std::string& name, int64_t bytes, const Function& f) const {
    const Spread spread = device_seconds(device_, options_.seconds, f);
    const double rate = static_cast<double>(bytes) / spread.median;
    Line line{{"bench", "weft_cuda"},
              {"case", name},
              {"value", rounded(rate / 1e9, 1)},
              {"unit", "GB/s"},
              {"fraction_of_copy", nullptr},
              {"median_us", rounded(spread.median * 1e6, 2)},
              {"p10_us", rounded(spread.p10 * 1e6, 2)},
              {"p90_us", rounded(spread.p90 * 1e6, 2)},
              {"bytes", bytes}};
    if (copy_rate_ > 0) line["fraction_of_copy"] = rounded(rate / copy_rate_, 3);
    print(line);
    return rate;
  }

  void copy_ceiling() {
    const int64_t elements = scaled(int64_t{1} << 28);
    const Tensor from = random({elements}, DType::f32), to = zeros_like(from);
    copy_rate_ = bytes_case("copy of 1 GiB", 2 * 4 * elements, [&] { copy_(to, from); });
  }

  /// Forward without recording, and forward with gradients of `leaves`, from a gradient of ones.
  void both(const std::string& name, const std::function<Tensor()>& f, const Tensors& leaves,
            int64_t forward_bytes, int64_t both_bytes) const {
    bytes_case(name, forward_bytes, [&] {
      const NoGrad no_grad;
      f();
    });
    const Tensor ones = ones_like(f().detach());
    bytes_case(name + ", both", both_bytes, [&] {
      backward({f()}, {ones});
      for (const Tensor& leaf : leaves) leaf.set_grad({});
    });
  }

  void elementwise(DType dtype) const {
    const Shape shape{scaled(16384), 8192};
    const Tensor x = random(shape, dtype).set_requires_grad();
    const Tensor y = random(shape, dtype).set_requires_grad();
    const int64_t bytes = shape.product() * static_cast<int64_t>(size_of(dtype));
    const std::string of = " " + dtype_name(dtype);
    bytes_case("add" + of, 3 * bytes, [&] { add(x.detach(), y.detach()); });
    both(
        "gelu" + of, [&] { return gelu(x); }, {x}, 2 * bytes, 5 * bytes);
    both(
        "swiglu" + of, [&] { return swiglu(x, y); }, {x, y}, 3 * bytes, 8 * bytes);
  }

  void row_kernels(DType dtype) const {
    const Shape shape{scaled(32768), 2048};
    const Tensor x = random(shape, dtype).set_requires_grad();
    const Tensor w = random({shape[1]}, dtype).set_requires_grad();
    const int64_t bytes = shape.product() * static_cast<int64_t>(size_of(dtype));
    const std::string of = " " + dtype_name(dtype);
    both(
        "rms_norm" + of, [&] { return rms_norm(x, w); }, {x, w}, 2 * bytes, 5 * bytes);
    both(
        "softmax" + of, [&] { return softmax(x); }, {x}, 2 * bytes, 5 * bytes);
  }

  void losses() const {
    const int64_t rows = scaled(8192), classes = scaled(32000);
    const Tensor targets = zeros({rows}, {.dtype = DType::i64, .device = device_});
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor logits = random({rows, classes}, dtype).set_requires_grad();
      const int64_t bytes = rows * classes * static_cast<int64_t>(size_of(dtype));
      both(
          "cross_entropy " + dtype_name(dtype), [&] { return cross_entropy(logits, targets); },
          {logits}, bytes, 3 * bytes);
    }
  }

  /// Reads parameter, gradient, m and v; writes parameter, m and v.
  void updates() const {
    const Shape shape{scaled(int64_t{1} << 26)};
    const Tensor p = random(shape, DType::f32), g = random(shape, DType::f32);
    const Tensor m = zeros_like(p), v = zeros_like(p), one = ones({}, {.device = device_});
    AdamWStep step{.weight_decay = 0.1, .step = 0};
    bytes_case("adamw f32", 7 * 4 * shape.product(), [&] {
      ++step.step;
      adamw_(p, m, v, g, one, step);
    });
  }

  /// TFLOP/s of weft's call and of the library's, interleaved.
  void compare(const std::string& name, double operations, const Function& ours,
               const VendorCall& theirs) const {
    const Spread spread = device_seconds(device_, options_.seconds, ours);
    Line line{{"bench", "weft_cuda"},
              {"case", name},
              {"value", rounded(operations / spread.median / 1e12, 2)},
              {"unit", "TFLOP/s"},
              {"median_us", rounded(spread.median * 1e6, 2)},
              {"library_us", nullptr},
              {"times_the_library", nullptr}};
    if (theirs) {
      const Spread library = device_seconds(device_, options_.seconds, theirs);
      line["library_us"] = rounded(library.median * 1e6, 2);
      line["times_the_library"] = rounded(library.median / spread.median, 3);
    }
    print(line);
  }

  void product(const std::string& what, const Tensor& a, const Tensor& b) const {
    const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
    const Tensor c = zeros({m, n}, {.dtype = DType::bf16, .device = device_});
    const NoGrad no_grad;
    compare(
        concat("product ", m, 'x', n, 'x', k, ", ", what),
        2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
        [&] { matmul(a, b); }, cublaslt_product(a, b, c));
  }

  const Options& options_;
  const Device device_;
  double copy_rate_ = 0;
};

}  // namespace

/// The Llama of about a billion parameters, or one small enough for the emulated device.
static TransformerConfig model_of(bool smoke) {
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary
  if (smoke) return {32, 2, 4, 2, 8, 64, 128};
  return {2048, 16, 32, 8, 64, 8192, 32000};
}

static void run_part(const std::string& part, const Options& options) {
  const Device device = device_named(options.device);
  if (part.starts_with("train")) {
    return measure_training(device, options.training, part == "train_engine");
  }
  run_ranks(1, [&](const Communicator&) {
    DeviceKernels kernels(options);
    if (part == "rows") kernels.rows();
    if (part == "products") kernels.products();
    if (part == "attention") kernels.attention_cases();
  });
}

static void run_cuda(const Options& flags) {
  Options options = flags;
  check_available(device_named(options.device));
  options.training.model = model_of(options.smoke);
  if (options.smoke) {
    options.training.batch = 2, options.training.sequence = 16;
    options.training.steps = 2, options.training.warmup = 1;
    options.seconds = 0;
  }
  options.training.model.max_sequence = options.training.sequence;
  const std::string name = device_name(device_named(options.device));
  options.training.peak = 1e12 * options.peak_tflops;
  if (options.training.peak == 0) {
    options.training.peak = peak_operations(name, "bf16").value_or(0);
  }
  print({{"bench", "weft_cuda"}, {"case", "device"}, {"value", name}, {"unit", "name"}});
  for (const std::string& part : options.parts) run_part(part, options);
}

}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_program("bench_cuda", weft::bench::kAbout, argc, argv,
                                  weft::bench::run_cuda);
}
