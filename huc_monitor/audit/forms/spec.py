"""What the user says about where predictions are, in the file and in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
    model_validator,
)

from huc_monitor._common.settings import Name, Number, Section
from huc_monitor.errors import InvalidInputError

LEAF: Final = "{leaf}"
FORMS: Final = ("pattern", "columns", "list", "pairs", "map")
# Words that came later: left out of what is written where nobody used them, so that the identity of
# older monitors stays.
_LATER: Final = ("class_column", "pairs", "map", "scale", "of", "rest")


class RestLeaf(Section):
    """The leaf that gets the mass that was not logged.

    Parameters
    ----------
    leaf : str
        Its name.
    """

    leaf: Name


Scale: TypeAlias = Literal["probabilities", "log_probabilities", "logits"]
SCALE: Final[Scale] = "probabilities"
RestRule: TypeAlias = Literal["uniform", "reference"] | RestLeaf


def _check_rest(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Say once what the choices are, instead of what each of them misses."""
    try:
        return check(value)
    except ValidationError:
        msg = f"must be 'uniform', 'reference', {{'leaf': name}} or shares by leaf; got {value!r}"
        raise ValueError(msg) from None


class PredictionColumns(Section):
    """Where the predictions are: exactly one of pattern, columns, list, pairs, map.

    Lists, pairs and maps may be columns of that type, or JSON text of it.

    Examples
    --------
    >>> PredictionColumns(list="scores", class_column="classes", rest="uniform").form
    'list'

    Parameters
    ----------
    pattern : str, optional
        One column per leaf: their names, with {leaf} for the leaf.
    columns : mapping of str to str, optional
        Leaf to column, for every leaf.
    list : str, optional
        One column that holds a list.
    classes : tuple of str, optional
        The leaves in the order of the list; the tree's when left out.
    class_column : str, optional
        With `list`: the column that holds the classes of each row's list, all of them or the k
        best.
    pairs : str, optional
        One column that holds a list of pairs: {class, score} or [class, score].
    map : str, optional
        One column that holds a map or struct from class to score.
    scale : {"probabilities", "log_probabilities", "logits"}, default "probabilities"
        What the numbers are. Logits need every class in every row.
    of : {"leaves", "branches", "levels"}, default "leaves"
        What has a number. `branches`: every node, given its parent. `levels`: every node, in one
        distribution per level; a node's share among its siblings is what counts. Both are
        multiplied down the tree.
    rest : str, RestLeaf or mapping of str to float, optional
        Where mass goes that was not logged: `uniform`, over the leaves that a row did not log;
        `reference`, over them in proportion to what the log gave each leaf in the reference window;
        `{leaf: NAME}`, to one leaf; or shares by leaf. Rows that do not log all of their mass are
        unusable when left out.
    """

    pattern: Annotated[str, Field(pattern=r"\{leaf\}")] | None = Field(
        default=None, examples=["p_{leaf}"]
    )
    columns: Mapping[str, str] | None = None
    list: Name | None = None
    classes: Annotated[tuple[str, ...], AfterValidator(tuple)] | None = None
    class_column: Name | None = None
    pairs: Name | None = None
    map: Name | None = None
    scale: Scale = SCALE
    of: Literal["leaves", "branches", "levels"] = "leaves"
    rest: Annotated[RestRule | Mapping[str, Number] | None, WrapValidator(_check_rest)] = None

    @property
    def form(self) -> str:
        """Which of the forms."""
        return next(name for name in FORMS if getattr(self, name) is not None)

    @property
    def is_sparse(self) -> bool:
        """Whether rows name their own classes."""
        return self.form in {"pairs", "map"} or self.class_column is not None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = [name for name in FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            msg = f"must have exactly one of {', '.join(FORMS)}; got {', '.join(given) or None}"
            raise ValueError(msg)
        if self.classes is not None and given[0] in {"pattern", "columns"}:
            msg = "must have `classes` only with `list`: columns have names"
            raise ValueError(msg)
        if self.class_column is not None and given != ["list"]:
            msg = "must have `class_column` only with `list`"
            raise ValueError(msg)
        if self.rest is not None and not self.is_sparse:
            msg = "must have `rest` only with `class_column`, `pairs` or `map`"
            raise ValueError(msg)
        if self.rest is not None and (self.scale == "logits" or self.of != "leaves"):
            msg = (
                "must not have `rest` with logits or scores of branches and levels: they need "
                "every class, because what is missing changes what the others mean"
            )
            raise ValueError(msg)
        return self

    @model_serializer(mode="wrap")
    def _without_later(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = handler(self)
        defaults = type(self).model_fields
        return {
            name: value
            for name, value in plain.items()
            if name not in _LATER or value != defaults[name].default
        }


def as_columns(given: PredictionColumns | str | Mapping[str, str]) -> PredictionColumns:
    """Read a pattern, a mapping of leaf to column, or columns that were said before."""
    if isinstance(given, PredictionColumns):
        return given
    if isinstance(given, Mapping):
        return PredictionColumns(columns=dict(given))
    if not isinstance(given, str) or LEAF not in given:
        msg = (
            f"`probabilities` must be a pattern with {LEAF} in it, such as 'p_{LEAF}'; "
            f"got {given!r}."
        )
        raise InvalidInputError(msg)
    return PredictionColumns(pattern=given)
