"""A language model in this process, through transformers. Knows models and texts. Does not know what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from icml25cli.core.errors import InputError
from icml25cli.core.models import ModelSource, load_model, load_tokenizer, pick_device, runnable
from icml25cli.papers.formulate.backends.chat import About, Request, Sampling, Usage

AT_ONCE = 10  # answers that are drawn together
FENCE = "```"  # in which a model without a template for conversations is made to answer


class Local:
    """A causal language model; conversations go through its own template, where it has one.

    Raises:
        InputError: as ``load_model`` and ``load_tokenizer``.
    """

    def __init__(self, source: ModelSource, sampling: Sampling, device: str = "auto") -> None:
        chosen = pick_device(device)
        dtype = "float32" if chosen.type == "cpu" else "bfloat16"
        self._tokenizer: Any = load_tokenizer(source)
        self._model: Any = load_model(source, dtype=dtype, device=str(chosen))
        self._name, self.notes = source.name, source.notes
        self.about = About("hf", source.name, sampling)
        self.usage = Usage()

    def complete(self, requests: Sequence[Request]) -> list[list[str | None]]:
        """As ``Chat``; the same request gets the same answers on the same machine.

        Raises:
            InputError: a request is longer than what the model reads.
        """
        return [self._answers(request) for request in requests]

    def _answers(self, request: Request) -> list[str | None]:
        import torch

        prompt = self._tokens(request)
        window = getattr(self._model.config, "max_position_embeddings", None) or prompt.shape[1] + 10**6
        room = min(self.about.sampling.max_tokens, window - prompt.shape[1])
        if room < 1:
            raise InputError(
                f"a request has {prompt.shape[1]} tokens, and {self._name} reads {window} with its answer",
                hint="a shorter problem, or a model with a longer window",
            )
        answers: list[str | None] = []
        greedy = self.about.sampling.temperature == 0  # then every answer is the same
        devices = [self._model.device] if self._model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.no_grad(), runnable(self._name):
            torch.manual_seed(request.seed)
            while len(answers) < request.count:
                count = 1 if greedy else min(AT_ONCE, request.count - len(answers))
                drawn = self._model.generate(prompt, **self._generation(count, room))[:, prompt.shape[1] :]
                texts = self._tokenizer.batch_decode(drawn, skip_special_tokens=True)
                answers += [self._answer(text) for text in texts] * (request.count if greedy else 1)
                self.usage.requests += 1
                self.usage.prompt_tokens += prompt.numel()
                self.usage.answer_tokens += int((drawn != self._padding).sum())
        return answers

    @property
    def _template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    @property
    def _padding(self) -> int:
        tokenizer = self._tokenizer
        return next((i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if i is not None), 0)

    def _tokens(self, request: Request) -> Any:
        """The request as token ids, one row."""
        from jinja2 import TemplateError

        if not self._template:
            ids = self._tokenizer(f"{request.whole}\n\nAnswer:\n{FENCE}json\n", return_tensors="pt").input_ids
            return ids.to(self._model.device)
        user = {"role": "user", "content": request.user}
        try:
            text = self._templated([{"role": "system", "content": request.system}, user])
        except TemplateError:  # some know no system message
            text = self._templated([{"role": "user", "content": request.whole}])
        ids = self._tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids  # the template has them
        return ids.to(self._model.device)

    def _templated(self, messages: list[dict[str, str]]) -> str:
        return self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)

    def _generation(self, count: int, room: int) -> dict[str, Any]:
        temperature = self.about.sampling.temperature
        arguments: dict[str, Any] = {
            "max_new_tokens": room,
            "num_return_sequences": count,
            "pad_token_id": self._padding,
            # From the model's own distribution, not from what its files recommend for chatting.
            "do_sample": True,
            "temperature": temperature,
            "top_k": 0,
            "top_p": 1.0,
        }
        if temperature == 0:
            arguments |= {"do_sample": False, "num_beams": 1, "temperature": None, "top_k": None, "top_p": None}
        if not self._template:
            arguments |= {"stop_strings": [FENCE], "tokenizer": self._tokenizer}
        return arguments

    def _answer(self, text: str) -> str | None:
        if not self._template:
            text = text.partition(FENCE)[0]
        return text if text.strip() else None
