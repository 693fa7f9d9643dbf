// The fused head for sm_80 and newer: asynchronous copies into shared memory, mma.sync, each tile drawn from in registers.
//
// Four warps share a tile: each takes sixteen rows (one of ROW_GROUPS) of one block of 64 ids. A persistent grid: a worker walks
// its share of the blocks; the grid's second dimension is groups of 16 ROW_GROUPS rows. A stage is 64 of the D numbers.
//
// Weight rows are read into fragments in an order that gives a thread sixteen ids in a row: column n of group j of eight is row
// 16 (n / 2) + 2 j + n mod 2 of its block. Chunks of sixteen bytes are swizzled so that such eight rows lie in different banks.
//
// Every sum runs over k = 0, 16, 32, ... in one order, whatever the tile, so a logit's bits do not depend on the batch.
#include "draw.cuh"

#define WARPS 4
#define TILE_BLOCKS (WARPS / ROW_GROUPS)
#define WEIGHT_ROWS (TILE_BLOCKS * BLOCK)
#define HIDDEN_ROWS (ROW_GROUPS * 16)
#define STAGE_BYTES ((WEIGHT_ROWS + HIDDEN_ROWS) * 128)

#if HALF
#define MMA_TYPES "f32.f16.f16.f32"
#else
#define MMA_TYPES "f32.bf16.bf16.f32"
#endif

struct Operands {
    const u16 *weights, *hidden; // [rows, width], [rows, stride]
    u64 stride;
    u32 width, height;           // D, and weight rows
};

// Sixteen bytes to shared memory; zeros in place of what is not there.
__device__ __forceinline__ void copy(u32 to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

__device__ __forceinline__ void matrices(u32 from, u32 (&to)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from));
}

__device__ __forceinline__ void multiply(float *d, const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col." MMA_TYPES " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Where chunk `chunk` of a row lies in its 128 bytes.
__device__ __forceinline__ u32 weight_at(u32 row, u32 chunk) {
    return row * 128 + ((chunk ^ ((row >> 4 & 3) << 1 | (row & 1))) << 4);
}
__device__ __forceinline__ u32 hidden_at(u32 row, u32 chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

// Begins the copies of a stage.
__device__ __forceinline__ void fill(const Operands &from, u32 rows, u32 to, u32 id, u32 row, u32 k) {
    for (u32 i = threadIdx.x; i < WEIGHT_ROWS * 8; i += WARPS * 32) {
        const u32 r = i / 8, chunk = i % 8;
        const bool there = id + r < from.height && k + chunk * 8 < from.width;
        copy(to + weight_at(r, chunk), there ? from.weights + (u64)(id + r) * from.width + k + chunk * 8 : from.weights, there);
    }
    for (u32 i = threadIdx.x; i < HIDDEN_ROWS * 8; i += WARPS * 32) {
        const u32 r = i / 8, chunk = i % 8;
        const bool there = row + r < rows && k + chunk * 8 < from.width;
        copy(to + WEIGHT_ROWS * 128 + hidden_at(r, chunk), there ? from.hidden + (row + r) * from.stride + k + chunk * 8 : from.hidden,
             there);
    }
}

// Adds the products of a stage to the sums of a warp.
__device__ __forceinline__ void add(float (&acc)[32], u32 stage, u32 block, u32 group, u32 lane) {
    const u32 hidden = stage + WEIGHT_ROWS * 128;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        u32 a[4];
        matrices(hidden + hidden_at(group * 16 + lane % 16, 2 * k + lane / 16), a);
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            u32 b[4];
            const u32 n = lane % 8, row = block * BLOCK + 16 * (n / 2) + 2 * (j + lane / 16) + n % 2;
            matrices(stage + weight_at(row, 2 * k + lane / 8 % 2), b);
            multiply(&acc[4 * j], a, b[0], b[1]);
            multiply(&acc[4 * j + 4], a, b[2], b[3]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
    fused_head(const __grid_constant__ Operands from, const __grid_constant__ Params p, const Shape shape) {
    extern __shared__ __align__(128) char memory[];
    typedef Racers<TILE_BLOCKS, HIDDEN_ROWS> Held;
    Held &racers = *(Held *)(memory + STAGES * STAGE_BYTES);
    const u32 stages = (u32)__cvta_generic_to_shared(memory);
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp % ROW_GROUPS, column = warp / ROW_GROUPS;
    const u32 first = blockIdx.y * HIDDEN_ROWS;
    const Share<TILE_BLOCKS> share(shape, blockIdx.x);
    set_up(p, racers, first, 0);
    __syncthreads();
    Drawer<TILE_BLOCKS, HIDDEN_ROWS> drawer(p, racers, column, first + group * 16, group * 16, lane);
#pragma unroll 1
    for (u32 tile = 0; tile < share.tiles(); tile++) {
        const u32 block = share.start(tile), count = share.start(tile + 1) - block;
        float acc[32];
#pragma unroll
        for (int i = 0; i < 32; i++) acc[i] = 0.0f;
#pragma unroll 1
        for (u32 kb = 0; kb < shape.depth + STAGES - 1; kb++) {
            if (kb < shape.depth) fill(from, p.rows, stages + kb % STAGES * STAGE_BYTES, block * BLOCK, first, kb * 64);
            asm volatile("cp.async.commit_group;" ::: "memory");
            if (kb + 1 < STAGES) continue;
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
            __syncthreads();
            add(acc, stages + (kb + 1) % STAGES * STAGE_BYTES, column, group, lane);
            __syncthreads();
        }
        drawer.look();
        if (column < count && first + group * 16 < p.rows) drawer.draw(acc, block + column, 1);
    }
    drawer.leave(blockIdx.x * TILE_BLOCKS + column);
}
