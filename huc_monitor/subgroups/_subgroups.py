"""Subgroups: named weights ``c(x)`` in [-1, 1] computed from feature columns.

The cut points of a subgroup family are taken from reference data once and frozen, so that
"age below the median" means the same patients-by-age in every window that is audited later.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from huc_monitor._common.checks import check_whole
from huc_monitor._common.frames import to_frame
from huc_monitor.errors import InvalidInputError
from huc_monitor.recalibration.runtime.columns import IN_WORDS, KINDS, Column
from huc_monitor.recalibration.runtime.rules import EVERYONE as WHOLE
from huc_monitor.recalibration.runtime.rules import holds
from huc_monitor.subgroups._cells import Cells, Levels, named_values
from huc_monitor.subgroups._columns import Features, n_rows, read_columns
from huc_monitor.subgroups._memberships import Memberships, Words, stack_values
from huc_monitor.subgroups._predicates import check_kind, parse
from huc_monitor.subgroups._rules import (
    Rule,
    check_mapping,
    check_name,
    compared_columns,
    distinct_comparisons,
    needed_columns,
    parse_entry,
    parse_weight,
    read_weights,
    rule_in_words,
)
from huc_monitor.subgroups._spec import expand, tell_many

_SCHEMA_VERSION: Final = 1
MIN_SIZE: Final = 0  # reference rows that a subgroup must have, unless the user asks for more


@dataclass(frozen=True, eq=False, repr=False)
class Subgroups:
    """For whom calibration is measured: the whole population and named parts of it.

    Build it with `from_reference`, `whole` or `from_dict`. A subgroup is an indicator (rows
    inside count 1, others 0) or a real-valued weight in [-1, 1]. Subgroups may overlap, and
    subgroups that happen to hold the same rows are all kept. A row whose value is missing
    belongs to none of the groups of that column, nor to their negations.

    Attributes
    ----------
    names : tuple of str
        One per subgroup, in order; the first is ``"all"``, the whole population.
    columns : tuple of str
        The feature columns needed to compute the weights.
    dropped : dict of str to int
        Subgroups left out for being too small, with the size that was found.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"age": [50, 65, 79, 80], "sex": ["f", "m", "f", None]})
    >>> groups = Subgroups.from_reference(people, {"age": [65, 80], "sex": "each"})
    >>> groups.names
    ('all', 'age<65', '65<=age<80', 'age>=80', 'sex=f', 'sex=m')
    >>> groups.weights(people, 4)[2]
    array([0, 1, 1, 0], dtype=uint8)
    """

    _rules: tuple[tuple[str, Rule], ...] = ()
    _kinds: tuple[tuple[str, str], ...] = ()
    _dropped: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        seen = {WHOLE}
        for name, _ in self._rules:
            if name in seen:
                msg = (
                    f"`subgroups` must have unique names, and {WHOLE!r} is the whole population; "
                    f"got {name!r} twice. Rename the predicate, weight or column."
                )
                raise InvalidInputError(msg)
            seen.add(name)

    @classmethod
    def whole(cls) -> Subgroups:
        """Make the family that holds the whole population only; it needs no features.

        Examples
        --------
        >>> Subgroups.whole().weights(None, 3)
        [array([1, 1, 1], dtype=uint8)]
        """
        return cls()

    @classmethod
    def from_reference(
        cls,
        frame: Features,
        spec: Mapping[str, Any] | None = None,
        *,
        predicates: Mapping[str, Any] | None = None,
        weights: Mapping[str, Any] | None = None,
        min_size: int = MIN_SIZE,
    ) -> Subgroups:
        """Define subgroups on reference data and freeze every value and cut point found there.

        Parameters
        ----------
        frame : DataFrame or mapping of column name to array
            Reference data, usually what the model was trained or calibrated on.
        spec : mapping of column name to rule, optional
            One rule per column:

            * ``"each"``: a group per value in the reference, in value order;
              ``{"each": {"top": 3}}`` keeps the most frequent, ``{"each": ["a", "b"]}`` lists
              them. A value first seen later belongs to none of these groups;
              a monitor tells of it.
            * ``[65, 80]``: below 65, from 65 to below 80, at least 80. Numbers or ISO times.
            * ``"median"``: at most, and above, the reference median;
              ``{"median": "below"}``: below, and at least.
            * ``{"quantiles": [0.25, 0.5, 0.75]}``: cut points at these reference quantiles
              (linear interpolation; coinciding ones count once).
        predicates : mapping of name to predicate, optional
            ``{"column": ..., "op": ..., "value": ...}``, or ``{"and": [...]}``,
            ``{"or": [...]}``, ``{"not": ...}`` of predicates. Operators: ``==``, ``!=``, ``<``,
            ``<=``, ``>``, ``>=``, ``in``, ``not in``, ``is missing``, ``is present``.
        weights : mapping of name to column, optional
            Columns of numbers in [-1, 1] used as they are; a missing weight counts 0.
        min_size : int, default 0
            Leave out subgroups with fewer reference rows (for a weight: rows where it is not
            0), and record them in `dropped`. The whole population always stays.

        Examples
        --------
        >>> visits = {"words": [3, 4, 7, 9], "vip": [False, True, True, None]}
        >>> frail = {
        ...     "and": [
        ...         {"column": "words", "op": ">", "value": 3},
        ...         {"not": {"column": "vip", "op": "==", "value": True}},
        ...     ]
        ... }
        >>> Subgroups.from_reference(
        ...     visits, {"words": "median"}, predicates={"long": frail}, min_size=1
        ... )
        Subgroups(3: all, words<=5.5, words>5.5; 1 dropped)
        """
        check_whole("min_size", min_size, least=0)
        spec = check_mapping("spec", spec)
        named: list[tuple[str, Rule]] = [
            (check_name("predicates", name), parse(rule, f"predicates[{name!r}]"))
            for name, rule in check_mapping("predicates", predicates).items()
        ]
        named += [
            (check_name("weights", name), parse_weight(rule, f"weights[{name!r}]"))
            for name, rule in check_mapping("weights", weights).items()
        ]
        needed = {check_name("spec", column): f"`spec[{column!r}]`" for column in spec}
        needed = needed_columns(named) | needed
        frame = to_frame(frame, "frame")
        n = n_rows(frame, argument="frame")
        columns = read_columns(frame, needed, n, argument="frame")
        by_column = {
            column: expand(columns[column], rule, argument="frame") for column, rule in spec.items()
        }
        family = cls((*chain.from_iterable(by_column.values()), *named))
        family._check_kinds(columns, argument="frame")
        kinds = tuple((name, kind) for name in family._compared if (kind := columns[name].kind))
        sizes = family._sizes(columns, n, argument="frame")
        frozen = cls(family._rules, kinds)
        frozen = frozen._without_small([sizes], min_size)
        kept = [size for size in sizes if size >= min_size]
        tell_many(kept, max(by_column, key=lambda c: len(by_column[c]), default=None))
        return frozen

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the subgroups, the whole population first."""
        return (WHOLE, *(name for name, _ in self._rules))

    @property
    def columns(self) -> tuple[str, ...]:
        """Feature columns needed to compute the weights."""
        return tuple(self._needed)

    @property
    def dropped(self) -> dict[str, int]:
        """Subgroups left out for being too small, with the size that was found."""
        return dict(self._dropped)

    def weights(
        self, features: Features | None, n: int
    ) -> list[NDArray[np.uint8] | NDArray[np.float64]]:
        """Compute the weight of every row in every subgroup.

        Parameters
        ----------
        features : DataFrame, mapping of column name to array, or None
            Feature rows in the order of the predictions. None is enough if no column is needed.
        n : int
            The number of predictions, which the features must match.

        Returns
        -------
        list of ndarray, each of shape (n,)
            One per name: ``uint8`` 0/1 for indicators, ``float64`` for real-valued weights.
        """
        return list(self.memberships(features, n))

    def memberships(self, features: Features | None, n: int) -> Memberships:
        """Compute what `weights` does, as bits; arrays are made of them when asked for."""
        check_whole("n", n, least=0)
        return self._evaluate(self._read(features, n, argument="features"), n, "features")

    def weights_in(
        self, places: Sequence[int], features: Features | None, n: int
    ) -> NDArray[np.float64]:
        """Compute `weights` of some subgroups as numbers, (len(places), n); fast for a few rows."""
        columns = self._read(features, n, argument="features")
        known: dict[Any, NDArray[np.bool_]] = {}
        found = np.ones((len(places), n))
        for at, place in enumerate(places):
            if place == 0:
                continue
            name, rule = self._rules[place - 1]
            if "weight" in rule:
                found[at] = read_weights(name, rule, columns, "features")
            else:
                found[at] = holds(rule, columns, known=known)
        return found

    def describe(self, frame: Features | None, n: int | None = None) -> pd.DataFrame:
        """Tabulate the size of every subgroup in a frame.

        Parameters
        ----------
        frame : DataFrame, mapping of column name to array, or None
            The data to count in.
        n : int, optional
            The number of rows, needed only without a frame.

        Returns
        -------
        DataFrame
            A row per subgroup: ``name``, ``rule`` in words, ``n`` rows (for a weight: rows where
            it is not 0) and their ``share`` of all rows.

        Examples
        --------
        >>> table = {"age": [50, 70, None]}
        >>> print(Subgroups.from_reference(table, {"age": [65]}).describe(table))
              name                rule  n  share
        0      all           every row  3   1.00
        1   age<65     age is below 65  1   0.33
        2  age>=65  age is at least 65  1   0.33
        """
        frame = to_frame(frame, "frame")
        rows = n_rows(frame, argument="frame") if n is None else n
        columns = self._read(frame, rows, argument="frame")
        sizes = [rows, *self._sizes(columns, rows, argument="frame")]
        rules = ["every row", *(rule_in_words(rule) for _, rule in self._rules)]
        shares = [size / max(rows, 1) for size in sizes]
        return pd.DataFrame({"name": self.names, "rule": rules, "n": sizes, "share": shares})

    def restrict(self, *frames: Features, min_size: int) -> Subgroups:
        """Keep the subgroups that have enough rows in every one of several frames.

        Parameters
        ----------
        *frames : DataFrame or mapping of column name to array
            For example the calibration and the validation features.
        min_size : int
            The smallest number of rows a subgroup must have in each of them.

        Returns
        -------
        Subgroups
            A new family; the others are added to `dropped` with their smallest size.

        Examples
        --------
        >>> family = Subgroups.from_reference({"sex": ["f", "f", "m"]}, {"sex": "each"})
        >>> family.restrict({"sex": ["f", "m"]}, {"sex": ["f", "f"]}, min_size=1)
        Subgroups(2: all, sex=f; 1 dropped)
        """
        check_whole("min_size", min_size, least=0)
        sizes = []
        for i, given in enumerate(frames):
            argument = f"frames[{i}]"
            frame = to_frame(given, argument)
            n = n_rows(frame, argument=argument)
            columns = self._read(frame, n, argument=argument)
            sizes.append(self._sizes(columns, n, argument=argument))
        return self._without_small(sizes, min_size)

    def joined(self, other: Subgroups) -> Subgroups:
        """Add the subgroups of another family, but for names that are known already.

        Examples
        --------
        >>> one = Subgroups.from_reference({"sex": ["f", "m"]}, {"sex": "each"})
        >>> one.joined(Subgroups.from_reference({"age": [40, 80]}, {"age": [65]})).names
        ('all', 'sex=f', 'sex=m', 'age<65', 'age>=65')
        """
        known = set(self.names)
        rules = (*self._rules, *(entry for entry in other._rules if entry[0] not in known))
        kinds = dict(other._kinds) | dict(self._kinds)
        return Subgroups(rules, tuple(kinds.items()), self._dropped)

    def to_dict(self) -> dict[str, Any]:
        """Write the family as JSON-safe data; the whole population is implied.

        Examples
        --------
        >>> Subgroups.from_reference({"age": [40, 80]}, {"age": "median"}).to_dict()["subgroups"][0]
        {'name': 'age<=60', 'rule': {'column': 'age', 'op': '<=', 'value': 60}}
        """
        return {
            "schema_version": _SCHEMA_VERSION,
            "subgroups": [{"name": name, "rule": deepcopy(rule)} for name, rule in self._rules],
            "columns": dict(self._kinds),
            "dropped": dict(self._dropped),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Subgroups:
        """Read what `to_dict` wrote; the same rows get the same weights.

        Examples
        --------
        >>> groups = Subgroups.from_reference({"age": [40, 80]}, {"age": "median"})
        >>> Subgroups.from_dict(groups.to_dict()) == groups
        True
        """
        version = data.get("schema_version") if isinstance(data, Mapping) else None
        if version != _SCHEMA_VERSION or isinstance(version, bool):
            msg = (
                f"`data['schema_version']` must be {_SCHEMA_VERSION}; got {version!r}. "
                f"Read data written by Subgroups.to_dict, with the version that wrote it or newer."
            )
            raise InvalidInputError(msg)
        entries = data.get("subgroups")
        kinds = check_mapping("data['columns']", data.get("columns"))
        dropped = check_mapping("data['dropped']", data.get("dropped"))
        if not isinstance(entries, (list, tuple)):
            msg = f"`data['subgroups']` must be a list of names and rules; got {entries!r}."
            raise InvalidInputError(msg)
        for column, kind in kinds.items():
            if kind not in KINDS:
                choices = ", ".join(map(repr, KINDS))
                msg = f"`data['columns'][{column!r}]` must be one of {choices}; got {kind!r}."
                raise InvalidInputError(msg)
        for name, size in dropped.items():
            check_whole(f"data['dropped'][{name!r}]", size, least=0)
        rules = tuple(
            parse_entry(entry, f"data['subgroups'][{i}]") for i, entry in enumerate(entries)
        )
        return cls(rules, tuple(kinds.items()), tuple(dropped.items()))

    def __len__(self) -> int:
        return 1 + len(self._rules)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Subgroups) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:8]) + (", ..." if len(self) > 8 else "")
        dropped = f"; {len(self._dropped)} dropped" if self._dropped else ""
        return f"Subgroups({len(self)}: {shown}{dropped})"

    def _key(self) -> str:
        # JSON tells 1 from true, which Python's == does not. Order of subgroups is content.
        plain = self.to_dict()
        plain["columns"] = sorted(self._kinds)
        plain["dropped"] = sorted(self._dropped)
        return json.dumps(plain)

    @cached_property
    def _needed(self) -> dict[str, str]:
        return needed_columns(self._rules)

    @cached_property
    def _compared(self) -> dict[str, str]:
        return compared_columns(self._rules)

    @cached_property
    def _comparisons(self) -> list[tuple[Mapping[str, Any], str]]:
        return distinct_comparisons(self._rules)

    @cached_property
    def _named(self) -> dict[str, list[Any]]:
        return named_values([rule for _, rule in self._rules])

    @cached_property
    def _tables(self) -> dict[Hashable, Words]:
        """Bits of all cells by their key: it depends on nothing but the kinds of columns."""
        return {}

    def _read(self, features: Features | None, n: int, *, argument: str) -> dict[str, Column]:
        needed = self._needed
        if features is None:
            if needed:
                names = ", ".join(map(repr, needed))
                msg = (
                    f"`{argument}` must have the columns {names} that the subgroups need; got "
                    f"None. Pass the feature rows, or use Subgroups.whole()."
                )
                raise InvalidInputError(msg)
            return {}
        features = to_frame(features, argument)
        if isinstance(features, pd.DataFrame) and len(features) != n:
            msg = (
                f"`{argument}` must have {n} rows; got {len(features)}. "
                f"Pass one feature row per prediction, in the same order."
            )
            raise InvalidInputError(msg)
        if not needed:
            return {}
        n_rows(features, argument=argument)
        columns = read_columns(features, needed, n, argument=argument, named=self._named)
        self._check_kinds(columns, argument=argument)
        return columns

    def _check_kinds(self, columns: Mapping[str, Column], *, argument: str) -> None:
        compared = self._compared
        for name, kind in self._kinds:
            column = columns.get(name)
            if column is None or name not in compared:
                continue
            if column.kind not in {kind, None} or column.problem:
                msg = (
                    f"`{argument}[{name!r}]` must hold {IN_WORDS[kind]}, as the reference did, "
                    f"for {compared[name]}; got {column.content()}. "
                    f"Convert it, for example with {column.conversion(kind, argument=argument)}."
                )
                raise InvalidInputError(msg)
        for comparison, user in self._comparisons:
            check_kind(comparison, columns[comparison["column"]], user, argument=argument)

    def _evaluate(self, columns: Mapping[str, Column], n: int, argument: str) -> Memberships:
        values = [
            read_weights(name, rule, columns, argument)
            for name, rule in self._rules
            if "weight" in rule
        ]
        cells = Cells.of({name: Levels.of(columns[name], v) for name, v in self._named.items()}, n)
        real = np.array([False, *("weight" in rule for _, rule in self._rules)])
        rules = [rule for _, rule in self._rules if "weight" not in rule]
        table = cells.table(rules, known=self._tables)
        return Memberships(cells.codes, table, real, stack_values(values, n))

    def _sizes(self, columns: Mapping[str, Column], n: int, *, argument: str) -> list[int]:
        found = self._evaluate(columns, n, argument)
        return [int(np.count_nonzero(weights)) for weights in found[1:]]

    def _without_small(self, sizes: Iterable[list[int]], min_size: int) -> Subgroups:
        smallest = [min(counts) for counts in zip(*sizes, strict=True)]
        if not smallest:
            return self
        small = {
            name: size
            for (name, _), size in zip(self._rules, smallest, strict=True)
            if size < min_size
        }
        kept = tuple(entry for entry in self._rules if entry[0] not in small)
        used = compared_columns(kept)
        kinds = tuple(entry for entry in self._kinds if entry[0] in used)
        return Subgroups(kept, kinds, (*self._dropped, *small.items()))
