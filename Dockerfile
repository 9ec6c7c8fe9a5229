# One image for every role: `postroom serve` by default, or `web`, `scheduler`, `sender`, or any command.
# It writes only to /data and /tmp, so the root file system can be read-only:
#   docker run --read-only --tmpfs /tmp -v postroom:/data -p 127.0.0.1:8025:8025 postroom
# For builds that are identical byte for byte, name the base image by its digest.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# The runtime environment, without pip.
COPY deploy/requirements.txt deploy/requirements.txt
RUN python -m venv --without-pip /opt/postroom \
    && pip --python /opt/postroom/bin/python install --require-hashes -r deploy/requirements.txt
# Build tools stay in this stage.
COPY requirements.txt ./
RUN pip install --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && pip --python /opt/postroom/bin/python install --no-deps --no-index /wheels/*.whl

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/postroom /opt/postroom
# /data belongs to one machine: the ack journals, the named pipes by which roles wake each other, and the
# SQLite file if there is one. From the journal of a killed sender, the next one knows at once which emails
# were sent. Without it, everything that sender had announced is in doubt, and is sent again or held.
RUN install -d -o 10001 -g 10001 -m 0700 /data && install -d /etc/postroom
ENV PATH=/opt/postroom/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    POSTROOM_BIND=0.0.0.0:8025 \
    POSTROOM_DATA=/data \
    POSTROOM_STORAGE=sqlite:////data/postroom.db
# A number, so that Kubernetes can tell that it is not root.
USER 10001:10001
# postroom.toml is read from here, if there is one.
WORKDIR /etc/postroom
VOLUME /data
EXPOSE 8025
# Work in progress has POSTROOM_STOP_GRACE_S to finish: give the container longer than that to stop.
STOPSIGNAL SIGTERM
# Only the web role serves HTTP, so a check here would report every scheduler and sender as unhealthy.
# deploy/compose.yaml, deploy/kubernetes and deploy/azure check /readyz of the web role.
HEALTHCHECK NONE
ENTRYPOINT ["postroom"]
CMD ["serve"]
