# An image that trains an agent on HackMatrix, or runs another command of hmx.
#
#   docker build -t hmx .                                        for CPUs
#   docker build -t hmx --build-arg JAX='jax[cuda12]' .          for NVIDIA GPUs
#   docker run --rm --init -v "$PWD/runs:/srv/hmx/runs" hmx train --preset quick
#
# It runs as user 1000, who must be able to write to the folder that is mounted on runs/.

ARG BASE=docker.io/library/python:3.12-slim-bookworm
FROM ${BASE}

ARG JAX=jax
WORKDIR /srv/hmx
COPY . /usr/local/src/hmx
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --constraint /usr/local/src/hmx/constraints.txt /usr/local/src/hmx "${JAX}" \
    && install --directory --owner=1000 --group=1000 runs

ENV HMX_CACHE_DIR=/tmp/hmx-cache
USER 1000:1000
ENTRYPOINT ["hmx"]
CMD ["train"]
