# cmake -DPROGRAM=... -DFILE=... -P discover.cmake: writes to FILE the tests of a GoogleTest program for ctest.
# A test is one of ctest's, and so are all values of a value-parameterised suite together: starting the program
# for each of thousands of values takes longer than they do.
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE " +# [^\n]*" "" listing "${listing}")
string(REGEX MATCHALL "[^\n]+" lines "${listing}")

set(script "")
function(add_entry name)
  set(label "")
  set(properties TIMEOUT 300)
  if(name MATCHES "^(.*/)?Slow")
    set(label " (slow)")
    set(properties TIMEOUT 3000 LABELS slow)
  elseif(name MATCHES "^(.*/)?Long")
    set(properties TIMEOUT 900 LABELS long)
  endif()
  if(name MATCHES "(^|[./])DISABLED_")
    list(APPEND properties DISABLED TRUE)
  endif()
  list(JOIN properties " " properties)
  # Skipped, by name, is what ends with a list of skipped tests: one of failed tests would come after it.
  string(APPEND script "add_test([==[${name}${label}]==] [==[${PROGRAM}]==] [==[--gtest_filter=${ARGN}]==])\n"
         "set_tests_properties([==[${name}${label}]==] PROPERTIES ${properties} SKIP_REGULAR_EXPRESSION "
         "[==[\\[  SKIPPED \\] [^\n]*\n*$]==])\n")
  set(script "${script}" PARENT_SCOPE)
endfunction()

foreach(line ${lines})
  if(line MATCHES "^([^ ]+)\\.$")
    set(suite ${CMAKE_MATCH_1})
    if(suite MATCHES "/")
      add_entry("${suite}" "${suite}.*")
    endif()
  elseif(NOT suite MATCHES "/" AND line MATCHES "^  (.+)$")
    add_entry("${suite}.${CMAKE_MATCH_1}" "${suite}.${CMAKE_MATCH_1}")
  endif()
endforeach()
file(WRITE ${FILE} "${script}")
