#include "ingot/optim/rules/muon.h"

#include <algorithm>
#include <cmath>

#include "ingot/core/error.h"
#include "ingot/optim/rules/muon_parts.h"
#include "ingot/optim/weight_pass.h"

namespace ingot {
namespace {

// Mean square of each row of o (R, C), or of each column if it is wide.
void mean_squares(float* mean, const float* o, const MuonPart& part) {
  const int64_t R = part.rows, C = part.columns;
  parallel_for(part.lanes(), part.is_wide() ? 64 : 1, [&](int64_t begin, int64_t end) {
    if (!part.is_wide()) {
      for (int64_t r = begin; r < end; ++r) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < C; ++c) sum += o[r * C + c] * o[r * C + c];
        mean[r] = sum / static_cast<float>(C);
      }
      return;
    }
    std::fill(mean + begin, mean + end, 0.0f);
    for (int64_t r = 0; r < R; ++r)
#pragma omp simd
      for (int64_t c = begin; c < end; ++c) mean[c] += o[r * C + c] * o[r * C + c];
    for (int64_t c = begin; c < end; ++c) mean[c] /= static_cast<float>(R);
  });
}

// NorMuon's scaling of one matrix. second and scale have one number per lane; scale is scratch.
void reduce_variance(float* o, float* second, float* scale, const MuonPart& part, float beta2) {
  mean_squares(scale, o, part);
  double before = 0, after = 0;
  for (int64_t k = 0; k < part.lanes(); ++k) {
    const float mean = scale[k];
    second[k] += (mean - second[k]) * (1 - beta2);
    scale[k] = 1 / std::sqrt(std::max(second[k], 1e-10f));
    before += static_cast<double>(mean);
    after += static_cast<double>(mean) * static_cast<double>(scale[k]) * static_cast<double>(scale[k]);
  }
  const auto back = static_cast<float>(after > 0 ? std::sqrt(before / after) : 0.0);
  const int64_t C = part.columns;
  parallel_for(part.rows, std::max<int64_t>(1, kGrain / C), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = o + r * C;
      if (part.is_wide()) {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c) row[c] *= scale[c] * back;
      } else {
        const float factor = scale[r] * back;
#pragma omp simd
        for (int64_t c = 0; c < C; ++c) row[c] *= factor;
      }
    }
  });
}

void widen(float* to, const bf16* from, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

void multiply(const Tensor& x, float factor) {
  if (factor == 1) return;
  float* numbers = x.as<float>();
  parallel_for(x.elements(), kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) numbers[i] *= factor;
  });
}

}  // namespace

std::vector<StateSpec> Muon::state(const OptimParam& param) const {
  if (!param.is_matrix())
    fail(ErrorKind::kUsage,
         "optimizer: muon takes matrices, and {} is a vector; leave optimizer.kind as it is for all others "
         "(adamw), and give the matrices a group:\n"
         "  [[optimizer.group]]\n"
         "  roles = [\"matrix\"]\n"
         "  kind = \"muon\"\n"
         "or, on the command line: --set 'optimizer.group=[{{roles=[\"matrix\"],kind=\"muon\"}}]'",
         param.name);
  std::vector<StateSpec> specs{{"momentum", DType::f32, {param.elements()}}};
  int64_t lanes = 0;
  for_each_part(param, options_.split_fused, [&](const MuonPart& part) { lanes += part.lanes(); });
  if (options_.normuon) specs.push_back({"second", DType::f32, {lanes}, StateScope::kWhole});
  return specs;
}

size_t Muon::scratch_bytes(const OptimParam& param) const {
  size_t most = 0;
  for_each_part(param, options_.split_fused, [&](const MuonPart& part) {
    Arena lanes("muon lanes plan");
    lanes.alloc_as<float>(part.lanes());
    most = std::max({most, lanes.peak_bytes(),
                     newton_schulz_scratch_bytes(part.rows, part.columns, options_.newton_schulz_dtype)});
  });
  return most;
}

double Muon::flops(const OptimParam& param) const {
  double total = 0;
  for_each_part(param, options_.split_fused,
                [&](const MuonPart& part) { total += newton_schulz_flops(part.rows, part.columns); });
  return total;
}

void Muon::move_momentum(const ParamState& p, const RuleStep& step, const Tensor& direction,
                         Stream& /*stream*/) const {
  const float *g = p.param.g.as<float>(), scale = step.grad_scale;
  float *m = p.state[0].as<float>(), *u = direction.as<float>();
  const auto mu = static_cast<float>(step.momentum);
  const float of_m = options_.nesterov ? mu : 1.0f;
  parallel_for(p.param.elements(), kGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float gradient = g[i] * scale;
      m[i] += (gradient - m[i]) * (1 - mu);
      u[i] = gradient + (m[i] - gradient) * of_m;
    }
  });
}

void Muon::orthogonalise(const ParamState& p, const RuleStep& /*step*/, const Tensor& u, Arena& scratch,
                         Stream& stream) const {
  const Tensor flat = u.reshape({u.elements()});
  for_each_part(p.param, options_.split_fused, [&](const MuonPart& part) {
    const Tensor o = flat.rows(part.first(), part.end()).reshape({part.rows, part.columns});
    newton_schulz(o, options_.newton_schulz, options_.newton_schulz_dtype, scratch, stream);
    if (options_.normuon) {
      const Arena::Mark mark = scratch.mark();
      reduce_variance(o.as<float>(), p.state[1].as<float>() + part.second,
                      scratch.alloc_as<float>(part.lanes()), part, static_cast<float>(options_.beta2));
      scratch.release_to(mark);
    }
    multiply(o, part.shape_factor());
  });
}

void Muon::update(std::span<const ParamUpdate> updates, Arena& /*scratch*/, Stream& /*stream*/) const {
  update_ranges(updates, [&](const ParamUpdate& u, Range range) {
    return for_each_run(u.p, range, u.step, [&](float* w, const float* /*g*/, int64_t i, int64_t n) {
      const MuonMove move(options_, u.step);
      float rounded[kRunElements];
      const float* o = rounded;
      if (u.direction.dtype == DType::f32)
        o = u.direction.as<float>() + i;
      else
        widen(rounded, u.direction.as<bf16>() + i, n);
#pragma omp simd
      for (int64_t k = 0; k < n; ++k) move(w[k], o[k]);
    });
  });
}

}  // namespace ingot
