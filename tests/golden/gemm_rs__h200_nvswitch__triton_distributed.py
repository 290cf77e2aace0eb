# ---- kernels of gemm_rs ----------------------------------------------------------------------------


@triton_dist.jit
def count_y(tile, number, counts, rank):
    """Count a tile of y that this program has stored, or none: `number` is 1 or 0."""
    TILE_M: tl.constexpr = 128  # m: 4 segments of 2048
    m_place, m_tile, n_tile = rank_major(tile, 16, 32, 8)
    m_segment = (rank + 1 + m_place) % 4
    m = m_tile * TILE_M
    count_up(counts + m_segment * 2 + m // 1024, number)


@triton_dist.jit
def out_slice(y_value, m, n, rank, y_parts_ptr, out_ptr):
    """out in 64 columns of an own tile, of which `y_value` is the own summand."""
    m_offsets = m + tl.arange(0, 128)
    n_offsets = n + tl.arange(0, 64)
    # src[03_gemm_rs.py:16] out
    out = y_value
    for step in tl.static_range(1, 4):
        part_segment = (rank + step) % 4
        y_parts_part = y_parts_ptr + part_segment * 8388608
        y_parts_tile = tl.load(y_parts_part + m_offsets[:, None] * 4096 + n_offsets[None, :]).to(tl.float32)
        out += y_parts_tile
    tl.store(out_ptr + m_offsets[:, None] * 4096 + n_offsets[None, :], out.to(tl.bfloat16))


@triton_dist.jit
def y_tiles(x_desc, w_desc, y_staged_ptr, y_parts_ptr, out_ptr, counts, signals, rank, call, program):
    """Compute the tiles of y."""
    TILE_M: tl.constexpr = 128  # m: 4 segments of 2048
    TILE_N: tl.constexpr = 128  # n: 4096
    TILE_K: tl.constexpr = 64  # k: 3584
    # the m segments of the other ranks
    for tile in tl.range(program, 1536, 132, flatten=True):
        m_place, m_tile, n_tile = rank_major(tile, 16, 32, 8)
        m_segment = (rank + 1 + m_place) % 4
        n = n_tile * TILE_N
        m = m_tile * TILE_M
        m_offsets = m + tl.arange(0, TILE_M)
        n_offsets = n + tl.arange(0, TILE_N)
        # src[03_gemm_rs.py:15] y
        y_value = tl.zeros((TILE_M, TILE_N), tl.float32)
        for k in range(0, 3584, TILE_K):
            y_value = tl.dot(x_desc.load([m_segment * 2048 + m, k]), w_desc.load([k, n]), y_value)
        count_y(tl.maximum(tile - 132, 0), (tile >= 132).to(tl.int32), counts, rank)
        y_staged_part = y_staged_ptr + m_segment * 8388608
        tl.store(y_staged_part + m_offsets[:, None] * 4096 + n_offsets[None, :], y_value.to(tl.bfloat16))
    count_y(program + (1535 - program) // 132 * 132, 1, counts, rank)
    # the own m segment
    for tile in tl.range(1536 + (program + 48) % 132, 2048, 132, flatten=True):
        m_place, m_tile, n_tile = rank_major(tile, 16, 32, 8)
        m_segment = (rank + 1 + m_place) % 4
        n = n_tile * TILE_N
        m = m_tile * TILE_M
        # src[03_gemm_rs.py:15] y
        y_value = tl.zeros((TILE_M, TILE_N), tl.float32)
        for k in range(0, 3584, TILE_K):
            y_value = tl.dot(x_desc.load([m_segment * 2048 + m, k]), w_desc.load([k, n]), y_value)
        y_parts_here = y_parts_ptr
        for step in tl.static_range(1, 4):
            part_segment = (rank + step) % 4
            y_parts_here = dl.consume_token(y_parts_here, wait_epoch(signals + 1 + part_segment * 2 + m // 1024, call))
        y_value_0_64, y_value_64_128 = halves(y_value)
        out_slice(y_value_0_64, m, n, rank, y_parts_here, out_ptr)
        out_slice(y_value_64_128, m, n + 64, rank, y_parts_here, out_ptr)


@triton_dist.jit(do_not_specialize=["rank"])
def y_kernel(x_desc, w_desc, y_staged_ptr, y_parts_ptr, out_ptr, epoch, counts, signals, rank):
    program = tl.program_id(0)
    call = tl.load(epoch)
    y_tiles(x_desc, w_desc, y_staged_ptr, y_parts_ptr, out_ptr, counts, signals, rank, call, program)
    close_call_after_copies(
        epoch,
        counts,
        signals,
        signals,
        rank,
        PROGRAMS=132,
        ENDED=8,
        DONE=0,
        NUM_COUNTS=10,
        BLOCK=16,
        NUM_RANKS=4,
        MEETS=False,
        COPIED=9,
        STREAMS=1,
    )
