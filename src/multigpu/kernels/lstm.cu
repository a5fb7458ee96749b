// One LSTM layer of 512 hidden units as a persistent kernel, for GPUs with thread block clusters of 16 (compute capability 9.0).
//
// The batch is shared out among clusters of 16 thread blocks. A cluster runs all T steps for its rows and never talks to another one.
// A block owns 32 hidden units, 128 gate rows of W_hh, which stay in the registers of its 256 computing threads (128 registers each) as
// the A operand of wgmma; the batch is its N. A cluster's rows are PARTS groups of ROWS: while one group waits for its neighbours, the
// tensor cores work for the other.
//
// No header is included, so NVRTC alone builds it. One of these is defined at compilation, with ROWS and PARTS for the first two:
//   FORWARD    lstm_forward   ROWS 16, 24 or 32; PARTS 1 or 2; 384 threads
//   BACKWARD   lstm_backward  ROWS 16; PARTS 1 to 4; 256 threads
//   PREPARE    lstm_pack, lstm_pad
//
// Layouts. Gates of a position are interleaved by unit, i g f o, as bf16: (T, B, 512, 4). Products for i, f and o arrive halved, since
// sigmoid(x) = tanh(x / 2) / 2 + 1 / 2. Units of block r: 32 r to 32 r + 31. Operands of wgmma in shared memory are K-major without
// swizzle: 16 bytes (8 units) of row n at (k8 * ROWS + n) * 16.
//
// A row that has ended (lstm_pad) has gates i = 0, g = 0, f = 1, o = 0: its cell stays, its output is 0, and backward every gradient of
// its gates is an exact 0 while that of its cell passes. So neither recurrence knows lengths.

// compute-sanitizer: memcheck and synccheck find nothing (both passes, ragged and not). racecheck fails in itself on these kernels, and
// none of its checks would cover shared memory that other blocks of the cluster write: that rests on the reviews beside each kernel, on
// repeats that are equal bit by bit, and on waits that trap instead of hanging.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;
#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define H 512
#define BLOCKS 16  // of a cluster

// ------------------------------------------------------------------------------------------------------------ instructions
DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE u32 block_of_cluster() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
DEVICE u32 at_block(u32 a, u32 r) { u32 d; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(r)); return d; }
DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
DEVICE void barrier_init(u32 a, u32 n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(a), "r"(n) : "memory"); }
DEVICE void barrier_expect(u32 a, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(a), "r"(bytes) : "memory");
}
// Waits for bytes that other blocks of the cluster send, so it acquires at the scope of the cluster. A wait that never ends traps after
// seconds instead of hanging the GPU: the host gets an error.
DEVICE void barrier_wait(u32 a, u32 parity) {
  u32 done = 0;
#pragma unroll 1
  for (int i = 0; i < (1 << 21); ++i) {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity" WAIT_SCOPE ".shared::cta.b64 p, [%1], %2;\nselp.u32 %0,1,0,p;\n}"
                 : "=r"(done) : "r"(a), "r"(parity) : "memory");
    if (done) return;
  }
  __trap();
}
// 16 bytes into another block's shared memory, counted on that block's barrier
DEVICE void send(u32 a, u32 x, u32 y, u32 z, u32 w, u32 barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, [%5];"
               ::"r"(a), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier) : "memory");
}
// shared memory -> L2, complete when it returns
DEVICE void bulk_store(void* d, u32 s, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;"
               ::"l"(d), "r"(s), "r"(bytes) : "memory");
}
// L2 -> the same address of every block of the cluster, counted on the same barrier of each
DEVICE void bulk_multicast(u32 d, const void* s, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
               ::"r"(d), "l"(s), "r"(bytes), "r"(barrier), "h"((u16)0xffff) : "memory");
}
DEVICE void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
DEVICE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
DEVICE void named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEVICE void named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEVICE void prefetch4(u32 d, const void* s, u32 wanted) {
  asm volatile("{\n.reg .pred q;\nsetp.ne.u32 q, %2, 0;\n@q cp.async.ca.shared.global [%0], [%1], 4;\n}"
               ::"r"(d), "l"(s), "r"(wanted) : "memory");
}
DEVICE void prefetch16(u32 d, const void* s, u32 wanted) {
  asm volatile("{\n.reg .pred q;\nsetp.ne.u32 q, %2, 0;\n@q cp.async.cg.shared.global [%0], [%1], 16;\n}"
               ::"r"(d), "l"(s), "r"(wanted) : "memory");
}
DEVICE void prefetch_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> DEVICE void prefetch_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }
DEVICE void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> DEVICE void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
// the compiler may move no use of these registers across
template <int N> DEVICE void pin(float (&d)[N]) {
  UNROLL for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
DEVICE float tanh_fast(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }  // exactly -1 and 1 far out
DEVICE u32 two(float low, float high) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
DEVICE float low(u32 v) { return __uint_as_float(v << 16); }
DEVICE float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
DEVICE void store_shared2(u32 a, u16 v) { asm volatile("st.shared.u16 [%0], %1;" ::"r"(a), "h"(v) : "memory"); }
DEVICE void store_shared16(u32 a, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
DEVICE uint4 load_shared16(u32 a) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a) : "memory");
  return v;
}
DEVICE u32 load_shared4(u32 a) { u32 v; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(a) : "memory"); return v; }
DEVICE void store2(void* p, u16 v, u32 wanted) {
  asm volatile("{\n.reg .pred q;\nsetp.ne.u32 q, %2, 0;\n@q st.global.u16 [%0], %1;\n}" ::"l"(p), "h"(v), "r"(wanted) : "memory");
}
DEVICE void store8(void* p, u32 x, u32 y, u32 wanted) {
  asm volatile("{\n.reg .pred q;\nsetp.ne.u32 q, %3, 0;\n@q st.global.v2.b32 [%0], {%1,%2};\n}"
               ::"l"(p), "r"(x), "r"(y), "r"(wanted) : "memory");
}
DEVICE void store16(void* p, uint4 v) {
  asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

#if defined(FORWARD) || defined(BACKWARD)
// descriptor of an operand whose 16-byte pieces of one k lie STRIDE rows apart
template <int STRIDE> DEVICE u64 describe(u32 a) { return (u64)((a & 0x3ffff) >> 4) | ((u64)STRIDE << 16) | ((u64)8 << 32); }

// d[64 gate rows of the warpgroup][ROWS] (+)= 16 columns of A (registers a0 to a3) times 16 rows of B (shared memory)
DEVICE void mma(float (&d)[ROWS / 2], const u32* a, u64 b, int accumulate) {
#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define INPUTS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate)
#if ROWS == 16
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\nwgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, "
               "{%8,%9,%10,%11}, %12, p, 1, 1, 0;\n}" : D4(0), D4(4) : INPUTS);
#elif ROWS == 24
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %17, 0;\nwgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, %16, p, 1, 1, 0;\n}" : D4(0), D4(4), D4(8) : INPUTS);
#else
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
               "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 0;\n}"
               : D4(0), D4(4), D4(8), D4(12) : INPUTS);
#endif
}

// this thread's 128 registers of packed W_hh
DEVICE void load_weights(u32 (&W)[128], const u32* packed, u32 block, int warp, int lane) {
  const uint4* p = (const uint4*)packed + ((block * 8 + warp) * 32) * 32 + lane;
  UNROLL for (int k = 0; k < 32; ++k) {
    uint4 v = __ldg(p + k * 32);
    W[4 * k] = v.x; W[4 * k + 1] = v.y; W[4 * k + 2] = v.z; W[4 * k + 3] = v.w;
  }
}
#endif

#ifdef FORWARD
// ------------------------------------------------------------------------------------------------------------------ forward
// gates: in, products of the inputs (halved as above); out, the gates' values. (T, B, 512, 4) bf16
// bias (512, 4) float, halved as the products; h0 (B, 512) bf16; c0 (B, 512) float
// out: y (T, B, 512) bf16; cells (T + 1, B, 512) bf16, the first being c0; last_cell (B, 512) float
// exchange: clusters * 2 * PARTS * 512 * ROWS bf16 that nobody else uses meanwhile
//
// Who waits for whom (`full[p][s]`: outputs of all 16 blocks for rows s have arrived in buffer p; one phase a use, every second step):
//  - Outputs of step t go to buffer t & 1. A block starts step t + 1 when `full[t & 1]` says that 2 * 16 * PIECE bytes are there. The wait
//    acquires at cluster scope; the bytes come through the async proxy, in which wgmma reads them.
//  - Nobody overwrites what is still read: buffer p is written again by outputs of step t + 2, which a block sends after it has all
//    outputs of step t + 1, mine among them, and I send mine after my products of step t + 1, which read buffer p, have ended
//    (mma_wait, then the arrival at the named barrier, then my exchange warp's copy). Blocks are never more than a step apart.
//  - `full` is armed in the step that fills it, after the products were issued. Bytes that come earlier are counted all the same: the
//    phase cannot end before the arrival that arms it, and a byte of its next use cannot come before it has ended (as above).
//  - `staged` (in shared memory) and `exchange` (in L2) of step t are written again in step t + 2, after `full` of step t + 1, for which
//    my own outputs had to pass my exchange warp: it had read step t's by then; that peers have received step t's is what allowed
//    them to send step t + 1's.
//  - The exchange warp reads L2 through the async proxy after its own store to L2 is complete (wait_group, not .read) and a fence.
//  - No block leaves before all have received all that was sent to them (cluster_sync at the end).
extern "C" __global__ void __launch_bounds__(384, 1)
lstm_forward(u16* __restrict__ gates, const u32* __restrict__ packed, const float* __restrict__ bias, const u16* __restrict__ h0,
             const float* __restrict__ c0, u16* __restrict__ y, u16* __restrict__ cells, float* __restrict__ last_cell,
             u16* __restrict__ exchange, int T, int B) {
  constexpr int OPERAND = H * ROWS * 2, PIECE = 2 * ROWS * 16, TILES = ROWS / 8, AHEAD = ROWS * PARTS >= 64 ? 2 : 3;
  extern __shared__ __align__(1024) u8 memory[];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, w = warp & 3, group = warp < 8 ? warp >> 2 : (warp - 8) & 1;
  const u32 block = block_of_cluster();
  const int cluster = blockIdx.x / BLOCKS, row0 = cluster * ROWS * PARTS;
  const u32 outputs = shared_address(memory);                  // [2][PARTS] operands
  const u32 staged = outputs + 2 * PARTS * OPERAND;            // [2][PARTS][2 warpgroups] pieces of this block's outputs
  const u32 inputs = staged + 2 * PARTS * 2 * PIECE;           // [AHEAD][PARTS] input products
  const u32 full = inputs + AHEAD * PARTS * TILES * 2048;      // [2][PARTS] barriers
  for (int i = tid; i < 64 * ROWS * PARTS; i += 384) {
    const int s = i / (64 * ROWS), r = i % (64 * ROWS), k8 = r / ROWS, b = row0 + s * ROWS + r % ROWS;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (b < B) v = *(const uint4*)(h0 + (u64)b * H + k8 * 8);
    store_shared16(outputs + (PARTS + s) * OPERAND + r * 16, v);
  }
  if (tid == 0) {
    for (int i = 0; i < 2 * PARTS; ++i) barrier_init(full + 8 * i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  fence_async(); __syncthreads(); cluster_sync();
  const u64 step = (u64)B * H;
  if (warp >= 8) {  // ------------------------------------------------ exchange: a warp for each warpgroup and part
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    const int s = (warp - 8) >> 1;
    if (s < PARTS) {
      u16* out = y + (u64)row0 * H + 32 * block + 16 * group;
#pragma unroll 1
      for (int t = 0; t < T; ++t) {
        const int p = t & 1;
        const u32 mine = staged + ((p * PARTS + s) * 2 + group) * PIECE;
        named_sync(1 + group + 2 * s, 160);
        if (t + 1 < T) {
          if (lane == 0) {
            u16* through = exchange + ((u64)(cluster * 2 + p) * PARTS + s) * (OPERAND / 2) + (4 * block + 2 * group) * ROWS * 8;
            bulk_store(through, mine, PIECE);
            fence_async_global();
            const u32 to = outputs + (p * PARTS + s) * OPERAND + (4 * block + 2 * group) * ROWS * 16;
            bulk_multicast(to, through, PIECE, full + 8 * (p * PARTS + s));
          }
          __syncwarp();
        }
#pragma unroll 1
        for (int i = lane; i < 2 * ROWS; i += 32) {
          const int r = i >> 1, k8 = i & 1, b = s * ROWS + r;
          uint4 v = load_shared16(mine + (k8 * ROWS + r) * 16);
          if (row0 + b < B) store16(out + (u64)b * H + 8 * k8, v);
        }
        out += step;
      }
    }
  } else {  // ------------------------------------------------------------- two warpgroups: products, gates, cells
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    u32 W[128];
    load_weights(W, packed, block, warp, lane);
    // wgmma leaves gates i, g of a unit with the lower half of the warp and f, o with the upper half, two rows each; a shuffle gives
    // each thread all four gates of one row
    const bool lower = lane < 16;
    const int local = 16 * group + 4 * w + ((lane >> 2) & 3), unit = 32 * block + local, row = 2 * (lane & 3) + (lane >> 4);
    const float bias_low = bias[unit * 4 + (lower ? 0 : 2)], bias_high = bias[unit * 4 + (lower ? 1 : 3)];
    const int load_row = row0 + 2 * (lane & 3), my_row = row0 + row;
    const u16* load_from = gates + ((u64)load_row * H + unit) * 4 + (lower ? 0 : 2);  // products of step t + AHEAD
    u16* gates_to = gates + ((u64)my_row * H + unit) * 4;                             // of step t
    u16* cells_to = cells + (u64)my_row * H + unit;                                   // of step t - 1
    u16 *gates_before = gates_to, *cells_next = cells_to + step;
    const u32 slots = inputs + tid * 4;
    float c[PARTS][TILES];
    UNROLL for (int d = 0; d < AHEAD; ++d) UNROLL for (int s = 0; s < PARTS; ++s) {
      UNROLL for (int j = 0; j < 2 * TILES; ++j) {
        const int off = s * ROWS + (j >> 1) * 8 + (j & 1);
        prefetch4(slots + ((d * PARTS + s) * TILES * 2 + j) * 1024, load_from + d * step * 4 + off * H * 4, d < T && load_row + off < B);
      }
      prefetch_commit();
    }
    load_from += AHEAD * step * 4;
    UNROLL for (int s = 0; s < PARTS; ++s) UNROLL for (int n = 0; n < TILES; ++n) {
      const int off = s * ROWS + n * 8;
      c[s][n] = my_row + off < B ? c0[(u64)(my_row + off) * H + unit] : 0.f;
      store2(cells_to + off * H, (u16)(two(c[s][n], 0.f) & 0xffff), my_row + off < B);
    }
    u32 x[2 * TILES], gates_ig[TILES], gates_fo[TILES], h_and_c[TILES];
    UNROLL for (int n = 0; n < TILES; ++n) gates_ig[n] = gates_fo[n] = h_and_c[n] = 0;
    prefetch_wait<AHEAD * PARTS - 1>();
    UNROLL for (int j = 0; j < 2 * TILES; ++j) x[j] = load_shared4(slots + j * 1024);
    int slot = 0;
#pragma unroll 1
    for (int t = 0; t < T; ++t) {
      const int p = t & 1, next_slot = slot == AHEAD - 1 ? 0 : slot + 1;
      UNROLL for (int s = 0; s < PARTS; ++s) {
        float d[ROWS / 2];
        UNROLL for (int n = 0; n < TILES; ++n) {
          d[4 * n] = low(x[2 * n]) + bias_low; d[4 * n + 1] = low(x[2 * n + 1]) + bias_low;
          d[4 * n + 2] = high(x[2 * n]) + bias_high; d[4 * n + 3] = high(x[2 * n + 1]) + bias_high;
        }
        pin(d);
        if (t > 0) barrier_wait(full + 8 * ((p ^ 1) * PARTS + s), ((t - 1) >> 1) & 1);
        const u32 stores = s > 0 || t > 0, loads = t + AHEAD < T;
        const u32 here = slots + (slot * PARTS + s) * TILES * 2048;
        const u32 then = slots + (s + 1 < PARTS ? slot * PARTS + s + 1 : next_slot * PARTS) * TILES * 2048;
        constexpr int ERRANDS = 6 * TILES + 1;
        auto errand = [&](int i) {  // what no output waits for: stores of the part before, loads AHEAD steps, the next part's products
          const int before = (s > 0 ? s - 1 : PARTS - 1) * ROWS;
          if (i < TILES) {
            const u32 wanted = stores && my_row + before + i * 8 < B;
            store8((s > 0 ? gates_to : gates_before) + (before + i * 8) * H * 4, gates_ig[i], gates_fo[i], wanted);
          } else if (i < 2 * TILES) {
            const int n = i - TILES;
            store2((s > 0 ? cells_next : cells_to) + (before + n * 8) * H, (u16)(h_and_c[n] >> 16), stores && my_row + before + n * 8 < B);
          } else if (i < 4 * TILES) {
            const int j = i - 2 * TILES, off = s * ROWS + (j >> 1) * 8 + (j & 1);
            prefetch4(here + j * 1024, load_from + off * H * 4, loads && load_row + off < B);
          } else if (i == 4 * TILES) {
            prefetch_commit(); prefetch_wait<AHEAD * PARTS - 1>();
          } else {
            const int j = i - 4 * TILES - 1;
            x[j] = load_shared4(then + j * 1024);
          }
        };
        const u64 operand = describe<ROWS>(outputs + ((p ^ 1) * PARTS + s) * OPERAND);
        mma_fence();
        UNROLL for (int k = 0; k < 32; ++k) {
          mma(d, W + 4 * k, operand + (u64)(k * 2 * ROWS), 1);
          if (ROWS > 16) UNROLL for (int i = 0; i < ERRANDS; ++i) if (1 + i * 30 / ERRANDS == k) errand(i);
        }
        mma_commit();
        if (tid == 0 && t + 1 < T) barrier_expect(full + 8 * (p * PARTS + s), OPERAND);
        if (ROWS == 16) UNROLL for (int i = 0; i < ERRANDS; ++i) errand(i);
        mma_wait<0>();
        pin(d);
        const u32 put = staged + ((p * PARTS + s) * 2 + group) * PIECE + (((local & 15) >> 3) * ROWS + row) * 16 + (local & 7) * 2;
        UNROLL for (int n = 0; n < TILES; ++n) {
          const float give0 = lower ? d[4 * n + 1] : d[4 * n], give1 = lower ? d[4 * n + 3] : d[4 * n + 2];
          const float got0 = __shfl_xor_sync(~0u, give0, 16), got1 = __shfl_xor_sync(~0u, give1, 16);
          const float i = fmaf(0.5f, tanh_fast(lower ? d[4 * n] : got0), 0.5f), g = tanh_fast(lower ? d[4 * n + 2] : got1);
          const float f = fmaf(0.5f, tanh_fast(lower ? got0 : d[4 * n + 1]), 0.5f);
          const float o = fmaf(0.5f, tanh_fast(lower ? got1 : d[4 * n + 3]), 0.5f);
          c[s][n] = f * c[s][n] + i * g;
          h_and_c[n] = two(o * tanh_fast(c[s][n]), c[s][n]);
          gates_ig[n] = two(i, g); gates_fo[n] = two(f, o);
          store_shared2(put + n * 128, (u16)(h_and_c[n] & 0xffff));
        }
        fence_async_shared();
        named_arrive(1 + group + 2 * s, 160);
      }
      slot = next_slot; load_from += step * 4; gates_before = gates_to; gates_to += step * 4; cells_to = cells_next; cells_next += step;
    }
    UNROLL for (int n = 0; n < TILES; ++n) {
      const int off = (PARTS - 1) * ROWS + n * 8;
      store8(gates_before + off * H * 4, gates_ig[n], gates_fo[n], my_row + off < B);
      store2(cells_to + off * H, (u16)(h_and_c[n] >> 16), my_row + off < B);
    }
    UNROLL for (int s = 0; s < PARTS; ++s) UNROLL for (int n = 0; n < TILES; ++n) {
      const int off = s * ROWS + n * 8;
      if (my_row + off < B) last_cell[(u64)(my_row + off) * H + unit] = c[s][n];
    }
  }
  cluster_sync();
}
#endif

#ifdef BACKWARD
// ----------------------------------------------------------------------------------------------------------------- backward
// gates, cells: as forward left them; dy (T, B, 512) bf16: gradient of the outputs; dh, dc (B, 512) float: of the last state
// out: dgates (T, B, 512, 4) bf16, before their sigmoids and tanhs; dh0, dc0 (B, 512) float
//      dbias (8 * clusters, 2048) float: sums over each warp's rows, so that they are added up in one order every time
//
// Block r has the gradients of its own 128 gate rows, and multiplies them by its columns of W_hh transposed: partial sums of the gradient
// of all 512 units, of which it sends 32 to each block (bf16, straight from the accumulators). Who waits for whom:
//  - `full[p][s]`: partial sums of all 16 blocks have arrived in buffer p (16 KiB). The wait acquires at cluster scope: ordinary loads
//    read what peers' st.async wrote, whose completion releases at cluster scope.
//  - Buffer p of step e is written again in step e + 2. A peer that sends then has all partial sums of step e + 1, mine among them, and
//    each of my threads sends after named barrier 15 of step e + 1, which comes after all threads' reads of buffer p.
//  - `operand[p]` of step e is written again in step e + 2, after named barrier 15 of step e + 1, which every thread passes after its
//    mma_wait<0> of step e.
//  - `full` is armed by thread 0 in the step that fills it. As in forward, early bytes are counted and no use overtakes another.
//  - The last step only receives; with the cluster_sync at the end no block leaves while something is under way to it.
extern "C" __global__ void __launch_bounds__(256, 1)
lstm_backward(const u16* __restrict__ gates, const u32* __restrict__ packed, const u16* __restrict__ cells, const u16* __restrict__ dy,
              const float* __restrict__ dh, const float* __restrict__ dc, u16* __restrict__ dgates, float* __restrict__ dh0,
              float* __restrict__ dc0, float* __restrict__ dbias, int T, int B) {
  constexpr int STRIDE = ROWS + 1, OPERAND = 16 * STRIDE * 16, SUMS = 16384, AHEAD = 2, SLOT = 6144;
  extern __shared__ __align__(1024) u8 memory[];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, group = warp >> 2, w = warp & 3;
  const u32 block = block_of_cluster();
  const int cluster = blockIdx.x / BLOCKS, row0 = cluster * ROWS * PARTS;
  const u32 start = shared_address(memory), sums = start;   // [2][PARTS][16 blocks] partial sums
  const u32 operands = sums + 2 * PARTS * SUMS;             // [2][PARTS] gradients of this block's gates
  const u32 inputs = operands + 2 * PARTS * OPERAND;        // [AHEAD][PARTS] gates, cells, dy
  const u32 full = inputs + AHEAD * PARTS * SLOT;           // [2][PARTS] barriers
  if (tid == 0) {
    for (int i = 0; i < 2 * PARTS; ++i) barrier_init(full + 8 * i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  fence_async(); __syncthreads(); cluster_sync();
  u32 W[128];
  load_weights(W, packed, block, warp, lane);
  const int row = tid >> 4, pair = tid & 15, unit = 32 * block + 2 * pair, my_row = row0 + row;  // a thread: two units of a row
  const u64 step = (u64)B * H;
  const u64 last = (u64)(T - 1) * B + my_row;
  const u16* gates_from = gates + last * H * 4 + unit * 4;  // of step t
  u16* gates_to = dgates + last * H * 4 + unit * 4;
  const u16* cells_from = cells + last * H + unit;          // the cell before step t
  const u16* dy_from = dy + last * H + unit;
  float dcell[PARTS][2], bias_sum[8];
  u32 cell[PARTS];                                          // the cell after step t
  UNROLL for (int i = 0; i < 8; ++i) bias_sum[i] = 0.f;
  UNROLL for (int d = 0; d < AHEAD; ++d) UNROLL for (int s = 0; s < PARTS; ++s) {
    const int off = s * ROWS;
    const u32 to = inputs + (d * PARTS + s) * SLOT, wanted = d < T && my_row + off < B;
    prefetch16(to + tid * 16, gates_from - d * step * 4 + off * H * 4, wanted);
    prefetch4(to + 4096 + tid * 4, cells_from - d * step + off * H, wanted);
    prefetch4(to + 5120 + tid * 4, dy_from - d * step + off * H, wanted);
    prefetch_commit();
  }
  UNROLL for (int s = 0; s < PARTS; ++s) {
    const int off = s * ROWS, b = my_row + off;
    dcell[s][0] = b < B ? dc[(u64)b * H + unit] : 0.f; dcell[s][1] = b < B ? dc[(u64)b * H + unit + 1] : 0.f;
    cell[s] = b < B ? *(const u32*)(cells_from + step + off * H) : 0;
  }
  u32 peer[4];  // how far the shared memory of the block that takes each product is from mine
  UNROLL for (int m = 0; m < 4; ++m) peer[m] = at_block(start, 8 * group + 2 * ((m + block) & 3) + (w >> 1)) - start;
  // a piece of 1 KiB holds 32 units by 16 rows as wgmma's accumulators lie, so that reads and writes hit all banks
  const int half = pair >> 3;
  const int read_at = half * 512 + (((row & 7) >> 1) * 8 + (pair & 7)) * 16 + ((((row >> 3) ^ half) << 1) | (row & 1)) * 4;
  const u32 write_at = (w & 1) * 512 + ((lane & 3) * 8 + (lane >> 2)) * 16;
  float factor[2][6];  // what a gradient of h or c is multiplied by; needs no neighbour
  u32 dy_now = 0, cell_before = 0;
  uint4 gate = make_uint4(0, 0, 0, 0);
  auto factors = [&](int k, int s) {
    const u32 ig = k ? gate.z : gate.x, fo = k ? gate.w : gate.y;
    const float i = low(ig), g = high(ig), f = low(fo), o = high(fo);
    const float now = k ? high(cell[s]) : low(cell[s]), before = k ? high(cell_before) : low(cell_before), squashed = tanh_fast(now);
    factor[k][0] = o * (1.f - squashed * squashed);  // dh -> dc
    factor[k][1] = squashed * o * (1.f - o);         // dh -> do
    factor[k][2] = g * i * (1.f - i);                // dc -> di
    factor[k][3] = before * f * (1.f - f);           // dc -> df
    factor[k][4] = i * (1.f - g * g);                // dc -> dg
    factor[k][5] = f;                                // dc -> dc of the step before
    UNROLL for (int n = 0; n < 6; ++n) asm volatile("" : "+f"(factor[k][n]));
  };
  prefetch_wait<AHEAD * PARTS - 1>();
  gate = load_shared16(inputs + tid * 16);
  cell_before = load_shared4(inputs + 4096 + tid * 4); dy_now = load_shared4(inputs + 5120 + tid * 4);
  factors(0, 0); factors(1, 0);
  cell[0] = cell_before;
#pragma unroll 1
  for (int e = 0; e <= T; ++e) {  // step t = T - 1 - e; the last only receives the gradient of the first state
    const int t = T - 1 - e, p = e & 1;
    UNROLL for (int s = 0; s < PARTS; ++s) {
      const int off = s * ROWS, b = my_row + off;
      float h0 = 0.f, h1 = 0.f;
      if (e > 0) {
        barrier_wait(full + 8 * ((p ^ 1) * PARTS + s), ((e - 1) >> 1) & 1);
        const u32 from = sums + ((p ^ 1) * PARTS + s) * SUMS + read_at;
        float odd0 = 0.f, odd1 = 0.f;
        UNROLL for (int j = 0; j < BLOCKS; j += 2) {
          const u32 v = load_shared4(from + j * 1024), v2 = load_shared4(from + (j + 1) * 1024);
          h0 += low(v); h1 += high(v); odd0 += low(v2); odd1 += high(v2);
        }
        h0 += odd0; h1 += odd1;
      } else if (b < B) {
        h0 = dh[(u64)b * H + unit]; h1 = dh[(u64)b * H + unit + 1];
      }
      if (t < 0) {
        if (b < B) {
          dh0[(u64)b * H + unit] = h0; dh0[(u64)b * H + unit + 1] = h1;
          dc0[(u64)b * H + unit] = dcell[s][0]; dc0[(u64)b * H + unit + 1] = dcell[s][1];
        }
        continue;
      }
      const u32 operand = operands + (p * PARTS + s) * OPERAND;
      h0 += low(dy_now); h1 += high(dy_now);
      float dg[2][4];
      UNROLL for (int k = 0; k < 2; ++k) {
        const float h = k ? h1 : h0, dcv = h * factor[k][0] + dcell[s][k];
        dg[k][3] = h * factor[k][1]; dg[k][0] = dcv * factor[k][2]; dg[k][2] = dcv * factor[k][3]; dg[k][1] = dcv * factor[k][4];
        dcell[s][k] = dcv * factor[k][5];
      }
      uint4 packed_gates = make_uint4(two(dg[0][0], dg[0][1]), two(dg[0][2], dg[0][3]), two(dg[1][0], dg[1][1]), two(dg[1][2], dg[1][3]));
      if (b >= B) packed_gates = make_uint4(0, 0, 0, 0);
      store_shared16(operand + (pair * STRIDE + row) * 16, packed_gates);
      fence_async_shared(); named_sync(15, 256);
      const u32 to = sums + (p * PARTS + s) * SUMS + block * 1024 + write_at, arrived = full + 8 * (p * PARTS + s);
      float d[4][ROWS / 2];
      const u64 description = describe<STRIDE>(operand);
      auto products = [&](int m) {
        mma_fence();
        UNROLL for (int k = 0; k < 8; ++k) mma(d[m], W + (m * 8 + k) * 4, description + (u64)(k * 2 * STRIDE), k > 0);
        mma_commit();
      };
      products(0); products(1);
      // ---- while the tensor cores work
      if (tid == 0) barrier_expect(arrived, SUMS);
      if (b < B) {
        store16(gates_to + off * H * 4, packed_gates);
        UNROLL for (int k = 0; k < 2; ++k) UNROLL for (int i = 0; i < 4; ++i) bias_sum[k * 4 + i] += dg[k][i];
      }
      const int next = s + 1 < PARTS ? s + 1 : 0;
      {
        const u32 slot = inputs + (p * PARTS + s) * SLOT, wanted = t >= AHEAD && b < B;
        prefetch16(slot + tid * 16, gates_from - AHEAD * step * 4 + off * H * 4, wanted);
        prefetch4(slot + 4096 + tid * 4, cells_from - AHEAD * step + off * H, wanted);
        prefetch4(slot + 5120 + tid * 4, dy_from - AHEAD * step + off * H, wanted);
        prefetch_commit(); prefetch_wait<AHEAD * PARTS - 1>();
        const u32 then = inputs + ((s + 1 < PARTS ? p : p ^ 1) * PARTS + next) * SLOT;
        gate = load_shared16(then + tid * 16);
        cell_before = load_shared4(then + 4096 + tid * 4); dy_now = load_shared4(then + 5120 + tid * 4);
      }
      UNROLL for (int m = 0; m < 4; ++m) {
        if (m < 3) mma_wait<1>(); else mma_wait<0>();
        pin(d[m]);
        const u32 a0 = two(d[m][0], d[m][2]), a1 = two(d[m][1], d[m][3]), a2 = two(d[m][4], d[m][6]), a3 = two(d[m][5], d[m][7]);
        const bool swap = w & 1;
        send(to + peer[m], swap ? a2 : a0, swap ? a3 : a1, swap ? a0 : a2, swap ? a1 : a3, arrived + peer[m]);
        if (m < 2) { products(m + 2); factors(m, next); }
        if (m == 1) cell[next] = cell_before;
      }
    }
    cells_from -= step; dy_from -= step; gates_from -= 4 * step; gates_to -= 4 * step;
  }
  float* sum_to = dbias + (u64)(cluster * 8 + warp) * (4 * H) + unit * 4;
  UNROLL for (int i = 0; i < 8; ++i) {
    bias_sum[i] += __shfl_xor_sync(~0u, bias_sum[i], 16);
    if (lane < 16) sum_to[i] = bias_sum[i];
  }
  cluster_sync();
}
#endif

#ifdef PREPARE
// --------------------------------------------------------------------------------------------------------------- preparation
DEVICE int gate_at(int place) { return place == 1 ? 2 : (place == 2 ? 1 : place); }  // i g f o -> row block of i f g o

// kernel (2, 4 * 512, 512) float: of inputs and of outputs, gates in the order i f g o; bias, more_bias (4 * 512) float: added up.
// out, bf16: for_inputs (512, 4, 512), halved, and for_gradients, not halved: W_ih interleaved; forward, backward: W_hh as the registers
// of the kernels above want it; shift (512, 4) float, halved. A thread makes two numbers of each: 2048 blocks of 256.
extern "C" __global__ void lstm_pack(const float* __restrict__ kernel, const float* __restrict__ bias, const float* __restrict__ more_bias,
                                     u32* __restrict__ for_inputs, u32* __restrict__ for_gradients, u32* __restrict__ forward,
                                     u32* __restrict__ backward, float* __restrict__ shift) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  const float* hidden = kernel + 4 * H * H;
  {
    const int r = i >> 8, k = (i & 255) * 2, u = r >> 2, gate = gate_at(r & 3);
    const float2 v = *(const float2*)(kernel + (gate * H + u) * H + k);
    const float scale = gate == 2 ? 1.f : 0.5f;
    for_gradients[i] = two(v.x, v.y);
    for_inputs[i] = two(scale * v.x, scale * v.y);
    if (k == 0) shift[r] = (bias[gate * H + u] + more_bias[gate * H + u]) * scale;
  }
  const int reg = i & 3, lane = (i >> 2) & 31, ks = (i >> 7) & 31, block = i >> 15, group = (i >> 14) & 1, w = (i >> 12) & 3;
  const int g = lane >> 2, c = lane & 3;
  {
    const int r = g + 8 * (reg & 1), gate = r >> 2, unit = 32 * block + 16 * group + 4 * w + (r & 3), k = ks * 16 + 2 * c + 8 * (reg >> 1);
    const float2 v = *(const float2*)(hidden + (gate * H + unit) * H + k);
    const float scale = gate == 2 ? 1.f : 0.5f;
    forward[i] = two(scale * v.x, scale * v.y);
  }
  {
    const int m = ks >> 3, k = (ks & 7) * 16 + 2 * c + 8 * (reg >> 1);
    const int to = 32 * (8 * group + 2 * ((m + block) & 3) + (w >> 1)) + 16 * (w & 1) + 2 * g + (reg & 1);
    const float* first = hidden + (gate_at(k & 3) * H + 32 * block + (k >> 2)) * H + to;
    const float* second = hidden + (gate_at((k + 1) & 3) * H + 32 * block + ((k + 1) >> 2)) * H + to;
    backward[i] = two(*first, *second);
  }
}

// Positions t >= lengths[b] get products that make the gates i, g, f, o exactly 0, 0, 1, 0. T * B blocks of 256.
extern "C" __global__ void lstm_pad(u16* __restrict__ gates, const int* __restrict__ lengths, int B) {
  const int t = blockIdx.x / B, b = blockIdx.x % B;
  if (t < lengths[b]) return;
  const u32 ig = 0x0000c700u, fo = 0xc7004700u;  // -32768, 0; 32768, -32768
  store16(gates + (u64)blockIdx.x * 4 * H + threadIdx.x * 8, make_uint4(ig, fo, ig, fo));
}
#endif
