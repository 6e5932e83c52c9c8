# Every target installs what it needs. Begin with `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Keeps compiled tests: rewriting their assertions takes longer than most tests run.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q

.PHONY: help setup run test check format bench kills crashes chaos up down proto lock clean sim
help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## create .venv with the locked dependencies

$(READY): requirements-dev.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "python3 is missing: install Python 3.11+ (Debian, Ubuntu: python3 python3-venv)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11+ is needed, $(PYTHON) is older: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is missing: install python3-venv"; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python deploy/install_requirements.py requirements-dev.txt
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: java
java: $(READY)
	@$(BIN)/python -c 'from controller.embedded_zookeeper.ensemble import find_java; find_java()' 2>/dev/null || { echo "Java 17+ is missing: install openjdk-17-jre-headless (Debian, Ubuntu) or set JAVA_HOME"; exit 1; }

run: java ## run a whole cluster on this machine: failures, recovery, Spark report (under 3 minutes)
	$(BIN)/partition-controller playground --script demo --data-dir run

LARGE := -n 4 --dist loadfile --no-loadscope-reorder --retry-slow
test: java ## check format, lint and types, run all tests but those with a target of their own
	@$(MAKE) --no-print-directory -j 2 lint most

.PHONY: most
most: java
	HYPOTHESIS_PROFILE=short $(PYTEST) $(LARGE) -m "not long and not kafka_long and not browser_long and not gameday_long and not spark_long and not s3_long and not containers_long"

.PHONY: test-long
test-long: java ## run the tests that are too long for `make test`: whole runs under faults, the tutorial, every alert, four times the examples of Hypothesis; ARGS as pytest's
	$(PYTEST) $(LARGE) -m "long or (hypothesis and not slow)" $(ARGS)

check: $(READY) ## check format, lint and types, run the fast tests (without servers, and without those marked thorough)
	@$(MAKE) --no-print-directory -j 3 lint quick-half quick-rest

# Two processes of pytest, not one with two workers: each worker would collect all tests, and to hand one out takes longer than most tests run.
HALF := tests/core tests/broker_stub tests/planning tests/cli
QUICK := HYPOTHESIS_PROFILE=quick $(PYTEST) -m "not slow and not thorough"
.PHONY: quick-half quick-rest
quick-half: $(READY)
	$(QUICK) $(HALF)

quick-rest: $(READY)
	$(QUICK) $(HALF:%=--ignore=%)

.PHONY: lint
lint: $(READY)
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check -q .
	$(BIN)/mypy

format: $(READY) ## format the sources and fix what ruff can fix
	$(BIN)/ruff format -q .
	$(BIN)/ruff check -q --fix .

.PHONY: man
man: $(READY) ## write manual pages of pctl and partition-controller into build/man/man1
	$(BIN)/pctl man build/man/man1

bench: java ## run benchmarks against raw ZooKeeper access; ARGS selects some: failover warm (SCALE=10: a million partitions) failure crash creation deletion election shutdown reassignment report-executors ...
	$(BIN)/python -m tests.bench $(ARGS)

ROUNDS ?= 50
SEED ?= 1
kills: java ## kill -9 each broker in turn, ROUNDS=50 times, under load; check the records
	$(BIN)/python -m tests.provers.durability kills $(ROUNDS) $(SEED)

LANES ?= 3
crashes: java ## kill -9 the controller at every commit of deletions and reassignments; compare each end state with that of an undisturbed run
	$(BIN)/python -m tests.provers.durability crashes $(LANES)

.PHONY: upgrade
upgrade: java ## rolling upgrade under load from the former version (REVISION=...) to this one, and back; check records and epochs
	$(BIN)/python -m tests.provers.durability upgrade $(REVISION)

MINUTES ?= 5
chaos: java ## inject faults of all kinds into real processes for about MINUTES=5, from SEED=1; check the records; ARGS: --plan, --report FILE, ...
	$(BIN)/python -m tests.provers.chaos --minutes $(MINUTES) --seed $(SEED) $(ARGS)

.PHONY: model
model: $(READY) ## check the whole exhaustive model: elections, transitions, reachable states (some minutes); prints counts
	MODEL=whole $(PYTEST) -n 2 --dist worksteal -rP tests/provers/model

INPUTS ?= 1000000
FUZZ_READY := $(VENV)/.fuzz-ready
.PHONY: fuzz
fuzz: $(FUZZ_READY) ## feed INPUTS=1000000 inputs to codecs, RPC handlers, logs, settings and command lines; ARGS: --target NAME, --input HEX, ...
	$(BIN)/python -m tests.provers.fuzz --inputs $(INPUTS) --seed $(SEED) $(ARGS)

# Wheels only: compiling atheris needs clang. Without a wheel, Hypothesis runs alone.
$(FUZZ_READY): tests/provers/fuzz/requirements.txt $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r tests/provers/fuzz/requirements.txt || echo "atheris is not installed: Hypothesis runs alone"
	@touch $@

.PHONY: soak
soak: MINUTES = 120
soak: java ## real processes under faults and churn for HOURS=2 (or MINUTES=n), from SEED=1: does anything grow? Ctrl-C ends it with its summary; ARGS: --partitions N, ...
	$(BIN)/python -m tests.provers.soak $(if $(HOURS),--hours $(HOURS),--minutes $(MINUTES)) --seed $(SEED) $(ARGS)

# A folder for each version. Several checkouts may share it.
export KAFKA_JARS ?= $(CURDIR)/build/kafka
KAFKA_OLD := 3.6.2 3.3.2 2.8.2
.PHONY: kafka-jars kafka-jars-old kafka-decoders
kafka-jars: $(READY) ## fetch the jars of Kafka 3.9.1 (Maven), checked against their checksums
	@$(BIN)/python -m controller.embedded_kafka 3.9.1

kafka-jars-old: $(READY) ## fetch the jars of Kafka 3.6.2, 3.3.2 and 2.8.2 too
	@$(BIN)/python -m controller.embedded_kafka $(KAFKA_OLD)

.PHONY: attack
attack: java ## replay attacks on real processes, plain and secured: strangers, hostile input, poison, doubles; ARGS as pytest's
	$(PYTEST) tests/attack $(ARGS)

.PHONY: gameday
gameday: java ## 22 faults that operators meet, one by one: what pctl says of each, and its advice followed
	$(PYTEST) tests/playground -m gameday_long

.PHONY: browser
browser: java ## run all tests of the console in Debian's Chromium (apt-get install chromium), also with 100,000 partitions (SCALE=10: a million); ARGS as pytest's
	@command -v chromium >/dev/null || { echo "Chromium is missing: apt-get install chromium"; exit 1; }
	$(PYTEST) tests/browser -rP $(ARGS)

.PHONY: prometheus
prometheus: $(READY) ## fetch Debian's Prometheus, for the tests of alerts and dashboards (checked against its checksum)
	@$(BIN)/python -m tests.tools.debian prometheus

.PHONY: site
site: $(READY) ## build the pages of docs/ into build/site
	@[ -x $(VENV)/site/bin/python ] || $(PYTHON) -m venv $(VENV)/site
	$(VENV)/site/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.txt
	NO_MKDOCS_2_WARNING=1 $(VENV)/site/bin/mkdocs build --config-file docs/mkdocs.yml
	@cp build/site/tutorial.html build/site/index.html

.PHONY: commands
commands: java ## run every verb of pctl on a playground, and write docs/commands.md of what they print
	$(BIN)/python -m tests.docs.commands

.PHONY: deb dist
deb: $(READY) ## build a Debian package into build/packages
	deploy/build-deb.sh build/packages

dist: $(READY) ## build wheel and source distribution into build/packages
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir build/packages

.PHONY: spark-cluster
spark-cluster: java ## a report on a Spark cluster of two workers, which are killed; one that makes the archive of Spark's classes
	$(PYTEST) tests/analysis -m spark_long

# A folder for each version. Several checkouts may share it.
export HADOOP_AWS_JARS ?= $(CURDIR)/build/hadoop-aws
.PHONY: s3-jars spark-s3
s3-jars: $(READY) ## fetch the jars of Hadoop's client of S3 (Maven, 700 MB), checked against their checksums
	@$(BIN)/python -m controller.analysis.object_storage

spark-s3: java s3-jars ## logs, lake and report on a server of S3 (moto), by a local Spark and by a Spark cluster whose workers are killed
	$(PYTEST) tests/analysis -m s3_long

.PHONY: spark-archive
spark-archive: ## write what spark-submit needs for a report on a Spark cluster into build/spark (docs/report.md)
	$(PYTHON) deploy/spark_archive.py build/spark

.PHONY: screenshots
screenshots: java ## make the pictures of console and report in docs/images, with Debian's Chromium
	$(BIN)/python -m tests.browser.screenshots

.PHONY: kafka
kafka: java kafka-jars kafka-jars-old ## run all tests on real Kafka brokers (3.9, 3.6, 3.3, 2.8); ARGS select some, as pytest's
	$(PYTEST) tests/kafka $(ARGS)

.PHONY: chaos-kafka
chaos-kafka: MINUTES = 10
chaos-kafka: java kafka-jars ## inject faults into real Kafka brokers, our controllers and ZooKeeper for MINUTES=10, from SEED=1; check the records
	$(BIN)/python -m tests.kafka.chaos --minutes $(MINUTES) --seed $(SEED)

.PHONY: bench-kafka
bench-kafka: java kafka-jars ## our controller against Kafka's own on the same three real brokers, 10,000 partitions; ARGS: --topics N, --runs N
	$(BIN)/python -m tests.kafka.bench $(ARGS)

.PHONY: bench-peers
SCALE ?= 0.1
bench-peers: java ## our controller beside Kafka 3.9.1's own, SCALE=0.1 times 100,000 partitions, brokers that only acknowledge; ARGS: --runs N, --fsync
	$(BIN)/python -m tests.kafka.side_by_side.peers --scale $(SCALE) $(ARGS)

.PHONY: kafka-messages
kafka-messages: kafka-jars ## generate the code of Kafka's messages from the specifications in Kafka's jar; ARGS: --check
	$(BIN)/python -m proto.kafka.generator --jar $(KAFKA_JARS)/3.9.1/kafka-clients-*.jar $(ARGS)

kafka-decoders: java kafka-jars ## compare our decoders of Kafka's znodes with Kafka's own; ARGS: --seed N, --count N, --record
	$(BIN)/python -m tests.kafka_decoders --jars $(KAFKA_JARS)/3.9.1 $(ARGS)

SEEDS ?= 2000
sim: $(READY) ## run the deterministic simulator with SEEDS=2000 seeds; a failure prints how to replay it
	$(BIN)/python -m tests.provers.sim --seeds $(SEEDS)

.PHONY: planted
planted: $(READY) ## search each planted bug with the simulator, at most 2000 seeds each (some minutes); ARGS: names, --write, ...
	$(BIN)/python -m tests.provers.sim.planted $(ARGS)

.PHONY: mutate mutate-all
mutate: $(READY) ## plant small mistakes one by one, and see which tests find them; ARGS: files, folders, --diff, --every N, --write
	$(BIN)/python -m tests.provers.mutation $(if $(ARGS),$(ARGS),--diff)

mutate-all: $(READY) ## the same for the whole product, and the table in docs/mutation.md (a night)
	$(BIN)/python -m tests.provers.mutation --seeds 20 --write controller/core controller/runtime controller/planning controller/analysis controller/workload broker_stub

up: ## start the cluster in containers (needs docker; see docs/deploy.md)
	deploy/up.sh

down: ## stop the cluster in containers
	deploy/up.sh --down

.PHONY: kafka-walks
kafka-walks: java kafka-jars ## random operations under Kafka 3.9.1's own controller and under ours: the same answers and znodes; ARGS: --seeds 1:30, --steps 30, --together 4
	$(BIN)/python -m tests.kafka.side_by_side.walks $(ARGS)

.PHONY: containers
containers: $(READY) ## build the image and start every profile of the compose file on this machine's container engine, with failures; skipped where none answers; the Debian package in a chroot; ARGS as pytest's
	$(PYTEST) tests/deploy -m containers_long -rP $(ARGS)

proto: $(READY) ## generate the gRPC code from proto/*.proto
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. proto/*.proto
	@rm -f $(addprefix proto/,$(addsuffix _pb2_grpc.py,common features history inspection maintenance))
	@mv proto/*_pb2*.py* proto/gen/
	@sed -i -e 's/^from proto import /from proto.gen import /' -e "s/'proto\.\([a-z_]*_pb2\)'/'proto.gen.\1'/" proto/gen/*_pb2*.py*

lock: $(READY) ## resolve pyproject.toml again into requirements*.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header pyproject.toml -o requirements.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --group dev pyproject.toml -o requirements-dev.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header tests/provers/fuzz/requirements.in -o tests/provers/fuzz/requirements.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header docs/requirements.in -o docs/requirements.txt
	for tool in duckdb kafka-utils kafka-tools kubernetes-validate moto pillow playwright twine zk-shell; do \
		$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header tests/tools/requirements/$$tool.in -o tests/tools/requirements/$$tool.txt || exit 1; \
	done

clean: ## remove the virtual environment, builds, caches and playground runs
	rm -rf $(VENV) run build deploy/build *.egg-info .mypy_cache .ruff_cache .pytest_cache
