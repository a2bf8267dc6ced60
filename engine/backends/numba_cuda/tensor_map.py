"""Encode tensor maps, with which Hopper's TMA copies boxes of a matrix; the driver encodes them on the host."""

from __future__ import annotations

import numpy as np

from ...base.errors import BackendUnavailable

BOX_COLUMNS = 64
"""Columns of a box of bfloat16: 128 bytes, the span of the widest swizzle."""


def encode(pointer: int, rows: int, columns: int, box_rows: int) -> np.ndarray:
    """Return the tensor map, uint8 [128], of a bfloat16 matrix [rows, columns] on the device, for boxes [box_rows, 64].

    The copy of the map on the device must start at a multiple of 64 bytes. Elements outside the matrix are read as
    zeros. TMA writes rows of 128 bytes with the 128-byte swizzle to shared memory.

    pointer: a multiple of 16; columns: a multiple of 8; box_rows: up to 256

    Raises `ValueError` for other sizes and `BackendUnavailable` if the driver refuses (CUDA driver API,
    cuTensorMapEncodeTiled).
    """
    if pointer % 16 or columns % 8 or not 0 < box_rows <= 256 or rows < 1:
        raise ValueError("a tensor map takes an address divisible by 16, at least one row, columns divisible by 8 and "
                         f"boxes of 1 to 256 rows; got address {pointer:#x}, [{rows}, {columns}], boxes of {box_rows}")
    from cuda.bindings import driver

    # By dimension, columns first: sizes; bytes from a row to the next; sizes of a box; strides of its elements.
    status, encoded = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, pointer,
        [driver.cuuint64_t(columns), driver.cuuint64_t(rows)], [driver.cuuint64_t(2 * columns)],
        [driver.cuuint32_t(BOX_COLUMNS), driver.cuuint32_t(box_rows)], [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise BackendUnavailable(f"the CUDA driver cannot make a tensor map for [{rows}, {columns}] in boxes of "
                                 f"{box_rows} rows: {status}")
    return np.array([int(word) for word in encoded.opaque], np.uint64).view(np.uint8)
