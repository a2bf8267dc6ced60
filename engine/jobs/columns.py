"""Columns of Arrow in the files of a job: the types of texts, one type for all inputs, copies, and values as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..base.errors import InputError, shown
from ..base.install import require_files

MOST_COPIED = 2**30
"""Limit on the bytes of a copied column in one unit: a file holds equal values once, and a part once for each row."""


def text_type(kind: Any) -> Any | None:
    """Return the type of a column's values if these are strings, bytes or nulls, otherwise None. kind: its type."""
    kind = value_type(kind)
    types = require_files("pyarrow").types
    known = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary,
             types.is_binary_view, types.is_null)
    return kind if any(check(kind) for check in known) else None


IMAGE_FIELDS = {"bytes", "path"}
"""The fields of an image in Hugging Face's datasets, of which one may be null."""


def is_image_type(kind: Any) -> bool:
    """Return whether a type is that of images in Hugging Face's datasets: an object of bytes and a path."""
    types = require_files("pyarrow").types
    # The struct must have these two fields alone, with strings or bytes.
    return bool(types.is_struct(kind)) and {kind.field(i).name: text_type(kind.field(i).type) is not None
                                            for i in range(kind.num_fields)} == dict.fromkeys(IMAGE_FIELDS, True)


def value_type(kind: Any) -> Any:
    """Return the type of the values of a dictionary or a run-end encoding; return another type unchanged."""
    types = require_files("pyarrow").types
    return value_type(kind.value_type) if types.is_dictionary(kind) or types.is_run_end_encoded(kind) else kind


def plain(column: Any) -> Any:
    """Return an Array or a ChunkedArray with its values in full, not in a dictionary or in runs; nulls as strings."""
    pa, compute = require_files("pyarrow"), require_files("pyarrow.compute")
    if pa.types.is_run_end_encoded(column.type):
        return plain(compute.run_end_decode(column))
    if pa.types.is_dictionary(column.type):
        return plain(column.cast(column.type.value_type))
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def distinct(column: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (its distinct values, for each row the index of its value or null) for each chunk of a ChunkedArray."""
    pa, compute = require_files("pyarrow"), require_files("pyarrow.compute")
    for chunk in column.chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else plain(chunk).dictionary_encode()
        # A dictionary may be shared by a whole row group, so only the values that this chunk uses are returned.
        used = compute.drop_null(encoded.indices.unique())
        yield plain(encoded.dictionary.take(used)), compute.index_in(encoded.indices, value_set=used)


def copied(column: Any, kind: Any, place: str) -> Any:
    """Return a ChunkedArray as one Array of the type `kind`, which can hold its values without loss.

    place: the file and the column, for messages. Raises `InputError` if the values of a dictionary would need more
    than `MOST_COPIED` bytes once each row has its own copy.
    """
    pa, compute = require_files("pyarrow"), require_files("pyarrow.compute")
    if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(kind):
        size = 0
        for values, indices in distinct(column):
            if text_type(values.type) is not None:      # strings or bytes; all other values are small
                sizes = compute.binary_length(values)
                size += compute.sum(sizes.take(indices)).as_py() or 0       # None without rows
        if size > MOST_COPIED:
            raise InputError(f"{place} holds {size:,} bytes in {len(column):,} rows, and the limit of a unit is "
                             f"{MOST_COPIED:,}; give a smaller --unit-rows, or do not copy it")
        column = plain(column)
    if column.type != kind:
        column = column.cast(kind)
    return column.combine_chunks()


def without_views(kind: Any) -> Any:
    """Return a type with large strings and bytes in place of view types, from which pyarrow cannot select rows."""
    pa = require_files("pyarrow")
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([kind.field(i).with_type(without_views(kind.field(i).type)) for i in range(kind.num_fields)])
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(without_views(kind.value_type)), kind.list_size)
    for check, make in ((types.is_list, pa.list_), (types.is_large_list, pa.large_list)):
        if check(kind):
            return make(kind.value_field.with_type(without_views(kind.value_type)))
    return kind


def common_types(types_of_files: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return for each copied column, by name, the type that holds the values of all inputs without loss.

    types_of_files: the name of each input, and the types of its columns. Raises `InputError` if there is no such type.
    """
    common: dict[str, tuple[str, Any]] = {}     # by column: a file that has the type, for messages, and the type
    for file, types in types_of_files:
        for name, kind in types.items():
            other, before = common.get(name, (file, kind))
            both = wider(before, kind)
            if both is None:
                raise InputError(f"column {shown(name)} holds {before} in {shown(other)} and {kind} in {shown(file)}, "
                                 "so that the parts would not be one table; write both with one type, or give each "
                                 "type a job of its own")
            common[name] = (other if both == before else file), both
    return {name: kind for name, (_, kind) in common.items()}


def wider(one: Any, other: Any) -> Any | None:
    """Return the type that holds the values of two types without loss; None if they have no such type."""
    pa = require_files("pyarrow")
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_dictionary(one) or types.is_dictionary(other):
        return wider(value_type(one), value_type(other))
    if types.is_integer(one) and types.is_integer(other):
        narrow, wide = sorted((one, other), key=lambda kind: kind.bit_width)
        same_sign = types.is_signed_integer(one) == types.is_signed_integer(other)
        holds_unsigned = narrow.bit_width < wide.bit_width and types.is_signed_integer(wide)
        return wide if same_sign or holds_unsigned else None
    if types.is_floating(one) and types.is_floating(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    # Different types of strings, or of bytes: the large type has offsets of 64 bits, so that all values fit.
    for kinds, widest in ((("string", "large_string", "string_view"), pa.large_string()),
                          (("binary", "large_binary", "binary_view"), pa.large_binary())):
        if str(one) in kinds and str(other) in kinds:
            return widest
    if types.is_list(one) and types.is_list(other):
        inner = wider(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    return None


def as_json(scalar: Any) -> Any:
    """Return a value of Arrow as an object of Python, or as a string where no class of Python can hold it.

    Python has no nanoseconds, no dates after the year 9999, and only the time zones that the system knows. pyarrow
    would use pandas for some of them where it is installed; strings make the result the same with and without it.
    """
    types = require_files("pyarrow").types
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind) or hasattr(kind, "extension_name"):
        return as_json(scalar.value)
    if types.is_nested(kind):
        return _nested_as_json(scalar)
    if getattr(kind, "unit", "") == "ns":
        return _nanoseconds_as_text(scalar)
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, NotImplementedError, KeyError):
        return f"{scalar.value} {kind}"


def _nested_as_json(scalar: Any) -> Any:
    """Return a struct of Arrow as a dict, a map as a list of pairs, a list as a list, and a union as its value."""
    types = require_files("pyarrow").types
    kind = scalar.type
    if types.is_struct(kind):
        return {kind.field(i).name: as_json(scalar[i]) for i in range(kind.num_fields)}
    if types.is_map(kind):
        return [(as_json(pair[0]), as_json(pair[1])) for pair in scalar.values]
    if types.is_union(kind):
        return as_json(scalar.value)
    return [as_json(value) for value in scalar.values]


def _nanoseconds_as_text(scalar: Any) -> str:
    """Return a time or a duration of Arrow as a text with nanoseconds, which Python's own classes would drop.

    A time with a time zone is written in UTC, with a Z at its end.
    """
    pa = require_files("pyarrow")
    kind = scalar.type
    if pa.types.is_duration(kind):
        return f"{scalar.value} {kind}"
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return str(scalar.cast(pa.string()).as_py())
    return f"{scalar.cast(pa.timestamp('ns')).cast(pa.string()).as_py()}Z"
