// What is left when all tiles are done: a row's token from its best racer, its status, and from the pairs of its blocks the
// log-normaliser and the token's logprob. Integer masses, so neither the order nor the shards of the sum matter.
//
// A CTA takes ROWS rows; neighbouring threads take neighbouring rows, as the pairs lie in memory. It leaves `best` and `fault` as
// the next call wants them. Memory is far away from so few threads: each has several loads under way.
#include "rows.cuh"

#define THREADS 1024
#define UNDER_WAY 8
#define PART (THREADS / ROWS) // threads a row

struct Results {
    u32 *token;            // [samples][rows]
    u64 *racer;            // [samples][rows], or null: the winning racer, for a merge with other shards
    double *score;         // [samples][rows], or null: its score, to 44 bits
    double *logprob;       // [samples][rows], or null
    double *log_normalizer; // [rows], or null
    u32 *status;           // [rows]: 0, or (1 NaN, 2 infinite) << 24 | id, or 3 << 24: empty
    u32 stride;            // rows of the whole call, from one sample to the next
    u32 blocks;            // of ids
};

// Maximum or sum over the threads of a row; every thread of the CTA takes part.
template <class T, class Merge>
__device__ __forceinline__ T over_row(T value, T none, T *scratch, Merge merge) {
    const u32 lane = threadIdx.x % 32, row = lane % ROWS;
#pragma unroll
    for (int step = 16; step >= ROWS; step /= 2) value = merge(value, (T)__shfl_xor_sync(~0u, value, step));
    __syncthreads();
    if (lane < ROWS) scratch[threadIdx.x / 32 * ROWS + row] = value;
    __syncthreads();
    value = none;
    for (u32 warp = lane / ROWS; warp < THREADS / 32; warp += 32 / ROWS) value = merge(value, scratch[warp * ROWS + row]);
#pragma unroll
    for (int step = 16; step >= ROWS; step /= 2) value = merge(value, (T)__shfl_xor_sync(~0u, value, step));
    return value;
}

// A thread's pairs from block b on; empty ones where there is none.
__device__ __forceinline__ void load(const Params &p, const Results &to, bool live, u32 row, u32 b, float2 (&pairs)[UNDER_WAY]) {
#pragma unroll
    for (u32 i = 0; i < UNDER_WAY; i++) {
        const u32 at = b + i * PART;
        pairs[i] = live && at < to.blocks ? __ldcg(&p.pairs[(u64)at * p.rows + row]) : make_float2(-INFINITE, 0.0f);
    }
}

// Tokens and what goes with them; where the winner's x is wanted, it is left in `won`.
__device__ __forceinline__ void tell(const Params &p, const Results &to, u32 row, u32 part, float (*won)[ROWS]) {
    for (u32 sample = 0; sample < p.samples; sample++) {
        const u64 at = (u64)sample * p.rows + row, out = (u64)sample * to.stride + row;
        const u64 best = __ldcg(&p.best[at]);
        if (p.candidates)
            for (u32 slot = part; slot < p.slots; slot += PART) {
                const Candidate &c = p.candidates[at * p.slots + slot];
                if (c.racer == best && best) won[sample][threadIdx.x % ROWS] = c.x;
            }
        if (part == 0) {
            to.token[out] = racer_id(best);
            if (to.racer) to.racer[out] = best;
            if (to.score) to.score[out] = racer_score(best);
        }
    }
}

// A row's greatest x and the integer sum of its blocks' masses beside it.
__device__ __forceinline__ void mass(const Params &p, const Results &to, bool live, u32 row, u32 part, float &most, u64 &total) {
    __shared__ u64 scratch[THREADS / 32 * ROWS];
    float2 pairs[UNDER_WAY];
    const bool kept = to.blocks <= PART * UNDER_WAY; // all pairs stay in registers between the two
    most = -INFINITE;
    total = 0;
    for (u32 b = part; b < to.blocks || b == part; b += PART * UNDER_WAY) {
        load(p, to, live, row, b, pairs);
#pragma unroll
        for (int i = 0; i < UNDER_WAY; i++) most = fmaxf(most, pairs[i].x);
    }
    most = over_row(most, -INFINITE, (float *)scratch, [](float a, float b) { return fmaxf(a, b); });
    for (u32 b = part; b < to.blocks; b += PART * UNDER_WAY) {
        if (!kept) load(p, to, live, row, b, pairs);
#pragma unroll
        for (int i = 0; i < UNDER_WAY; i++)
            if (pairs[i].x > -INFINITE) total += (u64)((double)(pairs[i].y * exp_term(pairs[i].x - most)) * 8796093022208.0);
    }
    total = over_row(total, (u64)0, scratch, [](u64 a, u64 b) { return a + b; });
}

extern "C" __global__ void __launch_bounds__(THREADS) finish(const __grid_constant__ Params p, const __grid_constant__ Results to) {
    __shared__ float won[MAX_SAMPLES][ROWS];
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    const u32 row = blockIdx.x * ROWS + threadIdx.x % ROWS, part = threadIdx.x / ROWS;
    const bool live = row < p.rows;
    if (live) tell(p, to, row, part, won);
    float most = 0.0f;
    u64 total = 0;
    if (p.pairs) mass(p, to, live, row, part, most, total);
    __syncthreads();
    if (!live || part != 0) return;
    const double norm = ln((double)max(total, 1ull) * 1.1368683772161603e-13);
    const u32 fault = p.fault[row];
    p.fault[row] = ~0u;
    to.status[row] = fault != ~0u ? fault : p.best[row] == 0 ? 3u << 24 : 0;
    if (to.log_normalizer) to.log_normalizer[row] = (double)most + norm;
    const bool alone = row_kind(p, row) & KIND_ARGMAX; // nothing else is left
    for (u32 sample = 0; sample < p.samples; sample++) {
        p.best[(u64)sample * p.rows + row] = 0;
        if (to.logprob)
            to.logprob[(u64)sample * to.stride + row] = alone ? 0.0 : (double)won[sample][threadIdx.x % ROWS] - (double)most - norm;
    }
}
