# The kernels on AMX's tiles, and their rows of the kernel table, which kernels.pxi has filled with those on vectors.

include "tiles.pxi"
include "attention_tiles.pxi"
include "attention_rows.pxi"

product = &TABLE.products[<int>BFLOAT16]
product.instruction = b"tdpbf16ps"
product.depth_step = LINE_BYTES // 2
product.pack = pack_tiles_bfloat16
product.convert = to_tiles
product.multiply = tiles_bfloat16
product.hidden_columns = 1536
product.writes_operands = True
product.rounds = tile_rounds_bfloat16

product = &TABLE.products[<int>INT8]
product.instruction = b"tdpbusd"
product.depth_step = LINE_BYTES
product.pack = pack_tiles_int8
product.convert = quantize_to_tiles
product.multiply = tiles_int8
product.rounds = tile_rounds_int8
product.approximates = True

for storage in (<int>BFLOAT16, <int>INT8):
    product = &TABLE.products[storage]
    product.strip = TILE_ROWS
    # With more rows a weight is used more often while it is in cache. More than 128 rows of float32 results would not
    # stay in the L2 cache.
    product.block = 256
    product.bundle = 256
    product.begin = t_begin
    product.end = t_end
    product.attention_scratch = attention_tiles_scratch
    product.attention = attention_tiles
    product.attend_rows_scratch = attend_rows_scratch
    product.attend_rows = attend_rows
