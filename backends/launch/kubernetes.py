"""Kubernetes: a PyTorchJob of the Kubeflow training operator (kubeflow.org/v1).

The models name the fields of the operator's published custom resource that we use, and no others, so a
misspelt field cannot slip through.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipesim.backends.launch.torchrun import NODE, BadLaunch, Job, check_nnodes

_Name = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EnvVar(_Strict):
    name: str
    value: str


class Resources(_Strict):
    limits: dict[str, int | str]


class VolumeMount(_Strict):
    name: str
    mountPath: str


class EmptyDir(_Strict):
    medium: Literal["Memory"] = "Memory"


class Volume(_Strict):
    name: str
    emptyDir: EmptyDir


class Container(_Strict):
    name: Literal["pytorch"] = "pytorch"  # the operator looks for this name
    image: Annotated[str, Field(min_length=1)]
    command: list[str]
    env: list[EnvVar]
    resources: Resources
    volumeMounts: list[VolumeMount]


class PodSpec(_Strict):
    containers: Annotated[list[Container], Field(min_length=1, max_length=1)]
    volumes: list[Volume]


class PodTemplate(_Strict):
    spec: PodSpec


class ReplicaSpec(_Strict):
    replicas: Annotated[int, Field(ge=1)]
    restartPolicy: Literal["Always", "OnFailure", "Never", "ExitCode"]
    template: PodTemplate


class ElasticPolicy(_Strict):
    rdzvBackend: Literal["c10d", "etcd", "etcd-v2"]
    minReplicas: Annotated[int, Field(ge=1)]
    maxReplicas: Annotated[int, Field(ge=1)]
    maxRestarts: Annotated[int, Field(ge=0)]


class RunPolicy(_Strict):
    cleanPodPolicy: Literal["All", "Running", "None"]


class JobSpec(_Strict):
    nprocPerNode: str
    elasticPolicy: ElasticPolicy
    runPolicy: RunPolicy
    pytorchReplicaSpecs: dict[Literal["Worker"], ReplicaSpec]


class Metadata(_Strict):
    name: _Name
    namespace: _Name


class PyTorchJob(_Strict):
    apiVersion: Literal["kubeflow.org/v1"] = "kubeflow.org/v1"
    kind: Literal["PyTorchJob"] = "PyTorchJob"
    metadata: Metadata
    spec: JobSpec


def manifest(job: Job, *, image: str, gpus_per_node: int, namespace: str = "default") -> str:
    """A PyTorchJob as YAML. The operator sets the rendezvous, which torchrun reads from PET_ variables.

    Raises BadLaunch for names that Kubernetes does not take.
    """
    try:
        made = _made(job, image, gpus_per_node, namespace)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadLaunch(
            f"{first['loc'][-1]}={first['input']!r} cannot stand in a manifest: {first['msg']}", "e.g. --name my-run"
        ) from None
    shown: dict[str, Any] = made.model_dump()
    return yaml.safe_dump(shown, sort_keys=False)


def _made(job: Job, image: str, gpus_per_node: int, namespace: str) -> PyTorchJob:
    least, most = check_nnodes(job.nnodes)
    container = Container(
        image=image,
        command=["python3", "-m", NODE, "-m", "pipesim", "run", *job.arguments],
        env=[EnvVar(name=key, value=value) for key, value in sorted(job.environment.items())],
        resources=Resources(limits={"nvidia.com/gpu": gpus_per_node}),
        volumeMounts=[VolumeMount(name="shm", mountPath="/dev/shm")],  # NCCL's shared memory
    )
    pod = PodTemplate(spec=PodSpec(containers=[container], volumes=[Volume(name="shm", emptyDir=EmptyDir())]))
    elastic = ElasticPolicy(rdzvBackend="c10d", minReplicas=least, maxReplicas=most, maxRestarts=job.max_restarts)
    return PyTorchJob(
        metadata=Metadata(name=job.name, namespace=namespace),
        spec=JobSpec(
            nprocPerNode=str(gpus_per_node),
            elasticPolicy=elastic,
            runPolicy=RunPolicy(cleanPodPolicy="None"),
            pytorchReplicaSpecs={"Worker": ReplicaSpec(replicas=most, restartPolicy="OnFailure", template=pod)},
        ),
    )
