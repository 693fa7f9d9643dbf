// What a fused head keeps of its rows while it walks the vocabulary, and what it does with a tile.
#pragma once
#include "race.cuh"

// The racers of ROWS rows for each of HOLDERS groups of warps, in shared memory. A quad of one warp owns each.
template <int HOLDERS, int ROWS>
struct Racers {
    u64 best[SAMPLES][HOLDERS][ROWS];
    u64 z[SAMPLES][HOLDERS][ROWS];
    float x[SAMPLES][HOLDERS][ROWS];
};

// A warp's place: the two rows of each thread, and where their racers are.
template <int HOLDERS, int ROWS>
struct Drawer {
    const Params &p;
    Racers<HOLDERS, ROWS> &racers;
    u32 holder, place;
    u32 at[2];    // the rows' places among those of the holder
    Lane lanes[2];
    u64 seen[2];  // the best racers of the rows' first samples anywhere, asked for ahead

    // `row` is the call's number of the warp's first row, `first` its place among the holder's.
    __device__ __forceinline__ Drawer(const Params &p, Racers<HOLDERS, ROWS> &racers, u32 holder, u32 row, u32 first, u32 lane)
        : p(p), racers(racers), holder(holder), place(lane % 4) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            at[r] = first + lane / 4 + 8 * r;
            lanes[r] = lane_of(p, row + lane / 4 + 8 * r);
            seen[r] = 0;
        }
    }

    __device__ __forceinline__ u64 known(u32 sample, int r) const {
        return lanes[r].live ? __ldcg(&p.best[(u64)sample * p.rows + lanes[r].row]) : 0;
    }

    __device__ __forceinline__ void look() {
#pragma unroll
        for (int r = 0; r < 2; r++) seen[r] = known(0, r);
    }

    template <int COUNT>
    __device__ __forceinline__ void draw(float (&acc)[COUNT], u32 block, u32 count) {
        constexpr int BLOCKS = COUNT / 32;
#if !DRAW
        // The product alone, for measurements: a sum that no weights give keeps it from being optimised away.
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; i++) sum += acc[i];
        if (sum == 1.2345e38f) p.fault[0] = 0;
        return;
#endif
#if LOGITS
        Tile<BLOCKS>{acc, block, count}.store(p, lanes, place);
#endif
#if EDITS
        // Edited in a copy: writes to registers that wgmma sums in would make it wait for every product.
        float edited[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) asm volatile("mov.f32 %0, %1;" : "=f"(edited[i]) : "f"(acc[i]));
        Tile<BLOCKS> tile{edited, block, count};
        tile.edit(p, lanes, place);
#else
        Tile<BLOCKS> tile{acc, block, count};
#endif
#pragma unroll 1
        for (u32 sample = 0; sample < p.samples; sample++) race(tile, sample);
        tile.judge(p, lanes, place);
#if LOGPROB
        tile.sum(p, lanes, place);
#endif
    }

    template <int BLOCKS>
    __device__ __forceinline__ void race(const Tile<BLOCKS> &tile, u32 sample) {
        Racing racing[2];
        u64 before[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            Racing &now = racing[r];
            now.z = racers.z[sample][holder][at[r]];
            now.best = before[r] = racers.best[sample][holder][at[r]];
            now.x = racers.x[sample][holder][at[r]];
            now.bar = lift(max(now.best, sample == 0 ? seen[r] : known(sample, r)), lanes[r].noise);
        }
        tile.race(lanes, racing, place, p.first);
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (place == 0 && racing[r].best > before[r]) {
                racers.best[sample][holder][at[r]] = racing[r].best;
                racers.x[sample][holder][at[r]] = racing[r].x;
                atomicMax(&p.best[(u64)sample * p.rows + lanes[r].row], racing[r].best);
            }
        __syncwarp();
    }

    // Leaves the rows' racers with their x, for logprobs.
    __device__ __forceinline__ void leave(u32 slot) const {
#if LOGPROB
#pragma unroll 1
        for (u32 sample = 0; sample < p.samples; sample++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                if (place == 0 && lanes[r].live) {
                    Candidate &to = p.candidates[((u64)sample * p.rows + lanes[r].row) * p.slots + p.slot + slot];
                    to.racer = racers.best[sample][holder][at[r]];
                    to.x = racers.x[sample][holder][at[r]];
                }
#endif
    }
};

// Sets racers up; holder h has the rows from `first` + h * `step` on. All threads of the block take part.
template <int HOLDERS, int ROWS>
__device__ __forceinline__ void set_up(const Params &p, Racers<HOLDERS, ROWS> &racers, u32 first, u32 step) {
    for (u32 i = threadIdx.x; i < p.samples * HOLDERS * ROWS; i += blockDim.x) {
        const u32 sample = i / (HOLDERS * ROWS), holder = i / ROWS % HOLDERS, row = first + holder * step + i % ROWS;
        racers.best[sample][holder][i % ROWS] = 0;
        racers.x[sample][holder][i % ROWS] = 0.0f;
        racers.z[sample][holder][i % ROWS] = row < p.rows ? sample_hash(p, row, sample) : 0;
    }
}

// The extent of the weights.
struct Shape {
    u32 depth;   // D / 64, rounded up
    u32 blocks;  // of ids, a partial one included
    u32 full;    // whole ones
    u32 workers;
};

// A worker's share of the blocks, and its tiles.
template <int TILE>
struct Share {
    u32 from, to;
    __device__ Share(const Shape &shape, u32 worker)
        : from((u64)shape.blocks * worker / shape.workers), to((u64)shape.blocks * (worker + 1) / shape.workers) {}
    __device__ u32 tiles() const { return (to - from + TILE - 1) / TILE; }
    __device__ u32 start(u32 tile) const { return min(from + tile * TILE, to); }
};
