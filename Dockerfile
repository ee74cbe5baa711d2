# The engine and the API, with every package and jar from its lock. docker-compose.yml runs them
# beside a broker, PostgreSQL and Airflow; a test holds both against the configuration.
FROM python:3.13.9-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 10001 headrace \
    && install --directory --owner headrace /opt/headrace /var/lib/headrace
WORKDIR /opt/headrace

# What changes seldom comes first: a change of the sources downloads nothing again.
COPY requirements/uv.txt requirements/build.txt requirements/core.txt requirements/
RUN pip install --no-cache-dir --require-hashes --requirement requirements/uv.txt \
    && uv pip install --system --no-cache --build-constraints requirements/build.txt \
        --require-hashes --requirements requirements/core.txt

COPY pyproject.toml README.md LICENSE ./
COPY headrace headrace
COPY ingest ingest
COPY etl_procs etl_procs
COPY migrations migrations
COPY api api
COPY tpcdi tpcdi
COPY bench bench
RUN uv pip install --system --no-cache --no-deps --build-constraints requirements/build.txt .

USER headrace
ENV HEADRACE_JARS=/opt/headrace/jars \
    HEADRACE_HOME=/var/lib/headrace
RUN headrace jars

CMD ["headrace", "--help"]
