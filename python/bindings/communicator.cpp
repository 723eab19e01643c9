// SPDX-License-Identifier: Apache-2.0
#include "weft/communicator.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"

namespace weft::python {

void bind_errors(py::module_& m) {
  static py::handle error = PyErr_NewExceptionWithDoc(
      "weft.CommError",
      "A collective that could not end: a rank threw, died, never came or called something else. "
      "`rank` is the rank at fault (-1 when it is not known), `operation` and `sequence` say which "
      "call it was.",
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

void bind_communicator(py::module_& m) {
  wait_in_destructors_by(wait_unlocked);
  py::class_<Communicator> communicator(m, "Communicator",
                                        "A group of ranks that call collectives together");
  refuse_to_pickle(communicator,
                   "a Communicator is not pickled: it is of this process; each rank has its own");
  copy_as_itself(communicator);
  communicator.def_property_readonly("rank", &Communicator::rank, "This rank, from 0")
      .def_property_readonly("size", &Communicator::size, "How many ranks there are")
      .def_property_readonly("name", &Communicator::name, "'world', 'world/dp': the name in errors")
      .def("barrier", &Communicator::barrier, Released(), "Returns when all ranks have called it")
      .def("split", &Communicator::split, Released(), py::arg("color"), py::arg("key"),
           py::arg("name"),
           "Groups of equal `color`, ordered by (key, rank); a negative color joins none. "
           "Collective")
      .def_property_readonly(
          "traffic",
          [](const Communicator& c) {
            return std::pair(c.traffic().bytes, c.traffic().collectives);
          },
          "(bytes this rank received from others, calls it made) over this communicator")
      .def("__bool__", [](const Communicator& c) { return static_cast<bool>(c); })
      .def("__repr__", [](const Communicator& c) {
        return c ? concat("Communicator('", c.name(), "', rank ", c.rank(), " of ", c.size(), ")")
                 : std::string("Communicator()");
      });
}

}  // namespace weft::python
