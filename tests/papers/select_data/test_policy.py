"""The policy gradient against enumeration of all answers, and weights by hand."""

import itertools

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from icml25cli.core.errors import UsageError
from icml25cli.core.models import resolve
from icml25cli.papers.select_data.adapters import Adapter, adapted, linear_maps, trained
from icml25cli.papers.select_data.gradients import feature_of, row_features
from icml25cli.papers.select_data.policy import Policy, leave_one_out, pass_at_weights
from icml25cli.papers.select_data.projection import make_projection
from icml25cli.papers.select_data.sampling import Answer, Sampling, draw
from icml25cli.papers.select_data.tokens import Coder

END, WORD = 0, 1
ANSWERS = ((END,), (WORD, END), (WORD, WORD))  # all there are of at most two tokens
REWARD = {(END,): 0.2, (WORD, END): 1.0, (WORD, WORD): 0.0}


@pytest.fixture(scope="module")
def speaker(tmp_path_factory):
    """A model of two tokens with trained adapters, and its coder."""
    folder = tmp_path_factory.mktemp("models") / "two"
    config = LlamaConfig(
        vocab_size=2,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=16,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=None,
    )
    torch.manual_seed(3)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for x in model.parameters():
            x.add_(0.3 * torch.randn_like(x))
    model.save_pretrained(folder)
    inner = Tokenizer(models.WordLevel({"</s>": END, "a": WORD}, unk_token="a"))
    PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>").save_pretrained(folder)
    source = resolve(folder)
    ready = adapted(source, Adapter(rank=2, alpha=4, targets="all-linear")).eval()
    with torch.no_grad():
        for x in trained(ready).values():
            x.add_(0.2 * torch.randn_like(x))
    from icml25cli.core.models import load_tokenizer

    return ready, Coder(load_tokenizer(source), 16)


PROMPT = np.array([WORD, WORD, END, WORD], np.int32)


def exact_gradient(model) -> torch.Tensor:
    """Of the expected reward, by autograd through every answer's probability."""
    expected = torch.zeros(())
    for answer, reward in REWARD.items():
        tokens = torch.tensor([[*PROMPT.tolist(), *answer]])
        logs = model(input_ids=tokens).logits.log_softmax(-1)[0]
        places = range(len(PROMPT) - 1, tokens.shape[1] - 1)
        expected = expected + reward * torch.stack([logs[i, tokens[0, i + 1]] for i in places]).sum().exp()
    grads = torch.autograd.grad(expected, list(trained(model).values()))
    return torch.cat([g.flatten() for g in grads])


def gradients(model) -> torch.Tensor:
    """Of every possible answer's negative log-likelihood."""
    sizes = {name: module.weight.numel() for name, module in linear_maps(model).items()}
    rows = [Answer(answer, "").example(PROMPT) for answer in ANSWERS]
    return row_features(model, rows, make_projection("none", sizes), feature_of("sgd"), mean=False)


def test_drawn_answers_give_the_gradient_of_the_expected_reward(speaker):
    model, coder = speaker
    sampling = Sampling(count=20_000, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=2)
    (answers,) = draw(model, coder, [PROMPT], sampling, seed=0)
    drawn = [answer.tokens for answer in answers]
    assert set(drawn) == set(ANSWERS)  # the end of text is kept, and what was cut off has none
    assert {a.tokens: a.finished for a in answers} == {(END,): True, (WORD, END): True, (WORD, WORD): False}
    each = gradients(model)

    def estimated(policy: Policy, rewards: np.ndarray) -> torch.Tensor:
        weights = policy.weights(rewards)
        totals = [sum(w for w, answer in zip(weights, drawn, strict=True) if answer == kind) for kind in ANSWERS]
        return torch.tensor(totals, dtype=torch.float32) @ each

    rewards = np.array([REWARD[answer] for answer in drawn])
    exact = exact_gradient(model)
    for policy in (Policy(), Policy(baseline="rloo")):
        found = estimated(policy, rewards)
        # Minus: it points where losses fall, as the gradients of rows do.
        assert torch.cosine_similarity(found, -exact, dim=0) > 0.99
        torch.testing.assert_close(found.norm() / len(drawn), exact.norm(), rtol=0.05, atol=0)
    constant = np.full(len(drawn), 0.7)
    assert not estimated(Policy(baseline="rloo"), constant).any()
    left = estimated(Policy(), constant).norm()
    assert 0 < left < 0.1 * estimated(Policy(), rewards).norm()  # zero only in expectation


def test_greedy_answers_are_all_alike(speaker):
    model, coder = speaker
    (answers,) = draw(model, coder, [PROMPT], Sampling(count=3, temperature=0.0, max_new_tokens=2), seed=0)
    assert len(answers) == 3
    assert len(set(answers)) == 1


def test_the_same_seed_draws_the_same_answers(speaker):
    model, coder = speaker
    sampling = Sampling(count=50, max_new_tokens=2)
    first, again, other = (draw(model, coder, [PROMPT] * 2, sampling, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_leave_one_out_is_the_reward_less_the_mean_of_the_others():
    np.testing.assert_allclose(leave_one_out(np.array([1.0, 0.0, 0.5])), [0.75, -0.75, 0.0], atol=1e-12)
    assert not leave_one_out(np.array([0.3])).any()


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (Policy(), [0.0, 0.5, 1.0, -0.2]),
        (Policy("rejection"), [0, 0.25, 0.5, 0]),
        (Policy("hard-rejection"), [0, 0.25, 0.5, 0]),
        (Policy("topk-rejection"), [0, 0.25, 0.5, 0]),
    ],
)
def test_policies(policy, wanted):
    np.testing.assert_allclose(policy.weights(np.array([0.0, 0.5, 1.0, -0.2]), reference=0.5), wanted)


def test_topk_policies_keep_ten():
    rewards = np.linspace(0.1, 1.2, 12)
    kept = Policy("topk-rejection").weights(rewards)
    assert (kept > 0).sum() == 10
    assert not kept[:2].any()
    assert (Policy("topk-hard").weights(rewards, reference=1.0) > 0).sum() == 3


def test_pass_at_one_is_the_mean_and_more_is_the_gradient_of_its_estimator():
    right = np.array([True, False, True, False])
    np.testing.assert_allclose(pass_at_weights(right, 1), right / 4)
    # By definition: the mean over pairs of whether one is right; an answer's share is that of the pairs it is in.
    pairs = list(itertools.combinations(range(4), 2))
    wanted = [sum(any(right[j] for j in pair) for pair in pairs if i in pair) / len(pairs) for i in range(4)]
    np.testing.assert_allclose(pass_at_weights(right, 2), wanted)
    np.testing.assert_allclose(pass_at_weights(np.ones(3, bool), 2), [2 / 3] * 3)
    with pytest.raises(UsageError, match="--pass-at 5"):
        pass_at_weights(right, 5)


@pytest.mark.parametrize(
    "wrong",
    [{"name": "x"}, {"baseline": "x"}, {"name": "rejection", "baseline": "rloo"}, {"baseline": "rloo", "pass_at": 2}],
)
def test_what_does_not_go_together(wrong):
    with pytest.raises(UsageError):
        Policy(**wrong)
