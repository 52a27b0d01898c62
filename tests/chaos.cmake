# Chaos on the real program (bench/chaos, docs/chaos.md): label "chaos" for the full counts, which take hours, and
# "chaos_short" for two minutes of everything. A script that cannot run on this machine says so and is skipped.
find_program(INGOT_PYTHON3 python3)
if(NOT INGOT_PYTHON3 OR INGOT_SANITIZE)
  return()
endif()
function(ingot_chaos name label timeout_s script)
  add_test(NAME ${name} COMMAND ${INGOT_PYTHON3} ${PROJECT_SOURCE_DIR}/bench/chaos/${script}.py --program
                                $<TARGET_FILE:ingot> ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout_s} RUN_SERIAL ON
                       SKIP_REGULAR_EXPRESSION "skipped, because")
endfunction()
ingot_chaos(chaos_short chaos_short 900 run --short)
set_tests_properties(chaos_short PROPERTIES SKIP_REGULAR_EXPRESSION "")
foreach(script kills file_calls bit_flips ranks bad_inputs)
  ingot_chaos(chaos_${script} chaos 7200 ${script})
  ingot_chaos(chaos_${script}_under_a_terminal chaos 7200 ${script} --pty)
endforeach()
ingot_chaos(chaos_power_cuts chaos 3600 power_cuts)
ingot_chaos(chaos_hosts chaos 3600 hosts)
ingot_chaos(chaos_soak chaos 28800 soak)
