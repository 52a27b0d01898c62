# SimGrid's SMPI in place of an MPI library (INGOT_SMPI): the program becomes a shared object that smpirun loads
# once per simulated rank. docs/smpi.md.
find_path(INGOT_SMPI_INCLUDE_DIR smpi/mpi.h)
find_library(INGOT_SIMGRID_LIBRARY simgrid)
find_program(INGOT_SMPIRUN smpirun)
if(NOT INGOT_SMPI_INCLUDE_DIR OR NOT INGOT_SIMGRID_LIBRARY OR NOT INGOT_SMPIRUN)
  message(FATAL_ERROR "INGOT_SMPI is on, but SimGrid was not found; install libsimgrid-dev")
endif()
add_library(ingot_smpi_threads SHARED bench/smpi/fibers.cpp bench/smpi/threads.cpp)
target_include_directories(ingot_smpi_threads PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(ingot_smpi_threads SYSTEM PRIVATE ${INGOT_SMPI_INCLUDE_DIR}/smpi)
target_link_libraries(ingot_smpi_threads PRIVATE ingot_options ${INGOT_SIMGRID_LIBRARY} ${CMAKE_DL_LIBS})
set_target_properties(ingot_smpi_threads PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
# A copy of the program has variables of its own only if they are not unique in the process.
add_compile_options(-fno-gnu-unique)
set(MPI_CXX_INCLUDE_DIRS ${INGOT_SMPI_INCLUDE_DIR}/smpi)
set(MPI_CXX_LIBRARIES ingot_smpi_threads ${INGOT_SIMGRID_LIBRARY})
set(MPI_CXX_FOUND ON)
