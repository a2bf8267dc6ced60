"""Tensor maps, by which Hopper's TMA finds boxes of a matrix; encoded by the driver on the host."""

from __future__ import annotations

import numpy as np

from ...errors import BackendUnavailable

BOX_COLUMNS = 64
"""Of bfloat16: 128 bytes, the span of the widest swizzle."""


def encode(pointer: int, rows: int, columns: int, box_rows: int) -> np.ndarray:
    """The tensor map, uint8 [128], of a bfloat16 matrix [rows, columns] on the device, for boxes [box_rows, 64].

    The device's copy of it must start at a multiple of 64 bytes. Outside the matrix a box holds zeros. Shared memory
    gets rows of 128 bytes with the 128-byte swizzle.

    pointer: a multiple of 16; columns: a multiple of 8; box_rows: up to 256

    Raises `ValueError` for other sizes and `BackendUnavailable` if the driver refuses (CUDA driver API,
    cuTensorMapEncodeTiled).
    """
    if pointer % 16 or columns % 8 or not 0 < box_rows <= 256 or rows < 1:
        raise ValueError("a tensor map takes an address divisible by 16, at least one row, columns divisible by 8 and "
                         f"boxes of 1 to 256 rows; got address {pointer:#x}, [{rows}, {columns}], boxes of {box_rows}")
    from cuda.bindings import driver

    status, encoded = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, pointer,
        [driver.cuuint64_t(columns), driver.cuuint64_t(rows)], [driver.cuuint64_t(2 * columns)],
        [driver.cuuint32_t(BOX_COLUMNS), driver.cuuint32_t(box_rows)], [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise BackendUnavailable(f"the CUDA driver made no tensor map for [{rows}, {columns}] in boxes of {box_rows} "
                                 f"rows: {status}")
    return np.array([int(word) for word in encoded.opaque], np.uint64).view(np.uint8)
