"""Whether a value read from JSON has the form that its reader needs. Knows JSON. Does not know what fields mean."""

from typing import Any

from icml25cli.core.errors import InputError


def check_form(value: Any, form: Any, where: object) -> None:
    """Raise InputError unless ``value`` has ``form``; the message names ``where`` and the first field that has not.

    A form is a type (``bool`` is no ``int``, an ``int`` is a ``float``); ``[form]``, a list of any length;
    ``{"name": form}``, an object with at least these fields; or ``{str: form}``, an object of any names.
    """
    field = _misfit(value, form, "")
    if field is not None:
        named = f"the field {field.lstrip('.')}" if field else "the whole"
        raise InputError(f"{where}: {named} is missing or of another type", hint="the file is damaged or was edited")


def _misfit(value: Any, form: Any, path: str) -> str | None:
    """The path of the first value that does not fit, or None."""
    if isinstance(form, type):
        return None if type(value) is form or (form is float and type(value) is int) else path
    if not isinstance(value, type(form)):
        return path
    if isinstance(form, list):
        inner = ((f"{path}[{i}]", x, form[0]) for i, x in enumerate(value))
    elif str in form:
        inner = ((f"{path}.{name}", x, form[str]) for name, x in value.items())
    else:
        inner = ((f"{path}.{name}", value.get(name), x) for name, x in form.items())
    return next((field for place, x, of in inner if (field := _misfit(x, of, place)) is not None), None)
