# Builds EXAMPLE, a separate project in C or Fortran, in WORK against the weft in PREFIX, with the
# generator GENERATOR and the cache entries FLAGS. Then runs it alone and as 2 and 3 processes, and
# compares what it prints with its output.txt.

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err
    TIMEOUT 100)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}: exit code ${code}\n${out}${err}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

get_filename_component(name ${EXAMPLE} NAME)
file(READ ${EXAMPLE}/output.txt expected)
file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} -S ${EXAMPLE} -B ${WORK} -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${PREFIX}
  ${FLAGS})
run(${CMAKE_COMMAND} --build ${WORK})
foreach(ranks 1 2 3)
  set(start)
  if(ranks GREATER 1)
    set(start ${PREFIX}/bin/weft run -n ${ranks} --)
  endif()
  run(${start} ${WORK}/${name})
  string(REGEX REPLACE "(^|\n)\\[0\\] " "\\1" out "${out}")
  if(NOT out STREQUAL expected)
    message(FATAL_ERROR "${name} printed on ${ranks} ranks:\n${out}\ninstead of:\n${expected}")
  endif()
endforeach()
