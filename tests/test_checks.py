import numpy as np
import pytest

from engine.checks import explain_arguments, positive_int, positive_int_or_none
from engine.errors import InputError


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_python_and_numpy_integers(value):
    assert type(positive_int("n", value)) is int
    assert positive_int_or_none("n", value) == 3


@pytest.mark.parametrize("value", [0, -1, np.int64(0), 2.0, np.float32(2), True, np.True_, "3", [3], np.array([3])])
def test_other_values_are_refused(value):
    with pytest.raises(InputError, match="n must be an int of at least 1, not"):
        positive_int("n", value)
    with pytest.raises(InputError, match="n must be None or an int of at least 1, not"):
        positive_int_or_none("n", value)


def test_none():
    assert positive_int_or_none("n", None) is None
    with pytest.raises(InputError):
        positive_int("n", None)


def test_arguments_of_other_libraries():
    @explain_arguments(dim="pass axis")
    def largest(x, *, axis=-1):
        return x, axis

    assert largest(1, axis=2) == (1, 2)
    assert largest.__name__ == "largest"
    with pytest.raises(InputError, match="largest has no argument dim; pass axis"):
        largest(1, dim=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        largest(1, other=2)
