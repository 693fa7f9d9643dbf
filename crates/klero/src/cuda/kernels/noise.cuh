// Random bits: the hash of a row, Philox4x32 with seven rounds, Gumbel noise, and the word that scores race as.
#pragma once
#include "math.cuh"

#define GOLDEN 0x9E3779B97F4A7C15ull
#define DRAFT_SEED_OFFSET 1000000007ull

__device__ __forceinline__ u64 splitmix64(u64 y) {
    u64 z = y + GOLDEN;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// z of (seed, position, case).
__device__ __forceinline__ u64 row_hash(u64 seed, u64 position, u32 which) {
    const u64 q = (3 * position + which) * GOLDEN;
    return splitmix64(which == 2 ? seed ^ q : seed + (q ^ (q << 13)));
}

// The seed of sample j of a row.
__device__ __forceinline__ u64 sample_seed(u64 seed, u32 j) { return j == 0 ? seed : splitmix64(seed ^ splitmix64(j)); }

#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

__device__ __forceinline__ void multiply(u32 a, u32 b, u32 &high, u32 &low) {
    const u64 product = (u64)a * b;
    high = (u32)(product >> 32);
    low = (u32)product;
}

// Counters (first + k, 0, 0, 0) for k < N, side by side for the sake of latency: words[4 k ..] are those of counter k. The first
// round and half of the second are constants of the key where all counters but the first word are 0.
template <int N>
__device__ __forceinline__ void philox_run(u32 first, u64 z, u32 (&words)[4 * N]) {
    const u32 k0 = (u32)z, k1 = (u32)(z >> 32);
    u32 high, low, key_high, key_low;
    multiply(PHILOX_M0, k0, key_high, key_low);
#pragma unroll
    for (int i = 0; i < N; i++) {
        u32 c_high, c_low;
        multiply(PHILOX_M0, first + i, c_high, c_low);
        multiply(PHILOX_M1, c_high ^ k1, high, low);
        words[4 * i] = high ^ (k0 + PHILOX_W0);
        words[4 * i + 1] = low;
        words[4 * i + 2] = key_high ^ c_low ^ (k1 + PHILOX_W1);
        words[4 * i + 3] = key_low;
    }
#pragma unroll
    for (u32 round = 2; round < 7; round++)
#pragma unroll
        for (int i = 0; i < N; i++) {
            u32 high0, low0;
            multiply(PHILOX_M0, words[4 * i], high0, low0);
            multiply(PHILOX_M1, words[4 * i + 2], high, low);
            words[4 * i] = high ^ words[4 * i + 1] ^ (k0 + round * PHILOX_W0);
            words[4 * i + 1] = low;
            words[4 * i + 2] = high0 ^ words[4 * i + 3] ^ (k1 + round * PHILOX_W1);
            words[4 * i + 3] = low0;
        }
}

// Words 0 and 1 of counter (c, 1, 0, 0).
__device__ __forceinline__ void philox_own(u32 c, u64 z, u32 &w0, u32 &w1) {
    u32 x0 = c, x1 = 1, x2 = 0, x3 = 0, k0 = (u32)z, k1 = (u32)(z >> 32);
#pragma unroll
    for (int round = 0; round < 7; round++) {
        u32 high0, low0, high1, low1;
        multiply(PHILOX_M0, x0, high0, low0);
        multiply(PHILOX_M1, x2, high1, low1);
        x0 = high1 ^ x1 ^ k0;
        x1 = low1;
        x2 = high0 ^ x3 ^ k1;
        x3 = low0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    w0 = x0;
    w1 = x1;
}

// g of an id whose top sixteen bits are h.
__device__ __forceinline__ double gumbel(u32 id, u32 h, u64 z) {
    u32 w0, w1;
    philox_own(id, z, w0, w1);
    const u64 r = ((u64)h << 48) | ((u64)(w1 & 0xffffu) << 32) | w0;
    const double unit = 5.421010862427522e-20; // 2^-64
    const double e = r >> 63 ? -ln(((double)~r + 0.5) * unit) : -ln_1p(-(((double)r + 0.5) * unit));
    return -ln(e);
}

// A score and its id as one word: the greater score wins, and of equal ones (in 44 bits) the lower id. 0: no racer.
__device__ __forceinline__ u64 racer(double score, u32 id) {
    const u64 bits = (u64)__double_as_longlong(score + 0.0);
    const u64 key = bits >> 63 ? ~bits : bits | 1ull << 63;
    return (key & ~0xfffffull) | (0xfffffu - id);
}

__device__ __forceinline__ u32 racer_id(u64 word) { return 0xfffffu - (u32)(word & 0xfffffu); }

// The least score that equals a racer's in 44 bits; minus infinity where there is none.
__device__ __forceinline__ double racer_score(u64 word) {
    if (word == 0) return -(double)INFINITE;
    const u64 key = word & ~0xfffffull;
    return __longlong_as_double((long long)(key >> 63 ? key ^ 1ull << 63 : ~key));
}
