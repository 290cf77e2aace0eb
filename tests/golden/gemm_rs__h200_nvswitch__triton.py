# ---- kernels of gemm_rs ----------------------------------------------------------------------------


@triton.jit
def count_y(tile, number, counts, rank):
    """Count tile `tile` of y, which this program has stored, if `number` is 1; count nothing if it is 0."""
    m_place, m_tile, n_tile = rank_major(tile, M_TILES, N_TILES, GROUP_M)
    m_segment = (rank + 1 + m_place) % NUM_RANKS
    m = m_tile * TILE_M
    count_up(counts + m_segment * Y_PARTS_CHUNKS + m // Y_PARTS_CHUNK_ROWS, number)


@triton.jit
def out_slice(y_value, m, n, rank, y_parts_ptr, out_ptr):
    """Epilogue of an own tile, one slice of columns: add the peers' parts of out to the own summand."""
    m_offsets = m + tl.arange(0, TILE_M)
    n_offsets = n + tl.arange(0, SUM_SLICE_N)
    # src[03_gemm_rs.py:16] out
    out = y_value
    for step in tl.static_range(1, NUM_RANKS):
        part_segment = (rank + step) % NUM_RANKS
        y_parts_part = y_parts_ptr + part_segment * Y_PARTS_PART
        y_parts_tile = tl.load(
            y_parts_part + m_offsets[:, None] * Y_PARTS_COLS + n_offsets[None, :],
        ).to(tl.float32)
        out += y_parts_tile
    tl.store(out_ptr + m_offsets[:, None] * OUT_COLS + n_offsets[None, :], out.to(tl.bfloat16))


@triton.jit
def y_tiles(x_desc, w_desc, y_staged_ptr, y_parts_ptr, out_ptr, counts, signals, rank, call, program):
    """Compute the tiles of y."""
    # tiles of the segments of other ranks along m
    for tile in tl.range(program, OTHER_TILES, PROGRAMS, flatten=True):
        m_place, m_tile, n_tile = rank_major(tile, M_TILES, N_TILES, GROUP_M)
        m_segment = (rank + 1 + m_place) % NUM_RANKS
        n = n_tile * TILE_N
        m = m_tile * TILE_M
        m_offsets = m + tl.arange(0, TILE_M)
        n_offsets = n + tl.arange(0, TILE_N)
        # src[03_gemm_rs.py:15] y
        y_value = tl.zeros((TILE_M, TILE_N), tl.float32)
        for k in range(0, K_SIZE, TILE_K):
            y_value = tl.dot(x_desc.load([m_segment * M_SIZE + m, k]), w_desc.load([k, n]), y_value)
        count_y(tl.maximum(tile - PROGRAMS, 0), (tile >= PROGRAMS).to(tl.int32), counts, rank)
        y_staged_part = y_staged_ptr + m_segment * Y_STAGED_PART
        tl.store(y_staged_part + m_offsets[:, None] * Y_STAGED_COLS + n_offsets[None, :], y_value.to(tl.bfloat16))
    count_y(program + (OTHER_TILES - 1 - program) // PROGRAMS * PROGRAMS, 1, counts, rank)
    # tiles of the own segment along m
    for tile in tl.range(OTHER_TILES + (program + FIRST_OWN) % PROGRAMS, NUM_TILES, PROGRAMS, flatten=True):
        m_place, m_tile, n_tile = rank_major(tile, M_TILES, N_TILES, GROUP_M)
        m_segment = (rank + 1 + m_place) % NUM_RANKS
        n = n_tile * TILE_N
        m = m_tile * TILE_M
        # src[03_gemm_rs.py:15] y
        y_value = tl.zeros((TILE_M, TILE_N), tl.float32)
        for k in range(0, K_SIZE, TILE_K):
            y_value = tl.dot(x_desc.load([m_segment * M_SIZE + m, k]), w_desc.load([k, n]), y_value)
        wait_epochs(
            signals + Y_PARTS_ARRIVED + m // Y_PARTS_CHUNK_ROWS,
            call,
            rank,
            STRIDE=Y_PARTS_CHUNKS,
            NUM_RANKS=NUM_RANKS,
        )
        y_value_0_64, y_value_64_128 = halves(y_value)
        out_slice(y_value_0_64, m, n, rank, y_parts_ptr, out_ptr)
        out_slice(y_value_64_128, m, n + SUM_SLICE_N, rank, y_parts_ptr, out_ptr)


@triton.jit(do_not_specialize=["rank"])
def y_kernel(x_desc, w_desc, y_staged_ptr, y_parts_ptr, out_ptr, epoch, counts, signals, signal_peers, rank):
    program = tl.program_id(0)
    call = tl.load(epoch)
    y_tiles(x_desc, w_desc, y_staged_ptr, y_parts_ptr, out_ptr, counts, signals, rank, call, program)
    close_call_after_copies(
        epoch,
        counts,
        signals,
        signal_peers,
        rank,
        PROGRAMS=PROGRAMS,
        ENDED=ENDED,
        DONE=DONE,
        NUM_COUNTS=NUM_COUNTS,
        BLOCK=COUNTS_BLOCK,
        NUM_RANKS=NUM_RANKS,
        MEETS=False,
        COPIED=COPIED,
        STREAMS=STREAMS,
    )
