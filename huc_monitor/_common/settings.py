"""What a setting is: declared once, for the configuration file and for Python alike.

A section is a frozen pydantic model. Its fields carry default and limits, and its docstring the
description of each, up to the first empty line; the file, the constructors, the JSON Schema and the
reference page are all made from them. A field that was called otherwise before keeps the old word
as a second alias (`renamed`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self, TypeAlias

import numpy as np
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SecretStr,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import CoreSchema, PydanticCustomError

from huc_monitor._common.descriptions import describe_fields
from huc_monitor._common.explaining import as_argument_error
from huc_monitor._common.times import Span, get_zone, to_utc

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Section(BaseModel):
    """Settings that belong together: frozen; unknown names are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_by_name=True
    )

    def __init__(self, /, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            # Not chained: pydantic's own message shows its input, and that may be a secret.
            raise as_argument_error(error, type(self)) from None

    # Without this mark pydantic calls `__init__` for sections inside sections as well, and the
    # path to a wrong setting is lost.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON-safe data; secrets are masked."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(**data)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Describe settings by the docstring, in which they are parameters."""
        texts = describe_fields(cls)
        for name in cls.__annotations__.keys() & texts.keys() & cls.model_fields.keys():
            field = cls.model_fields[name]
            field.description = field.description or texts[name]

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe by the first paragraph; old words stand beside the new ones, as deprecated."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        schema["description"] = (cls.__doc__ or "").split("\n\n")[0]
        for name, field in cls.model_fields.items():
            if field.description is not None:
                schema["properties"][field.alias or name]["description"] = field.description
            alias = field.validation_alias
            for old in alias.choices[1:] if isinstance(alias, AliasChoices) else ():
                kept = schema["properties"][name]
                schema["properties"][str(old)] = {
                    **{key: value for key, value in kept.items() if key != "default"},
                    "description": f"Old word for `{name}`.",
                    "deprecated": True,
                }
                schema["required"] = [x for x in schema.get("required", []) if x != name]
        return schema


def renamed(name: str, *old: str) -> AliasChoices:
    """Return the aliases of a field that was called otherwise before."""
    return AliasChoices(name, *old)


def _number(value: Any) -> Any:
    """Refuse what pydantic would turn into a number: true, false and text."""
    if isinstance(value, bool | np.bool_ | str):
        kind = "float_type"
        raise PydanticCustomError(kind, "must be a number")
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, bool | np.bool_ | str):
        kind = "int_type"
        raise PydanticCustomError(kind, "must be a whole number")
    return value


def _span(value: Any) -> str:
    return str(Span.parse(value, argument="span"))


def _check_zone(name: str) -> str:
    return get_zone(name).key


def _check_time(text: str) -> str:
    to_utc(text, argument="time", zone=get_zone("UTC"))
    return text


def check_path(text: str) -> str:
    """Refuse variables in a path: they are read in secrets only."""
    if "${" in text:
        msg = (
            f"must be a plain path; got {text!r}. Environment variables are read in `url` and "
            "`secrets` only"
        )
        raise ValueError(msg)
    return text


def _check_plain(value: Any) -> Any:
    """Refuse environment variables in an option that is shown: they are not filled in there."""
    if isinstance(value, str) and _VARIABLE.search(value):
        msg = (
            f"must not hold ${{NAME}}; got {value!r}. Environment variables are read in `secrets` "
            "only: move the option there"
        )
        raise ValueError(msg)
    parts = value.values() if isinstance(value, dict) else value
    for part in parts if isinstance(value, dict | list | tuple) else ():
        _check_plain(part)
    return value


def _fill_in(value: Any, info: ValidationInfo) -> Any:
    """Replace ``${NAME}`` by the environment variable, where the reader of a file passes them."""
    if not isinstance(value, str) or not isinstance(info.context, Mapping):
        return value
    environ: Mapping[str, str] = info.context
    missing = [name for name in _VARIABLE.findall(value) if name not in environ]
    if missing:
        msg = (
            f"needs the environment variable {missing[0]}, which is not set. "
            f"Set it: export {missing[0]}=..."
        )
        raise ValueError(msg)
    return _VARIABLE.sub(lambda found: environ[found[1]], value)


Number: TypeAlias = Annotated[float, BeforeValidator(_number)]
Whole: TypeAlias = Annotated[int, BeforeValidator(_whole)]
Share: TypeAlias = Annotated[Number, Field(ge=0, le=1)]
Name: TypeAlias = Annotated[str, Field(min_length=1)]
PathText: TypeAlias = Annotated[str, Field(min_length=1), AfterValidator(check_path)]
SpanText: TypeAlias = Annotated[
    str,
    BeforeValidator(_span),
    Field(pattern=r"^\s*[0-9]{1,6}\s*[smhdw]\s*$", examples=["15m", "6h", "1d", "2w"]),
]
TimeText: TypeAlias = Annotated[
    str, AfterValidator(_check_time), Field(examples=["2024-03-31", "2024-03-31T06:00:00+02:00"])
]
Zone: TypeAlias = Annotated[
    str, AfterValidator(_check_zone), Field(examples=["UTC", "Europe/Berlin"])
]
# An option of a host that is shown.
Plain: TypeAlias = Annotated[Any, AfterValidator(_check_plain)]
# A secret is known by this type, wherever it stands: values are never shown, and the file may say
# ${NAME} for an environment variable.
Secret: TypeAlias = Annotated[SecretStr, BeforeValidator(_fill_in)]
