// SPDX-License-Identifier: Apache-2.0
#include "weft/ranks.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <future>
#include <utility>
#include <vector>

#include <range/v3/numeric/accumulate.hpp>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "weft/extend/mpi_handle.h"
#include "weft/extend/views.h"

namespace weft::python {

void bind_errors(py::module_& m) {
  static py::handle error =
      PyErr_NewExceptionWithDoc("weft.CommError",
                                "A collective that could not end: a rank threw, died, never came "
                                "or called something else. `rank` is the rank at fault (-1 when it "
                                "is not known), `operation` and `sequence` say which call it was.",
                                PyExc_RuntimeError, nullptr);
  m.attr("CommError") = error;
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const CommError& e) {
      py::object object = error(e.what());
      object.attr("rank") = e.rank();
      object.attr("operation") = e.operation();
      object.attr("sequence") = e.sequence();
      PyErr_SetObject(error.ptr(), object.ptr());
    }
  });
}

/// `connect` with a communicator of mpi4py.
static Communicator connect_mpi4py(const py::object& comm, const RunOptions& options) {
  // An import would initialise MPI.
  const py::object mpi = py::module_::import("sys").attr("modules").attr("get")("mpi4py.MPI");
  if (mpi.is_none() || !py::isinstance(comm, mpi.attr("Comm"))) {
    throw py::type_error(concat("connect: comm is of type ", Py_TYPE(comm.ptr())->tp_name,
                                ", expected a communicator of mpi4py.MPI"));
  }
  const auto handle_of = [&](const py::object& object) {
    uintptr_t handle = 0;
    std::memcpy(&handle, reinterpret_cast<void*>(mpi.attr("_addressof")(object).cast<uintptr_t>()),
                mpi.attr("_sizeof")(object).cast<size_t>());
    return handle;
  };
  // Handles are ints in MPICH's ABI; predefined ones are small numbers in that of MPI 5.
  const bool is_mpich = mpi.attr("_sizeof")(comm).cast<size_t>() == sizeof(int);
  const MpiAbi abi = is_mpich                                   ? MpiAbi::mpich
                     : handle_of(mpi.attr("COMM_WORLD")) < 4096 ? MpiAbi::standard
                                                                : MpiAbi::openmpi;
  const uintptr_t handle = handle_of(comm);
  return released([&] { return connect_mpi(abi, handle, options); });
}

void bind_communicator(py::module_& m) {
  wait_in_destructors_by(wait_unlocked);
  py::class_<Communicator> communicator(m, "Communicator",
                                        "A group of ranks that call collectives together");
  refuse_to_pickle(communicator,
                   "a Communicator is not pickled: it is of this process; each rank has its own");
  copy_as_itself(communicator);
  communicator.def_property_readonly("rank", &Communicator::rank, "This rank, from 0")
      .def_property_readonly("size", &Communicator::size, "The number of ranks")
      .def_property_readonly("name", &Communicator::name, "'world', 'world/dp': the name in errors")
      .def_static(
          "from_mpi", [](const py::object& comm) { return connect_mpi4py(comm, {}); }, "comm"_a,
          "The ranks of a communicator of mpi4py, as `connect(comm)` returns it")
      .def("barrier", &Communicator::barrier, Released(), "Returns when all ranks have called it")
      .def("split", &Communicator::split, Released(), "color"_a, "key"_a, "name"_a,
           "Groups of equal `color`, ordered by (key, rank); a negative color joins none. "
           "Collective")
      .def(
          "subgroup",
          [](const Communicator& self, const std::vector<int>& ranks, const std::string& name) {
            return self.subgroup(ranks, name);
          },
          Released(), "ranks"_a, "name"_a = "group",
          "The group of these ranks, in that order; called by them only");
  getter(
      communicator, "traffic",
      "(bytes this rank received from others, calls it made) over this communicator",
      [](const Communicator& c) { return std::pair(c.traffic().bytes, c.traffic().collectives); });
  communicator.def("__bool__", [](const Communicator& c) { return static_cast<bool>(c); })
      .def("__repr__", [](const Communicator& c) {
        return c ? concat("Communicator('", c.name(), "', rank ", c.rank(), " of ", c.size(), ")")
                 : std::string("Communicator()");
      });
}

/// Converts a deadline in seconds; deadlines above `kLongest` are unlimited in practice.
static std::chrono::milliseconds milliseconds_of(double deadline) {
  constexpr double kLongest = 10 * 365.0 * 24 * 3600;
  if (!(deadline > 0)) fail("deadline: it is ", deadline, " s, expected a number above 0");
  return std::chrono::milliseconds(
      std::max<int64_t>(1, static_cast<int64_t>(std::min(deadline, kLongest) * 1e3)));
}

namespace {

/// The state of the ranks while they run; read and changed with the interpreter's lock held.
class RankRun : NotCopied {
 public:
  RankRun(int ranks, const py::function& body)
      : body_(body),
        around_(of_thread()),
        ranks_(static_cast<size_t>(ranks)),
        results_(static_cast<size_t>(ranks)) {
    if (around_ && around_->is_interrupted_) throw_interrupt();
    all().push_back(this);
  }
  ~RankRun() { std::erase(all(), this); }

  /// Runs one rank, on its thread.
  void run(const Communicator& world) {
    const Locked lock;
    of_thread() = this;
    Rank& rank = ranks_[static_cast<size_t>(world.rank())];
    rank = {world, PyThread_get_thread_ident()};
    try {
      py::object result = body_(world);
      // A rank that was interrupted in its last call raises here.
      if (is_interrupted_) throw_interrupt();
      results_[static_cast<size_t>(world.rank())] = std::move(result);
      rank = {};
    } catch (py::error_already_set& raised) {
      rank = {};
      if (!failed_at_) failed_at_ = std::chrono::steady_clock::now();
      name_rank(raised, world);
      throw;
    } catch (...) {
      rank = {};
      throw;
    }
  }

  /// Raises KeyboardInterrupt in every rank that runs Python and ends the waits of the others; the
  /// same in runs that these ranks have started.
  void interrupt() {
    is_interrupted_ = true;
    end_ranks(PyExc_KeyboardInterrupt, "interrupted from the keyboard");
  }
  /// Raises CommError in ranks that still run Python one second after another rank failed; ranks
  /// that wait for the failed one raise by themselves.
  void end_stragglers() {
    if (!failed_at_ || std::chrono::steady_clock::now() - *failed_at_ < std::chrono::seconds(1)) {
      return;
    }
    failed_at_.reset();
    const py::object error = py::module_::import("weft._weft").attr("CommError");
    for (const Rank& rank : ranks_) {
      if (rank.world) PyThreadState_SetAsyncExc(rank.thread, error.ptr());
    }
    end_runs_within(error.ptr(), "a rank of the run around this one failed");
  }

  [[noreturn]] static void throw_interrupt() {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw py::error_already_set();
  }

  py::list results() {
    py::list all;
    for (py::object& result : results_) all.append(std::move(result));
    return all;
  }

 private:
  struct Rank {
    Communicator world = {};
    unsigned long thread = 0;
  };

  /// The active runs; and the run that the calling thread belongs to as a rank.
  static std::vector<RankRun*>& all() {
    static std::vector<RankRun*> runs;
    return runs;
  }
  static RankRun*& of_thread() {
    static thread_local RankRun* run = nullptr;
    return run;
  }

  void end_ranks(PyObject* kind, const char* why) {
    for (const Rank& rank : ranks_) {
      if (!rank.world) continue;
      PyThreadState_SetAsyncExc(rank.thread, kind);
      rank.world.abort(why);
    }
    end_runs_within(kind, why);
  }

  void end_runs_within(PyObject* kind, const char* why) {
    for (RankRun* run : all()) {
      if (run->around_ != this) continue;
      run->is_interrupted_ = run->is_interrupted_ || is_interrupted_;
      run->end_ranks(kind, why);
    }
  }

  static void name_rank(const py::error_already_set& raised, const Communicator& world) {
    if (world.size() == 1) return;
    // The text for the other ranks is fixed when it is first read; they already name the rank.
    static_cast<void>(raised.what());
    raised.value().attr("add_note")(concat("raised by rank ", world.rank(), " of ", world.size()));
  }

  const py::function& body_;
  RankRun* around_;
  std::vector<Rank> ranks_;
  std::vector<py::object> results_;
  bool is_interrupted_ = false;
  std::optional<std::chrono::steady_clock::time_point> failed_at_;
};

}  // namespace

/// Runs body(world) on threads of this process, as `run_ranks` does, and returns the ranks'
/// results. On the main thread, Ctrl-C raises KeyboardInterrupt in all ranks, and then here.
static py::list run_python_ranks(int ranks, const py::function& body, const RunOptions& options) {
  if (ranks < 1 || ranks > kMostLocalRanks) {
    fail("run_ranks: the number of ranks is ", ranks, ", expected 1 to ", kMostLocalRanks);
  }
  RankRun run(ranks, body);
  const auto run_all = [&] {
    run_ranks(
        ranks, [&run](const Communicator& world) { run.run(world); }, options);
  };
  // Only the main thread handles signals.
  const py::module_ threading = py::module_::import("threading");
  if (!threading.attr("current_thread")().is(threading.attr("main_thread")())) {
    released(run_all);
    return run.results();
  }
  std::optional<py::error_already_set> raised;
  std::future<void> ended;
  released([&] {
    ended = std::async(std::launch::async, run_all);
    while (ended.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      const Locked lock;
      run.end_stragglers();
      if (PyErr_CheckSignals() == 0) continue;
      // The exception of Python's signal handler: KeyboardInterrupt unless the program changed it.
      raised ? PyErr_Clear() : static_cast<void>(raised.emplace());
      run.interrupt();
    }
    ended.wait();  // until the thread has ended, which may need the lock
  });
  if (raised) throw *std::move(raised);
  ended.get();
  return run.results();
}

static void check_flat(const char* what, const char* name, const Tensor& x, int64_t count) {
  if (x.block().is_dense() && !x.is_sharded() && x.numel() == count) return;
  fail(what, ": ", name, " is ", x.shape(), ", expected a dense tensor of one device of ", count,
       " elements");
}

static void bind_collectives(py::module_& m) {
  def(m, "all_reduce(tensor, group)",
      "Replaces the elements of a tensor of one device by their sums over the group's ranks",
      [](const Tensor& tensor, const Communicator& group) {
        check_flat("all_reduce", "tensor", tensor, tensor.numel());
        check_writable("all_reduce", tensor);
        const int64_t count[] = {tensor.numel()};
        void* data = tensor.block().data;
        group
            .all_reduce(std::vector<Piece>{{.send = data,
                                            .recv = data,
                                            .dtype = tensor.dtype(),
                                            .counts = count,
                                            .device = tensor.device()}},
                        ReduceOp::sum)
            .wait();
        mark_written(tensor);
      });
  const auto moves = [](const char* what, bool gathers) {
    return [what, gathers](const Tensor& output, const Tensor& input, const Communicator& group,
                           const std::optional<std::vector<int64_t>>& given) {
      const std::vector<int64_t> counts = given.value_or(std::vector<int64_t>(
          static_cast<size_t>(group.size()), (gathers ? input : output).numel()));
      if (static_cast<int>(counts.size()) != group.size()) {
        fail(what, ": number of counts is ", counts.size(), ", expected ", group.size());
      }
      const int64_t whole = ranges::accumulate(counts, int64_t{0});
      const int64_t own = counts[static_cast<size_t>(group.rank())];
      check_flat(what, "output", output, gathers ? whole : own);
      check_flat(what, "input", input, gathers ? own : whole);
      check_writable(what, output);
      const std::vector<Piece> pieces{{.send = input.block().data,
                                       .recv = output.block().data,
                                       .dtype = input.dtype(),
                                       .counts = counts,
                                       .recv_dtype = output.dtype(),
                                       .device = input.device()}};
      (gathers ? group.all_gather(pieces) : group.reduce_scatter(pieces, ReduceOp::sum)).wait();
      mark_written(output);
    };
  };
  def(m, "all_gather_into_tensor(output_tensor, input_tensor, group, counts=None)",
      moves("all_gather_into_tensor", true),
      "Writes the parts of the group's ranks, of `counts` elements (equal ones by default), one "
      "after the other into `output_tensor`");
  def(m, "reduce_scatter_tensor(output_tensor, input_tensor, group, counts=None)",
      moves("reduce_scatter_tensor", false),
      "Writes this rank's part, of `counts` elements (equal ones by default), of the sum over the "
      "group's ranks into `output_tensor`");
}

void bind_ranks(py::module_& m) {
  bind_collectives(m);
  using O = RunOptions;
  const auto deadline = converted("deadline"_a = 600.0, &O::deadline, milliseconds_of);
  const auto threads = option("threads_per_rank", &O::threads_per_rank);
  const auto seed = option("seed", &O::seed);
  bind_with_fields<O, int, py::function>(
      m, "run_ranks", run_python_ranks, "ranks"_a, "body"_a, py::kw_only(), deadline, threads, seed,
      option("checks_equality", &O::checks_equality),
      "Calls body(world) on `ranks` threads of this process, each a rank, and returns what they "
      "returned, by rank. When one raises, the others end too and its exception is raised here; so "
      "at Ctrl-C. Waits for other ranks end after `deadline` seconds with a CommError. "
      "threads_per_rank 0 shares the machine's cores evenly. checks_equality: whether tensors "
      "given to distribute are compared between ranks; None compares a sample of the first ones");
  def(m, "launched_ranks()", &launched_ranks,
      "Ranks of the job that this process is one rank of (weft run, mpirun, torchrun, srun); 1 for "
      "a process that is alone");
  bind_with_fields<O>(m, "_connect", static_cast<Communicator (*)(const O&)>(connect), Released(),
                      deadline, threads, seed);
  bind_with_fields<O, py::object>(m, "_connect_mpi", connect_mpi4py, "comm"_a, deadline, threads,
                                  seed);
  def(m, "_abort(world, why)",
      [](const Communicator& world, const std::string& why) { world.abort(why); });
  def(m, "fake_world(rank, size, ranks_per_host=8, in_memory=True)", &fake_world,
      "A communicator of `size` ranks of which only `rank` exists: collectives move nothing but "
      "count the bytes that would come. For planning on clusters you do not have");
}

}  // namespace weft::python
