# The compile options of every target of the project, as one interface library.
add_library(ingot_options INTERFACE)
target_compile_features(ingot_options INTERFACE cxx_std_20)
# Ingot never reads errno or floating-point traps of libm, and maintaining them prevents the vectorisation
# of loops. IEEE arithmetic is not relaxed otherwise: NaN, infinities and the order of sums are as written.
target_compile_options(ingot_options INTERFACE
  $<BUILD_INTERFACE:-Wall;-Wextra;-fno-math-errno;-fno-trapping-math>)
if(INGOT_NATIVE)
  target_compile_options(ingot_options INTERFACE $<BUILD_INTERFACE:-march=native>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns about the undefined operands in its own AVX-512 header (GCC bug 105593).
  target_compile_options(ingot_options INTERFACE
    $<BUILD_INTERFACE:-Wno-uninitialized;-Wno-maybe-uninitialized>)
endif()
if(INGOT_SANITIZE)
  target_compile_options(ingot_options INTERFACE
    $<BUILD_INTERFACE:-fsanitize=${INGOT_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(ingot_options INTERFACE $<BUILD_INTERFACE:-fsanitize=${INGOT_SANITIZE}>)
  # GCC's flow warnings misfire on instrumented code, most of all in its own headers (std::regex). The
  # release build, where they are right, keeps them.
  target_compile_options(ingot_options INTERFACE
    $<BUILD_INTERFACE:-Wno-maybe-uninitialized;-Wno-stringop-overflow;-Wno-array-bounds>)
endif()
if(INGOT_FUZZ)
  target_compile_options(ingot_options INTERFACE
    $<BUILD_INTERFACE:-fsanitize=fuzzer-no-link,address,undefined;-fno-sanitize-recover=all;-Wno-pass-failed>)
  target_link_options(ingot_options INTERFACE $<BUILD_INTERFACE:-fsanitize=address,undefined>)
endif()
# GCC 13 and 14 also warn where a temporary argument cannot be what the function returns.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  target_compile_options(ingot_options INTERFACE $<BUILD_INTERFACE:-Wno-dangling-reference>)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")  # sanitizer builds: compile fast, lines in reports
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
