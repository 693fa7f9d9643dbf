// What a call asks, as the kernels read it from the device, and where they leave what they find.
#pragma once
#include "noise.cuh"

#define BLOCK 64   // ids whose exponentials are summed by one tree
#define SIXTEEN 16 // the part of a block that one thread sums

// The parts of `kind`.
#define KIND_CASE 3u
#define KIND_DRAFT 4u  // the draft stream
#define KIND_ARGMAX 8u // no noise: the greatest x, of equal ones the lowest id

// A racer with its x, for the logprob of the token.
struct Candidate {
    u64 racer;
    float x;
    u32 unused;
};

struct Params {
    // One of each a row.
    const float *temperature;
    const u64 *seed;
    const u64 *position;
    const u8 *kind;          // or null: all 0
    // Edits of the logits, or null.
    const u32 *allowed;      // bit i of a row's words: whether id i may be drawn
    const u32 *bias_start;   // [rows + 1], into the two below
    const u32 *bias_id;      // ascending within a row
    const float *bias;
    // Results, of which `best` is 0 and `fault` all ones between calls.
    u64 *best;               // [samples][rows]: the greatest racer so far, shared by all blocks
    u32 *fault;              // [rows]: (1 NaN, 2 infinite) << 24 | id, the least
    float2 *pairs;           // [blocks of ids][rows]: m and S
    Candidate *candidates;   // [samples][rows][slots]
    float *logits;           // [rows][logits_stride]: the logits themselves, where they are asked for
    u64 logits_stride;
    u32 allowed_stride;      // words a row
    u32 rows, samples, slots;
    u32 first;               // the vocabulary id of weight row 0
    u32 vocabulary;          // weight rows that are ids; the others are padding
    u32 slot;                // the first of this shard's slots
    u32 unused;
};

// 1/T as the law takes it: below 1e-5 a temperature is 1e-5.
__device__ __forceinline__ float inverse_temperature(float t) { return 1.0f / ((double)t < 1e-5 ? 1e-5f : t); }

__device__ __forceinline__ u32 row_kind(const Params &p, u32 row) { return p.kind ? p.kind[row] : 0; }

// What a thread knows of one of its two rows.
struct Lane {
    u32 row;     // of the call
    bool live;   // whether there is such a row
    float scale; // 1/T
    float noise; // -ln 2, which turns log2 h into noise; 0 without noise
};

__device__ __forceinline__ Lane lane_of(const Params &p, u32 row) {
    const bool live = row < p.rows, noiseless = live && row_kind(p, row) & KIND_ARGMAX;
    return Lane{row, live, live ? inverse_temperature(p.temperature[row]) : 0.0f, noiseless ? 0.0f : -0.6931472f};
}

// z of a sample of a row.
__device__ __forceinline__ u64 sample_hash(const Params &p, u32 row, u32 sample) {
    const u32 kind = row_kind(p, row);
    const u64 seed = sample_seed(p.seed[row], sample) + (kind & KIND_DRAFT ? DRAFT_SEED_OFFSET : 0);
    return row_hash(seed, p.position[row], kind & KIND_CASE);
}
