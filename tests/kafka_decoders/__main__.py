"""``python -m tests.kafka_decoders``: our decoders against Kafka's own, live.

python -m tests.kafka_decoders                    all systematic cases, and 20000 drawn from a fresh seed
python -m tests.kafka_decoders --seed 7           from this one
python -m tests.kafka_decoders --record           and write recorded.jsonl anew
"""

from __future__ import annotations

import argparse
import base64
import json
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from controller.embedded_zookeeper.ensemble import find_java
from controller.errors import EnvironmentFault
from tests.kafka_decoders import recording
from tests.kafka_decoders.cases import Case, drawn, systematic
from tests.kafka_decoders.deviations import deviation
from tests.kafka_decoders.ours import compared

_HELPER = Path(__file__).with_name("KafkaDecoders.java")
_SHOWN_MAX = 20


class HelperError(Exception):
    """Kafka's decoders could not be asked."""


def _asked(jars: str, cases: Sequence[Case]) -> list[Mapping[str, Any]]:
    lines = [{"znode": case.znode, "data": base64.b64encode(case.data).decode()} for case in cases]
    done = subprocess.run(
        [find_java(), "-cp", f"{jars}/*", str(_HELPER)],
        input="".join(f"{json.dumps(line)}\n" for line in lines),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(answers) != len(cases):
        raise HelperError(
            f"{_HELPER.name} ended with {done.returncode} after {len(answers)} of {len(cases)} answers (it needs a JDK "
            f"of version 17 or newer, a JRE is not enough):\n{done.stderr[-2000:]}"
        )
    return answers


def _differing(
    cases: Sequence[Case], answers: Sequence[Mapping[str, Any]], counts: Counter[str]
) -> list[str]:
    """What no deviation explains, a line for each."""
    found = []
    for case, kafka in zip(cases, answers, strict=True):
        for both in compared(case.znode, case.data, kafka):
            name = "equal" if both.equal else deviation(both)
            counts[name or "not explained"] += 1
            if name is None:
                found.append(
                    f"{both.who} {case.znode} {case.data[:300]!r}: Kafka {both.kafka}, we {both.ours}"[:1000]
                )
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_decoders")
    parser.add_argument("--jars", default="build/kafka/3.9.1", help="where `make kafka-jars` put them")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--count", type=int, default=20_000, help="cases that are drawn")
    parser.add_argument("--record", action="store_true", help="write recorded.jsonl anew")
    options = parser.parse_args(arguments)
    cases = list(
        {(c.znode, c.data): c for c in (*systematic(), *drawn(options.seed, options.count))}.values()
    )
    print(f"{len(cases)} cases, seed {options.seed}")
    try:
        answers = _asked(options.jars, cases)
    except (HelperError, EnvironmentFault) as error:
        print(error, file=sys.stderr)
        return 2
    counts: Counter[str] = Counter()
    problems = _differing(cases, answers, counts)
    for name, count in counts.most_common():
        print(f"{count:7} {name}")
    for problem in problems[:_SHOWN_MAX]:
        print(ascii(problem))
    if options.record:
        print(f"{recording.write(zip(cases, answers, strict=True))} recorded")
    print(f"{len(problems)} differences that no deviation explains")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
