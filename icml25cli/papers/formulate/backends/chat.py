"""What is asked of a language model, whoever runs it. Knows requests. Does not know problems or formulations."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Request:
    """``count`` answers to one message, drawn with ``seed``."""

    system: str
    user: str
    count: int
    seed: int
    schema: Mapping[str, Any] = field(default_factory=dict, compare=False)  # of the JSON that is asked for

    @property
    def whole(self) -> str:
        """Both messages as one, for models that know no system message."""
        return f"{self.system}\n\n{self.user}"


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn."""

    temperature: float = 1.0
    max_tokens: int = 1500  # of an answer


@dataclass(frozen=True)
class About:
    """Who answers, as trees and recordings name it."""

    backend: str
    model: str
    sampling: Sampling

    def document(self) -> dict[str, Any]:
        return {"backend": self.backend, "model": self.model, **asdict(self.sampling)}


@dataclass
class Usage:
    """What was used up so far."""

    requests: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0


class Chat(Protocol):
    """Answers requests."""

    about: About
    usage: Usage

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that a report on its answers must show."""
        ...

    def complete(self, requests: Sequence[Request]) -> list[list[str | None]]:
        """For every request as many texts as it asks for; None in the place of one that did not come.

        Raises:
            MissingError: whoever should answer is out of reach, or its budget is spent.
            InputError: the request cannot be answered.
        """
        ...
