// The tile registers of AMX for one thread. They do nothing in builds without AMX.
#pragma once

#include <cstdint>

#if defined(__AMX_BF16__)
#include <immintrin.h>
#endif

namespace ingot::amx {

#if defined(__AMX_BF16__)
// The operand of LDTILECFG. It is a constant because GCC's _tile_loadconfig declares that it reads 8 of the
// 64 bytes, so the compiler may leave out stores to a local one.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
inline constexpr TileConfig kTileConfig{};
#endif

// Configures the calling thread's tile registers during its lifetime: 0..3 for c, 4 and 5 for a, 6 and 7
// for b, all with 16 rows of 64 bytes. REQUIRES: amx::is_available(), unless is_used is false.
class Tiles {
 public:
  explicit Tiles(bool is_used = true) : is_used_(is_used) {
#if defined(__AMX_BF16__)
    if (is_used_) _tile_loadconfig(&kTileConfig);
#endif
  }
  ~Tiles() {
#if defined(__AMX_BF16__)
    if (is_used_) _tile_release();
#endif
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

 private:
  [[maybe_unused]] bool is_used_;
};

}  // namespace ingot::amx
