# Installs BUILD into an empty prefix under WORK, then configures, builds and runs the project
# CONSUMER against that prefix with the compiler CXX and generator GENERATOR.

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}: exit code ${code}\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${WORK}/prefix)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)
if(NOT out MATCHES "\\[64, 512\\]\n$")
  message(FATAL_ERROR "the consumer printed: ${out}")
endif()
if(EXISTS ${BUILD}/bin/weft)
  run(${WORK}/prefix/bin/weft --help)
endif()
