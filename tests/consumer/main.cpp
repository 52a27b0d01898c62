// Resolves a preset and checks its size, which shows that headers, libraries and built-in presets are
// installed.
#include <cstdio>

#include "ingot/config/config_toml.h"
#include "ingot/ops/matmul.h"

int main() {
  ingot::ConfigBuilder builder;
  builder.add_source("gpt2-124m");
  const ingot::ModelConfig model = builder.build().model.resolved();
  std::printf("gpt2-124m has %lld parameters; products by %s\n", static_cast<long long>(model.parameters()),
              ingot::matmul_engine(ingot::DType::f32));
  return model.parameters() == 124'439'808 ? 0 : 1;
}
