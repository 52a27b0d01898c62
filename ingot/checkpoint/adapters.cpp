#include "ingot/checkpoint/adapters.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ingot/ops/matmul.h"

namespace ingot {

std::string adapter_config_text(const Transformer& model, const std::string& base) {
  using Json = nlohmann::ordered_json;
  const LoraConfig& lora = model.config().lora;
  constexpr std::string_view kPrefix = "base_model.model.", kSuffix = ".lora_A.weight";
  Json targets = Json::array();
  for (const HfTensor& t : saved_tensors(model))
    if (t.name.ends_with(kSuffix))
      targets.push_back(t.name.substr(kPrefix.size(), t.name.size() - kPrefix.size() - kSuffix.size()));
  const std::vector<HfTensor> tensors = hf_tensors(model);
  const bool is_transposed = std::ranges::any_of(tensors, &HfTensor::is_transposed);
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", "CAUSAL_LM"},
                     {"base_model_name_or_path", base},
                     {"r", lora.rank},
                     {"lora_alpha", lora.alpha},
                     {"lora_dropout", 0.0},
                     {"target_modules", targets},
                     {"fan_in_fan_out", is_transposed},
                     {"bias", "none"},
                     {"inference_mode", true}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void merge_adapters(const Transformer& adapted, const std::function<Tensor(int id)>& values,
                    const SafetensorsSet& base, const Transformer& model, ParamStore& store) {
  constexpr std::string_view kA = ".lora_a";
  const LoraConfig& lora = adapted.config().lora;
  const auto scale = static_cast<float>(lora.alpha / static_cast<double>(lora.rank));
  const std::vector<HfTensor> tensors = hf_tensors(model);
  const std::vector<ParamSpec>& specs = model.params().specs();
  Stream stream;
  for (int first = 0; first < static_cast<int>(adapted.params().specs().size()); ++first) {
    const std::string& name = adapted.params()[first].name;
    if (!name.ends_with(kA)) continue;
    const std::string weight = name.substr(0, name.size() - kA.size()) + ".weight";
    const auto id = static_cast<int>(std::ranges::find(specs, weight, &ParamSpec::name) - specs.begin());
    const Shape& shape = model.params()[id].shape;
    std::vector<float> memory(static_cast<size_t>(shape.elements()));
    const Tensor w(memory.data(), DType::f32, shape);
    for (const HfTensor& t : tensors)
      if (t.param == id) read_hf_rect(w.as<float>(), base, t, {0, shape[0], 0, shape[1]});
    scaled_matmul(w, values(first + 1), values(first), MatmulForm::kNN, scale, true, stream);
    store_weight(store, id, w);
  }
}

}  // namespace ingot
