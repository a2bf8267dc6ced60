# The schedules: how the threads of a pass share a program's instructions (program.pxi).
#
#   bundles      Many tokens. Each thread takes batch groups from a queue, largest first, as a team of one: no barriers.
#   by rows      All threads form one team. Each takes blocks of rows through a whole segment: two barriers for each
#                ATTEND. A thread that has finished its own blocks steals blocks of others, because the cores of a
#                shared machine are seldom equally fast.
#   by columns   Few tokens (`shared` of the kernel table). All threads form one team and split the panels of every
#                product, so that one core alone reads each weight. Instructions state where the team has to meet.
#
# After all groups, one team runs the instructions behind PICK by columns, for the picked rows of all groups.
#
# No schedule divides a sum, so the bits of a result depend neither on the schedule nor on the number of threads.
# Job, Machine m, Instruction op, Group g, Place at, Private (a thread's memory) and Team: machine.pxi.

cdef void run(const Job* job, const Instruction* op, const Place* at, const Private* private, Py_ssize_t first,
              Py_ssize_t last, int rank, int size) noexcept nogil:
    # Run one instruction on rows [first, last). MULTIPLY and HEADS compute share `rank` of `size` of their panels or
    # heads: (0, 1) where the thread has these rows for itself.
    if op.kind == EMBED:
        embed_rows(job, op, at, first, last)
    elif op.kind == NORM:
        norm_rows(job, op, at, private, first, last)
    elif op.kind == CONVERT:
        convert_rows(job.machine, op, op.x, at, first, last)
    elif op.kind == MULTIPLY:
        multiply_panels(job.machine, op, at, first, last, private, rank, size)
    elif op.kind == HEADS:
        if op.norm.weight != NULL:
            norm_heads(job, op, at, first, last, rank, size)
        if op.rotary.cos != NULL:
            rotate_heads(job, op, at, first, last, rank, size)
    elif op.kind == STORE:
        store_rows(job, op, at, first, last)
    elif op.kind == PICK:
        pick_rows(job, op, at, first, last)
    elif op.kind == SCALE:
        scale_rows(job.machine, op, at, first, last)


cdef inline bint block_of(const Group* g, const Team* team, Py_ssize_t block, Py_ssize_t rank, Py_ssize_t i,
                          Py_ssize_t* first, Py_ssize_t* last) noexcept nogil:
    # Find the rows [first, last) of block i, of at most `block` rows, of a thread's share; False if there is none.
    cdef Py_ssize_t start = g.N * rank // team.size, M = g.N * (rank + 1) // team.size - start
    cdef Py_ssize_t blocks = (M + block - 1) // block
    if i >= blocks:
        return False
    first[0], last[0] = start + M * i // blocks, start + M * (i + 1) // blocks
    return True


cdef void run_segment(Job* job, const Group* g, Private* private, const Team* team, Py_ssize_t begin,
                      Py_ssize_t end) noexcept nogil:
    # Run instructions [begin, end) for blocks of rows: first this thread's own blocks, then blocks that no other thread
    # has begun (work stealing). New keys and values of a block go to their cells if the ATTEND at `end` reads these.
    cdef Private* privates = private - team.rank
    cdef Place at
    cdef Py_ssize_t first = 0, last = 0, turn, rank, i
    at.group, at.block = g, private
    for turn in range(team.size):
        rank = (team.rank + turn) % team.size
        while block_of(g, team, job.machine.product.block, rank, take_next(&privates[rank].begun), &first, &last):
            at.origin = first
            for i in range(begin, end):
                if stopped(job, private):
                    break
                run(job, &job.machine.code[i], &at, private, first, last, 0, 1)
            if is_set(&job.stop):
                continue
            if end < job.machine.count and job.machine.code[end].source == FROM_CACHE:
                keep_rows(job, &job.machine.code[end], g, first, last, 0, job.machine.code[end].key_heads)


cdef void run_by_rows(Job* job, const Group* g, Private* private, const Team* team) noexcept nogil:
    # Run all segments for a group; between them the team shares the pieces of an ATTEND.
    cdef const Machine* m = job.machine
    cdef Py_ssize_t begin = 0, end = 0, pieces = PIECES * team.size if team.size > 1 else 1, i
    while True:
        while end < m.body and m.code[end].kind != ATTEND:
            end += 1
        run_segment(job, g, private, team, begin, end)
        meet(team)
        private.begun = 0           # nobody steals before the team meets again
        if end == m.body:
            return
        if team.size == 1:
            if stopped(job, private):
                return
            attend(job, &m.code[end], g, private, 0, 1, True)       # True: new tokens are in their cells
        else:
            i = take_next(&job.next)
            while i < pieces:
                if not stopped(job, private):
                    attend(job, &m.code[end], g, private, i, pieces, True)
                i = take_next(&job.next)
        meet(team)
        if team.rank == 0 and team.size > 1:
            job.next = 0
        begin = end = end + 1


cdef void run_by_columns(Job* job, const Group* g, Private* private, const Team* team) noexcept nogil:
    # Run all instructions for a group of few tokens, whose products the team divides by columns.
    cdef const Machine* m = job.machine
    cdef const Instruction* op
    cdef Place at
    cdef Py_ssize_t first = g.N * team.rank // team.size, last = g.N * (team.rank + 1) // team.size, i
    cdef bint prompts = has_prompts(g)      # then several threads read the same new tokens
    at.group, at.block, at.origin = g, &job.privates[0], 0      # the first thread's rows serve the whole team
    for i in range(m.body):
        op = &m.code[i]
        if op.needs_barrier:
            meet(team)
        if prompts and op.kind == ATTEND and op.source == FROM_CACHE:
            keep_rows(job, op, g, 0, g.N, op.key_heads * team.rank // team.size,
                      op.key_heads * (team.rank + 1) // team.size)
            meet(team)
        # One look at the clock for each layer: the pass is short, and a look at each instruction would show.
        if is_set(&job.stop):
            continue
        if op.kind == ATTEND and not stopped(job, private):
            attend(job, op, g, private, team.rank, team.size, prompts)
        elif op.kind == MULTIPLY or op.kind == HEADS:
            run(job, op, &at, private, 0, g.N, team.rank, team.size)
        elif first < last:
            run(job, op, &at, private, first, last, 0, 1)


cdef void run_groups(Job* job, int rank, int size) noexcept nogil:
    # Run the groups of a pass: each thread takes bundles from the queue, or the whole team takes one after the other.
    cdef Team team
    cdef Group group
    cdef Py_ssize_t i
    if job.bundles:
        team.rank, team.size, team.barrier = 0, 1, NULL
        i = take_next(&job.next)
        while i < job.count and not stopped(job, &job.privates[rank]):
            group = job.groups[i]
            if group.rows == NULL:
                group.rows = job.tokens + rank * job.share
            group.sums, group.done = job.sums + rank * job.sums_share, job.done + rank * job.done_share
            run_by_rows(job, &group, &job.privates[rank], &team)
            i = take_next(&job.next)
        return
    team.rank, team.size, team.barrier = rank, size, &job.barrier
    for i in range(job.count):
        group = job.groups[i]
        if group.rows == NULL:
            group.rows = job.tokens
        group.sums, group.done = job.sums, job.done
        if group.N <= job.machine.product.shared:
            run_by_columns(job, &group, &job.privates[rank], &team)
        else:
            run_by_rows(job, &group, &job.privates[rank], &team)
        meet(&team)


cdef void run_head(Job* job, Private* private, const Team* team) noexcept nogil:
    # Run the instructions behind PICK, once for all picked rows of the pass.
    cdef const Machine* m = job.machine
    cdef const Instruction* op
    cdef Place at
    cdef Py_ssize_t first = job.picked * team.rank // team.size, last = job.picked * (team.rank + 1) // team.size, i
    at.group, at.block, at.origin = &job.head, private, 0
    for i in range(m.body, m.count):
        op = &m.code[i]
        if op.needs_barrier:
            meet(team)
        if op.kind == LOGITS:       # threads meet inside of it, also after a stop
            logits(job, op, &at, private, team)
        elif first < last and not is_set(&job.stop):
            run(job, op, &at, private, first, last, 0, 1)


cdef void work(void* arg, int rank, int size) noexcept nogil:
    # Run one thread's part of a forward pass.
    cdef Job* job = <Job*>arg
    cdef Team team
    begin_work(job.machine.product)
    run_groups(job, rank, size)
    if job.picked:
        team.rank, team.size, team.barrier = rank, size, &job.barrier
        if job.bundles:
            meet(&team)
        run_head(job, &job.privates[rank], &team)
    end_work(job.machine.product)
