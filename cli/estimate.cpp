// SPDX-License-Identifier: Apache-2.0
#include "cli/estimate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "cli/machine.h"
#include "cli/numbers.h"
#include "cli/step_cost.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/llama.h"

namespace weft::cli {

static constexpr int kMostRanksEstimated = 1 << 18;

CLI::App* add_estimate(CLI::App& program, EstimateOptions& o) {
  CLI::App* estimate = program.add_subcommand(
      "estimate", "Memory, traffic and time of a training step on a world that need not be there");
  estimate->footer(
      "Example: weft estimate --model 70b.json --mesh dp=64,tp=8 --dtype bf16 --machine h100\n"
      "Exit codes: 0 done, 1 something failed on the way, 2 a flag, file or mesh is wrong.");
  estimate->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_parallel_flags(*estimate, o.parallel);
  takes_whole(estimate->add_option("--world", o.world, "Ranks (default: those of --mesh, or 1)"), 1,
              kMostRanksEstimated);
  takes_whole(
      estimate->add_option("--rank", o.rank, "The rank whose memory and traffic are printed"), 0)
      ->capture_default_str();
  takes_whole(
      estimate->add_option("--ranks-per-host", o.ranks_per_host, "Ranks that share fast links"), 1)
      ->capture_default_str();
  estimate
      ->add_option("--machine", o.machine,
                   "this (measured now, ranks as threads), h100, h200 or a100")
      ->capture_default_str();
  estimate->add_flag("--schedule", o.schedule, "Print what is gathered, computed and freed when");
  return estimate;
}

/// "12.3 MB".
static std::string in_words(double amount, const char* unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (amount >= 1000 && prefix + 1 < std::size(kPrefixes)) {
    amount /= 1000;
    ++prefix;
  }
  char text[32];
  std::snprintf(text, sizeof text, amount < 10 && prefix > 0 ? "%.2f" : "%.1f", amount);
  return concat(text, " ", kPrefixes[prefix], unit);
}

static void print_memory(const StepCost& cost) {
  std::printf("memory of a rank, bytes\n");
  for (int i = 0; i < kPurposes; ++i) {
    const int64_t bytes = cost.memory[static_cast<size_t>(i)];
    if (bytes == 0) continue;
    std::printf("  %-14s %16lld  %s\n", std::string(name_of(static_cast<Purpose>(i))).c_str(),
                static_cast<long long>(bytes), in_words(static_cast<double>(bytes), "B").c_str());
  }
  std::printf("  %-14s %16lld  %s\n", "together", static_cast<long long>(cost.peak_bytes()),
              in_words(static_cast<double>(cost.peak_bytes()), "B").c_str());
}

static void print_traffic(const StepCost& cost) {
  std::printf("received by a rank in a step, bytes\n");
  for (const AxisCost& axis : cost.traffic) {
    if (axis.bytes == 0) continue;
    std::printf("  over %-12s %-14s %16lld  %s of %s\n", axis.axes.c_str(),
                axis.crosses_hosts ? "across hosts" : "within a host",
                static_cast<long long>(axis.bytes),
                in_words(static_cast<double>(axis.bytes), "B").c_str(), axis.of);
  }
}

static void print_time(const StepCost& cost, const Machine& machine, double tokens, int ranks) {
  const StepSeconds seconds = step_seconds(cost, machine);
  const double rate = cost.operations() / seconds.total;
  std::printf("time of a step on %s: %.4g s\n", machine.name.c_str(), seconds.total);
  std::printf("  computing %.4g s: %s in products at %s/s\n", seconds.compute,
              in_words(cost.operations(), "op").c_str(),
              in_words(machine.operations, "op").c_str());
  std::printf("  communicating %.4g s, of which %.4g s are hidden\n", seconds.communication,
              seconds.compute + seconds.communication - seconds.total);
  std::printf("  %.5g tokens/s in all, %.5g a rank; %s/s a rank in products\n",
              tokens / seconds.total, tokens / seconds.total / ranks, in_words(rate, "op").c_str());
}

/// Keeps the step's numbers of bytes within 64 bits.
static void check_size(const LlamaConfig& config, const ParallelOptions& options) {
  const auto tokens = static_cast<double>(options.batch * options.seq);
  const int64_t width =
      std::max({config.dim, config.ffn, config.vocabulary, config.heads * config.head_dim});
  constexpr double kMost = 0x1p53;
  const double values = tokens * static_cast<double>(width) * static_cast<double>(config.layers);
  if (values <= kMost) return;
  fail("estimate: ", config.layers, " layers of width ", width, " with ", options.batch,
       " rows of ", options.seq, " tokens are ", values, " values, expected at most ", kMost);
}

void estimate(EstimateOptions o) {
  const int ranks = complete(o.parallel, o.world, kMostRanksEstimated, "--world");
  if (o.parallel.model.empty()) o.parallel.model = "tiny";
  if (o.rank >= ranks) {
    fail("--rank is ", o.rank, ", expected a whole number from 0 to ", ranks - 1);
  }
  LlamaConfig config = llama_config(o.parallel.model);
  config.max_sequence = std::max(config.max_sequence, o.parallel.seq);
  check_size(config, o.parallel);
  const Machine machine = machine_named(o.machine, o.parallel.dtype, ranks);
  const Communicator world = fake_world(o.rank, ranks, o.ranks_per_host, !machine.overlaps);
  const DeviceMesh mesh(world, parsed_axes(o.parallel.mesh));
  std::printf("%s on %s, %d ranks, %s, %s; %lld rows of %lld tokens a step\n",
              printable(o.parallel.model).c_str(), concat(mesh).c_str(), ranks,
              o.parallel.strategy.c_str(), o.parallel.dtype.c_str(),
              static_cast<long long>(o.parallel.batch), static_cast<long long>(o.parallel.seq));
  const StepCost cost = step_cost(world, config, o.parallel, o.ranks_per_host);
  print_memory(cost);
  if (machine.memory > 0 && static_cast<double>(cost.peak_bytes()) > machine.memory) {
    std::printf(
        "  that does NOT fit into the %s of one %s; shard over more ranks, give each fewer "
        "rows, or try --activation-checkpointing full\n",
        in_words(machine.memory, "B").c_str(), machine.name.c_str());
  }
  print_traffic(cost);
  print_time(cost, machine, static_cast<double>(o.parallel.batch * o.parallel.seq), ranks);
  if (o.schedule) std::fputs(step_schedule(world, config, o.parallel).c_str(), stdout);
}

}  // namespace weft::cli
