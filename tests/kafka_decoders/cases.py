"""What is given to both decoders: valid znodes, and every way in which one of them can be odd."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

#: Valid znodes by kind. Kinds are the helper's (KafkaDecoders.java).
SEEDS: Mapping[str, Sequence[str]] = {
    "controller": [
        '{"version":1,"brokerid":1,"timestamp":"1700000000000"}',
        '{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1,"endpoint":"h:1"}',
    ],
    "controller_epoch": ["7"],
    "broker": [
        '{"version":5,"host":"h1","port":9092,"endpoints":["PLAINTEXT://h1:9092","SSL://[::1]:9093"],'
        '"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","SSL":"SSL"},"rack":"r1","jmx_port":-1,'
        '"timestamp":"1","features":{"f":{"min_version":1,"max_version":3}}}',
        '{"version":4,"host":null,"port":-1,"endpoints":["A://h1:1"],'
        '"listener_security_protocol_map":{"A":"SASL_SSL"},"jmx_port":-1,"timestamp":"1","rack":null}',
        '{"version":2,"host":"h1","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h1:9092"]}',
        '{"version":1,"host":"h1","port":9092,"jmx_port":-1,"timestamp":"1"}',
    ],
    "topic": [
        '{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2,3],"1":[2,1]},"adding_replicas":{"0":[3]},'
        '"removing_replicas":{"0":[1]}}',
        '{"version":1,"partitions":{"0":[1]}}',
    ],
    "state": [
        '{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":7,"isr":[1,2],"leader_recovery_state":1}',
        '{"version":1,"leader":-1,"leader_epoch":0,"controller_epoch":0,"isr":[]}',
    ],
    "election": ['{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":3}]}'],
    "isr_change": ['{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":3}]}'],
    "reassignment": [
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3,2]},'
        '{"topic":"u","partition":1,"replicas":[1]}]}'
    ],
    "log_dir_event": ['{"version":1,"broker":2,"event":1}'],
    "config": ['{"version":1,"config":{"retention.ms":"1000","cleanup.policy":"compact"}}', ""],
    "config_change": [
        '{"version":2,"entity_path":"topics/t"}',
        '{"version":2,"entity_path":"users/u/clients/c"}',
        '{"version":2,"entity_path":"brokers/<default>"}',
        '{"version":1,"entity_type":"topics","entity_name":"t"}',
        '{"version":1,"entity_type":"clients","entity_name":"c"}',
    ],
    "producer_ids": ['{"version":1,"broker":1,"block_start":"0","block_end":"999"}'],
    "cluster_id": ['{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAQ"}'],
    "feature": [
        '{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}',
        '{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":3}}}',
        '{"version":2,"status":1,"features":{}}',
    ],
}

#: JSON of the wrong kind, odd numbers, odd texts: put in place of any value.
ODD = (
    *("null", "true", "false", "{}", "[]", '""', '"x"', "[null]", '{"x":1}', "[[1]]", "[1,1]", "[-1]", "[1.0]"),
    *("0", "-0", "1", "2", "3", "6", "-1", "-2", "-129", "128", "255", "256", "32768", "65535", "65536", "65537"),
    *("2147483646", "2147483647", "2147483648", "-2147483648", "-2147483649", "4294967296"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 30),
    *("1.0", "1.5", "1e0", "1e3", "-1.0", "1E400", "0.1e1", "01", "+1", "1.", ".5", "NaN", "Infinity", "0x1"),
    *('"1"', '"0"', '"-1"', '"+1"', '" 1"', '"1.0"', '"007"', '"²"', '"٧"', '"9223372036854775808"', '"null"'),
    *('"\\ud800"', '"\\u0000"', '"\\ud83d\\ude00"', '"é"', '"a b"', '"a/b"', '".."', '"\\/"', '"\\x"', '"\t"'),
    *(f'"{"A" * 22}"', '"AAAAAAAAAAAAAAAAAAAAAQ=="', '"AAAAAAAAAAAAAAAAAAAAAB"', '"AAAA"', '"_-_-_-_-_-_-_-_-_-_-_A"'),
    *("'x'", "x", "/**/1", "1/**/", "", ","),
)  # fmt: skip
#: Put in place of any name of a field that is a number written as text, and added as fields.
NAMES = ('""', '"+1"', '"-1"', '"-0"', '"00"', '"007"', '" 1"', '"1 "', '"1.0"', '"²"', '"٧"', '"2147483648"',
         '"x"', '"\\u0030"', '"version"', "0", f'"{"0" * 30}1"')  # fmt: skip
_ENDPOINTS = (
    *("PLAINTEXT://h:9092", "plaintext://h:9092", "PLAINTEXT://:9092", "PLAINTEXT://h:0", "PLAINTEXT://h:-1"),
    *("PLAINTEXT://h:65535", "PLAINTEXT://h:65536", "PLAINTEXT://h:2147483648", "PLAINTEXT://h", "h:9092"),
    *("PLAINTEXT://::1:9092", "PLAINTEXT://[::1]:9092", "PLAINTEXT://[::1:9092", "PLAINTEXT://h_1.a%b:9092"),
    *("PLAINTEXT://h é:9092", "PLAINTEXT://h:00009092", "PLAINTEXT://h:+1", "PLAINTEXT://h/x:1", "://h:1"),
    *("X://h:1", "SASL_SSL://h:1", "PLAINTEXT://a://h:1", "PLAINTEXT://h:1\n", " PLAINTEXT://h:1", "PLAINTEXT://h:1 "),
    *("PLAINTEXT://[h]:1", "PLAINTEXT://user@h:1", "PLAINTEXT://h:٧"),
    *("PLAINTEXT://h:1,SSL://h:2", " , ", "\tSSL://h:1"),
)  # fmt: skip
_V1 = '{"version":1,"jmx_port":-1,%s}'
_V2 = '{"version":2,"jmx_port":-1,"endpoints":%s}'
_V4 = '{"version":4,"jmx_port":-1,"endpoints":%s,"listener_security_protocol_map":%s}'
_V5 = '{"version":5,"jmx_port":-1,"endpoints":["PLAINTEXT://h:1"],"features":%s}'
#: Written by hand, or met.
BY_HAND: Mapping[str, Sequence[str]] = {
    "controller": ['{"brokerid":3}', '{"version":99,"brokerid":3}', '{"brokerid":3,"endpoint":null}'],
    "controller_epoch": [
        *("0", "2147483646", "2147483647", "2147483648", "-1", "-0", "+7", "007", " 7", "7\n", "7.0", "1e3"),
        *("٧", "²", "0x7", "7_0", "9" * 50, "0" * 30 + "7", "null", '"7"', "1 2", "７"),
    ],
    "broker": [
        *(_V2 % json.dumps([endpoint]) for endpoint in _ENDPOINTS),
        _V2 % "[]",
        _V2 % '["PLAINTEXT://h:1","PLAINTEXT://h:2"]',
        _V2 % '["PLAINTEXT://h:1","plaintext://h:2"]',
        _V2 % '["PLAINTEXT://h:1","SSL://h:1"]',
        '{"version":2,"jmx_port":-1,"host":"h","port":1}',
        '{"version":4,"host":"h","port":1}',
        _V1 % '"host":"h","port":1,"endpoints":["SSL://other:2"]',
        _V1 % '"host":"h","port":1,"endpoints":7',
        _V1 % '"host":"h","port":1,"listener_security_protocol_map":7',
        *(_V1 % f'"host":"h","port":{port}' for port in (0, -1, 65535, 65536, 2147483647)),
        *(_V1 % f'"host":{host},"port":1' for host in ("null", '""', '"[::1]"', '"::1"', '"a b"', "7")),
        _V4 % ('["A://h:1"]', '{"a":"SSL"}'),
        _V4 % ('["a://h:1"]', '{"A":"ssl"}'),
        _V4 % ('["A://h:1"]', '{"A":"GRPC"}'),
        _V4 % ('["A://h:1"]', '{"B":"SSL"}'),
        _V4 % ('["SSL://h:1"]', "{}"),
        _V4 % ('["PLAINTEXT://h:1"]', '{"PLAINTEXT":"SSL"}'),
        _V5 % '{"f":{"min_version":0,"max_version":0}}',
        _V5 % '{"f":{"min_version":1,"max_version":32767}}',
        _V5 % '{"f":{"min_version":1,"max_version":2,"first_active_version":1}}',
        _V5 % '{"f":{"min_version":1,"max_version":2,"x":"y"}}',
        _V5 % '{"":{"min_version":1,"max_version":2}}',
        '{"version":4,"jmx_port":-1,"endpoints":["PLAINTEXT://h:1"],"features":{"f":{"min_version":1,"max_version":2}}}',
    ],
    "topic": [
        "{}",
        '{"partitions":{}}',
        '{"version":3,"partitions":{"0":[1]},"adding_replicas":{"7":[1]},"removing_replicas":{"7":[1]}}',
        '{"version":3,"partitions":{"0":[1]},"adding_replicas":{"0":[]}}',
        '{"partitions":{"0":[1],"00":[2]}}',
        '{"partitions":{"00":[1]},"adding_replicas":{"0":[1]}}',
        '{"partitions":{"0":[1]},"adding_replicas":{"x":[1]}}',
        '{"partitions":{"0":[1]},"adding_replicas":{"x":"y"}}',
        '{"partitions":{"0":[1]},"original_replicas":{"0":[1]},"queued_replicas":{"0":[2]}}',
        '{"partitions":{"0":[1]},"original_replicas":7}',
    ],
    "election": ['{"partitions":[{"topic":"t","partition":0}]}', '{"version":"x","partitions":[]}'],
    "isr_change": ['{"partitions":[{"topic":"t","partition":0}]}', '{"version":2,"partitions":[]}'],
    "reassignment": [
        '{"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}',
        '{"version":2,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}',
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]},'
        '{"topic":"t","partition":0,"replicas":[2]}]}',
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}',
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[]}]}',
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[]}],"throttle":1}',
    ],
    "log_dir_event": ['{"broker":2}', '{"version":1,"broker":2,"event":2}'],
    "config": [
        '{"config":{"a":"b"}}',
        '{"version":2,"config":{"a":"b"}}',
        '{"version":1}',
        "[]",
        '{"config":{"":""}}',
    ],
    "config_change": [
        *(f'{{"version":2,"entity_path":{json.dumps(entity)}}}' for entity in (
            "", "/", "topics", "topics/", "/t", "topics/a b", "topics/..", "topics//t", "brokers/7", "brokers/x",
            "brokers/007", "brokers/", "clients/c", "clients/<default>", "ips/1.2.3.4", "users/u", "acls/x",
            "topics/a/b", "Topics/t", "users/%3Cdefault%3E",
        )),
        *(f'{{"version":1,"entity_type":"{kind}","entity_name":"1"}}' for kind in ("users", "brokers", "ips", "x", "")),
        '{"version":1,"entity_type":"topics","entity_name":"a b"}',
        '{"version":1,"entity_path":"topics/t"}',
        '{"version":2,"entity_type":"topics","entity_name":"t"}',
        '{"version":2,"entity_path":"topics/t","entity_type":7}',
        '{"version":1,"entity_type":"topics","entity_name":"t","entity_path":7}',
    ],
    "producer_ids": [
        *(f'{{"version":1,"broker":1,"block_start":"{start}","block_end":"{end}"}}' for start, end in (
            ("0", "0"), ("1", "0"), ("2", "0"), ("9", "8"), ("-1", "5"), ("-9", "-5"), ("+5", "+9"),
            ("0", "2147483646"), ("0", "2147483647"), ("0", "9223372036854775807"),
            ("9223372036854775806", "9223372036854775807"),
            ("0", "9223372036854775808"), ("00", "009"), ("0" * 30, "0" * 30 + "9"), (" 0", "9"), ("٠", "٩"),
            ("0", "1e3"),
        )),
        '{"broker":1,"block_start":"0","block_end":"9"}',
    ],
    "cluster_id": ['{"id":"x"}', '{"version":1,"id":"x"}', '{"id":""}', '{"id":"a b"}'],
    "feature": [
        '{"version":2,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":3}}}',
        '{"version":1,"status":1,"features":{"f":{"max_version_level":3}}}',
        '{"version":1,"status":1,"features":{"f":{"min_version_level":3,"max_version_level":2}}}',
        '{"version":2,"status":1,"features":{"f":{"max_version_level":1,"x":"y"}}}',
        '{"version":2,"status":1,"features":{"f":{"max_version_level":1,"x":2}}}',
        '{"version":2,"status":1,"features":{"":{"max_version_level":1}}}',
        '{"version":2,"status":1,"features":{"f":{}}}',
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """``how``: what is odd, to tell cases of one kind apart."""

    znode: str
    data: bytes
    how: str


class Fields(list[tuple[str, object]]):
    """A JSON object that may name a field twice; names and values that are no container are JSON text."""


def _tree(value: object) -> object:
    match value:
        case Fields():
            return Fields((json.dumps(name), _tree(below)) for name, below in value)
        case list():
            return [_tree(below) for below in value]
    return json.dumps(value)


def _text(tree: object) -> str:
    match tree:
        case Fields():
            return "{" + ",".join(f"{name}:{_text(below)}" for name, below in tree) + "}"
        case list():
            return "[" + ",".join(map(_text, tree)) + "]"
    return str(tree)


def _places(tree: object, where: str = "") -> Iterator[tuple[str, list[object], int]]:
    """Each value below: its path, the container, the index in it."""
    if isinstance(tree, list):
        for index, item in enumerate(tree):
            name, below = item if isinstance(tree, Fields) else (str(index), item)
            path = f"{where}.{name}"
            yield path, tree, index
            yield from _places(below, path)


def _put(container: list[object], index: int, value: object) -> None:
    container[index] = (container[index][0], value) if isinstance(container, Fields) else value


def _fresh(seed: str) -> object:
    return _tree(json.loads(seed, object_pairs_hook=Fields))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _wrapped(seed: bytes) -> Iterator[tuple[str, bytes]]:
    """What can be wrong around and with the bytes of a znode."""
    for token in (
        "",
        "null",
        "[]",
        "{}",
        "0",
        '""',
        "true",
        "x",
        "{",
        "[",
        " ",
        "\n",
        "\0",
        "{}{}",
        '{"x":[{}]}',
    ):
        yield "other", token.encode()
    for code in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
        yield code, seed.decode().encode(code)
    yield "BOM", b"\xef\xbb\xbf" + seed
    for blank in (b" ", b"\t\r\n", b"\x0b", b"\0", b"\xa0", b"//x\n"):
        yield "blank before", blank + seed
        yield "blank after", seed + blank
    for garbage in (b"x", b"}", b"{}", b",", b"null", b" garbage", seed, b"\xff"):
        yield "after it", seed + garbage
    for end in range(1, len(seed), 1 + len(seed) // 8):
        yield "truncated", seed[:end]
    for wrong in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc3", b"\x01", b"\\"):
        yield "bad text", seed.replace(b'"', b'"' + wrong, 1)
        at = seed.rfind(b'"')
        yield "bad text", seed[:at] + wrong + seed[at:]
    if seed.startswith(b"{") and len(seed) > 2:
        for size in (900, 1100, 100_000):
            yield f"nested {size}", b'{"x":' + b"[" * size + b"]" * size + b"," + seed[1:]
        for digits in (900, 1100):
            yield f"{digits} digits", b'{"x":' + b"9" * digits + b"," + seed[1:]
        yield "long name", b'{"' + b"x" * 60_000 + b'":1,' + seed[1:]
        yield "spaced", seed.replace(b":", b" :\n ").replace(b",", b"\t,\r")
        yield "comma", seed[:-1] + b",}"
        yield "extra", b'{"new_field":[{}],' + seed[1:]
        yield "extra bad text", b'{"new_field":"\xff",' + seed[1:]
        yield "extra bad text", b'{"new_field":"\\ud800","\\ud800":1,' + seed[1:]


def systematic() -> Iterator[Case]:
    """The same in each run: what is written by hand, and every odd thing in every place of every seed."""
    for znode, texts in BY_HAND.items():
        for text in texts:
            yield Case(znode, _bytes(text), f"by hand {text}")
    for znode, seeds in SEEDS.items():
        for number, seed in enumerate(seeds):
            yield Case(znode, _bytes(seed), f"seed {number}")
            for how, data in _wrapped(_bytes(seed)):
                yield Case(znode, data, how)
            if seed.startswith("{"):
                yield from _with_odd_values(znode, seed)


def _with_odd_values(znode: str, seed: str) -> Iterator[Case]:
    for place, (path, _, _) in enumerate(_places(_fresh(seed))):

        def made(how: str, change: object, place: int = place, path: str = path) -> Case:
            tree = _fresh(seed)
            _, container, index = list(_places(tree))[place]
            change(container, index)  # type: ignore[operator]
            return Case(znode, _bytes(_text(tree)), f"{path} {how}")

        for odd in ODD:
            yield made("odd", lambda container, index, odd=odd: _put(container, index, odd))
        yield made("absent", lambda container, index: container.pop(index))
        named = path.endswith('"')
        for odd in ("null", '"x"', "1", "{}", "[]") if named else ():
            yield made("twice", lambda c, index, odd=odd: c.insert(index, (c[index][0], odd)))
            yield made("twice", lambda c, index, odd=odd: c.append((c[index][0], odd)))
        for name in NAMES if named else ():
            yield made("renamed", lambda c, index, name=name: c.__setitem__(index, (name, c[index][1])))
            yield made("extra name", lambda c, index, name=name: c.append((name, c[index][1])))


def drawn(seed: int, count: int) -> Iterator[Case]:
    """``count`` cases with several odd things at once."""
    rng = Random(seed)
    kinds = [znode for znode, seeds in SEEDS.items() for text in seeds if text.startswith("{")]
    for _ in range(count):
        znode = rng.choice(kinds)
        tree = _fresh(rng.choice([text for text in SEEDS[znode] if text.startswith("{")]))
        for _ in range(rng.randint(1, 3)):
            places = list(_places(tree))
            if not places:
                break
            _, container, index = rng.choice(places)
            _change(rng, container, index)
        data = _bytes(_text(tree))
        if rng.random() < 0.2:
            data = rng.choice(list(_wrapped(data)))[1]
        if rng.random() < 0.1 and data:
            at = rng.randrange(len(data))
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + rng.randrange(2) :]
        yield Case(znode, data, "drawn")


def _change(rng: Random, container: list[object], index: int) -> None:
    action = rng.randrange(6)
    if action == 0:
        container.pop(index)
    elif action == 1 and isinstance(container, Fields):
        container[index] = (rng.choice(NAMES), container[index][1])
    elif action == 2:
        container.insert(rng.randint(0, len(container)), container[index])
    elif action == 3:
        container[rng.randrange(len(container))] = container[index]
    else:
        _put(container, index, rng.choice(ODD))
