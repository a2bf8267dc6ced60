# The kernels on AMX's tiles, and their rows of the kernel table, which kernels.pxi has filled with those on vectors.
#
# With more rows in a block, a weight is used more often while it is in cache. In bfloat16 the results between products
# are operands, 512 rows of which stay in the L2 cache; in int8 they are floats; in float32 an operand has 2 or 3 parts.

include "kernels/tiles.pxi"
include "kernels/parts.pxi"
include "kernels/attention_tiles.pxi"
include "kernels/attention_rows.pxi"

product = &TABLE.products[<int>FLOAT32_PRODUCT]
product.instruction = b"six tdpbf16ps"
product.depth_step = SIDE
product.operand_bytes = PARTS * sizeof(operand)
product.pack = pack_parts
product.convert = to_parts
product.multiply = tiles_float32
product.block = product.bundle = 256
product.hidden_columns = product.fresh_depth = product.operands_depth = FRESH * SIDE
product.rounds = tile_rounds_float32

product = &TABLE.products[<int>BFLOAT16X3_PRODUCT]
product[0] = TABLE.products[<int>FLOAT32_PRODUCT]
product.name = b"bfloat16x3"
product.instruction = b"three tdpbf16ps"
product.operand_bytes = 2 * sizeof(operand)
product.convert = to_two_parts
product.multiply = tiles_two_parts
product.rounds = tile_rounds_two_parts

product = &TABLE.products[<int>BFLOAT16_PRODUCT]
product.instruction = b"tdpbf16ps"
product.depth_step = LINE_BYTES // 2
product.pack = pack_tiles_bfloat16
product.convert = to_tiles
product.multiply = tiles_bfloat16
product.block = product.bundle = 512
product.hidden_columns = 768
product.operands_depth = 2**30      # sums keep all their bits between parts of any depth
product.rounds = tile_rounds_bfloat16

product = &TABLE.products[<int>INT8_PRODUCT]
product.instruction = b"tdpbusd"
product.depth_step = LINE_BYTES
product.pack = pack_tiles_int8
product.convert = quantize_to_tiles
product.multiply = tiles_int8
product.rounds = tile_rounds_int8
product.block = product.bundle = 256
product.approximates = True

product = &TABLE.products[<int>INT16_PRODUCT]
product.instruction = b"tdpbssd and tdpbusd"
product.depth_step = LINE_BYTES
product.pack = pack_tiles_int8
product.convert = integers_to_tiles
product.multiply = tiles_int16
product.rounds = tile_rounds_int16
product.block = product.bundle = 256

for kind in (<int>FLOAT32_PRODUCT, <int>BFLOAT16X3_PRODUCT, <int>BFLOAT16_PRODUCT, <int>INT8_PRODUCT,
             <int>INT16_PRODUCT):
    product = &TABLE.products[kind]
    product.strip = TILE_ROWS
    product.shared = 256
    product.begin = t_begin
    product.end = t_end

for kind in (<int>BFLOAT16_PRODUCT, <int>INT8_PRODUCT):
    product = &TABLE.products[kind]
    product.attention_scratch = attention_tiles_scratch
    product.attention = attention_tiles
    product.attend_rows_scratch = attend_rows_scratch
    product.attend_rows = attend_rows
