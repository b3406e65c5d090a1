"""Llama 2 70B on 8 x A100-80GB: five layouts, one batch, as a published article compares them.

    python benchmarks/serving/llama_70b.py [--batch 96] [--input 2048] [--output 256]

The article gives neither batch nor lengths. Its order (tp4 x pp2, tp8, tp2 x pp4, pp4: 920, 850, 780, 620 tokens/s)
is the model's where prompts make most of the work and the batch is large; the defaults here come closest to its
numbers of those tried.
"""

from __future__ import annotations

import argparse

from pipesim.costs.clusters.cluster_catalogue import load_cluster
from pipesim.costs.models.model_catalog import load_model
from pipesim.serving.deployment import Deployment
from pipesim.serving.engine import find_engine
from pipesim.serving.formats import weight_format
from pipesim.serving.memory import ModelTooLarge, memory_of
from pipesim.serving.requests import at_once
from pipesim.serving.serve import serve

PUBLISHED = {  # tokens/s, GB a GPU, share of communication
    "tp8": (850, 18, 0.15), "pp4": (620, 35, 0.08), "tp4 x pp2": (920, 17, 0.12), "tp2 x pp4": (780, 22, 0.10),
}  # fmt: skip
LAYOUTS = {"tp8": (8, 1, 1), "pp4": (1, 4, 1), "tp4 x pp2": (4, 2, 1), "tp2 x pp4": (2, 4, 1), "dp8": (1, 1, 8)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--input", type=int, default=2048)
    parser.add_argument("--output", type=int, default=256)
    given = parser.parse_args()
    model, cluster = load_model("llama-2-70b"), load_cluster("dgx-a100:1")
    print(f"{model.name}, fp16, one batch of {given.batch}: {given.input} tokens in, {given.output} out")
    print("layout     GPUs  tokens/s (article)  weights GB a GPU (article)  with cache  tensor comm (article)  bubble")
    for name, (tp, pp, replicas) in LAYOUTS.items():
        try:
            made = Deployment(
                model=model, cluster=cluster, tp=tp, pp=pp, replicas=replicas, weights=weight_format("fp16"),
                cache_bytes=2.0, engine=find_engine("vllm"), batch=given.batch,
            )  # fmt: skip
            held = memory_of(made)[0]
        except ModelTooLarge as error:
            print(f"{name:9}  {error}")
            continue
        found = serve(made, at_once(count=given.batch, prompt=given.input, output=given.output)).served
        rate, memory, share = PUBLISHED[name]
        cache = given.batch * (given.input + given.output) * held.token
        print(
            f"{name:9} {made.gpus:5} {found.output_tokens_per_s:9.0f} ({rate}) {held.weights / 1e9:18.1f} ({memory})"
            f" {(held.weights + held.buffers + cache) / 1e9:17.1f} {found.communication:16.1%} ({share:.0%})"
            f" {found.bubble:12.1%}"
        )


if __name__ == "__main__":
    main()
