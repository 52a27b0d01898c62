#include "ingot/checkpoint/loaded_checks.h"

#include <algorithm>

#include "ingot/core/error.h"
#include "ingot/core/finite.h"
#include "ingot/core/machine.h"

namespace ingot {
namespace {

constexpr int64_t kMaxPaddingRows = 65536;  // bound for the padding of a vocabulary

// Returns a size as a double, so that products of two cannot overflow; 0 stands for `otherwise`.
double sized(int64_t size, double otherwise) { return size > 0 ? static_cast<double>(size) : otherwise; }

}  // namespace

void check_sizes(const ModelConfig& c, const SafetensorsSet& weights, const std::filesystem::path& path) {
  double numbers = 0;
  for (const SafetensorsFile* file : weights.files())
    for (const SafetensorsEntry& entry : file->tensors()) numbers += static_cast<double>(entry.elements());
  const auto refuse = [&](const std::string& what) {
    fail(ErrorKind::kData,
         "{}: {}, but {} holds {} tensors of {:.0f} numbers in all; give the files of one model",
         path.string(), what, weights.label(), weights.tensors(), numbers);
  };
  if (c.layers < 1 || static_cast<uint64_t>(c.layers) > weights.tensors())
    refuse(fmt::format("describes {} layers", c.layers));
  const double width = sized(c.width, 1), heads = sized(c.heads, 1);
  const double head_dim = sized(c.head_dim, width / heads), kv_heads = sized(c.kv_heads, heads);
  const auto require_table = [&](const char* what, double rows) {
    if (rows * width > numbers) refuse(fmt::format("describes {} of {:.0f} x {:.0f}", what, rows, width));
  };
  require_table("a vocabulary", sized(c.vocab, 1));
  require_table("queries, keys and values", (heads + 2 * kv_heads) * head_dim);
  require_table("a feed-forward layer", sized(c.ffn, width));
  if (c.positions == PositionKind::kLearned) require_table("positions", sized(c.context, 1));
  if (c.vocab_multiple > std::max(c.vocab, kMaxPaddingRows))
    refuse(fmt::format("pads a vocabulary of {} to a multiple of {}", c.vocab, c.vocab_multiple));
  const double table_bytes = sized(c.context, 1) * head_dim * 4;
  const auto memory_bytes = static_cast<double>(machine_info().memory_bytes);
  if (c.positions == PositionKind::kRope && table_bytes > memory_bytes)
    fail(ErrorKind::kMemory,
         "{}: a context of {} positions needs a table of {:.1f} GB, this machine has {:.1f} GB of memory; "
         "lower it",
         path.string(), c.context, table_bytes * 1e-9, memory_bytes * 1e-9);
}

void check_finite(const SafetensorsSet& weights, std::string_view prefix) {
  for (const SafetensorsFile* file : weights.files())
    for (const SafetensorsEntry& entry : file->tensors()) {
      if (!entry.dtype || !entry.name.starts_with(prefix)) continue;
      try {
        require_finite(file->label(), entry.name, *entry.dtype, 0, entry.bytes);
      } catch (const Error& error) {
        throw Error(fmt::format("{}; the model cannot be used, take an earlier checkpoint", error.what()),
                    error.kind());
      }
    }
}

}  // namespace ingot
