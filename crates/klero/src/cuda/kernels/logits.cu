// The draw from ready f32 logits [rows, stride]: a warp takes two blocks of 64 ids of sixteen rows, in the layout that the
// fused heads have their sums in, and draws from them as they do.
#include "race.cuh"

#define BLOCKS 2
#define WARPS 8

struct Logits {
    const float *values;
    u64 stride;
    u32 blocks; // of ids
};

extern "C" __global__ void __launch_bounds__(WARPS * 32) draw_logits(const __grid_constant__ Params p, const Logits from) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, place = lane % 4, column = blockIdx.x * WARPS + warp;
    const u32 first = blockIdx.y * 16 + lane / 4;
    Lane lanes[2];
#pragma unroll
    for (int r = 0; r < 2; r++) lanes[r] = lane_of(p, first + 8 * r);
    const u32 start = min(column * BLOCKS, from.blocks), count = min(from.blocks - start, (u32)BLOCKS);
    float acc[BLOCKS * 32];
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int i = 0; i < SIXTEEN; i++) {
                const u32 id = (start + b) * BLOCK + place * SIXTEEN + i;
                acc[AT(b, r, i)] = lanes[r].live && id < p.vocabulary ? from.values[lanes[r].row * from.stride + id] : -INFINITE;
            }
    if (count > 0) {
        Tile<BLOCKS> tile{acc, start, count};
        tile.edit(p, lanes, place);
        for (u32 sample = 0; sample < p.samples; sample++) {
            Racing racing[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const u64 known = lanes[r].live ? __ldcg(&p.best[(u64)sample * p.rows + lanes[r].row]) : 0;
                racing[r] = Racing{lanes[r].live ? sample_hash(p, lanes[r].row, sample) : 0, 0, 0.0f, lift(known, lanes[r].noise)};
            }
            tile.race(lanes, racing, place, p.first);
#pragma unroll
            for (int r = 0; r < 2; r++)
                if (place == 0 && lanes[r].live) {
                    const u64 at = (u64)sample * p.rows + lanes[r].row;
                    if (racing[r].best) atomicMax(&p.best[at], racing[r].best);
                    if (p.candidates) p.candidates[at * p.slots + column] = Candidate{racing[r].best, racing[r].x, 0};
                }
        }
        tile.judge(p, lanes, place);
        if (p.pairs) tile.sum(p, lanes, place);
    } else if (p.candidates) {
        for (u32 sample = 0; sample < p.samples; sample++)
            for (int r = 0; r < 2; r++)
                if (place == 0 && lanes[r].live) p.candidates[((u64)sample * p.rows + lanes[r].row) * p.slots + column].racer = 0;
    }
}
