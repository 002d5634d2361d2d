# MemTier's resident and web view.  `docker compose up` runs both (compose.yaml).
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /build \
    && /build/bin/pip install --no-cache-dir --quiet build \
    && /build/bin/python -m build --wheel --outdir /dist

FROM python:3.13-slim
COPY --from=build /dist /dist
RUN python -m venv /opt/memtier \
    && /opt/memtier/bin/pip install --no-cache-dir --quiet "$(ls /dist/*.whl)[mcp,otel,web]" \
    && rm -r /dist
ENV PATH=/opt/memtier/bin:$PATH
ENV MEMTIER_HOME=/memory
# Of the user below: MemTier refuses what is another's.  compose.yaml mounts a home of its user there.
RUN mkdir -m 700 /memory && chown 1000:1000 /memory
USER 1000:1000
RUN memtier --version
ENTRYPOINT ["memtier"]
CMD ["serve"]
