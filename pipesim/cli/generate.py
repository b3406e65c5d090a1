"""`pipesim generate`: continue prompts with a decoder that is spread over ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pipesim.cli.options import job
from pipesim.cli.options.case import BadCase
from pipesim.cli.options.groups import Without
from pipesim.cli.options.job import JobChoice, require_torch
from pipesim.cli.options.outputs import Outputs
from pipesim.cli.train import degrees_of, run_ranks
from pipesim.costs.layouts.layout import Layout
from pipesim.files import read_text
from pipesim.ir.lower import lower
from pipesim.metrics import summarize
from pipesim.schedules.inference import decode
from pipesim.units import format_seconds

ModelName = Annotated[str, typer.Option("--model", help="A Hugging Face folder, a config.json, or a catalogue name.")]
LayoutText = Annotated[str, typer.Option("--layout", metavar="pp=2,tp=2", help="Ranks that hold the model.")]
Prompts = Annotated[list[str] | None, typer.Option("--prompt", help="Text to continue; may be given several times.")]
PromptsFile = Annotated[Path | None, typer.Option("--prompts", help="A file with a prompt a line.")]
PromptTokens = Annotated[
    list[str] | None, typer.Option("--prompt-tokens", metavar="1,2,3", help="A prompt as token numbers.")
]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", min=1, help="Most tokens for each prompt.")]
Groups = Annotated[int | None, typer.Option("--groups", min=1, help="Groups in flight (as many as pipeline ranks).")]
Temperature = Annotated[float, typer.Option("--temperature", min=0, help="0 takes the likeliest token.")]
TopK = Annotated[int, typer.Option("--top-k", min=0, help="Draw from so many of the likeliest; 0: all.")]
TopP = Annotated[float, typer.Option("--top-p", help="Draw from the likeliest that make up this probability.")]
StopToken = Annotated[list[int] | None, typer.Option("--stop-token", help="Ends a sequence (the model's own).")]
TokenizerFile = Annotated[str | None, typer.Option("--tokenizer", help="A tokenizer.json (the model's, or bytes).")]
_TABLES = Outputs()


def generate(
    model: ModelName,
    layout: LayoutText = "pp=1",
    prompt: Prompts = None,
    prompts: PromptsFile = None,
    prompt_tokens: PromptTokens = None,
    max_new_tokens: NewTokens = 32,
    groups: Groups = None,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    stop_token: StopToken = None,
    tokenizer: TokenizerFile = None,
    device: job.Device = "cpu",
    dtype: job.Dtype = "fp32",
    seed: job.Seed = 0,
    timeout: job.Timeout = 60.0,
    port: job.Port = 0,
    outputs: Annotated[Outputs, Without("metrics", "trace")] = _TABLES,
) -> None:
    """Continue prompts: prefill and decode with keys and values on every rank, several groups in flight.

    Example: pipesim generate --model tiny-llama --layout pp=2,tp=2 --prompt "Once upon a time" --max-new-tokens 32
    """
    require_torch()
    from pipesim.backends.data.tokens import load_tokenizer
    from pipesim.backends.generate.sampling import Sampling

    words = load_tokenizer(tokenizer or (model if Path(model).is_dir() else None))
    outputs.require_writable()
    texts = [*(prompt or ()), *(read_text(prompts).splitlines() if prompts is not None else ())]
    given = [*(words.encode(text) for text in texts), *map(_numbers, prompt_tokens or ())]
    if not given:
        raise BadCase("nothing to continue", 'give --prompt "Once upon a time", --prompts FILE or --prompt-tokens 1,2')
    choice = JobChoice(model=model, device=device, dtype=dtype, seed=seed, timeout=timeout, port=port)
    sampling = Sampling(temperature, top_k, top_p, seed)
    request = _request(choice, layout, given, max_new_tokens, groups, sampling, stop_token)
    found = _run(request, choice)
    if found is not None:
        _report(request, found, words, outputs)


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise BadCase(f"--prompt-tokens {text}: not token numbers", "expected e.g. 1,306,4658")
    return [int(part) for part in parts]


def _request(
    choice: JobChoice,
    layout_text: str,
    prompts: list[list[int]],
    new_tokens: int,
    groups: int | None,
    sampling: Any,
    stop: list[int] | None,
) -> Any:
    """What the processes are asked for, checked."""
    from pipesim.backends.generate.job import DTYPES, Request
    from pipesim.backends.generate.prompts import check_prompts
    from pipesim.backends.huggingface.folder import has_weights
    from pipesim.backends.huggingface.load import stored_weights
    from pipesim.backends.model.config import load_decoder
    from pipesim.backends.model.stage import stages_of
    from pipesim.backends.parallel.places import check_layout
    from pipesim.backends.parallel.tensor import check_tensor_parallel

    if choice.dtype not in DTYPES:
        raise BadCase(f"--dtype {choice.dtype}", f"there are {', '.join(DTYPES)}")
    assert choice.model is not None
    config = load_decoder(choice.model)
    degrees: dict[str, Any] = degrees_of(layout_text)
    layout = Layout(**degrees, global_batch=degrees.get("dp", 1), seq=max(map(len, prompts)) or 1)
    check_layout(layout, layout.gpus)
    check_tensor_parallel(config.model, layout)
    stages_of(config, layout, layout.pp)
    check_prompts(config, prompts, new_tokens)
    if has_weights(choice.model):
        stored_weights(choice.model)
    most = max(1, len(prompts) // layout.dp)
    schedule = decode(ranks=layout.pp, microbatches=min(groups or layout.pp, most), slices=new_tokens)
    return Request(
        lower(schedule),
        config,
        layout,
        tuple(map(tuple, prompts)),
        sampling,
        config.stop_tokens if stop is None else tuple(stop),
        choice.model if has_weights(choice.model) else None,
        choice.seed,
        choice.dtype,
    )


def _run(request: Any, choice: JobChoice) -> Any:
    from pipesim.backends.generate.job import generate as work

    return run_ranks(work, request, request.layout.gpus, choice)


def _report(request: Any, found: Any, words: Any, outputs: Outputs) -> None:
    made = replace(found.timeline(request.program), facts={"prompts": len(request.prompts)})
    outputs.write(made, summarize(made))
    texts = [words.decode(tokens) for tokens in found.tokens]
    first = max(found.first_token_s)
    if outputs.as_json:
        rows = [
            {"tokens": list(tokens), "text": text, "first_token_s": seconds}
            for tokens, text, seconds in zip(found.tokens, texts, found.first_token_s, strict=True)
        ]
        print(json.dumps({"continuations": rows, "seconds": found.seconds, "tokens_per_s": found.tokens_per_s}))
        return
    for prompt, tokens, text in zip(request.prompts, found.tokens, texts, strict=True):
        print(f"{words.decode(prompt)}{text}")
        if not text:
            print(f"  tokens {', '.join(map(str, tokens))}")
    if request.folder is None:
        print("(the folder has no weights: these are random ones)")
    count = sum(map(len, found.tokens))
    print(f"{count} tokens in {format_seconds(found.seconds)}: {found.tokens_per_s:,.1f} tokens/s, ", end="")
    print(f"first token after {format_seconds(first)}")
