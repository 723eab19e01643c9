// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "cli/adapters.h"
#include "cli/ckpt.h"
#include "cli/commands.h"
#include "weft/checkpoint.h"
#include "weft/communicator.h"
#include "weft/dcp.h"
#include "weft/error.h"
#include "weft/extend/run_description.h"
#include "weft/extend/run_folder.h"
#include "weft/extend/saved_model.h"
#include "weft/extend/store.h"
#include "weft/hugging_face.h"
#include "weft/ops/factories.h"
#include "weft/ranks.h"

namespace weft::cli {

/// The checkpoints that a path means: those in it, or itself.
static std::vector<std::string> checkpoints_at(const std::string& path) {
  if (!is_directory(path)) {
    fail("ckpt: ", printable(path), " is missing or a file, expected a directory of checkpoints");
  }
  const std::vector<std::string> found = list_checkpoints(path);
  if (found.empty() && is_hugging_face(path)) {
    fail("ckpt: ", printable(path),
         " is a model in Hugging Face's form, which has no checksums, expected a checkpoint");
  }
  return found.empty() ? std::vector<std::string>{path} : found;
}

/// One checkpoint: what was named, or the newest complete one of a run's directory.
static std::string one_checkpoint(const std::string& path) {
  const bool several = is_directory(path) && !list_checkpoints(path).empty();
  return several ? complete_checkpoint(path) : path;
}

/// Tells on stderr what `contents` cannot say for sure.
static void print_note(const std::string& path, const CheckpointContents& contents) {
  if (contents.note.empty() || !is_first_process()) return;
  std::fprintf(stderr, "note: %s: %s\n", printable(path).c_str(), escaped(contents.note).c_str());
}

static int64_t bytes_of(const CheckpointContents::Entry& entry) {
  return entry.shape.product() * static_cast<int64_t>(size_of(entry.dtype));
}

/// Memory for a tensor, cut along its first dim over all ranks.
static Tensor empty_for(const CheckpointContents::Entry& entry, const DeviceMesh& mesh) {
  const Placements placements = entry.shape.empty() ? Placements{} : Placements{Shard(0)};
  return empty(entry.shape, {.dtype = entry.dtype, .sharding = Sharding(mesh, placements)});
}

static void print_report(const std::string& path, const CheckpointReport& report) {
  std::printf("%-10s %s", std::string(name_of(report.verdict)).c_str(), printable(path).c_str());
  if (report.ranks > 0) {
    print("  step ", report.step, ", ", report.ranks, report.ranks == 1 ? " rank, " : " ranks, ",
          report.tensors, " tensors, ", readable_bytes(report.bytes), ", ",
          finite_in_words(report));
  }
  if (!report.reason.empty()) std::printf("\n           %s", escaped(report.reason).c_str());
  std::printf("\n");
}

static void print_contents(const std::string& path) {
  const CheckpointContents contents = checkpoint_contents(path);
  for (const auto& [name, tensor] : contents.tensors) {
    std::printf("%-6s %-20s %s\n", std::string(name_of(tensor.dtype)).c_str(),
                concat(tensor.shape).c_str(), printable(name).c_str());
  }
  for (const auto& [name, number] : contents.numbers) {
    std::printf("number %-20lld %s\n", static_cast<long long>(number), printable(name).c_str());
  }
  print_note(path, contents);
}

int list_checkpoint(const CkptOptions& options) {
  if (!path_exists(options.path)) fail("ckpt ls: ", printable(options.path), " does not exist");
  const bool directory = is_directory(options.path);
  const auto found = directory ? list_checkpoints(options.path) : std::vector<std::string>{};
  if (found.empty()) {
    print_contents(options.path);
    // Files that PyTorch or Hugging Face wrote have no count and no verdict.
    const CheckpointReport report =
        directory ? inspect_checkpoint(options.path, {.depth = Inspection::headers})
                  : CheckpointReport{};
    std::printf("%s\n", finite_in_words(report).c_str());
    return 0;
  }
  for (const std::string& path : found) {
    const auto report = inspect_existing(path, {.depth = Inspection::headers});
    if (report) print_report(path, *report);
  }
  return 0;
}

int verify_checkpoint(const CkptOptions& options) {
  bool all_complete = true;
  for (const std::string& path : checkpoints_at(options.path)) {
    CkptProgress progress("verify");
    const InspectOptions inspection{
        .depth = options.headers_only ? Inspection::headers : Inspection::data,
        .threads = options.ranks,
        .progress = [&](int64_t done, int64_t all) { progress.set(done, all); }};
    // A checkpoint that was named must exist; one that a run removes meanwhile is skipped.
    const auto report = path == options.path ? inspect_checkpoint(path, inspection)
                                             : inspect_existing(path, inspection);
    const std::string speed = progress.finish();
    if (!report) continue;
    print_report(path, *report);
    if (!options.headers_only) std::printf("           read %s\n", speed.c_str());
    all_complete = all_complete && report->verdict == Verdict::complete;
  }
  return all_complete ? 0 : 1;
}

namespace {

/// The elements in which two tensors differ, and the largest distance of them.
struct Difference {
  int64_t elements = 0;
  double largest = 0;
};

/// Tensors that both have, in groups of bounded size.
std::vector<std::vector<std::string>> groups_of(const CheckpointContents& a,
                                                const std::vector<std::string>& names) {
  constexpr int64_t most = int64_t{256} << 20;
  std::vector<std::vector<std::string>> groups;
  int64_t bytes = most;
  for (const std::string& name : names) {
    const int64_t own = bytes_of(a.tensors.at(name));
    if (bytes + own > most) groups.emplace_back(), bytes = 0;
    groups.back().push_back(name);
    bytes += own;
  }
  return groups;
}

/// Compares the elements that one rank holds.
Difference difference_of(const Tensor& a, const Tensor& b, double tolerance) {
  const Tensor here = a.local(), there = b.local();
  const size_t size = size_of(here.dtype()), bytes = static_cast<size_t>(here.numel()) * size;
  if (bytes == 0) return {};
  const auto* x = static_cast<const std::byte*>(here.block().data);
  const auto* y = static_cast<const std::byte*>(there.block().data);
  if (std::memcmp(x, y, bytes) == 0) return {};
  Difference difference;
  const std::vector<double> left = here.to_vector<double>(), right = there.to_vector<double>();
  for (size_t i = 0; i < left.size(); ++i) {
    if (std::memcmp(x + i * size, y + i * size, size) == 0) continue;
    double distance = std::abs(left[i] - right[i]);
    // A NaN on one side is no small difference.
    if (std::isnan(distance)) distance = std::numeric_limits<double>::infinity();
    if (tolerance > 0 && distance <= tolerance) continue;
    ++difference.elements;
    difference.largest = std::max(difference.largest, distance);
  }
  return difference;
}

}  // namespace

/// Keys, shapes and dtypes: the names of the tensors that can be compared.
static std::vector<std::string> comparable(const CheckpointContents& a, const CheckpointContents& b,
                                           int64_t& differences) {
  std::vector<std::string> names;
  const auto differs = [&](const std::string& sentence) {
    ++differences;
    print(sentence, '\n');
  };
  for (const auto& [name, tensor] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end()) {
      differs(concat("only in A: tensor ", printable(name)));
    } else if (!(other->second.shape == tensor.shape) || other->second.dtype != tensor.dtype) {
      differs(concat("tensor ", printable(name), " is ", tensor.shape, ' ', tensor.dtype,
                     " in A and ", other->second.shape, ' ', other->second.dtype, " in B"));
    } else {
      names.push_back(name);
    }
  }
  for (const auto& [name, tensor] : b.tensors) {
    if (!a.tensors.contains(name)) differs(concat("only in B: tensor ", printable(name)));
  }
  for (const auto& [name, number] : a.numbers) {
    const auto other = b.numbers.find(name);
    if (other != b.numbers.end() && other->second == number) continue;
    differs(concat("number ", printable(name), " is ", number, " in A and ",
                   other == b.numbers.end() ? "absent" : std::to_string(other->second), " in B"));
  }
  for (const auto& [name, number] : b.numbers) {
    if (!a.numbers.contains(name)) differs(concat("only in B: number ", printable(name)));
  }
  return names;
}

int compare_checkpoints(const CkptOptions& options) {
  const std::string first = one_checkpoint(options.path), second = one_checkpoint(options.other);
  const CheckpointContents a = checkpoint_contents(first), b = checkpoint_contents(second);
  int64_t differences = 0, bytes = 0;
  const std::vector<std::string> names = comparable(a, b, differences);
  std::map<std::string, Difference> found;
  std::mutex mutex;
  for (const std::string& name : names) bytes += 2 * bytes_of(a.tensors.at(name));
  CkptProgress progress("diff", bytes);
  run_ranks(options.ranks, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"ranks", world.size()}});
    for (const auto& group : groups_of(a, names)) {
      StateDict left, right;
      for (const std::string& name : group) {
        left.tensors.emplace(name, empty_for(a.tensors.at(name), mesh));
        right.tensors.emplace(name, empty_for(a.tensors.at(name), mesh));
      }
      (void)load_common_keys(first, left);
      (void)load_common_keys(second, right);
      for (const std::string& name : group) {
        const Tensor& tensor = left.tensors.at(name);
        if (tensor.ndim() == 0 && world.rank() > 0) continue;
        const Difference own = difference_of(tensor, right.tensors.at(name), options.tolerance);
        progress.add(2 * tensor.local().numel() * static_cast<int64_t>(size_of(tensor.dtype())));
        const std::lock_guard lock(mutex);
        found[name].elements += own.elements;
        found[name].largest = std::max(found[name].largest, own.largest);
      }
    }
  });
  const std::string speed = progress.finish();
  for (const auto& [name, difference] : found) {
    if (difference.elements == 0) continue;
    ++differences;
    print("tensor ", printable(name), " differs in ", difference.elements, " of ",
          a.tensors.at(name).shape.product(), " elements, by at most ", difference.largest, '\n');
  }
  print(names.size(), " tensors compared, ", differences,
        differences == 1 ? " difference; read " : " differences; read ", speed, '\n');
  return differences == 0 ? 0 : 1;
}

/// One checkpoint for all ranks: processes would choose apart while another job saves there.
static std::string agreed_checkpoint(const std::string& path) {
  if (launched_ranks() == 1) return one_checkpoint(path);
  const Communicator world = connect();
  check_same_flags(world);
  return told_by_first(world, [&] { return one_checkpoint(path); });
}

static int64_t bytes_in(const CheckpointContents& contents, const std::string& prefix = {}) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : contents.tensors) {
    if (name.starts_with(prefix)) bytes += bytes_of(tensor);
  }
  return bytes;
}

/// The directory of a model in Hugging Face's form, which may be named by one of its files.
static std::string directory_of(const std::string& model) {
  namespace fs = std::filesystem;
  return is_directory(model) ? model : fs::absolute(model).parent_path().string();
}

/// `train` and `sample` take the newest checkpoint with the files of a model that the run keeps:
/// those of an older step would be the files of another one.
static void check_target(const std::string& directory, int64_t step) {
  check_kept_model_files(directory);
  if (!is_directory(directory)) return;
  const std::vector<std::string> held = list_checkpoints(directory);
  if (held.empty()) return;
  const int64_t newest = inspect_checkpoint(held[0], {.depth = Inspection::headers}).step;
  if (newest <= step) return;
  fail("ckpt: ", directory, " holds a checkpoint of step ", newest, ", expected none newer than ",
       "step ", step, ", which is written; name another directory");
}

/// Loads on `options.ranks` ranks and saves again with keys that begin with `prefix`. With a
/// `config`, what is loaded are a Hugging Face model's parameters, and the config is saved too.
static int copy_checkpoint(const CkptOptions& options, const char* what, const std::string& prefix,
                           const std::optional<TransformerConfig>& config = {}) {
  outlive_readers();
  const std::string from = agreed_checkpoint(options.path);
  const CheckpointContents contents =
      config ? hugging_face_contents(from, *config) : checkpoint_contents(from);
  print_note(from, contents);
  const auto step_number = contents.numbers.find("step/value");
  const int64_t step = step_number == contents.numbers.end() ? 0 : step_number->second;
  check_target(options.other, step);
  CkptProgress progress(what, 2 * bytes_in(contents) / launched_ranks());
  std::string path;
  run_world(options.ranks, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"ranks", world.size()}});
    StateDict state{.tensors = {}, .numbers = contents.numbers};
    for (const auto& [name, tensor] : contents.tensors) {
      state.tensors.emplace(name, empty_for(tensor, mesh));
    }
    config ? load_hugging_face(state, from, *config) : load(from, state);
    int64_t own = 0;
    StateDict renamed{.tensors = {}, .numbers = state.numbers};
    RunDescription run;
    if (config) add_model(*config, run);
    if (config) renamed.numbers = run.numbers();
    for (const auto& [name, tensor] : state.tensors) {
      own += tensor.local().numel() * static_cast<int64_t>(size_of(tensor.dtype()));
      renamed.tensors.emplace(concat(prefix, name), tensor);
    }
    progress.add(own);
    CheckpointSaver saver(world, options.other);
    const std::string saved = saver.save(step, renamed);
    progress.add(own);
    world.barrier();
    if (world.rank() == 0) path = saved;
  });
  if (!is_first_process()) return 0;
  keep_files(config ? directory_of(from) : from, options.other);
  print(printable(path), ": ", contents.tensors.size(), " tensors for ", options.ranks,
        options.ranks == 1 ? " rank" : " ranks", ", read and written ", progress.finish(), '\n');
  return 0;
}

int reshard_checkpoint(const CkptOptions& options) {
  return copy_checkpoint(options, "reshard", "");
}

/// Returns the config.json in the folder of the tensors; `train` and `sample` build the model from
/// it.
static std::optional<TransformerConfig> imported_config(const std::string& path) {
  if (!path_exists(path)) return {};  // the load reports it
  const std::string directory = directory_of(path);
  std::string reason;
  try {
    if (is_hugging_face(directory)) return transformer_config(directory);
    reason = concat(printable(directory),
                    " has no config.json; weft train and weft sample cannot use what is imported");
  } catch (const std::invalid_argument& error) {
    reason = concat("weft train and weft sample cannot use what is imported: ", error.what());
  }
  if (is_first_process()) warn("warning: ", reason);
  return {};
}

int import_checkpoint(const CkptOptions& options) {
  return copy_checkpoint(options, "import", options.prefix, imported_config(options.path));
}

/// Writes what a run of adapters has: the adapters, or with --merge their model.
static int export_run_of_adapters(const CkptOptions& options, const std::string& checkpoint) {
  if (options.merge) {
    if (options.base.empty()) fail("--merge is given without --base, expected both");
    run_world(options.ranks, [&](Communicator world) {
      export_merged(options.path, options.base, options.other, world, options.file_gigabytes << 30);
    });
  } else if (is_first_process()) {
    export_adapters(checkpoint, options.other, options.base);
  }
  if (is_first_process()) print(printable(options.other), ": written\n");
  return 0;
}

int export_checkpoint(const CkptOptions& options) {
  outlive_readers();
  if (options.merge) return export_run_of_adapters(options, "");
  const std::string from = agreed_checkpoint(options.path);
  if (holds_adapters(from)) return export_run_of_adapters(options, from);
  if (!options.base.empty()) {
    fail("--base is ", options.base, ", but ", printable(from),
         " has no adapters, expected a run of weft train --lora");
  }
  const CheckpointContents contents = checkpoint_contents(from);
  print_note(from, contents);
  const int writers = options.is_dcp ? 1 : launched_ranks();
  CkptProgress progress("export",
                        bytes_in(contents, options.is_dcp ? "" : options.prefix) / writers);
  const auto told = [&, before = int64_t{0}](int64_t bytes) mutable {
    progress.add(bytes - std::exchange(before, bytes));
  };
  if (options.is_dcp) {
    if (is_first_process()) export_dcp(from, options.other, told);
  } else {
    run_world(options.ranks, [&](Communicator world) {
      export_hugging_face(
          from, options.other, world,
          {.prefix = options.prefix, .file_bytes = options.file_gigabytes << 30, .progress = told});
    });
  }
  if (!is_first_process()) return 0;
  print(printable(options.other), ": written ", progress.finish(), '\n');
  return 0;
}

}  // namespace weft::cli
