# Builds every C++ example of EXAMPLES, each a separate project, against the weft in PREFIX with the
# compiler CXX and the generator GENERATOR, in WORK. Then runs each and compares its output. One
# project adds all of them, so that there is one configuration and one build.

function(run directory)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${directory}
    RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err TIMEOUT 100)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}: exit code ${code}\n${out}${err}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

# expect(output command...): the command prints exactly the text of EXAMPLES/output.
function(expect name)
  run(${WORK}/build/${name} ${ARGN})
  file(READ ${EXAMPLES}/${name}/output.txt expected)
  if(NOT out STREQUAL expected)
    message(FATAL_ERROR "examples/${name} printed:\n${out}\ninstead of:\n${expected}")
  endif()
endfunction()

set(names hello_mesh hsdp_training tensor_parallel custom_op inference vit)
if(MPIEXEC)
  list(APPEND names mpi_program)
endif()
file(REMOVE_RECURSE ${WORK})
file(WRITE ${WORK}/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)\nproject(examples CXX)\n")
foreach(name ${names})
  file(APPEND ${WORK}/CMakeLists.txt "add_subdirectory(${EXAMPLES}/${name} ${name})\n")
endforeach()
run(. ${CMAKE_COMMAND} -S ${WORK} -B ${WORK}/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${PREFIX})
run(. ${CMAKE_COMMAND} --build ${WORK}/build)

set(ENV{WEFT_SWEEP_PERCENT} 10)
set(ENV{OMP_WAIT_POLICY} passive)
expect(hello_mesh ./hello_mesh)
expect(hsdp_training ./hsdp_training checkpoints)
expect(tensor_parallel ./tensor_parallel)
expect(custom_op ./custom_op)
expect(inference ./inference)
expect(vit ./vit)
if(MPIEXEC)
  set(ENV{OMPI_ALLOW_RUN_AS_ROOT} 1)
  set(ENV{OMPI_ALLOW_RUN_AS_ROOT_CONFIRM} 1)
  expect(mpi_program ${MPIEXEC} --oversubscribe --bind-to none -n 4 ./mpi_program)
endif()
