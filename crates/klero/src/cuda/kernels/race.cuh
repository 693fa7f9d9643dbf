// The draw of a tile of logits that lie in the registers of a warp.
//
// A warp holds 16 rows, two a thread: row r of a thread is its quad (lane / 4) plus 8 r. The four threads of a quad share a
// row; of each block of 64 ids a thread has the sixteen that its place in the quad names, in order. So a thread screens and
// sums whole sixteens by itself, and a quad makes a block's pair with two exchanges.
//
// Screening: with h the top sixteen of an id's random bits its noise is below -ln(h / 2^16), so x - ln(h / 2^16) bounds its score
// from above, and the bound is nearly its score. A thread keeps the greatest bound of each sixteen. Only a sixteen whose bound
// reaches the best score known for the row, in any block of the grid, is raced in full, the most hopeful first: after it,
// next to none is left.
#pragma once
#include "rows.cuh"

// ln 2^16: a bound is kept without it.
#define LN_65536 11.090355f
// Bits h = 0 stand for noise of up to 45.1, that of 2^-49.
#define LEAST_H 1.7763568e-15f

#define QUAD_MAX(x) \
    do { \
        x = fmaxf(x, __shfl_xor_sync(~0u, x, 1)); \
        x = fmaxf(x, __shfl_xor_sync(~0u, x, 2)); \
    } while (0)

// A racing sample of a row, as a quad sees it.
struct Racing {
    u64 z;
    u64 best;     // the best racer that this quad has met
    float x;      // its x
    float bar;    // what a bound must reach; rounding is allowed for
};

// The bar under a racer. A score may be infinite, in a row that has a fault.
__device__ __forceinline__ float lift(u64 best, float noise) {
    const float s = (float)racer_score(best);
    return fabsf(s) == INFINITE ? s : s - (noise == 0.0f ? 0.0f : LN_65536) - (0.004f + fabsf(s) * 1e-6f);
}

__device__ __forceinline__ float top_bits(const u32 (&words)[8], int i) {
    // 2^23 + h, exactly, less 2^23.
    const u32 word = words[i / 2];
    const float h = __uint_as_float(__byte_perm(word, 0x4b000000u, i % 2 ? 0x7432 : 0x7410)) - 8388608.0f;
    return fmaxf(h, LEAST_H);
}

// The index of element i of a thread's sixteen, of its row r, in block b of an accumulator: pairs of neighbours lie together,
// then the two rows, then the eights of a block.
#define AT(b, r, i) (((b) * 8 + (i) / 2) * 4 + (r) * 2 + (i) % 2)

// The bound of a sixteen's id i on its score, less that of LN_65536.
__device__ __forceinline__ float bound(const u32 (&words)[8], int i, float x, float noise) {
    return fmaf(log2_approx(top_bits(words, i)), noise, x);
}

// Races the ids of a sixteen that reach the bar: the one of the greatest bound, `most`, then those that still can win. The lanes
// of a warp find theirs first and then take their logarithms together.
__device__ __forceinline__ void run(const float (&x)[SIXTEEN], float most, u32 id, const Lane &lane, Racing &racing) {
    u32 words[8], pending = 0;
    float bounds[SIXTEEN];
    philox_run<2>(id / 8, racing.z, words);
#pragma unroll
    for (int i = 0; i < SIXTEEN; i++) {
        bounds[i] = bound(words, i, x[i], lane.noise);
        pending |= (u32)(bounds[i] == most) << i;
    }
#pragma unroll 1
    for (bool rest = false;;) {
        if (pending == 0) {
            if (rest) break;
            rest = true;
#pragma unroll
            for (int i = 0; i < SIXTEEN; i++)
                pending |= (u32)(bounds[i] < most && bounds[i] >= racing.bar && x[i] > -INFINITE) << i;
            if (pending == 0) break;
        }
        const u32 at = __ffs(pending) - 1;
        pending &= pending - 1;
        // No run-time index, which would put the arrays into local memory, where a warp waits for them.
        u32 word = words[0];
        float value = x[0];
#pragma unroll
        for (u32 i = 1; i < SIXTEEN; i++) {
            word = i / 2 == at / 2 ? words[i / 2] : word;
            value = i == at ? x[i] : value;
        }
        const u32 h = at % 2 ? word >> 16 : word & 0xffffu;
        const double g = lane.noise == 0.0f ? 0.0 : gumbel(id + at, h, racing.z);
        const u64 found = racer((double)value + g, id + at);
        if (found > racing.best) {
            racing.best = found;
            racing.x = value;
        }
        racing.bar = fmaxf(racing.bar, lift(found, lane.noise));
    }
}

// One block of 64 ids a column of a tile; `count` of them are there, from block `block` of the vocabulary on.
template <int BLOCKS>
struct Tile {
    float (&acc)[BLOCKS * 32];
    u32 block, count;

    __device__ __forceinline__ float x(const Lane &lane, int b, int r, int i) const { return acc[AT(b, r, i)] * lane.scale; }

    // The least id of this thread's sixteen of block b, among the weight rows.
    __device__ __forceinline__ u32 at(int b, u32 place) const { return (block + b) * BLOCK + place * SIXTEEN; }

#if EDITS
    // Takes out ids that are no vocabulary, and edits the logits where the call asks for it.
    __device__ __forceinline__ void edit(const Params &p, const Lane (&lanes)[2], u32 place) {
        if ((block + count) * BLOCK > p.vocabulary)
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
#pragma unroll
                for (int i = 0; i < SIXTEEN; i++)
                    if (at(b, place) + i >= p.vocabulary) acc[AT(b, 0, i)] = acc[AT(b, 1, i)] = -INFINITE;
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (lanes[r].live) {
                if (p.bias_start) bias(p, lanes[r], place, r);
                if (p.allowed) mask(p, lanes[r], place, r);
            }
    }

    __device__ __forceinline__ void bias(const Params &p, const Lane &lane, u32 place, int r) {
        const u32 end = p.bias_start[lane.row + 1];
#pragma unroll 1
        for (u32 from = p.bias_start[lane.row]; from < end; from++) {
            const u32 id = p.bias_id[from] - p.first, b = id / BLOCK - block;
            if (id / BLOCK < block || b >= count || id % BLOCK / SIXTEEN != place) continue;
            const float bias = p.bias[from];
#pragma unroll
            for (int c = 0; c < BLOCKS; c++)
#pragma unroll
                for (int i = 0; i < SIXTEEN; i++)
                    if (c == b && i == id % SIXTEEN && id < p.vocabulary) {
                        const float l = acc[AT(c, r, i)], sum = l + bias;
                        // An overflow downwards must not pass for a masked id.
                        acc[AT(c, r, i)] = sum == -INFINITE && l != -INFINITE ? INFINITE : sum;
                    }
        }
    }

    __device__ __forceinline__ void mask(const Params &p, const Lane &lane, u32 place, int r) {
        const u32 *words = p.allowed + (u64)lane.row * p.allowed_stride;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            const u32 id = p.first + at(b, place);
            const u32 allowed = b < count && id / 32 < p.allowed_stride ? words[id / 32] >> (id % 32) : 0;
#pragma unroll
            for (int i = 0; i < SIXTEEN; i++)
                if (!(allowed >> i & 1)) acc[AT(b, r, i)] = -INFINITE;
        }
    }
#endif

#if LOGITS
    // Writes out the logits.
    __device__ __forceinline__ void store(const Params &p, const Lane (&lanes)[2], u32 place) const {
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
#pragma unroll
                for (int i = 0; i < SIXTEEN; i++)
                    if (lanes[r].live && b < count && at(b, place) + i < p.vocabulary)
                        p.logits[lanes[r].row * p.logits_stride + at(b, place) + i] = acc[AT(b, r, i)];
    }
#endif

    // Notes the least id whose logit is NaN or infinite. 0 times anything else is 0.
    __device__ __forceinline__ void judge(const Params &p, const Lane (&lanes)[2], u32 place) const {
        bool bad[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float zero = 0.0f;
#pragma unroll
            for (int b = 0; b < BLOCKS; b++)
                if (b < count)
#pragma unroll
                    for (int i = 0; i < SIXTEEN; i++) {
#if EDITS
                        const float l = acc[AT(b, r, i)];
                        zero = fmaf(l == -INFINITE ? 0.0f : x(lanes[r], b, r, i), 0.0f, zero);
#else
                        zero = fmaf(x(lanes[r], b, r, i), 0.0f, zero);
#endif
                    }
            bad[r] = lanes[r].live && zero != 0.0f;
        }
        if (!__any_sync(~0u, bad[0] || bad[1])) return;
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (bad[r]) {
                u32 least = ~0u;
#pragma unroll
                for (int b = 0; b < BLOCKS; b++)
#pragma unroll
                    for (int i = 0; i < SIXTEEN; i++) {
                        const float l = acc[AT(b, r, i)], v = x(lanes[r], b, r, i);
                        const u32 id = p.first + at(b, place) + i;
                        if (b < count && v != v) least = min(least, 1u << 24 | id);
                        if (b < count && (v == INFINITE || (v == -INFINITE && l != -INFINITE))) least = min(least, 2u << 24 | id);
                    }
                if (least != ~0u) atomicMin(&p.fault[lanes[r].row], least);
            }
    }

    template <int HALF_WIDTH>
    static __device__ __forceinline__ void halve(float (&v)[SIXTEEN]) {
#pragma unroll
        for (int i = 0; i < HALF_WIDTH; i++) v[i] += v[i + HALF_WIDTH];
    }

    // Writes each block's pair (m, S).
    __device__ __forceinline__ void sum(const Params &p, const Lane (&lanes)[2], u32 place) const {
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                if (b >= count) continue;
                float v[SIXTEEN], most;
#pragma unroll
                for (int i = 0; i < SIXTEEN; i++) v[i] = x(lanes[r], b, r, i);
                most = v[0];
#pragma unroll
                for (int i = 1; i < SIXTEEN; i++) most = fmaxf(most, v[i]);
                const float origin = most == -INFINITE ? 0.0f : most;
#pragma unroll
                for (int i = 0; i < SIXTEEN; i++) v[i] = exp_term(v[i] - origin);
                halve<8>(v);
                halve<4>(v);
                halve<2>(v);
                halve<1>(v);
                float all = most;
                QUAD_MAX(all);
                float part = most == -INFINITE ? 0.0f : v[0] * exp_term(most - all);
                part += __shfl_xor_sync(~0u, part, 1);
                part += __shfl_xor_sync(~0u, part, 2);
                if (place == 0 && lanes[r].live)
                    p.pairs[(u64)(p.first / BLOCK + block + b) * p.rows + lanes[r].row] = make_float2(all, part);
            }
    }

    // The greatest bound of this thread's sixteens.
    __device__ __forceinline__ float screen(const Lane &lane, u64 z, u32 place, u32 first, int b, int r) const {
        u32 words[8];
        philox_run<2>((first + at(b, place)) / 8, z, words);
        float most = -INFINITE;
#pragma unroll
        for (int i = 0; i < SIXTEEN; i++)
            most = fmaxf(most, bound(words, i, x(lane, b, r, i), lane.noise));
        return most;
    }

    // Runs the race of one sample of both rows.
    __device__ __forceinline__ void race(const Lane (&lanes)[2], Racing (&racing)[2], u32 place, u32 first) const {
        float hopes[2][BLOCKS];
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) hopes[r][b] = b < count ? screen(lanes[r], racing[r].z, place, first, b, r) : -INFINITE;
#pragma unroll 1
        for (;;) {
            float mine[2], best[2];
            bool hit[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                mine[r] = hopes[r][0];
#pragma unroll
                for (int b = 1; b < BLOCKS; b++) mine[r] = fmaxf(mine[r], hopes[r][b]);
                best[r] = mine[r];
                QUAD_MAX(best[r]);
                hit[r] = lanes[r].live && best[r] >= racing[r].bar && best[r] > -INFINITE;
            }
            if (!__any_sync(~0u, hit[0] || hit[1])) break;
            const bool second = !hit[0];
            Racing now = second ? racing[1] : racing[0];
            if ((hit[0] || hit[1]) && (second ? mine[1] == best[1] : mine[0] == best[0])) {
                float v[SIXTEEN];
                u32 id = 0;
                const float wanted = second ? mine[1] : mine[0];
                bool found = false;
#pragma unroll
                for (int r = 0; r < 2; r++)
#pragma unroll
                    for (int b = 0; b < BLOCKS; b++)
                        if (!found && second == (r == 1) && hopes[r][b] == wanted) {
                            found = true;
                            hopes[r][b] = -INFINITE;
                            id = first + at(b, place);
#pragma unroll
                            for (int i = 0; i < SIXTEEN; i++) v[i] = x(lanes[r], b, r, i);
                        }
                run(v, wanted, id, second ? lanes[1] : lanes[0], now);
            }
#pragma unroll
            for (int step = 1; step <= 2; step *= 2) {
                const u64 other = __shfl_xor_sync(~0u, now.best, step);
                const float x = __shfl_xor_sync(~0u, now.x, step);
                if (other > now.best) {
                    now.best = other;
                    now.x = x;
                }
            }
            now.bar = fmaxf(now.bar, lift(now.best, second ? lanes[1].noise : lanes[0].noise));
            if (second)
                racing[1] = now;
            else
                racing[0] = now;
        }
    }
};
