// Configures a preset and prints its size: headers, libraries and built-in presets have arrived.
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
