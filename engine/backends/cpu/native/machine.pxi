# What a program is in native code: instructions over buffers, the groups of sequences that they run for, and the memory
# of a pass. program.pxi runs the instructions.

cdef enum:
    PIECES = 4                  # pieces of an ATTEND for each thread of a team
    CALL_QUERIES = 1024         # queries of one call of attention; a multiple of attention's query group
    LINE_OF_HALVES = 32         # bfloat16 numbers of a line of operands
    NORM_ROWS = 4               # rows that are normed before they are converted

cdef enum Kind:
    EMBED
    NORM
    CONVERT                     # converts rows of x to operands
    MULTIPLY
    HEADS
    ATTEND
    STORE
    PICK                        # copies rows of x that the caller picks to a buffer of picked rows
    SCALE                       # multiplies rows of x by a number
    LOGITS                      # multiplies picked rows; see logits.pxi

cdef struct Buffer:
    # Rows of numbers, one for each token of a group, or for each row of a thread's block. The picked rows of a pass are
    # a group of their own, all of whose buffers are kept. Any other operands are those of a block.
    bint in_pass                # whether its rows are kept for all tokens of the group
    Py_ssize_t offset           # floats of the buffers in front of it, for each token or each row of a block
    Py_ssize_t stride           # numbers from one row to the next
    Py_ssize_t heads            # 0 for plain rows; otherwise its heads lie one after another, each [tokens][stride]
    bint bfloat16               # whether the numbers are bfloat16, which only heads can be
    Py_ssize_t operands         # numbers from one row of operands to the next (operands.pxi); 0 for a buffer of floats.
                                # The RowRange of every row follows the rows

cdef struct ObservedHead:
    # A head whose attention weights, or their entropy, go to an array of the caller.
    int head
    int weights                 # the number of the array; -1 for none
    int entropy                 # the same

cdef struct Instruction:
    int kind
    bint needs_barrier          # by columns, whether threads meet before it
    int x                       # indexes of buffers; -1 for none
    int out
    int residual
    int operands                # NORM, CONVERT, MULTIPLY: the buffer of operands that it writes; -1 for none
    Embedding embedding         # EMBED: the tables; each forward pass supplies the ids
    Py_ssize_t width            # EMBED, STORE, NORM, CONVERT, PICK, SCALE: columns; LOGITS: those that are tokens
    Norm norm                   # NORM, of all heads together if x has heads; HEADS: of each; the weight NULL: none
    bint rms
    bint stored                 # NORM: out is the caller's array 0
    int array                   # STORE: the number of the caller's array
    Linear linear               # MULTIPLY, LOGITS
    # MULTIPLY: two GEMMs in a row can run in slices of the hidden columns, which are a buffer of operands between them.
    # This instruction handles the columns [first_hidden, last_hidden); a last_hidden of 0 means all of them. The
    # schedule that splits columns between threads runs the first slice as the whole GEMM and skips the others.
    Py_ssize_t first_hidden
    Py_ssize_t last_hidden
    bint approximate            # MULTIPLY: only CONVERT reads the result; see Output
    bint gated                  # each panel holds columns of the gate, then the same columns of the other part
    int activation              # of the gate
    Rotary rotary               # HEADS: the angles of position 0; cos is NULL for no rotation
    int source                  # ATTEND: a KeySource (state.pxi)
    Py_ssize_t layer            # FROM_CACHE, FROM_CROSS: the number of the layer's keys and values
    Py_ssize_t key_heads        # FROM_CACHE, FROM_CROSS: heads of the cells, which have the stride of q
    int storage                 # FROM_CACHE, FROM_CROSS: of the cells
    int k                       # ATTEND: q is x
    int v
    Py_ssize_t d
    float scale                 # ATTEND, SCALE
    float softcap               # ATTEND: of the scores; 0 for none
    Py_ssize_t low              # query t sees the keys t + low <= s < t + high of its sequence
    Py_ssize_t high
    const float* bias           # head h adds bias[h * bias_stride + t - s] to the score of query t and key s, if any
    Py_ssize_t bias_stride
    const ObservedHead* observed
    Py_ssize_t observed_count
    Py_ssize_t wide_scratch     # where widened queries and keys begin in the scratch
    Relative relative           # of the first head; `row` is NULL for none
    Py_ssize_t relative_head    # floats from one head to the next

cdef struct Sequence:
    Py_ssize_t source           # its first token in the batch
    Py_ssize_t weight_offset    # the place of its first attention weight in a flat array of all sequences' [T,T]
    Py_ssize_t T                # its tokens in this pass
    Py_ssize_t keys             # FROM_PASS: how many of its first tokens are read
    Py_ssize_t row              # its first row in its group
    Py_ssize_t past             # FROM_CACHE: tokens of earlier passes
    const size_t* cells         # FROM_CACHE: the addresses of its cells, [past + T over CELL, rounded up]
    size_t shared_cell          # FROM_CACHE: another sequence's cell with its last past % CELL tokens; 0: none
    const size_t* cross         # FROM_CROSS: the addresses of the cells of its source
    Py_ssize_t S                # FROM_CROSS: tokens of the source
    Py_ssize_t cross_run        # FROM_CROSS: bytes from the keys of a cell to its values
    Py_ssize_t picked           # how many of its last tokens are picked
    Py_ssize_t first_picked     # where the first of them lies among all picked rows
    bint by_ranges              # FROM_CACHE: its work items are ranges of keys, not blocks of rows
    Py_ssize_t sums             # where the sums of its ranges begin in Group.sums
    Py_ssize_t done             # where its counts of finished ranges begin in Group.done

cdef struct Operands:
    char* rows                  # operands.pxi says where each row lies
    Py_ssize_t stride           # numbers from one row to the next
    RowRange* ranges

cdef struct Group:
    Sequence* sequences
    Py_ssize_t count            # of them
    Py_ssize_t N                # tokens
    float* rows                 # rows of the buffers that are kept for all tokens; NULL: a share of the workspace
    float* sums                 # of the ranges of sequences of few rows (state.pxi)
    Py_ssize_t* done            # for each sequence and key head, how many ranges are done; zeros between instructions

cdef struct Private:
    # Memory of one thread; the first thread's rows serve a whole team that splits columns.
    float* rows                 # rows of the buffers of a block, [block] each, the product's block
    float* scratch              # attention's
    float* panel                # [block][NR], for a gated product
    float* sums                 # [block][columns], for products that are computed in parts of the depth
    Py_ssize_t begun            # atomic: how many of this thread's blocks of rows have been begun

cdef struct Machine:
    # What stays the same from pass to pass.
    const KernelTable* kernels
    const ProductRow* product
    Instruction* code
    Py_ssize_t count            # instructions
    Py_ssize_t body             # instructions that run for each group; those behind them run once, for all picked rows
    Buffer* buffers
    Py_ssize_t token_floats     # of all buffers that are kept for all tokens, for each token
    Py_ssize_t block_floats     # of all buffers of a block, for each row
    Py_ssize_t picked_floats    # of all buffers of picked rows, for each row
    Py_ssize_t scratch_floats
    bint gated                  # whether any product is gated
    Py_ssize_t sums_columns     # of the widest product that is computed in parts of its depth; 0 for none
    Py_ssize_t sums_floats      # of the sums of one range of a cache, for all heads of a token; 0: there is no cache
    Py_ssize_t key_heads        # of a cache

cdef struct Team:
    int rank                    # of the thread
    int size                    # threads of the team
    pool_barrier* barrier       # NULL for a team of one

cdef struct Place:
    # Where instructions find their rows.
    const Group* group
    const Private* block        # the thread's memory that holds the rows of the block
    Py_ssize_t origin           # the row of the group that is the first in the block

cdef struct WordList:
    int* ids
    float* values
    float* own

cdef struct Line:
    # What is chosen of one picked row whose logits are not written; `at` counts from the first result of all rows.
    Py_ssize_t best_at
    Py_ssize_t best             # how many
    Py_ssize_t likely_at
    Py_ssize_t likely
    Py_ssize_t drawn_at         # in the numbers, too
    Py_ssize_t drawn
    float scale                 # of the powers of the draw
    Py_ssize_t top_k            # of the draw; 0: all words
    double top_p                # 1: all words
    float depth_of_min_p        # how far a word may be below the largest logit; -inf without min_p

cdef struct Choice:
    # For the picked rows whose logits are not written: what is chosen, and where it goes.
    RowChoice* rows             # [threads][rows]
    RowChoice* likely           # [threads][rows], the same for the best words before any change; NULL: none are wanted
    Line* lines                 # [rows]
    float* maximum              # [picked rows, at most SUMMED_ROWS][parts], of each part of the columns; so is sum
    float* sum
    Py_ssize_t stride           # floats from the sums of a row to those of the next one
    float* log_sum_exp          # [rows]
    const double* numbers
    WordList best               # the caller's
    WordList likely_words
    WordList drawn
    WordList merged             # [threads][room]: words of a row from all threads
    float* powers               # [threads][room]
    Py_ssize_t room

cdef struct Job:
    const Machine* machine
    const EmbeddingTable* given # the caller's embeddings in place of word rows; NULL for none
    const int* ids
    const int* position_ids
    const int* type_ids
    float** arrays              # the caller's; the first is the result, [N][width], or [written][N of LOGITS]
    Group* groups
    Py_ssize_t count            # of them
    Private* privates
    float* tokens               # rows of groups: one share for each thread, or all of it for a team
    Py_ssize_t share            # floats
    bint bundles
    Py_ssize_t next             # atomic: the next bundle of the queue; for a team, the next piece of an ATTEND
    pool_barrier barrier
    int stop                    # atomic: whether the pass is to be abandoned
    double looked               # when the caller's thread last looked for a reason to stop, in seconds
    Group head                  # the picked rows, N being their number in whole strips
    Py_ssize_t picked
    Py_ssize_t written          # the first of the picked rows, whose logits are written
    Choice choice               # what LOGITS gives of the other picked rows
    Py_ssize_t run              # bytes from the keys of a cell of the cache to its values
    float* sums                 # Group.sums: one share for each thread, or all of it for a team
    Py_ssize_t sums_share       # floats
    Py_ssize_t* done            # Group.done, in such shares
    Py_ssize_t done_share       # counts
    void* executor              # the Executor, which keeps the exception of a signal handler
