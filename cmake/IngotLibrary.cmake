# The files that call kernels (`if constexpr (kHasCuda)`); tools/check_dependencies.py checks these lists.
# tests/simulated_cuda compiles them once more with its own CUDA. If the libraries have CUDA themselves, it
# links their objects instead, except for the files that would load cuDNN or NCCL (INGOT_LIBRARY_CALLERS).
set(INGOT_LIBRARY_CALLERS
    ingot/comm/device_group.cpp
    ingot/ops/attention/attention.cpp)
set(INGOT_KERNEL_CALLERS
    ingot/comm/placement.cpp
    ingot/config/device_support.cpp
    ingot/core/arena.cpp
    ingot/core/copy.cpp
    ingot/core/cuda/cuda_status.cpp
    ingot/core/timeline.cpp
    ingot/memory/memory_check.cpp
    ingot/nn/fp8_device.cpp
    ingot/nn/fp8_linear.cpp
    ingot/ops/attention/pack_heads.cpp
    ingot/ops/attention/kv_cache.cpp
    ingot/ops/attention/rope.cpp
    ingot/ops/elementwise/accumulate.cpp
    ingot/ops/elementwise/activation.cpp
    ingot/ops/elementwise/bf16_masters.cpp
    ingot/ops/elementwise/cast.cpp
    ingot/ops/elementwise/dropout.cpp
    ingot/ops/elementwise/embedding.cpp
    ingot/ops/elementwise/matrix_shard.cpp
    ingot/ops/elementwise/mix.cpp
    ingot/ops/elementwise/swap_tensors.cpp
    ingot/ops/fp8/cast_fp8.cpp
    ingot/ops/loss/cross_entropy.cpp
    ingot/ops/loss/cross_entropy_bf16.cpp
    ingot/ops/loss/cross_entropy_tile.cpp
    ingot/ops/loss/kahan.cpp
    ingot/ops/loss/linear_cross_entropy.cpp
    ingot/ops/loss/loss_sums.cpp
    ingot/ops/matmul/bias.cpp
    ingot/ops/matmul/linear_fused.cpp
    ingot/ops/matmul/matmul.cpp
    ingot/ops/norm/norm.cpp
    ingot/ops/norm/qk_norm.cpp
    ingot/ops/norm/residual_add.cpp
    ingot/optim/rules/all_rules.cpp
    ingot/optim/rules/newton_schulz.cpp
    ingot/optim/update_sums.cpp
    ingot/parallel/stage_clock.cpp
    ingot/profile/bench_step.cpp
    ingot/run/peak.cpp
    ingot/infer/infer_engine.cpp
    ingot/train/pass_runner.cpp
    ingot/train/step_results.cpp
    ingot/train/trainer_step.cpp)
# Those of the program `ingot`.
set(INGOT_COMMAND_CALLERS
    apps/doctor_cuda.cpp
    apps/ranks.cpp)

# ingot_device_twins(VARIABLE) sets the list of files that tests/simulated_cuda compiles once more.
function(ingot_device_twins variable)
  set(twins ${INGOT_LIBRARY_CALLERS})
  if(NOT INGOT_HAS_CUDA)
    list(APPEND twins ${INGOT_KERNEL_CALLERS})
  endif()
  list(TRANSFORM twins PREPEND ${PROJECT_SOURCE_DIR}/)
  set(${variable} ${twins} PARENT_SCOPE)
endfunction()

# ingot_library(NAME [DEPENDS folders...] [LINK_PUBLIC libs...] [LINK_PRIVATE libs...])
# Adds the static library of the folder ingot/NAME, as target ingot_NAME and ingot::NAME.
function(ingot_library name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LINK_PUBLIC;LINK_PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ingot/${name}/*.cpp)
  if(NOT INGOT_HAS_CUDA)
    list(FILTER sources EXCLUDE REGEX "_cublaslt\\.cpp$")
  endif()
  if(NOT INGOT_HAS_NCCL)
    list(FILTER sources EXCLUDE REGEX "_nccl\\.cpp$")
  endif()
  if(NOT INGOT_HAS_CUDNN)
    list(FILTER sources EXCLUDE REGEX "_cudnn\\.cpp$")
  endif()
  add_library(ingot_${name} STATIC ${sources})
  add_library(ingot::${name} ALIAS ingot_${name})
  set_target_properties(ingot_${name} PROPERTIES EXPORT_NAME ${name})
  # Unity builds leave out ops, whose files use the same names for different things, and comm, whose files
  # are linked one by one.
  if(NOT name MATCHES "^(comm|ops)$")
    set_target_properties(ingot_${name} PROPERTIES UNITY_BUILD ${INGOT_UNITY})
    ingot_device_twins(twins)
    set_source_files_properties(${twins} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  target_include_directories(ingot_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  list(TRANSFORM arg_DEPENDS PREPEND ingot_)
  target_link_libraries(ingot_${name} PUBLIC ingot_options ${arg_DEPENDS} ${arg_LINK_PUBLIC}
                                      PRIVATE ${arg_LINK_PRIVATE})
endfunction()
