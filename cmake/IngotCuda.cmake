# Finds CUDA and sets INGOT_HAS_CUDA. Defines ingot_cuda_sources(folder), which compiles ingot/FOLDER/*.cu
# into the library of the folder by calling nvcc directly: with CMake's own CUDA language, every project
# that links the installed libraries would have to enable that language too.
set(INGOT_CUDA AUTO CACHE STRING "CUDA devices: AUTO (where the toolkit is found), ON, OFF")
set_property(CACHE INGOT_CUDA PROPERTY STRINGS AUTO ON OFF)
set(INGOT_CUDA_ARCHITECTURES "90a" CACHE STRING
    "What the kernels are compiled for: 80, 90a, ... for machine code, 90-ptx for what newer devices compile")

set(INGOT_HAS_CUDA OFF)
if(NOT INGOT_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13.0)
    set(INGOT_HAS_CUDA ON)
    message(STATUS "CUDA: ${CUDAToolkit_VERSION}, for ${INGOT_CUDA_ARCHITECTURES}")
  elseif(INGOT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CUDA: INGOT_CUDA is ON, but no toolkit of 13.0 or newer was found (${CUDAToolkit_VERSION})")
  else()
    message(STATUS "CUDA: no toolkit of 13.0 or newer, devices are left out")
  endif()
endif()

# cuDNN and NCCL need only their headers here: Ingot loads the libraries at run time, where it uses them.
set(INGOT_HAS_CUDNN OFF)
set(INGOT_HAS_NCCL OFF)
if(INGOT_HAS_CUDA)
  find_path(CUDNN_INCLUDE_DIR cudnn_backend.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(CUDNN_INCLUDE_DIR)
    set(INGOT_HAS_CUDNN ON)
  endif()
  if(NCCL_INCLUDE_DIR)
    set(INGOT_HAS_NCCL ON)
  endif()
  message(STATUS "cuDNN: ${CUDNN_INCLUDE_DIR}, NCCL: ${NCCL_INCLUDE_DIR}")
endif()

# fmt 9 mistakes nvcc for a compiler without constexpr, and then fails on its own consteval.
set(INGOT_NVCC_FLAGS -std=c++20 -O3 -DFMT_USE_CONSTEXPR=1 --expt-relaxed-constexpr -lineinfo
    --compress-mode=size -Xcompiler=-fPIC -DINGOT_WITH_CUDA=1 -I${PROJECT_SOURCE_DIR})
if(CMAKE_COMPILE_WARNING_AS_ERROR)
  list(APPEND INGOT_NVCC_FLAGS --Werror all-warnings)
endif()
foreach(architecture ${INGOT_CUDA_ARCHITECTURES})
  if(architecture MATCHES "^([0-9]+[a-z]?)-ptx$")
    list(APPEND INGOT_NVCC_FLAGS -gencode=arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1})
  else()
    list(APPEND INGOT_NVCC_FLAGS -gencode=arch=compute_${architecture},code=sm_${architecture})
  endif()
endforeach()

# ingot_kernel_batches(VARIABLE NAME): the kernel files of ingot/NAME. With INGOT_UNITY, each batch
# includes several of them, because most of the compile time of a kernel goes to headers; attention.cu
# stays a file of its own.
function(ingot_kernel_batches variable name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ingot/${name}/*.cu)
  if(INGOT_UNITY)
    set(lonely ${sources})
    list(FILTER lonely INCLUDE REGEX "/attention\\.cu$")
    list(FILTER sources EXCLUDE REGEX "/attention\\.cu$")
    set(batches ${lonely})
    while(sources)
      list(SUBLIST sources 0 6 batch)
      list(REMOVE_ITEM sources ${batch})
      list(TRANSFORM batch REPLACE "^.*/ingot/(.*)$" "#include \"ingot/\\1\"\n")
      list(JOIN batch "" text)
      list(LENGTH batches count)
      set(file ${PROJECT_BINARY_DIR}/cuda/${name}/batch_${count}.cu)
      file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
      list(APPEND batches ${file})
    endwhile()
    set(sources ${batches})
  endif()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

function(ingot_cuda_sources name)
  if(NOT INGOT_HAS_CUDA)
    return()
  endif()
  ingot_kernel_batches(sources ${name})
  foreach(source ${sources})
    get_filename_component(stem ${source} NAME_WE)
    set(object ${PROJECT_BINARY_DIR}/cuda/${name}/${stem}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${CUDAToolkit_NVCC_EXECUTABLE} -ccbin ${CMAKE_CXX_COMPILER}
              ${INGOT_NVCC_FLAGS} -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d
      COMMENT "Building CUDA object ingot/${name}/${stem}.cu" VERBATIM COMMAND_EXPAND_LISTS)
    target_sources(ingot_${name} PRIVATE ${object})
  endforeach()
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/cuda/${name})
endfunction()
