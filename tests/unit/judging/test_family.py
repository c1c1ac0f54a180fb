import pytest

from monitor.judging.family import families


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-haiku-5-5", {"anthropic"}),
        ("bedrock/eu.anthropic.claude-sonnet-5-5-v1:0", {"anthropic"}),
        ("gpt-6-mini", {"openai"}),
        ("openai/gpt-oss-20b", {"openai"}),
        ("o3-mini", {"openai"}),
        ("azure/o1", {"openai"}),
        ("gemini-3-pro", {"google"}),
        ("google/gemma-3-270m-it", {"google"}),
        ("meta-llama/Llama-4-Scout", {"meta"}),
        ("deepseek-r1-distill-qwen-7b", {"deepseek", "alibaba"}),
        ("mistral-large", {"mistral"}),
        ("command-r-plus", {"cohere"}),
        ("our-own-model-v2", set()),
        ("lexical-1", set()),
        ("foo1-bar", set()),
        ("", set()),
        (None, set()),
    ],
)
def test_the_family_is_read_from_the_name(model: str | None, expected: set[str]) -> None:
    assert families(model) == expected
