// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/pipeline.h"
#include "cli/pipeline_cost.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/extend/run_folder.h"
#include "weft/transformer.h"

namespace weft::cli {

static constexpr int kMostRanksEstimated = 1 << 18;

namespace {

/// Options of `weft estimate`.
struct EstimateOptions {
  ParallelOptions parallel;
  int world = 0;
  int rank = 0;
  int ranks_per_host = 8;
  std::string machine = "this";
  /// Strategies; empty: that of `parallel` alone, in detail.
  std::vector<std::string> compare = {};
  bool json = false;
  bool schedule = false;
  /// Set when a flag names the schedule of a pipeline.
  bool has_pipeline = false;
};

/// The estimate of one strategy.
struct Estimate {
  TransformerConfig config;
  ParallelOptions options;
  int ranks;
  Machine machine;
  StepCost cost;
  StepSeconds seconds = {};
  double tokens_per_second = 0;
  /// Model FLOPs utilization: the fraction of the peak of all ranks. The peak is that of the data
  /// sheet, or else what products reach on this machine.
  double mfu = 0;
  /// Seconds in which tokens travel to experts and nothing is computed, with --expert-chunks 1.
  double exposed_in_one_chunk = 0;
  /// Set with an axis pp.
  std::optional<PipelineCost> pipeline = {};

  bool fits() const {
    return machine.memory == 0 || static_cast<double>(cost.peak_bytes()) <= machine.memory;
  }
};

}  // namespace

/// Fills in the cost and the time of a step.
static void predict_step(const Communicator& world, int ranks_per_host, Estimate& e) {
  if (pipeline_ranks(e.options) > 0) {
    e.pipeline =
        pipeline_cost(e.config, e.options, world.rank(), e.ranks, ranks_per_host, e.machine);
    e.cost = e.pipeline->cost, e.seconds = e.pipeline->seconds;
    return;
  }
  e.cost = step_cost(world, e.config, e.options);
  if (e.machine.overlaps) e.cost.leave_out_scratch();
  e.seconds = step_seconds(e.cost, e.machine);
}

static Estimate estimated(const Communicator& world, const TransformerConfig& config,
                          const ParallelOptions& options, int ranks_per_host,
                          const Machine& machine) {
  Estimate e{config, options, world.size(), machine, {}};
  predict_step(world, ranks_per_host, e);
  e.exposed_in_one_chunk = e.seconds.tokens_exposed;
  if (options.expert_chunks > 1) {
    Estimate one = e;
    one.options.expert_chunks = 1;
    predict_step(world, ranks_per_host, one);
    e.exposed_in_one_chunk = one.seconds.tokens_exposed;
  }
  e.tokens_per_second = static_cast<double>(options.batch * options.seq) / e.seconds.total;
  std::string device = machine.name;
  std::transform(device.begin(), device.end(), device.begin(), ::toupper);
  const double peak =
      peak_operations(device, options.dtype, options.float8).value_or(machine.operations);
  e.mfu = e.tokens_per_second * needed_operations_a_token(config, options.seq) / peak / e.ranks;
  return e;
}

/// The layers of experts that the rank computes.
static int64_t sparse_layers(const Estimate& e) {
  if (e.pipeline) return e.pipeline->sparse_layers;
  int64_t count = 0;
  for (int64_t layer = 0; layer < e.config.layers; ++layer) count += e.config.is_sparse(layer);
  return count;
}

static nlohmann::ordered_json in_json(const Estimate& e) {
  nlohmann::ordered_json json{{"model", e.options.model},
                              {"mesh", e.options.mesh},
                              {"ranks", e.ranks},
                              {"strategy", e.options.strategy},
                              {"optimizer", e.options.optimizer},
                              {"dtype", e.options.dtype},
                              {"batch", e.options.batch},
                              {"seq", e.options.seq},
                              {"machine", e.machine.name},
                              {"fits", e.fits()},
                              {"peak_bytes", e.cost.peak_bytes()}};
  for (int i = 0; i < kPurposes; ++i) {
    json["peak_bytes_of"][std::string(name_of(static_cast<Purpose>(i)))] =
        e.cost.memory[static_cast<size_t>(i)];
  }
  json["traffic"] = nlohmann::ordered_json::array();
  for (const AxisCost& axis : e.cost.traffic) {
    json["traffic"].push_back({{"axes", axis.axes},
                               {"of", axis.of},
                               {"crosses_hosts", axis.crosses_hosts},
                               {"bytes", axis.bytes},
                               {"collectives", axis.collectives}});
  }
  json["disk_bytes"] = e.cost.disk_bytes;
  json["flop"] = e.cost.operations();
  json["seconds"] = {{"compute", e.seconds.compute},
                     {"communication", e.seconds.communication},
                     {"disk", e.seconds.disk},
                     {"hidden_by_parts", e.seconds.hidden_by_parts},
                     {"total", e.seconds.total}};
  json["tokens_per_second"] = e.tokens_per_second;
  json["mfu"] = e.mfu;
  if (e.pipeline) {
    json["pipeline"] = {
        {"schedule", e.options.pipeline},       {"stages", e.pipeline->stages},
        {"microbatches", e.options.accumulate}, {"position", e.pipeline->position},
        {"bubble", e.pipeline->bubble},         {"peak_bytes_of_positions", e.pipeline->peaks}};
  }
  const ParameterCounts counts = parameters_of(e.config);
  json["parameters"] = {
      {"total", counts.total}, {"active", counts.active}, {"multiplied", counts.multiplied}};
  const int64_t layers = sparse_layers(e);
  if (layers == 0) return json;
  const ExpertBytes& experts = e.cost.experts;
  json["experts"] = {{"layers", layers},
                     {"imbalance", e.options.imbalance},
                     {"chunks", e.cost.expert_chunks},
                     {"parameter_bytes", experts.parameters},
                     {"dispatch_bytes_of_layer", experts.dispatch / layers},
                     {"combine_bytes_of_layer", experts.combine / layers},
                     {"backward_bytes_of_layer", experts.backward / layers},
                     {"travel_seconds", e.seconds.tokens},
                     {"exposed_seconds", e.seconds.tokens_exposed},
                     {"exposed_seconds_of_one_chunk", e.exposed_in_one_chunk}};
  return json;
}

/// A line of a table whose names take `width` columns.
static void print_bytes(int width, std::string_view name, int64_t bytes) {
  std::printf("  %-*s %16lld  %s\n", width, std::string(name).c_str(),
              static_cast<long long>(bytes), readable_bytes(bytes).c_str());
}

static void print_memory(const Estimate& e) {
  std::printf("memory of a rank, bytes\n");
  for (int i = 0; i < kPurposes; ++i) {
    const int64_t bytes = e.cost.memory[static_cast<size_t>(i)];
    if (bytes != 0) print_bytes(14, name_of(static_cast<Purpose>(i)), bytes);
  }
  print_bytes(14, "together", e.cost.peak_bytes());
  if (e.fits()) return;
  std::printf(
      "  that does NOT fit into the %s of one %s; shard over more ranks, give each fewer "
      "rows, or try --activation-checkpointing full\n",
      readable(e.machine.memory, "B").c_str(), e.machine.name.c_str());
}

static void print_parameters(const TransformerConfig& config) {
  const ParameterCounts counts = parameters_of(config);
  print("parameters ", counts.total);
  std::printf(" (%.2f B)", static_cast<double>(counts.total) / 1e9);
  if (config.experts > 0) {
    std::printf(", of which a token uses %.2f B, %.2f B in products",
                static_cast<double>(counts.active) / 1e9,
                static_cast<double>(counts.multiplied) / 1e9);
  }
  std::printf("\n");
}

static void print_pipeline(const Estimate& e) {
  if (!e.pipeline) return;
  const PipelineCost& pipeline = *e.pipeline;
  const auto most = std::ranges::max_element(pipeline.peaks) - pipeline.peaks.begin();
  print("pipeline ", e.options.pipeline, ": ", pipeline.stages, " stages on ",
        pipeline.peaks.size(), " ranks, ", e.options.accumulate, " microbatches, ",
        formatted("%.1f", 100 * pipeline.bubble), " % bubble; rank ", pipeline.position,
        " along pp is shown, rank ", most, " holds the most, ",
        readable_bytes(pipeline.peaks[static_cast<size_t>(most)]), '\n');
}

static void print_experts(const Estimate& e) {
  const int64_t layers = sparse_layers(e);
  if (layers == 0) return;
  const ExpertBytes& experts = e.cost.experts;
  print("experts of ", layers, " layers, the first rank with ");
  std::printf("%.4g times the mean of rows, bytes\n", e.options.imbalance);
  print_bytes(22, "parameters of a rank", experts.parameters);
  print_bytes(22, "dispatch of a layer", experts.dispatch / layers);
  print_bytes(22, "combine of a layer", experts.combine / layers);
  print_bytes(22, "backward of a layer", experts.backward / layers);
  std::printf("  tokens travel %.4g s of a step, %.4g s of them exposed", e.seconds.tokens,
              e.seconds.tokens_exposed);
  if (e.cost.expert_chunks > 1) {
    std::printf(" with --expert-chunks %lld, %.4g s without",
                static_cast<long long>(e.cost.expert_chunks), e.exposed_in_one_chunk);
  }
  std::printf("\n");
}

static void print_traffic(const StepCost& cost) {
  std::printf("received by a rank in a step, bytes\n");
  for (const AxisCost& axis : cost.traffic) {
    if (axis.bytes == 0) continue;
    std::printf("  over %-12s %-14s %16lld  %s of %s\n", axis.axes.c_str(),
                axis.crosses_hosts ? "across hosts" : "within a host",
                static_cast<long long>(axis.bytes), readable_bytes(axis.bytes).c_str(), axis.of);
  }
}

static void print_time(const Estimate& e) {
  const StepSeconds& seconds = e.seconds;
  std::printf("time of a step on %s: %.4g s\n", e.machine.name.c_str(), seconds.total);
  std::printf("  computing %.4g s: %s in products at %s/s\n", seconds.compute,
              readable(e.cost.operations(), "FLOP").c_str(),
              readable(e.machine.operations, "FLOP").c_str());
  std::printf("  communicating %.4g s, of which %.4g s are hidden\n", seconds.communication,
              std::max(0.0, seconds.compute + seconds.communication - seconds.total));
  if (e.cost.disk_bytes > 0) {
    std::printf("  reading and writing %s of files %.4g s\n",
                readable_bytes(e.cost.disk_bytes).c_str(), seconds.disk);
  }
  if (e.options.async_tp > 1) {
    std::printf("  --async-tp=%d hides %.4g s of them behind products\n", e.options.async_tp,
                seconds.hidden_by_parts);
  }
  std::printf("  %.5g tokens/s in all, %.5g a rank; %s/s a rank in products, MFU %.1f %%\n",
              e.tokens_per_second, e.tokens_per_second / e.ranks,
              readable(e.cost.operations() / seconds.total, "FLOP").c_str(), 100 * e.mfu);
}

static void warn_above_peak(const std::vector<Estimate>& all) {
  if (std::ranges::any_of(all, [](const Estimate& e) { return e.mfu > 1; })) warn(kAbovePeak);
}

static void print_comparison(const std::vector<Estimate>& all) {
  std::printf("%-12s %12s %14s %14s %10s %12s %7s\n", "strategy", "memory", "within hosts",
              "across hosts", "step", "tokens/s", "MFU");
  for (const Estimate& e : all) {
    std::printf("%-12s %12s %14s %14s %8.4g s %12.5g %5.1f %%%s\n", e.options.strategy.c_str(),
                readable_bytes(e.cost.peak_bytes()).c_str(),
                readable_bytes(e.cost.received(false)).c_str(),
                readable_bytes(e.cost.received(true)).c_str(), e.seconds.total, e.tokens_per_second,
                100 * e.mfu, e.fits() ? "" : "  does NOT fit");
  }
}

/// Keeps the step's numbers of bytes within 64 bits.
static void check_size(const TransformerConfig& config, const ParallelOptions& options) {
  const auto tokens = static_cast<double>(options.batch * options.seq);
  const int64_t width =
      std::max({config.dim, config.ffn, config.vocabulary, config.heads * config.head_dim});
  constexpr double kMost = 0x1p53;
  const double values = tokens * static_cast<double>(width) * static_cast<double>(config.layers);
  if (values <= kMost) return;
  fail("estimate: ", config.layers, " layers of width ", width, " with ", options.batch,
       " rows of ", options.seq, " tokens are ", values, " values, expected at most ", kMost);
}

/// Checks the flags of a pipeline, and of a mesh without one.
static void check_stages_of(const TransformerConfig& config, const ParallelOptions& options,
                            const EstimateOptions& o) {
  check_expert_axis(parsed_axes(options.mesh), config, options.mesh);
  if (o.has_pipeline || !options.stage_firsts.empty()) check_has_pipeline(options);
  if (pipeline_ranks(options) == 0) return;
  check_stages(config, options);
  if (!o.schedule) return;
  fail("--schedule is given with the axis pp of --mesh ", options.mesh, ", expected one of them");
}

/// Checks what the flags say together, and prints what a training step would take.
static void estimate(EstimateOptions o) {
  const bool compares = !o.compare.empty();
  if (o.schedule && (o.json || compares)) {
    fail("--schedule is given with ", o.json ? "--json" : "--compare", ", expected one of them");
  }
  if (!compares) o.compare = {o.parallel.strategy};
  if (o.parallel.model.empty()) o.parallel.model = "tiny";
  std::vector<ParallelOptions> all;
  int ranks = 0;
  for (const std::string& strategy : o.compare) {
    all.push_back(o.parallel);
    all.back().strategy = strategy;
    ranks = complete(all.back(), o.world, kMostRanksEstimated, "--world");
  }
  if (o.rank >= ranks) {
    fail("--rank is ", o.rank, ", expected a whole number from 0 to ", ranks - 1);
  }
  const TransformerConfig config = with_flags(transformer_config(o.parallel.model), o.parallel);
  check_size(config, o.parallel);
  for (ParallelOptions& options : all) check_stages_of(config, options, o);
  const Machine machine = machine_named(o.machine, o.parallel.dtype, ranks, "--machine");
  if (!machine.overlaps) check_offload(o.parallel, cpu);
  const Communicator world = fake_world(o.rank, ranks, o.ranks_per_host, !machine.overlaps);
  std::vector<Estimate> estimates;
  auto json = nlohmann::ordered_json::array();
  for (ParallelOptions& options : all) {
    if (is_planned(options)) {
      const MemoryPlan plan = planned(config, options, ranks, o.ranks_per_host, machine);
      options.choice = plan.choice;
      if (!o.json) std::printf("%s\n", plan.text().c_str());
    }
    estimates.push_back(estimated(world, config, options, o.ranks_per_host, machine));
    json.push_back(in_json(estimates.back()));
  }
  warn_above_peak(estimates);
  const DeviceMesh mesh(world, parsed_axes(all[0].mesh));
  if (o.json) {
    std::printf("%s\n", (compares ? json : json[0]).dump(2).c_str());
    return;
  }
  print(printable(o.parallel.model), " on ", mesh, ", ", ranks, ranks == 1 ? " rank, " : " ranks, ",
        compares ? "compared" : all[0].strategy, ", ", o.parallel.dtype, "; ", o.parallel.batch,
        " rows of ", o.parallel.seq, " tokens a step\n");
  if (compares) return print_comparison(estimates);
  print_parameters(config);
  print_pipeline(estimates[0]);
  print_memory(estimates[0]);
  print_experts(estimates[0]);
  print_traffic(estimates[0].cost);
  print_time(estimates[0]);
  if (o.schedule) std::fputs(step_schedule(world, config, all[0]).c_str(), stdout);
}

void add_estimate(CLI::App& program) {
  const auto options = std::make_shared<EstimateOptions>();
  EstimateOptions& o = *options;
  CLI::App* estimate = program.add_subcommand(
      "estimate", "Predict memory, traffic and time of a training step on a simulated cluster");
  estimate->footer(
      "Example: weft estimate --model 70b.json --mesh dp=64,tp=8 --dtype bf16 --machine h100\n"
      "Exit codes: 0 done, 1 something failed on the way, 2 a flag, file or mesh is wrong.");
  estimate->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_parallel_flags(*estimate, o.parallel);
  add_pipeline_flags(*estimate, o.parallel, o.has_pipeline);
  add_optimizer_flag(*estimate, o.parallel.optimizer);
  add_whole(*estimate, "--world", o.world, "Ranks (default: those of --mesh, or 1)", 1,
            kMostRanksEstimated);
  add_whole(*estimate, "--rank", o.rank, "The rank whose memory and traffic are printed", 0);
  add_whole(*estimate, "--ranks-per-host", o.ranks_per_host, "Ranks that share fast links", 1);
  add_shown(*estimate, "--machine", o.machine,
            "this (measured now, ranks as threads), h100, h200 or a100");
  estimate
      ->add_option("--compare", o.compare,
                   "Strategies, as full_shard,hsdp,zero2: a line each instead of the details")
      ->delimiter(',');
  estimate->add_flag("--json", o.json, "Print one JSON object (with --compare, an array)");
  estimate->add_flag("--schedule", o.schedule, "Print what is gathered, computed and freed when");
  estimate->callback([options] { cli::estimate(*options); });
}

}  // namespace weft::cli
