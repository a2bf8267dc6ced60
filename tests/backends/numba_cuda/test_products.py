"""Test which kernel a linear map takes, on a device that only notes launches."""

import numpy as np
import pytest

from engine.backends.numba_cuda.products import BFloat16Products, HopperProducts
from engine.backends.numba_cuda.weights import DeviceAffine

from ...tools.emulated_device import EmulatedDevice


class NotingDevice(EmulatedDevice):
    """Notes the kernel, the grid and the last argument of each launch, and runs nothing."""

    multiprocessors = 132

    def __init__(self):
        super().__init__()
        self.noted = []

    def launch(self, kernel, grid, *arguments):
        self.noted.append((kernel.name, grid, arguments[-1]))


@pytest.mark.parametrize(("make", "laid_out", "many"), [(BFloat16Products, 0, "linear 32x32 identity"),
                                                        (HopperProducts, 1, "linear wgmma 64x64 identity")])
def test_maps_of_up_to_128_rows_have_a_kernel_of_their_own(make, laid_out, many):
    device = NotingDevice()
    products, (M, K) = make(device), (40, 16)
    weights = DeviceAffine(products.convert(np.zeros((M, K), np.float32)), np.zeros(M, np.float32))
    for N in (1, 16, 17, 128, 129):
        products.linear(np.zeros((N, K), np.uint16), weights, np.zeros((N, M), np.uint16))
    assert device.noted[:4] == [(f"linear few {tokens} identity", (3, blocks), laid_out)
                                for tokens, blocks in ((16, 1), (16, 1), (64, 1), (64, 2))]
    assert device.noted[4][0] == many
