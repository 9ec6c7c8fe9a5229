# One image for every role: `postroom serve` by default, or `web`, `scheduler`, `sender`, any command.
# Nothing in it is written to but /data and /tmp, so the root may be read-only:
#   docker run --read-only --tmpfs /tmp -v postroom:/data -p 127.0.0.1:8025:8025 postroom
# Name the base by its digest where builds must be repeatable to the byte.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# What is needed to run goes into a place of its own, without pip.
COPY deploy/requirements.txt deploy/requirements.txt
RUN python -m venv --without-pip /opt/postroom \
    && pip --python /opt/postroom/bin/python install --require-hashes -r deploy/requirements.txt
# What is needed to build stays behind in this stage.
COPY requirements.txt ./
RUN pip install --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && pip --python /opt/postroom/bin/python install --no-deps --no-index /wheels/*.whl

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/postroom /opt/postroom
# /data belongs to one machine: ack journals, bells, imports, and the SQLite file where that is used.
# A sender that was killed is settled at once by the next one that finds its journal there; without,
# whatever it had announced is in doubt and the message's policy decides: resend or hold.
RUN install -d -o 10001 -g 10001 -m 0700 /data && install -d /etc/postroom
ENV PATH=/opt/postroom/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    POSTROOM_BIND=0.0.0.0:8025 \
    POSTROOM_DATA=/data \
    POSTROOM_STORAGE=sqlite:////data/postroom.db
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
# postroom.toml is read from here, if somebody puts one there.
WORKDIR /etc/postroom
VOLUME /data
EXPOSE 8025
# Work in hand is finished within POSTROOM_STOP_GRACE_S: give the container longer than that.
STOPSIGNAL SIGTERM
# Only the web role answers HTTP; a check in here would call every scheduler and sender sick. Whoever
# runs the web role checks /readyz (deploy/compose.yaml, deploy/kubernetes, deploy/azure).
HEALTHCHECK NONE
ENTRYPOINT ["postroom"]
CMD ["serve"]
