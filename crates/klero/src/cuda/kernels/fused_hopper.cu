// The fused head for sm_90: hidden states times weights on the tensor cores, tile by tile, each tile drawn from in registers.
//
// A persistent grid: every worker (a CTA, or a cluster of two) takes an even share of the blocks of 64 ids and walks it in tiles.
// One warp keeps a ring of stages full by bulk copies; two warpgroups multiply and draw. A stage is 64 of the D numbers, of the
// tile's weight rows and of the hidden states. While a tile is drawn from, the ring fills for the next.
//
// The two warpgroups share the work by ids (up to 64 rows: SPLIT_ROWS 0) or by rows (up to 128; a cluster of two, 256).
// Weight rows are permuted by the copy: column 8 j + 2 c + e of a block of 64 holds id 16 c + 2 j + e, so that the sums of one
// thread are sixteen ids in a row.
//
// Every sum runs over k = 0, 16, 32, ... in one order, whatever the tile, so a logit's bits do not depend on the batch.
#include "hopper.cuh"
#include "race.cuh"
#include "wgmma.cuh"

#define CONSUMERS 8 // warps
#define COLUMN_BLOCKS (IDS / BLOCK)
#define TILE_BLOCKS (COLUMN_BLOCKS * (SPLIT_ROWS ? 1 : 2))
#define WEIGHT_BYTES (TILE_BLOCKS * BLOCK * 128)
#define STAGE_BYTES (WEIGHT_BYTES + HIDDEN_ROWS * 128)
#define GROUP_ROWS (SPLIT_ROWS ? 128 : 64) // rows of a CTA

struct Maps {
    alignas(64) char whole[128]; // boxes of a warpgroup's blocks (in a cluster, half of them)
    alignas(64) char single[128]; // boxes of one block
    alignas(64) char tail[128];  // the last, partial block
    alignas(64) char hidden[128];
};

struct Shape {
    u32 depth;   // D / 64, rounded up
    u32 blocks;  // of ids, the partial one included
    u32 full;    // whole ones
    u32 workers;
};

struct Shared {
    u64 best[SAMPLES][2][64];
    u64 z[SAMPLES][2][64];
    float x[SAMPLES][2][64];
    u64 full[STAGES], empty[STAGES];
};

// A worker's share, and its tiles.
struct Share {
    u32 from, to;
    __device__ Share(const Shape &shape, u32 worker)
        : from((u64)shape.blocks * worker / shape.workers), to((u64)shape.blocks * (worker + 1) / shape.workers) {}
    __device__ u32 tiles() const { return (to - from + TILE_BLOCKS - 1) / TILE_BLOCKS; }
    __device__ u32 start(u32 tile) const { return min(from + tile * TILE_BLOCKS, to); }
};

struct Ring {
    u32 full, empty, stage, phase;
    __device__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

__device__ __forceinline__ void produce_blocks(const Maps &maps, const Shape &shape, u32 to, int k, u32 from, u32 end, u32 barrier, u64 policy) {
    constexpr u32 WHOLE = COLUMN_BLOCKS < CLUSTER ? 1 : COLUMN_BLOCKS / CLUSTER;
    while (from < end) {
        const bool whole = end - from >= WHOLE && from + WHOLE <= shape.full;
        const void *map = whole ? maps.whole : from < shape.full ? maps.single : maps.tail;
        const int at = from < shape.full ? from : 0;
#if CLUSTER == 2
        copy_weights_to(to, map, k, at, barrier, policy, 3);
#else
        copy_weights(to, map, k, at, barrier, policy);
#endif
        const u32 step = whole ? WHOLE : 1;
        from += step;
        to += step * BLOCK * 128;
    }
}

__device__ __forceinline__ void produce(const Maps &maps, const Shape &shape, const Share &share, Ring ring, u32 stages, u32 rank) {
    const u64 weights = policy_unchanged(), hidden = policy_last();
    for (u32 tile = 0; tile < share.tiles(); tile++) {
        const u32 from = share.start(tile), to = share.start(tile + 1), count = to - from;
        for (u32 kb = 0; kb < shape.depth; kb++, ring.next()) {
            barrier_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
            const u32 barrier = ring.full + 8 * ring.stage, base = stages + ring.stage * STAGE_BYTES;
            barrier_expect(barrier, count * BLOCK * 128 + HIDDEN_ROWS * 128);
            copy_hidden(base + WEIGHT_BYTES, maps.hidden, kb * 64, rank * GROUP_ROWS, barrier, hidden);
            // Each CTA of a cluster brings its part to both.
            const u32 mine = count * rank / CLUSTER, end = count * (rank + 1) / CLUSTER;
            produce_blocks(maps, shape, base + mine * BLOCK * 128, kb * 64, from + mine, from + end, barrier, weights);
        }
    }
}

struct Consumer {
    const Params &p;
    Shared &shared;
    Ring ring;
    u32 group, warp, place, slot; // slot of the two by group
    Lane lanes[2];
    u32 rows[2]; // of the group
    u64 weights, hidden; // operands of stage 0
    u64 seen[2];         // the best racers of the rows' first samples, asked for while the last products run

    __device__ __forceinline__ void release(u32 stage, u32 lane) const {
#if CLUSTER == 2
        if (lane < 2) barrier_arrive_at(ring.empty + 8 * stage, lane);
#else
        if (lane == 0) barrier_arrive(ring.empty + 8 * stage);
#endif
    }

    __device__ __forceinline__ u64 known(u32 sample, int r) const {
        return lanes[r].live ? __ldcg(&p.best[(u64)sample * p.rows + lanes[r].row]) : 0;
    }

    template <int N>
    __device__ __forceinline__ void multiply(float (&acc)[IDS / 2], u32 depth, u32 lane) {
        u32 last = 0;
#pragma unroll 1
        for (u32 kb = 0; kb < depth; kb++) {
            barrier_wait(ring.full + 8 * ring.stage, ring.phase);
            const u64 a = hidden + (u64)(ring.stage * (STAGE_BYTES / 16)), b = weights + (u64)(ring.stage * (STAGE_BYTES / 16));
            pin(acc);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) Wgmma<N>::run(acc, a + 2 * k, b + 2 * k, k ? 1 : kb > 0);
            wgmma_commit();
            wgmma_wait<1>();
            if (kb > 0) release(last, lane);
            last = ring.stage;
            ring.next();
        }
        for (int r = 0; r < 2; r++) seen[r] = known(0, r);
        wgmma_wait<0>();
        pin(acc);
        release(last, lane);
    }

    __device__ __forceinline__ void draw(float (&acc)[IDS / 2], u32 block, u32 count) {
#if !DRAW
        // The product alone, for measurements: a sum that no weights give keeps it from being optimised away.
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < IDS / 2; i++) sum += acc[i];
        if (sum == 1.2345e38f) p.fault[0] = 0;
        return;
#endif
#if LOGITS
        Tile<COLUMN_BLOCKS>{acc, block, count}.store(p, lanes, place);
#endif
#if EDITS
        // Edited in a copy: writes to registers that wgmma sums in would make it wait for every product.
        float edited[IDS / 2];
#pragma unroll
        for (int i = 0; i < IDS / 2; i++) asm volatile("mov.f32 %0, %1;" : "=f"(edited[i]) : "f"(acc[i]));
        Tile<COLUMN_BLOCKS> tile{edited, block, count};
        tile.edit(p, lanes, place);
#else
        Tile<COLUMN_BLOCKS> tile{acc, block, count};
#endif
#pragma unroll 1
        for (u32 sample = 0; sample < p.samples; sample++) {
            Racing racing[2];
            u64 before[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                before[r] = sample == 0 ? seen[r] : known(sample, r);
                Racing &now = racing[r];
                now.z = shared.z[sample][slot][rows[r]];
                now.best = shared.best[sample][slot][rows[r]];
                now.x = shared.x[sample][slot][rows[r]];
                now.bar = lift(max(now.best, before[r]), lanes[r].noise);
                before[r] = now.best;
            }
            tile.race(lanes, racing, place, p.first);
#pragma unroll
            for (int r = 0; r < 2; r++)
                if (place == 0 && racing[r].best > before[r]) {
                    shared.best[sample][slot][rows[r]] = racing[r].best;
                    shared.x[sample][slot][rows[r]] = racing[r].x;
                    atomicMax(&p.best[(u64)sample * p.rows + lanes[r].row], racing[r].best);
                }
            __syncwarp();
        }
        tile.judge(p, lanes, place);
#if LOGPROB
        tile.sum(p, lanes, place);
#endif
    }

    __device__ __forceinline__ void finish(u32 worker) const {
#if LOGPROB
#pragma unroll 1
        for (u32 sample = 0; sample < p.samples; sample++)
#pragma unroll
            for (int r = 0; r < 2; r++)
                if (place == 0 && lanes[r].live) {
                    const u32 at = p.slot + (SPLIT_ROWS ? worker : 2 * worker + slot);
                    Candidate &to = p.candidates[((u64)sample * p.rows + lanes[r].row) * p.slots + at];
                    to.racer = shared.best[sample][slot][rows[r]];
                    to.x = shared.x[sample][slot][rows[r]];
                }
#endif
    }
};

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(384, 1)
    fused_head(const __grid_constant__ Maps maps, const __grid_constant__ Params p, const Shape shape) {
    extern __shared__ __align__(1024) char memory[];
    const u32 stages = shared_address(memory);
    Shared &shared = *(Shared *)(memory + STAGES * STAGE_BYTES);
    const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const u32 rank = CLUSTER == 2 ? cluster_rank() : 0, worker = blockIdx.x / CLUSTER;
    const Share share(shape, worker);
    Ring ring{shared_address(shared.full), shared_address(shared.empty), 0, 0};

    if (threadIdx.x == 0) {
        for (u32 i = 0; i < STAGES; i++) {
            barrier_init(ring.full + 8 * i, 1);
            barrier_init(ring.empty + 8 * i, CONSUMERS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    // A row's state is kept by group and place in it; by ids both groups have all rows.
    for (u32 i = threadIdx.x; i < p.samples * 128; i += blockDim.x) {
        const u32 sample = i / 128, slot = i / 64 % 2, row = rank * GROUP_ROWS + (SPLIT_ROWS ? i % 128 : i % 64);
        shared.best[sample][slot][i % 64] = 0;
        shared.x[sample][slot][i % 64] = 0.0f;
        shared.z[sample][slot][i % 64] = row < p.rows ? sample_hash(p, row, sample) : 0;
    }
    __syncthreads();
    if (CLUSTER == 2) cluster_sync();

    // The kernel that finishes may be set up as soon as there is room for it; it waits for the end of this one.
    asm volatile("griddepcontrol.launch_dependents;");
    if (warp >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        if (warp == CONSUMERS && lane == 0) {
            prefetch_map(maps.whole);
            prefetch_map(maps.hidden);
            produce(maps, shape, share, ring, stages, rank);
        }
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        const u32 group = warp / 4, base = rank * GROUP_ROWS + (SPLIT_ROWS ? group * 64 : 0);
        Consumer me{p, shared, ring, group, warp, lane % 4, group};
        for (int r = 0; r < 2; r++) {
            me.rows[r] = warp % 4 * 16 + lane / 4 + 8 * r;
            const u32 row = base + me.rows[r];
            const bool live = row < p.rows;
            const bool noiseless = live && row_kind(p, row) & KIND_ARGMAX;
            me.lanes[r] = Lane{row, live, live ? inverse_temperature(p.temperature[row]) : 0.0f, noiseless ? 0.0f : -0.6931472f};
        }
        me.weights = operand(stages + (SPLIT_ROWS ? 0 : group * COLUMN_BLOCKS * BLOCK * 128));
        me.hidden = operand(stages + WEIGHT_BYTES + (SPLIT_ROWS ? group * 64 * 128 : 0));
        const bool active = base + warp % 4 * 16 < p.rows;
#pragma unroll 1
        for (u32 tile = 0; tile < share.tiles(); tile++) {
            float acc[IDS / 2];
            const u32 from = share.start(tile), all = share.start(tile + 1) - from;
            const u32 skip = SPLIT_ROWS ? 0 : min(group * COLUMN_BLOCKS, all), count = min(all - skip, (u32)COLUMN_BLOCKS);
            // A share's last tile may be narrow.
#if IDS == 192
            if (count == 1) me.multiply<64>(acc, shape.depth, lane);
            else if (count == 2) me.multiply<128>(acc, shape.depth, lane);
            else me.multiply<IDS>(acc, shape.depth, lane);
#else
            me.multiply<IDS>(acc, shape.depth, lane);
#endif
            if (active && count > 0) me.draw(acc, from + skip, count);
        }
        me.finish(worker);
    }
    if (CLUSTER == 2) cluster_sync();
}
