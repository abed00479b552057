"""Times of many events at once: their texts from numbers, and numbers from their texts.

Only the usual forms are made here, with the digits in arrays: Arrow's and NumPy's own texts of times take longer than
all else that is done with the times. `values` has the other forms.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.capture.text_columns import bounds_of_texts, bytes_of_texts
from custody.capture.values import parse_iso
from custody.errors import InvalidInputError
from custody.format.number_sets import distinct

_TIMESTAMP = b"0000-00-00T00:00:00.000Z"
_PLACES = {
    "century": 0,
    "year": 2,
    "month": 5,
    "day": 8,
    "hour": 11,
    "minute": 14,
    "second": 17,
    "tenths": 20,
    "hundredths": 21,  # milliseconds are three digits: two pairs, which share one
}
_TimeText = np.dtype(
    {
        "names": list(_PLACES),
        "formats": ["u2"] * len(_PLACES),
        "offsets": list(_PLACES.values()),
        "itemsize": len(_TIMESTAMP),
    }
)
"""Pairs of digits, where they lie in a timestamp."""
_DIGITS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint16)
_NUMBERS = np.zeros(1 << 16, np.int64)
_NUMBERS[_DIGITS] = np.arange(100)
"""Of two bytes as one number; anything for two that are no digits."""
_YEAR_10000_MS = 253_402_300_800_000
_ZONES = (b"Z", b"+00:00")
_SECONDS_CHARACTERS, _MILLISECONDS_CHARACTERS, _FRACTION_CHARACTERS_MAX = 19, 23, 29
_FORMS_MAX = 8
"""Lengths of texts that are looked at together."""

TimesMs = npt.NDArray[np.int64]
_Characters = npt.NDArray[np.uint8]


def tells_another_time(timestamps: pa.StringArray, times_ms: TimesMs) -> npt.NDArray[np.bool_]:
    """Return which timestamps are not `format_time` of their times, shape (events,); a null is no timestamp."""
    is_given: npt.NDArray[np.bool_] = timestamps.is_valid().to_numpy(zero_copy_only=False)
    is_form = (np.diff(bounds_of_texts(timestamps)) == len(_TIMESTAMP)) & (times_ms >= 0) & (times_ms < _YEAR_10000_MS)
    tells_another: npt.NDArray[np.bool_] = is_given & ~is_form
    rows = np.flatnonzero(is_given & is_form)
    if len(rows):
        said = _characters(timestamps, rows, len(_TIMESTAMP)).view(np.uint64)
        tells_another[rows] = (said != time_texts(times_ms[rows]).view(np.uint64).reshape(said.shape)).any(axis=1)
    return tells_another


def iso_times(texts: pa.StringArray) -> tuple[TimesMs, npt.NDArray[np.bool_]]:
    """Return `parse_iso` of texts, none of which is null, and which of them are times; both of shape (texts,)."""
    times = np.zeros(len(texts), np.int64)
    is_time = np.zeros(len(texts), np.bool_)
    lengths = np.diff(bounds_of_texts(texts))
    for length in distinct(lengths)[:_FORMS_MAX].tolist():
        for zone in _ZONES:
            rows = np.flatnonzero((lengths == length) & ~is_time)
            if len(rows):
                of_form, is_form = _times_of_form(texts, rows, length, zone)
                times[rows[is_form]] = of_form[is_form]
                is_time[rows[is_form]] = True
    for row in np.flatnonzero(~is_time).tolist():
        try:
            times[row] = parse_iso("", texts[row].as_py())
            is_time[row] = True
        except InvalidInputError:
            pass
    return times, is_time


def _times_of_form(
    texts: pa.StringArray, rows: TimesMs, length: int, zone: bytes
) -> tuple[TimesMs, npt.NDArray[np.bool_]]:
    """Return the times of some texts of one length, and which have this zone and a usual form."""
    end = length - len(zone)
    if end != _SECONDS_CHARACTERS and not _MILLISECONDS_CHARACTERS <= end <= _FRACTION_CHARACTERS_MAX:
        return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    characters = _characters(texts, rows, length)
    whole = np.tile(np.frombuffer(_TIMESTAMP, np.uint8), (len(rows), 1))
    shared = min(end, _MILLISECONDS_CHARACTERS)
    whole[:, :shared] = characters[:, :shared]
    times = _times(whole.view(_TimeText)[:, 0])
    # Whatever was read as digits: it is a time if its text is this one.
    is_form = (times >= 0) & (times < _YEAR_10000_MS)
    times = times * is_form
    is_form &= (time_texts(times).view(np.uint8).reshape(whole.shape) == whole).all(axis=1)
    is_form &= (characters[:, end:] == np.frombuffer(zone, np.uint8)).all(axis=1)
    # Digits beyond milliseconds are dropped.
    dropped = characters[:, shared:end]
    return times, is_form & ((dropped >= ord("0")) & (dropped <= ord("9"))).all(axis=1)


def _times(texts: npt.NDArray[np.void]) -> TimesMs:
    """Return the times of `time_texts`; of other texts anything."""
    of = {name: _NUMBERS[texts[name]] for name in _PLACES}
    months = (of["century"] * 100 + of["year"] - 1970) * 12 + of["month"] - 1
    days = months.view("datetime64[M]").astype("datetime64[D]").view(np.int64) + of["day"] - 1
    seconds = ((days * 24 + of["hour"]) * 60 + of["minute"]) * 60 + of["second"]
    times: TimesMs = seconds * 1000 + of["tenths"] * 10 + of["hundredths"] % 10
    return times


def time_texts(times_ms: TimesMs) -> npt.NDArray[np.void]:
    """Return what `format_time` makes of times before the year 10000, 24 bytes each, shape (times,)."""
    texts = np.frombuffer(bytearray(_TIMESTAMP * len(times_ms)), _TimeText)
    seconds, milliseconds = np.divmod(times_ms, 1000)
    days, second_of_day = np.divmod(seconds, 86_400)
    minutes, second = np.divmod(second_of_day, 60)
    hour, minute = np.divmod(minutes, 60)
    months = days.view("datetime64[D]").astype("datetime64[M]")
    year, month = np.divmod(months.view(np.int64) + 12 * 1970, 12)
    century, year_of_century = np.divmod(year, 100)
    texts["century"], texts["year"], texts["month"] = _DIGITS[century], _DIGITS[year_of_century], _DIGITS[month + 1]
    texts["day"] = _DIGITS[days - months.astype("datetime64[D]").view(np.int64) + 1]
    texts["hour"], texts["minute"], texts["second"] = _DIGITS[hour], _DIGITS[minute], _DIGITS[second]
    texts["tenths"], texts["hundredths"] = _DIGITS[milliseconds // 10], _DIGITS[milliseconds % 100]
    return texts


def _characters(texts: pa.StringArray, rows: TimesMs, length: int) -> _Characters:
    """Return the characters of some texts that have so many, shape (rows, length)."""
    # All in one buffer, one behind the other.
    return bytes_of_texts(texts.take(pa.array(rows))).reshape(-1, length)
