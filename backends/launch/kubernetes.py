"""Kubernetes: a PyTorchJob of the Kubeflow training operator (kubeflow.org/v1).

The models name the fields of the operator's published custom resource that we use, and no others, so a
misspelt field cannot slip through.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from pipesim.backends.launch.torchrun import Job, check_nnodes

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
    mountPath: str  # noqa: N815 - the resource's own spelling


class EmptyDir(_Strict):
    medium: Literal["Memory"] = "Memory"


class Volume(_Strict):
    name: str
    emptyDir: EmptyDir  # noqa: N815


class Container(_Strict):
    name: Literal["pytorch"] = "pytorch"  # the operator looks for this name
    image: Annotated[str, Field(min_length=1)]
    command: list[str]
    env: list[EnvVar]
    resources: Resources
    volumeMounts: list[VolumeMount]  # noqa: N815


class PodSpec(_Strict):
    containers: Annotated[list[Container], Field(min_length=1, max_length=1)]
    volumes: list[Volume]


class PodTemplate(_Strict):
    spec: PodSpec


class ReplicaSpec(_Strict):
    replicas: Annotated[int, Field(ge=1)]
    restartPolicy: Literal["Always", "OnFailure", "Never", "ExitCode"]  # noqa: N815
    template: PodTemplate


class ElasticPolicy(_Strict):
    rdzvBackend: Literal["c10d", "etcd", "etcd-v2"]  # noqa: N815
    minReplicas: Annotated[int, Field(ge=1)]  # noqa: N815
    maxReplicas: Annotated[int, Field(ge=1)]  # noqa: N815
    maxRestarts: Annotated[int, Field(ge=0)]  # noqa: N815


class RunPolicy(_Strict):
    cleanPodPolicy: Literal["All", "Running", "None"]  # noqa: N815


class JobSpec(_Strict):
    nprocPerNode: str  # noqa: N815 - a text in the operator's schema
    elasticPolicy: ElasticPolicy  # noqa: N815
    runPolicy: RunPolicy  # noqa: N815
    pytorchReplicaSpecs: dict[Literal["Worker"], ReplicaSpec]  # noqa: N815


class Metadata(_Strict):
    name: _Name
    namespace: _Name


class PyTorchJob(_Strict):
    apiVersion: Literal["kubeflow.org/v1"] = "kubeflow.org/v1"  # noqa: N815
    kind: Literal["PyTorchJob"] = "PyTorchJob"
    metadata: Metadata
    spec: JobSpec


def manifest(job: Job, *, image: str, gpus_per_node: int, namespace: str = "default") -> str:
    """A PyTorchJob as YAML. The operator sets the rendezvous, which torchrun reads from PET_ variables.

    Raises pydantic's ValidationError for names that Kubernetes does not take.
    """
    least, most = check_nnodes(job.nnodes)
    container = Container(
        image=image,
        command=["torchrun", "-m", "pipesim", "run", *job.arguments],
        env=[EnvVar(name=key, value=value) for key, value in sorted(job.environment.items())],
        resources=Resources(limits={"nvidia.com/gpu": gpus_per_node}),
        volumeMounts=[VolumeMount(name="shm", mountPath="/dev/shm")],  # NCCL's shared memory
    )
    pod = PodTemplate(spec=PodSpec(containers=[container], volumes=[Volume(name="shm", emptyDir=EmptyDir())]))
    elastic = ElasticPolicy(rdzvBackend="c10d", minReplicas=least, maxReplicas=most, maxRestarts=job.max_restarts)
    made = PyTorchJob(
        metadata=Metadata(name=job.name, namespace=namespace),
        spec=JobSpec(
            nprocPerNode=str(gpus_per_node),
            elasticPolicy=elastic,
            runPolicy=RunPolicy(cleanPodPolicy="None"),
            pytorchReplicaSpecs={"Worker": ReplicaSpec(replicas=most, restartPolicy="OnFailure", template=pod)},
        ),
    )
    shown: dict[str, Any] = made.model_dump()
    return yaml.safe_dump(shown, sort_keys=False)
