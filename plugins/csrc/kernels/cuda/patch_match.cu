// NystraPatchMatch: k approximate nearest patches for every query pixel; for a given seed all
// backends return the same field.
//
// The maps are first copied to channels-last, in their own type. Then one kernel is launched per
// pass and reads the field that the previous pass wrote: the start, then for each iteration four
// propagations and a random search. 8 lanes process a pixel. A key that is already in the pixel's
// row is not scored again, and with l2 a sum stops when it exceeds the worst score of the row. Sums
// are accumulated in float.
//
// Cost of an iteration, with S bytes per element: 16 k + log2(max(Hk, Wk)) + 1 candidates per
// pixel, each 2 p^2 C FLOPs (l2: 3 p^2 C) and S p^2 C bytes of keys, mostly from the caches; and
// 16 k bytes of the field per pixel and pass from global memory. Example: 512 x 512 pixels, k = 3,
// p = 7, 16 channels and 5 iterations give 76 million candidates, or 60 billion terms if no sum
// stops early.
#include "patch_match_search.h"

namespace nystra::cuda {
namespace {

// Fills a row with the given start entries that are allowed keys, and with one random key from each
// of k equal parts of the allowed keys.
template <class T, bool kSquares, int kKeys>
__global__ void __launch_bounds__(kSearchThreads, 4)
    patch_match_start_kernel(Search<T> s, const int32_t* start, Steps steps,
                             int64_t neighbor_step) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  Row<T, kSquares, kKeys> row(s, shared);
  row.clear();
  const int64_t keys = row.keys();
  const int count = row.searches ? s.count[row.image] : 0;
  const int32_t* const starts =
      start + row.image * steps.image + row.y * steps.row + row.x * steps.column;
  row.offer_all(s.neighbors, [&](int i) {
    const int key = row.searches ? starts[i * neighbor_step] : -1;
    return key < keys ? key : -1;
  });
  row.offer_all(s.neighbors, [&](int i) {
    const int low = int(int64_t(i) * count / s.neighbors),
              high = int(int64_t(i + 1) * count / s.neighbors);
    if (high <= low) return -1;
    const int place = low + draw(ComputedTable(), row.y, row.x, i, s.seed) % (high - low);
    return s.list == nullptr ? place : s.list[row.image * keys + place];
  });
  row.store_row();
}

// Offers the entries of the four neighbors at a distance of `step` pixels, shifted back by that
// distance.
template <class T, bool kSquares, int kKeys>
__global__ void __launch_bounds__(kSearchThreads, 4)
    patch_match_propagate_kernel(Search<T> s, int step) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  Row<T, kSquares, kKeys> row(s, shared);
  row.load_row();
  for (int direction = 0; direction < 4; ++direction) {
    const int sign = direction % 2 == 0 ? -step : step;
    const int dy = direction < 2 ? sign : 0, dx = direction < 2 ? 0 : sign;
    const int y = row.y + dy, x = row.x + dx;
    const bool reached =
        row.searches && y >= 0 && y < s.query.height && x >= 0 && x < s.query.width;
    row.offer_all(s.neighbors, [&](int i) {
      const int key = reached ? row.entry(i, y, x) : -1;
      const int v = key / s.key.width - dy, u = key % s.key.width - dx;
      const bool inside = v >= 0 && v < s.key.height && u >= 0 && u < s.key.width;
      return key >= 0 && inside ? v * s.key.width + u : -1;
    });
  }
  row.store_row();
}

// Returns a coordinate within `radius` of the center and inside [0, size), chosen by the random
// `number`.
__device__ __forceinline__ int draw_near(int center, int radius, int size, int number) {
  const int low = max(0, center - radius), high = min(size - 1, center + radius);
  return low + number % (high - low + 1);
}

// Offers random keys around the entries that the row had before this pass: one per level, within a
// radius that halves with each level.
template <class T, bool kSquares>
__global__ void __launch_bounds__(kSearchThreads, 4)
    patch_match_random_kernel(Search<T> s, int iteration, int levels) {
  DYNAMIC_SHARED(memory);
  SharedMemory shared(memory);
  Row<T, kSquares, kTogether> row(s, shared);
  row.load_row();
  row.offer_all(levels, [&](int level) {
    if (!row.searches) return -1;
    const int radius = max(s.key.height, s.key.width) >> level;
    int center = row.entry((level + iteration) % s.neighbors, row.y, row.x);
    if (center < 0) center = row.entry(0, row.y, row.x);
    if (center < 0) return -1;
    const int n = s.neighbors + 2 * (iteration * levels + level);
    const int v = draw_near(center / s.key.width, radius, s.key.height,
                            draw(ComputedTable(), row.y, row.x, n, s.seed));
    const int u = draw_near(center % s.key.width, radius, s.key.width,
                            draw(ComputedTable(), row.y, row.x, n + 1, s.seed));
    return v * s.key.width + u;
  });
  row.store_row();
}

template <class T>
__global__ void __launch_bounds__(kMapThreads)
    patch_match_finish_kernel(Field field, int64_t entries, int32_t* index, T* score) {
  const int64_t at = int64_t(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at >= entries) return;
  index[at] = field.index[at];
  score[at] = from_float<T>(field.score[at]);
}

int key_chunks(const PatchMatchParams& p) {
  return int((p.key_height * p.key_width + kChunkKeys - 1) / kChunkKeys);
}

// The arrays that are allocated in the workspace.
template <class T>
struct Arrays {
  PaddedMap<T> query, key;
  Field fields[2];
  uint8_t *searching, *allowed;
  int *list, *before, *count;
  float *query_norms, *key_norms;

  template <class Memory>
  Arrays(const PatchMatchParams& p, int64_t batch, Memory& memory) {
    const int64_t pixels = batch * p.height * p.width, keys = batch * p.key_height * p.key_width;
    const auto map = [&](int64_t height, int64_t width) {
      return PaddedMap<T>{
          nullptr,         int(height), int(width), int(p.channels), round_up(int(p.channels), 4),
          int(p.patch / 2)};
    };
    query = map(p.height, p.width);
    key = map(p.key_height, p.key_width);
    query.data = memory.template take<T>(batch * query.image());
    key.data = memory.template take<T>(batch * key.image());
    for (Field& field : fields) {
      field.index = memory.template take<int>(pixels * p.neighbors);
      field.score = memory.template take<float>(pixels * p.neighbors);
    }
    searching = memory.template take<uint8_t>(pixels);
    allowed = memory.template take<uint8_t>(keys);
    list = memory.template take<int>(p.masked ? keys : 0);
    before = memory.template take<int>(p.masked ? batch * key_chunks(p) : 0);
    count = memory.template take<int>(batch);
    query_norms = memory.template take<float>(p.metric == kCosine ? pixels : 0);
    key_norms = memory.template take<float>(p.metric == kCosine ? keys : 0);
  }
};

// Enqueues the kernels of a call. After a launch fails, the remaining kernels are not launched.
class Queue {
 public:
  explicit Queue(cudaStream_t stream) : stream_(stream) {}

  template <class... P, class... A>
  void run(void (*kernel)(P...), int64_t blocks, int threads, int64_t shared,
           const A&... arguments) {
    if (!ok_) return;
    const dim3 grid(static_cast<unsigned>(blocks)), block(static_cast<unsigned>(threads));
    ok_ = launch(kernel, grid, block, size_t(shared), stream_, arguments...) == cudaSuccess;
  }

  // Launches one thread per item.
  template <class... P, class... A>
  void for_each(void (*kernel)(P...), int64_t items, const A&... arguments) {
    run(kernel, (items + kMapThreads - 1) / kMapThreads, kMapThreads, 0, arguments...);
  }

  bool ok() const { return ok_; }

 private:
  cudaStream_t stream_;
  bool ok_ = true;
};

// Enqueues the kernels that write the padded maps, the masks, the lists of allowed keys and, for
// cosine, the norms.
template <class T>
void prepare(const PatchMatchParams& p, const PatchMatchMaps& maps, const Arrays<T>& a,
             Queue& queue) {
  const int batch = int(maps.batch), keys = int(p.key_height * p.key_width);
  const auto padded = [&](const PaddedMap<T>& map) {
    return int64_t(map.padded_height()) * map.padded_width() * batch;
  };
  const auto steps = [](const int64_t* s) { return Steps{s[0], s[1], s[2]}; };
  queue.for_each(patch_match_pad_kernel<T>, padded(a.query), a.query, batch,
                 static_cast<const T*>(maps.query));
  queue.for_each(patch_match_pad_kernel<T>, padded(a.key), a.key, batch,
                 static_cast<const T*>(maps.key));
  const int64_t pixels = batch * p.height * p.width, all_keys = int64_t(batch) * keys;
  queue.for_each(patch_match_flag_kernel<T>, pixels, static_cast<const T*>(maps.query_mask),
                 steps(maps.query_mask_steps), batch, a.query.height, a.query.width, a.searching);
  queue.for_each(patch_match_flag_kernel<T>, all_keys, static_cast<const T*>(maps.key_mask),
                 steps(maps.key_mask_steps), batch, a.key.height, a.key.width, a.allowed);
  if (p.masked) {
    const int chunks = key_chunks(p);
    const int64_t shared = kListThreads / kWarp * int64_t(sizeof(int)),
                  all = batch * int64_t(chunks);
    queue.run(patch_match_chunk_kernel, all, kListThreads, shared, a.allowed, keys, chunks,
              a.before);
    queue.run(patch_match_scan_kernel, batch, kListThreads, shared, a.before, chunks, a.count);
    queue.run(patch_match_list_kernel, all, kListThreads, shared, a.allowed, keys, chunks, a.before,
              a.list);
  } else {
    queue.for_each(patch_match_count_kernel, batch, a.allowed, keys, batch, a.count);
  }
  if (p.metric == kCosine) {
    queue.for_each(patch_match_norm_kernel<T>, pixels, a.query, batch, a.query_norms);
    queue.for_each(patch_match_norm_kernel<T>, all_keys, a.key, batch, a.key_norms);
  }
}

// Enqueues all passes and returns the field that the last one writes.
template <bool kSquares, class T>
Field search(const PatchMatchParams& p, const PatchMatchMaps& maps, const Arrays<T>& a,
             Queue& queue) {
  const auto tiles = [](int n) { return (n + kTile - 1) / kTile; };
  const bool cosine = p.metric == kCosine;
  Search<T> s{a.query,
              a.key,
              int(maps.batch),
              int(p.neighbors),
              int(p.patch),
              int(p.seed),
              tiles(a.query.height),
              tiles(a.query.width),
              a.searching,
              a.allowed,
              p.masked ? a.list : nullptr,
              a.count,
              cosine ? a.query_norms : nullptr,
              cosine ? a.key_norms : nullptr,
              a.fields[1],
              a.fields[0]};
  const int64_t blocks = int64_t(s.tiles_down) * s.tiles_across * s.batch;
  Counter shared;
  shared.take<int>(kPixels * s.neighbors);
  shared.take<float>(kPixels * s.neighbors);
  const auto pass = [&](auto kernel, const auto&... arguments) {
    queue.run(kernel, blocks, kSearchThreads, shared.bytes(), s, arguments...);
    const Field written = s.to;
    s.to = s.from;
    s.from = written;
  };
  const bool single = s.neighbors == 1;  // one key per direction: more only waste registers
  const auto start = single ? patch_match_start_kernel<T, kSquares, 1>
                            : patch_match_start_kernel<T, kSquares, kTogether>;
  const auto propagate = single ? patch_match_propagate_kernel<T, kSquares, 1>
                                : patch_match_propagate_kernel<T, kSquares, kTogether>;
  const int64_t* const starts = maps.start_steps;
  pass(start, maps.start, Steps{starts[0], starts[2], starts[3]}, starts[1]);
  int levels = 0;
  for (int radius = max(a.key.height, a.key.width); radius >= 1; radius /= 2) ++levels;
  for (int iteration = 0; iteration < int(p.iterations); ++iteration) {
    for (int step = 8; step >= 1; step /= 2) pass(propagate, step);
    pass(patch_match_random_kernel<T, kSquares>, iteration, levels);
  }
  return s.from;
}

bool supported(const PatchMatchParams& p, int64_t batch) {
  const auto countable = [](int64_t height, int64_t width) {
    return height > 0 && width > 0 && height < kMaxPixels && width < kMaxPixels &&
           height * width < kMaxPixels;
  };
  return countable(p.height, p.width) && countable(p.key_height, p.key_width) && p.channels >= 0 &&
         p.channels < 1 << 20 && p.neighbors >= 1 && p.neighbors <= kMaxNeighbors &&
         p.patch % 2 == 1 && p.patch <= kMaxPatch && batch * p.height * p.width <= 0x7fffffff;
}

}  // namespace

size_t patch_match_workspace(const PatchMatchParams& params, int64_t batch, Type type,
                             const LaunchLimits&) {
  if (batch < 1 || !supported(params, batch)) return 0;
  Counter counter;
  with_type(type, [&](auto* element) {
    Arrays<std::remove_pointer_t<decltype(element)>>(params, batch, counter);
  });
  return size_t(counter.bytes());
}

Status patch_match(const PatchMatchParams& params, Type type, const PatchMatchMaps& maps,
                   void* workspace, Stream stream, const LaunchLimits&) {
  if (maps.batch * params.height * params.width == 0) return Status::kOk;
  if (!supported(params, maps.batch)) return Status::kUnsupported;
  if (workspace == nullptr) return Status::kNoScratch;
  Workspace memory(static_cast<unsigned char*>(workspace));
  Queue queue(static_cast<cudaStream_t>(stream));
  with_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    const Arrays<T> arrays(params, maps.batch, memory);
    prepare(params, maps, arrays, queue);
    const Field field = params.metric == kL2 ? search<true>(params, maps, arrays, queue)
                                             : search<false>(params, maps, arrays, queue);
    const int64_t entries = maps.batch * params.neighbors * params.height * params.width;
    queue.for_each(patch_match_finish_kernel<T>, entries, field, entries, maps.index,
                   static_cast<T*>(maps.score));
  });
  return queue.ok() ? Status::kOk : Status::kLaunch;
}

}  // namespace nystra::cuda
