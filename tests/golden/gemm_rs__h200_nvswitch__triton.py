# ---- kernels of gemm_rs ----------------------------------------------------------------------------


@triton.jit
def notify_of_y_tiles(tile, tile_exists, rank, counts):
    """What tile `tile` of y_tiles tells, if there is one: `tile_exists` is 1, or 0."""
    m_place = tile // SEGMENT_TILES
    m_stage = tile % SEGMENT_TILES // (GROUP_M * N_TILES)
    m_rest = tile % SEGMENT_TILES % (GROUP_M * N_TILES)
    m_segment = (rank + 1 + m_place) % NUM_RANKS
    m = (m_stage * GROUP_M + m_rest % GROUP_M) * TILE_M
    count_up(counts + Y_PARTS_COUNT + m_segment * Y_PARTS_CHUNKS + m // Y_PARTS_CHUNK_ROWS, tile_exists)


@triton.jit
def out_slice(y, m, n, rank, y_parts, out):
    """One slice of columns of a tile of y, from column n on."""
    # src[03_gemm_rs.py:16] out
    out_tile = y
    for step in tl.static_range(NUM_RANKS - 1):
        part_segment = (rank + 1 + step) % NUM_RANKS
        y_parts_tile = tl.load(
            y_parts
            + part_segment * Y_PARTS_PART
            + rows_from(m, TILE_M) * Y_PARTS_COLS
            + cols_from(n, Y_PARTS_TILE_COLS),
        )
        out_tile = out_tile + y_parts_tile.to(tl.float32)
    tl.store(out + rows_from(m, TILE_M) * OUT_COLS + cols_from(n, OUT_TILE_COLS), out_tile.to(tl.bfloat16))


@triton.jit(do_not_specialize=["rank"])
def y_kernel(x_desc, w_desc, out, y_staged, y_parts, epoch, counts, signals, signal_peers, rank):
    """Compute the tiles of y, on 132 programs."""
    program = tl.program_id(0)
    call = tl.load(epoch)
    # groups of 8 tiles along m through all of n, segments rank by rank
    for tile in tl.range(program, Y_TILES_TILES, PROGRAMS, flatten=True):
        m_place = tile // SEGMENT_TILES
        m_stage = tile % SEGMENT_TILES // (GROUP_M * N_TILES)
        m_rest = tile % SEGMENT_TILES % (GROUP_M * N_TILES)
        m_segment = (rank + 1 + m_place) % NUM_RANKS
        m = (m_stage * GROUP_M + m_rest % GROUP_M) * TILE_M
        n = m_rest // GROUP_M * TILE_N
        # src[03_gemm_rs.py:15] y
        y = tl.zeros((TILE_M, TILE_N), tl.float32)
        for k_tile in range(K_TILES):
            k = k_tile * TILE_K
            left = x_desc.load([m_segment * M_SIZE + m, k])
            right = w_desc.load([k, n])
            y = tl.dot(left, right, y)
        notify_of_y_tiles(tl.maximum(tile - PROGRAMS, 0), (tile - PROGRAMS >= 0).to(tl.int32), rank, counts)
        tl.store(
            y_staged + m_segment * Y_STAGED_PART + rows_from(m, TILE_M) * Y_STAGED_COLS + cols_from(n, TILE_N),
            y.to(tl.bfloat16),
        )
    notify_of_y_tiles(
        tl.maximum(program + (Y_TILES_TILES - 1 - program) // PROGRAMS * PROGRAMS, 0),
        (program < Y_TILES_TILES).to(tl.int32),
        rank,
        counts,
    )
    # tiles of the own segment
    for tile in tl.range(Y_TILES_TILES + (program + OUT_AHEAD) % PROGRAMS, NUM_TILES, PROGRAMS, flatten=True):
        m_stage = tile % SEGMENT_TILES // (GROUP_M * N_TILES)
        m_rest = tile % SEGMENT_TILES % (GROUP_M * N_TILES)
        m = (m_stage * GROUP_M + m_rest % GROUP_M) * TILE_M
        n = m_rest // GROUP_M * TILE_N
        # src[03_gemm_rs.py:15] y
        y = tl.zeros((TILE_M, TILE_N), tl.float32)
        for k_tile in range(K_TILES):
            k = k_tile * TILE_K
            left = x_desc.load([rank * M_SIZE + m, k])
            right = w_desc.load([k, n])
            y = tl.dot(left, right, y)
        wait_epochs(
            signals + Y_PARTS_ARRIVED + m // Y_PARTS_CHUNK_ROWS,
            call,
            rank,
            STRIDE=Y_PARTS_CHUNKS,
            NUM_RANKS=NUM_RANKS,
        )
        y_0_64, y_64_128 = halves(y)
        out_slice(y_0_64, m, n, rank, y_parts, out)
        out_slice(y_64_128, m, n + TILE_N // 2, rank, y_parts, out)
    if count_arrival(counts + Y_KERNEL_ENDED) == PROGRAMS - 1:
        # this rank has finished the call
        wait_until(counts + COPIED, 1)
        count_at_peers(signal_peers, DONE, rank, NUM_RANKS=NUM_RANKS)
        # the next call
        clear_counts(counts, NUM_COUNTS=NUM_COUNTS, BLOCK=COUNTS_BLOCK)
        take_off(signals + DONE, NUM_RANKS - 1, WORDS=1, BLOCK=1)
        tl.store(epoch, call + 1)
