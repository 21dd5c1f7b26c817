// Prints what the products of an exact window of 8 take in float32 and float16 vectors and in
// bfloat16 tiles: scores of 64 queries with 64 keys of 32 channels, on one core, all in its cache.
//
//   g++ -O3 -march=sapphirerapids studies/precision/half_products.cc -o build/half_products
//   build/half_products
//
// Not a test, and no part of the library: it tells whether float16 kernels would pay on a CPU that
// has AVX512-FP16. Each line is the best of many turns.
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

constexpr int kQueries = 64, kKeys = 64, kChannels = 32, kCalls = 2000, kTurns = 200;

typedef float Floats __attribute__((vector_size(64)));
typedef _Float16 Halves __attribute__((vector_size(64)));

alignas(64) float queries[kQueries][kChannels], keys[kChannels][kKeys], scores[kQueries][kKeys];
alignas(64) _Float16 half_queries[kQueries][kChannels], half_keys[kChannels][kKeys];
alignas(64) _Float16 half_scores[kQueries][kKeys];
alignas(64) uint32_t pair_queries[kQueries][kChannels / 2], pair_keys[kChannels / 2][kKeys];
alignas(64) float tile_scores[kQueries][kKeys];

// C = A B in tiles of kRows rows of A and two vectors of B.
template <int kRows, class Vec, class T>
void in_vectors(const T (&a)[kQueries][kChannels], const T (&b)[kChannels][kKeys],
                T (&c)[kQueries][kKeys]) {
  constexpr int kLanes = sizeof(Vec) / sizeof(T);
  for (int col = 0; col < kKeys; col += 2 * kLanes) {
    for (int row = 0; row < kQueries; row += kRows) {
      Vec sums[kRows][2] = {};
      for (int k = 0; k < kChannels; ++k) {
        Vec first, second;
        std::memcpy(&first, &b[k][col], sizeof first);
        std::memcpy(&second, &b[k][col + kLanes], sizeof second);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          sums[i][0] += a[row + i][k] * first;
          sums[i][1] += a[row + i][k] * second;
        }
      }
      for (int i = 0; i < kRows; ++i) std::memcpy(&c[row + i][col], sums[i], sizeof sums[i]);
    }
  }
}

void in_floats() { in_vectors<8, Floats>(queries, keys, scores); }
void in_halves() { in_vectors<8, Halves>(half_queries, half_keys, half_scores); }

void in_tiles() {
  for (int row = 0; row < kQueries; row += 32) {
    for (int col = 0; col < kKeys; col += 32) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      _tile_loadd(4, pair_queries[row], sizeof pair_queries[0]);
      _tile_loadd(5, pair_queries[row + 16], sizeof pair_queries[0]);
      _tile_loadd(6, &pair_keys[0][col], sizeof pair_keys[0]);
      _tile_loadd(7, &pair_keys[0][col + 16], sizeof pair_keys[0]);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      _tile_stored(0, &tile_scores[row][col], sizeof tile_scores[0]);
      _tile_stored(1, &tile_scores[row][col + 16], sizeof tile_scores[0]);
      _tile_stored(2, &tile_scores[row + 16][col], sizeof tile_scores[0]);
      _tile_stored(3, &tile_scores[row + 16][col + 16], sizeof tile_scores[0]);
    }
  }
}

bool start_tiles() {
  constexpr long kAsk = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of Linux
  if (syscall(SYS_arch_prctl, kAsk, kTileData) != 0) return false;
  struct {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } configuration;
  _tile_loadconfig(&configuration);
  return true;
}

uint16_t bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void fill() {
  uint32_t state = 1;
  const auto next = [&] { return float(int32_t(state = state * 1664525 + 1013904223)) / 0x1p31f; };
  for (int i = 0; i < kQueries; ++i)
    for (int c = 0; c < kChannels; ++c) queries[i][c] = next(), keys[c][i] = next();
  for (int i = 0; i < kQueries; ++i) {
    for (int c = 0; c < kChannels; ++c) {
      half_queries[i][c] = _Float16(queries[i][c]);
      half_keys[c][i] = _Float16(keys[c][i]);
    }
    for (int c = 0; c < kChannels; c += 2) {
      pair_queries[i][c / 2] = bfloat16(queries[i][c]) | uint32_t(bfloat16(queries[i][c + 1]))
                                                             << 16;
      pair_keys[c / 2][i] = bfloat16(keys[c][i]) | uint32_t(bfloat16(keys[c + 1][i])) << 16;
    }
  }
}

double seconds(void (*product)()) {
  double best = 1e9;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < kCalls; ++call) {
      product();
      asm volatile("" ::: "memory");
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::fmin(best, took.count() / kCalls);
  }
  return best;
}

template <class T>
void report(const char* what, double took, const T (&got)[kQueries][kKeys]) {
  double error = 0;
  for (int i = 0; i < kQueries; ++i)
    for (int j = 0; j < kKeys; ++j)
      error = std::fmax(error, std::fabs(double(got[i][j]) - double(scores[i][j])));
  const double flops = 2.0 * kQueries * kKeys * kChannels;
  std::printf("%-18s %7.0f ns %8.0f GFLOP/s, largest difference %.1e\n", what, took * 1e9,
              flops / took * 1e-9, error);
}

}  // namespace

int main() {
  fill();
  if (!__builtin_cpu_supports("avx512fp16") || !start_tiles()) {
    std::puts("this CPU lacks AVX512-FP16 or AMX");
    return 1;
  }
  report("float32 vectors", seconds(in_floats), scores);
  report("float16 vectors", seconds(in_halves), half_scores);
  report("bfloat16 tiles", seconds(in_tiles), tile_scores);
}
