// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <thread>

#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/machine.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {

/// Seconds of one call, of as many as fit into a fifth of a second.
template <class F> static double seconds_of(const F& call) {
  using Clock = std::chrono::steady_clock;
  call();
  int calls = 0;
  const auto began = Clock::now();
  std::chrono::duration<double> took{0};
  while (took.count() < 0.2) {
    call();
    ++calls;
    took = Clock::now() - began;
  }
  return took.count() / calls;
}

/// The machine this runs on, shared by the ranks: each measures while the others do.
static Machine measured_machine(const std::string& dtype, int ranks, const std::string& what) {
  Machine machine{.name = "this machine", .latency = 5e-6};
  // More ranks than cores take turns; measuring with all of them would measure the same.
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (ranks > 8 * cores) {
    warn(ranks, " ranks would share the ", cores, " cores of this machine; say ", what,
         " h100 for a cluster");
  }
  const int busy = std::min(ranks, cores);
  run_ranks(busy, [&](Communicator world) {
    NoGrad no_grad;
    const TensorOptions options{.dtype = dtype_named(dtype)};
    constexpr int64_t kRows = 512, kWidth = 1024, kElements = 1 << 22;
    const Tensor x = zeros({kRows, kWidth}, options), w = zeros({kWidth, kWidth}, options);
    const Tensor a = zeros({kElements}, options), b = zeros({kElements}, options);
    world.barrier();
    const double product = seconds_of([&] { linear(x, w); });
    world.barrier();
    const double sum = seconds_of([&] { add(a, b); });
    if (world.rank() != 0) return;
    machine.operations = 2.0 * kRows * kWidth * kWidth / product;
    machine.memory_bytes = 3.0 * kElements * static_cast<double>(size_of(options.dtype)) / sum;
  });
  const double share = static_cast<double>(busy) / ranks;
  machine.operations *= share;
  machine.memory_bytes *= share;
  // Ranks that are threads read each other's memory.
  machine.host_bytes = machine.network_bytes = machine.memory_bytes / 2;
  return machine;
}

Machine machine_named(const std::string& name, const std::string& dtype, int ranks,
                      const std::string& what) {
  if (name == "this") return measured_machine(dtype, ranks, what);
  // Dense products reach about 70 % of the peak, memory and links about 80 %; between hosts, eight
  // 400 Gbit/s ports for eight ranks.
  const bool narrow = dtype != "f32";
  if (name == "h100")
    return {"h100", narrow ? 690e12 : 45e12, 2.7e12, 360e9, 40e9, 80e9, 2e-5, true};
  if (name == "h200")
    return {"h200", narrow ? 690e12 : 45e12, 3.8e12, 360e9, 40e9, 141e9, 2e-5, true};
  if (name == "a100")
    return {"a100", narrow ? 220e12 : 14e12, 1.6e12, 240e9, 20e9, 80e9, 2e-5, true};
  fail(what, " is ", in_quotes(name), ", expected this, h100, h200 or a100");
}

namespace {

/// A GPU: its data sheet's operations a second, in units of 1e12, and the machine that has it.
struct Gpu {
  /// A part of the names of such devices.
  std::string_view part;
  double bf16;
  double f32;
  /// 0 where it lacks products of that dtype.
  double f8;
  /// None for cards whose links are other ones.
  const char* machine = nullptr;
};

}  // namespace

/// NVIDIA's data sheets of these GPUs, without sparsity; the first whose part is found counts.
/// A GH200 computes as an H100 SXM does; its memory and links are others.
static constexpr Gpu kGpus[] = {
    {"GH200", 989.4, 66.9, 1978.9},        {"H100 PCIe", 756, 51.2, 1513},
    {"H100 NVL", 835.5, 60, 1671},         {"H200 NVL", 835.5, 60, 1671},
    {"H100", 989.4, 66.9, 1978.9, "h100"}, {"H200", 989.4, 66.9, 1978.9, "h200"},
    {"A100-SXM", 312, 19.5, 0, "a100"},    {"A100", 312, 19.5, 0},
};

static const Gpu* gpu_named(std::string_view device_name) {
  const auto* found = std::ranges::find_if(
      kGpus, [&](const Gpu& gpu) { return device_name.find(gpu.part) != device_name.npos; });
  return found == std::end(kGpus) ? nullptr : found;
}

std::optional<Machine> machine_of_device(std::string_view device_name, const std::string& dtype) {
  const Gpu* gpu = gpu_named(device_name);
  if (!gpu || !gpu->machine) return {};
  return machine_named(gpu->machine, dtype, 1);
}

std::optional<double> peak_operations(std::string_view device_name, const std::string& dtype,
                                      bool float8) {
  const Gpu* gpu = gpu_named(device_name);
  if (!gpu) return {};
  if (float8 && gpu->f8 > 0) return 1e12 * gpu->f8;
  return 1e12 * (dtype != "f32" ? gpu->bf16 : gpu->f32);
}

}  // namespace weft
