// SPDX-License-Identifier: Apache-2.0
#include "cli/ckpt.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "weft/extend/run_folder.h"
#include "weft/ranks.h"

namespace weft::cli {

static CLI::Option* add_ranks(CLI::App* command, CkptOptions& o, const char* flag,
                              const char* about) {
  return takes_whole(command->add_option(flag, o.ranks, about), 1, kMostLocalRanks);
}

static constexpr const char* kAnyCheckpoint =
    "A checkpoint, a run's directory (the newest complete one), "
    "or PyTorch's DCP or safetensors shards";

static void add_paths(CLI::App* command, CkptOptions& o, const char* from, const char* to) {
  command->add_option("FROM", o.path, from)->required();
  command->add_option("TO", o.other, to)->required();
}

template <class Add> static void add_readers(const Add& add, CkptOptions& o) {
  CLI::App* ls =
      add("ls", "List the checkpoints of a directory, or one's tensors", list_checkpoint);
  ls->add_option("PATH", o.path, "A directory of `train --save`, or one checkpoint")->required();

  CLI::App* verify =
      add("verify", "Read a checkpoint and check every block of it", verify_checkpoint);
  verify->add_option("PATH", o.path, "A checkpoint, or a directory of several: all of them")
      ->required();
  add_ranks(verify, o, "--threads", "Threads that read (default: the cores)");
  verify->add_flag("--headers", o.headers_only, "Check only names, sizes and headers");
  verify->footer(
      "Prints COMPLETE, INCOMPLETE, MIXED or CORRUPT with file, tensor and block.\n"
      "Exit codes: 0 all complete, 1 one is not, 2 wrong usage.");

  CLI::App* diff = add("diff", "Compare two checkpoints tensor by tensor", compare_checkpoints);
  diff->add_option("A", o.path, "A checkpoint, or a run's directory (the newest complete one)")
      ->required();
  diff->add_option("B", o.other, "Another one, of any world")->required();
  add_ranks(diff, o, "--threads", "Threads that read (default: the cores)");
  add_number(*diff, "--tolerance", o.tolerance,
             "Largest difference that counts as equal; 0: the same bits", 0);
  diff->footer("Exit codes: 0 equal, 1 they differ, 2 wrong usage.");
}

template <class Add> static void add_writers(const Add& add, CkptOptions& o) {
  CLI::App* reshard =
      add("reshard", "Write a checkpoint anew for other ranks", reshard_checkpoint, "--ranks");
  add_paths(reshard, o, kAnyCheckpoint, "Directory to save to");
  add_ranks(reshard, o, "--ranks", "Ranks to write for, each tensor cut along its first dim")
      ->required();

  CLI::App* out = add("export", "Write the model as Hugging Face safetensors, with config.json",
                      export_checkpoint, "--threads");
  add_paths(out, o, kAnyCheckpoint, "Directory; other files in it are left alone");
  add_ranks(out, o, "--threads",
            "Threads that write, each its part of the files (default: the cores)");
  add_shown(*out, "--prefix", o.prefix, "Prefix of the keys to export, which is removed");
  add_named(*out, "--base", o.base, "DIR",
            "The model that adapters belong to: PEFT's files name it, and --merge reads it");
  out->add_flag(
      "--merge", o.merge,
      "Write the model of --base with the adapters of PATH merged, which may be PEFT's too");
  add_whole(*out, "--file-gb", o.file_gigabytes, "Start another file beyond so many GiB", 1,
            1 << 20);

  out->add_flag("--dcp", o.is_dcp,
                "Write a directory of PyTorch's distributed checkpoint (DCP) instead, with the "
                "optimizer; one process writes it")
      ->excludes("--prefix");

  CLI::App* in =
      add("import", "Make a checkpoint of a Hugging Face model", import_checkpoint, "--ranks");
  add_paths(in, o, "Directory, index or .safetensors file", "Directory to save to");
  add_ranks(in, o, "--ranks", "Ranks to write for (default: the cores)");
  add_shown(*in, "--prefix", o.prefix, "Prefix that is added to the keys");
}

void add_ckpt(CLI::App& program, int& code) {
  CLI::App* ckpt = program.add_subcommand("ckpt", "Look at checkpoints, verify and convert them");
  ckpt->require_subcommand(1);
  const auto options = std::make_shared<CkptOptions>();
  // If `ranks_flag` is given, all ranks of a job run the command, else the first process alone.
  const auto add = [&](const char* name, const char* about, int (*run)(const CkptOptions&),
                       const char* ranks_flag = nullptr) {
    CLI::App* command = ckpt->add_subcommand(name, about);
    command->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    command->callback([=, &code] {
      if (!ranks_flag && !is_first_process()) return;
      int& ranks = options->ranks;
      if (ranks_flag) ranks = job_ranks(ranks, ranks_flag);
      if (ranks == 0) ranks = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
      code = again_if_removed(options->path, [&] { return run(*options); });
    });
    return command;
  };
  add_readers(add, *options);
  add_writers(add, *options);
}

}  // namespace weft::cli
