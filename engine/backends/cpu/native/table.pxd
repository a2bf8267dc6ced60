# The kernel table: tile-level work on raw pointers, without Python, allocation or threads.
#
# Letters: M rows (tokens), N columns (output features), K depth; T queries, S keys, d head width, D model width.
# A panel is NR consecutive columns of a weight matrix, stored [K][NR]; the last panel has the columns that remain.
# N is padded to a multiple of VL with zero weights and biases, so that kernels have no column tails.
#
# Cython compiles this file, and layout.py reads it for Python: nothing else describes the table.

cdef enum Activation:
    IDENTITY
    GELU        # x * Phi(x), exact (erf) form
    GELU_TANH   # tanh approximation of GELU
    RELU
    SILU        # x / (1 + e^-x)

cdef enum Storage:
    # How weights are stored; engine/model/precision.py has a row for each
    FLOAT32
    BFLOAT16    # the upper 16 bits of a float
    INT8        # an integer, to be multiplied by its row's scale
    Q8_0        # blocks of 32 numbers with a scale in each, see engine/weights/blocks.py; not for the cells of a cache
    INT4        # blocks of integers, for linear maps alone, see engine/weights/int4.py
    Q4_0        # blocks with a scale in each, for linear maps alone
    Q4_1

cdef struct Linear:
    # y[M,N] = activation(a[M,K] w[N,K]^T + bias[N]); the Product that packed the panels determines their layout
    const void* panels          # float32 [N/NR][K][NR]; bfloat16 [N/NR][K/2][NR][2], two successive k side by side;
                                # int8 [N/NR][K/DOT][NR/VL][DOT/4][VL][4], K padded to DOT; tiles.pxi has its own
                                # layout, and so have integers.pxi, blocks.pxi and nibbles.pxi
    const float* bias           # [N]
    const float* scale          # [N], quantization scales of int8 weights: w[j,k] = scale[j] * integer; NULL otherwise
    const float* sums           # [N], the sum of the integers of each column of int8 weights; NULL otherwise
    const float* offset_scale   # [N], what the offsets of the groups of INT4 are multiplied by; NULL otherwise
    Py_ssize_t N                # padded to VL
    Py_ssize_t K
    int activation
    int storage                 # of the weights that the panels hold, an enum Storage

cdef struct RowRange:
    # The code c of a quantized row stands for low + step * c
    float low
    float step

cdef struct Output:
    # Element (row, column) lives at data + (column / width) * block + row * stride + column % width.
    # A plain matrix has width N; queries, keys and values are written head by head: width d, block M*d.
    float* data
    Py_ssize_t stride
    Py_ssize_t width            # multiple of VL
    Py_ssize_t block
    # If this is not NULL, the results become rows of operands of another product, as `convert` writes them, and `data`
    # is not used. Only products of up to `operands_depth` can do this.
    void* operands
    Py_ssize_t operands_stride  # numbers from one row to the next
    # A part of the depth, in lines of 64 bytes of operands; all of it if last_line is 0. The sums of a block wait in
    # `sums`, 4 KB for each 32 rows and 32 columns, or in `data` where they begin anew (`Product.fresh_depth`), until
    # the last part makes results of them. Only a Product with `hidden_columns` can do this.
    Py_ssize_t first_line
    Py_ssize_t last_line
    float* sums
    bint bfloat16               # the numbers at data are bfloat16, as `attend_rows` reads them, with the same geometry
    bint approximate            # the results are only read by `convert`, so the activation may be approximate

# A user's function that changes a block of scores in place. The block has `keys` rows of n scores. Element (j, i), at
# scores[j*stride + i], is the score of query `query + i` with key `key + j`. `captured` points to the function's data.
ctypedef void (*ScoreMod)(float* scores, Py_ssize_t stride, Py_ssize_t b, Py_ssize_t h, Py_ssize_t query, Py_ssize_t n,
                          Py_ssize_t key, Py_ssize_t keys, const void* captured) noexcept nogil

cdef enum:
    KEYS = 256                  # of a block of keys that attention works on together
    QUERIES = 256               # of a group of queries that use the block
    DISTANCES = 511             # the most distances between these queries and keys

cdef struct Relative:
    # Terms of the scores that depend on the distance t - s of a query and a key, whose row of a table is r(t - s):
    # scores[t,s] = q[t] k[s]^T * scale + q[t] K[r]^T + k[s] Q[r]^T, where K and Q include the scale.
    const float* keys           # K^T in panels [rows/NR][d][NR], the last row first, as t - s falls with s; NULL: none
    const float* queries        # Q^T in panels, the first row first; NULL: no term
    const int* row              # the row of distance x at row[limit + x], -limit <= x <= limit; it never falls
    Py_ssize_t limit            # a larger distance has the row of this one
    Py_ssize_t near             # distances up to this one, on both sides, have one row after the other
    Py_ssize_t rows
    Py_ssize_t columns          # the most columns of whole panels with the rows of DISTANCES successive distances

cdef struct Attention:
    # out[T,e] = softmax(scores) v[S,e], one head of one sequence;
    # scores[T,S] = score_mod(softcap(q[T,d] k[S,d]^T * scale + relative) + bias), unless band or mask hides the key
    const float* q
    const float* k
    const float* v
    float* out
    Py_ssize_t q_stride         # floats from one row to the next; the same for k, v and out
    Py_ssize_t k_stride
    Py_ssize_t v_stride
    Py_ssize_t out_stride
    Py_ssize_t T
    Py_ssize_t S
    Py_ssize_t d
    Py_ssize_t e
    Py_ssize_t low              # the band: query t sees keys t + low <= s < t + high, t counted from the row at q
    Py_ssize_t high
    const float* bias           # element (t, s) at bias[t*bias_t + s*bias_s]; NULL: none
    Py_ssize_t bias_t
    Py_ssize_t bias_s
    const unsigned char* mask   # element (t, s) at mask[t*mask_t + s*mask_s], 0 to hide the key; NULL: none
    Py_ssize_t mask_t
    Py_ssize_t mask_s
    ScoreMod score_mod          # NULL: none
    const void* captured
    Py_ssize_t b                # arguments of score_mod: the sequence, the head, and the index of the query at q
    Py_ssize_t h
    Py_ssize_t query
    const Relative* relative    # NULL: none; it needs `query`, too
    float scale
    float softcap               # c tanh(s / c); 0: none

cdef enum:
    CELL = 16                   # tokens of a cell of a cache
    RANGE = 256                 # keys of a range, whose softmax has a maximum of its own; a multiple of CELL

cdef struct CachedAttention:
    # out = softmax(scores) v for T * heads queries that read one key head: T successive rows, or the rows of several
    # beams, times the query heads that share the key head. Options and letters are those of Attention.
    #
    # Keys and values of CELL successive tokens lie in a cell. Cell c holds the tokens from CELL * c on. Its keys begin
    # `keys` bytes after cells[c], its values `values` bytes, in one of these forms; E is e padded to VL:
    #
    #   FLOAT32     keys [d][CELL]                          values [CELL][E]
    #   BFLOAT16    keys [(d + 1) / 2][CELL][2]             values [CELL][E]
    #   INT8        keys [d][CELL], float scales [CELL]     values [CELL][E], float scales [CELL]
    #
    # Numbers in the place of tokens from S on may be anything.
    const float* q              # query (t, h) at q + t*q_stride + h*q_head, d floats
    float* out                  # query (t, h) at out + t*out_stride + h*out_head, e floats
    Py_ssize_t q_stride
    Py_ssize_t q_head
    Py_ssize_t out_stride
    Py_ssize_t out_head
    Py_ssize_t T
    Py_ssize_t heads
    Py_ssize_t S
    Py_ssize_t d
    Py_ssize_t e
    Py_ssize_t low              # the band: row t sees keys t + low <= s < t + high. Neither a range that no row
    Py_ssize_t high             # sees nor the addresses of its cells are read
    const size_t* cells         # [S / CELL, rounded up]
    Py_ssize_t keys
    Py_ssize_t values
    int storage                 # the form of the cells, an enum Storage
    # NULL, or where the sums of one range alone go, that of the keys from RANGE * range on; out is not written then.
    # Query (t, h) has E + 2 floats, from (t*heads + h)*(E + 2) on: O [E], the largest score, the sum of weights.
    float* sums
    Py_ssize_t range
    const float* bias           # element (h, t, s) at bias[h*bias_head + t*bias_t + s*bias_s]; NULL: none
    Py_ssize_t bias_head
    Py_ssize_t bias_t
    Py_ssize_t bias_s
    float scale
    float softcap

cdef enum:
    PART = 128                  # columns of the vocabulary whose logits a thread chooses from at a time; a multiple of
                                # every NR and of 32

cdef struct RowChoice:
    # What one thread chooses from the logits of one row, part by part in the order of ids, and how it changes them
    # before. Sets of ids are bits: id i is bit i % 32 of number i / 32. engine/backends/wants.py has the formulas.
    bint plain                  # whether nothing but the best one is wanted, and nothing changed
    # Candidates for the k best, in the order of ids, and as many as the bar lets through; 0: none are wanted. NaN is no
    # candidate. While there are fewer than k, all other logits are, also -inf.
    int k
    int count
    float bar                   # a logit that is not above it is not among the k best
    float* values               # [2k + PART], or [1] if k is 1: changed logits
    float* own                  # the model's own; `values` if nothing is changed
    int* ids
    const unsigned int* seen    # the tokens that have a penalty; NULL: none
    float penalty
    const int* added            # ascending ids, to whose logits the addends are added
    const float* addends
    Py_ssize_t additions
    Py_ssize_t next_added       # the first one that is not in front of the next part
    const unsigned int* allowed # the logits of all other tokens become -inf; NULL: all are allowed
    const int* given            # ids whose own logits are wanted
    float* given_logits
    Py_ssize_t givens
    # A draw from all words. The powers of a logit x are 2^((x - the largest) scale).
    float scale                 # log2 e / temperature; 0: there is no draw
    float* maximum              # [parts], the largest changed logit of each part, at least the lowest finite number
    float* sum                  # [parts], the sum of the powers
    # Words of a draw that are likely enough to be kept, in the order of ids; most is 0: none are collected.
    # A word that top_p keeps is above the largest logit + depth_of_top_p + temperature ln(sum of all powers).
    float temperature
    float depth_of_top_p        # -inf without top_p
    float depth_of_min_p        # how far a word may be below the largest logit; -inf without min_p
    int most                    # the most of them, beside those of a part; a multiple of 16
    int many                    # when there are more, the bar is raised
    int collected               # how many there are; -1: they were too many
    float collected_bar         # only logits above it are collected
    float* shared_bar           # the highest bar of all threads that they know of; read and written without a lock
    float highest               # the largest changed logit so far
    Py_ssize_t first_part       # the thread's first part
    float* collected_values
    float* collected_own        # `collected_values` if nothing is changed
    int* collected_ids

cdef struct Rotary:
    # Pairs of the first `width` columns of a row are turned: (x, y) -> (x cos - y sin, x sin + y cos). A pair is
    # columns i and i + width/2, or 2i and 2i + 1 where interleaved. Columns from `width` to d are copied.
    const float* cos            # row m at cos + m*stride, width/2 entries
    const float* sin
    Py_ssize_t stride
    Py_ssize_t width            # even
    Py_ssize_t d
    bint interleaved

cdef struct EmbeddingTable:
    const void* rows            # [rows][D] as `storage` says; Q8_0: [rows][D/32, rounded up] blocks
    const float* scale          # [rows], for INT8
    int storage
    float factor                # of every number of the table

cdef struct Embedding:
    # row i: word[ids[i]] + position[position_ids[i]] + type[type_ids[i]]; a NULL table adds nothing
    const EmbeddingTable* word  # [V,D]; if ids is NULL, [M,D], of which row i is used as it is
    const EmbeddingTable* position  # [P,D]
    const EmbeddingTable* type  # [Y,D]
    const int* ids
    const int* position_ids
    const int* type_ids

cdef struct Norm:
    # (x - mean) / sqrt(variance + eps) * weight + bias over the D entries of a row
    const float* weight         # [D]
    const float* bias           # [D]
    Py_ssize_t D
    float eps

cdef struct Product:
    # The functions and sizes of one kind of product. A function that these kernels lack is NULL.
    const char* name            # the precision, or the kind of product where a precision has several kinds
    const char* instruction     # the instruction that multiplies, for people
    int depth_step              # K of a panel is padded to a multiple of it
    int operand_bytes           # bytes of one number in a row of operands, which `multiply` reads; 4 or 6 for the
                                # parts of a float, see parts.pxi
    int beside                  # bytes behind a row of operands for each depth_step of its numbers
    int strip                   # rows of operands that lie together, line by line: [rows/strip][K/line][strip][line],
                                # a line being 64 bytes; 1 for rows one after another
    int block                   # rows that go through a segment together, a multiple of strip; see program.pxi
    int hidden_columns          # columns of a buffer between two products that go from one to the other at a time, so
                                # that they stay in the L2 cache; 0: all of them
    int fresh_depth             # the depth after which sums begin anew, to be added to those in `data`: where parts of
                                # the depth may end; 0: they go on, and wait in Output.sums
    int shared                  # tokens of a group up to which threads share the columns of products (schedule.pxi)
    int bundle                  # about how many tokens one thread takes at a time; see schedule.py
    int operands_depth          # the largest K with which `multiply` can write operands of another product; 0: none
    bint approximates           # whether `multiply` uses approximate activations where Output.approximate permits it
    int code_zero               # int8: the byte that stands for the code 0; codes count up from it, modulo 256
    bint bounded                # int8: products are added in 16 bits, so weights must be within the bound of
                                # engine.weights.int8_bound
    # Make this thread ready for `multiply` and `attention`, and release what that takes. NULL where nothing is needed.
    # No other code may use the same registers in between.
    void (*begin)() noexcept nogil
    void (*end)() noexcept nogil
    # Pack w[n,K], in the precision's own type, into columns [column, column + n) of the panels, and store the sums of
    # these columns. The caller zeroes panels and sums before. column and n are multiples of VL, except for the last n.
    void (*pack)(const Linear* y, void* panels, float* sums, Py_ssize_t column, const void* w,
                 Py_ssize_t n) noexcept nogil
    # Convert M rows of x to rows [first, first + M) of operands, padded to VL, or to depth_step if that is more. It is
    # NULL if `multiply` reads float32 rows. ranges [M] are those of int8 codes.
    void (*convert)(const float* x, Py_ssize_t x_stride, Py_ssize_t M, Py_ssize_t K, void* operands,
                    Py_ssize_t operands_stride, Py_ssize_t first, RowRange* ranges) noexcept nogil
    # Compute panels [panel, last) of y for M rows of operands. ranges [M] belong to rows of int8 codes. A residual that
    # is not NULL has the geometry of an out without blocks.
    void (*multiply)(const Linear* y, const void* a, Py_ssize_t a_stride, const RowRange* ranges, Py_ssize_t M,
                     const float* residual, const Output* out, Py_ssize_t panel, Py_ssize_t last) noexcept nogil
    # Compute attention for models in this precision; attention_scratch returns the number of floats of its scratch.
    # columns: those of Relative, or 0.
    Py_ssize_t (*attention_scratch)(Py_ssize_t d, Py_ssize_t e, Py_ssize_t columns) noexcept nogil
    void (*attention)(const Attention* call, float* scratch) noexcept nogil
    # The same for attention without options, where q, k and v are rows of bfloat16 numbers, which `multiply` has
    # written (Output.bfloat16); d and e are multiples of 32, and scale > 0. NULL if these kernels lack it.
    Py_ssize_t (*attend_rows_scratch)(Py_ssize_t d, Py_ssize_t e) noexcept nogil
    void (*attend_rows)(const Attention* call, float* scratch) noexcept nogil
    # Roofline: run n rounds of independent products, and return their number of operations. NULL in kernels of Numba.
    double (*rounds)(Py_ssize_t n, float* sink) noexcept nogil

cdef enum ProductKind:
    # The products of a kernel table in their order, which stands here alone: everything else takes them by name. A kind
    # of product is no enum Storage, because several products multiply weights that are stored in one way.
    FLOAT32_PRODUCT
    BFLOAT16_PRODUCT
    INT8_PRODUCT                # rows in codes from 0 to 255, weights in INT8
    INT16_PRODUCT               # rows in 16-bit integers, weights in INT8
    CODES_PRODUCT               # as INT16_VECTORS_PRODUCT, and rows in codes with a step for each 32, weights of 4 bits
    FMA_PRODUCT                 # float32 by FMAs, where FLOAT32_PRODUCT may be on tiles
    INT16_VECTORS_PRODUCT       # as INT16_PRODUCT, by vectors where that may be on tiles; weights in INT8 or Q8_0
    BFLOAT16X3_PRODUCT          # float32 by three products of two parts, on tiles alone; with FLOAT32_PRODUCT's panels
    BFLOAT16_WEIGHTS_PRODUCT    # weights in bfloat16 that are widened, rows in float32; BFLOAT16_PRODUCT may be that
    PRODUCTS                    # how many there are

cdef struct KernelTable:
    const char* isa
    int VL
    int NR
    int MR
    bint fused                  # whether a multiplication and an addition are fused, so that they round once
    Product products[PRODUCTS]
    void (*layer_norm)(const Norm* norm, const float* x, Py_ssize_t x_stride, float* out, Py_ssize_t out_stride,
                       Py_ssize_t M) noexcept nogil
    # out = x / sqrt(mean(x^2) + eps) * weight; the norm's bias is not read.
    void (*rms_norm)(const Norm* norm, const float* x, Py_ssize_t x_stride, float* out, Py_ssize_t out_stride,
                     Py_ssize_t M) noexcept nogil
    # Compute the softmax of M rows of N numbers. -inf becomes 0, also in a row of nothing but -inf. out may be x.
    void (*softmax)(const float* x, Py_ssize_t x_stride, float* out, Py_ssize_t out_stride, Py_ssize_t M,
                    Py_ssize_t N) noexcept nogil
    # Rotate M rows; out may be x.
    void (*rotate)(const Rotary* rotary, const float* x, Py_ssize_t x_stride, float* out, Py_ssize_t out_stride,
                   Py_ssize_t M) noexcept nogil
    # Compute the attention weights of one head of one sequence, weights[T,S] = softmax(scores) in rows `stride` floats
    # apart, and their entropy[T] = -sum of w ln w; either may be NULL. v and out of the call are not used. The scratch
    # is that of float32's attention.
    void (*weigh)(const Attention* call, float* weights, Py_ssize_t stride, float* entropy,
                  float* scratch) noexcept nogil
    # Compute attention over the cells of a cache.
    Py_ssize_t (*cached_attention_scratch)(Py_ssize_t d, Py_ssize_t e) noexcept nogil
    void (*cached_attention)(const CachedAttention* call, float* scratch) noexcept nogil
    # Compute a query's out [e] from the sums of `ranges` successive ranges, `stride` floats apart; changes the first.
    void (*fold_ranges)(float* sums, Py_ssize_t stride, Py_ssize_t ranges, Py_ssize_t e, float* out) noexcept nogil
    # Choose from M rows of n logits, whose first column has this id, and which may be changed. Store the maximum of
    # each row of the model's own logits, and the sum of e^(x - maximum), `stride` floats apart.
    void (*choose)(RowChoice* rows, float* logits, Py_ssize_t logits_stride, Py_ssize_t M, Py_ssize_t id, Py_ssize_t n,
                   float* maximum, float* sum, Py_ssize_t stride) noexcept nogil
    # Compute ln(sum of e^x) of M rows from the maxima and the sums of `parts` parts of each row: out[M].
    void (*log_sum_exp)(const float* maximum, const float* sum, Py_ssize_t stride, Py_ssize_t M, Py_ssize_t parts,
                        float* out) noexcept nogil
    # out = 2^((x - maximum) scale) of n numbers, none of which is larger than the maximum.
    void (*powers)(const float* x, Py_ssize_t n, float maximum, float scale, float* out) noexcept nogil
    # Copy the words above a bar, in their order, and return how many; own and to_own may be values and to_values. They
    # may be copied to where they are. Up to 15 numbers behind the last one may change.
    Py_ssize_t (*keep_above)(const float* values, const float* own, const int* ids, Py_ssize_t n, float bar,
                             float* to_values, float* to_own, int* to_ids) noexcept nogil
    # Return about the sum of the powers of the words above a bar: in float32, with an error of at most
    # (n/16 + 16) 2^-24 of it.
    float (*sum_above)(const float* values, const float* powers, Py_ssize_t n, float bar) noexcept nogil
    # maximum[N] = the larger of itself and the largest number of each column of a[M,K] w[N,K]^T + bias, for panels
    # [panel, last) of FMA_PRODUCT; the activation is not applied. NaN becomes the maximum. ahead: the rows of the
    # next call, to be prefetched, or NULL; nothing is read there.
    void (*column_maxima)(const Linear* y, const float* a, Py_ssize_t a_stride, Py_ssize_t M, float* maximum,
                          Py_ssize_t panel, Py_ssize_t last, const float* ahead) noexcept nogil
    void (*embed)(const Embedding* call, Py_ssize_t first, Py_ssize_t M, Py_ssize_t D, float* out,
                  Py_ssize_t out_stride) noexcept nogil
    # x[M,N] = activation(x[M,N]), in place.
    void (*activate)(int activation, float* x, Py_ssize_t stride, Py_ssize_t M, Py_ssize_t N) noexcept nogil
    # out[M,N] = activation(x[M,N]) * y[M,N], the gate of a gated feed-forward network; out may be x.
    void (*gate)(int activation, const float* x, Py_ssize_t x_stride, const float* y, Py_ssize_t y_stride, float* out,
                 Py_ssize_t out_stride, Py_ssize_t M, Py_ssize_t N) noexcept nogil
    # Roofline: return the sum of n floats, where n is a multiple of 4*VL. NULL in kernels of Numba.
    float (*read)(const float* x, Py_ssize_t n) noexcept nogil
