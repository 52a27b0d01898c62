// ParamRole is the purpose of a parameter in the model. Optimizer groups select parameters by it.
#pragma once

namespace ingot {

enum class ParamRole { kEmbedding, kPosition, kMatrix, kHead, kNorm, kBias, kScalar };

}  // namespace ingot
