"""Examples at the end of each verb's ``--help``; a test parses every one. Imported when help is printed."""

from __future__ import annotations

# fmt: off
#: By verb as it is typed; without the name of the program.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "audit": ("audit", "audit --topic orders -o json"),
    "brokers": ("brokers", "brokers -w 5"),
    "brokers decommission": (
        "brokers decommission 4 --reason 'old machine' --dry-run",
        "--timeout 60 brokers decommission 4,5 --to 1,2,3 --reason 'old machine' --throttle 50000000",
    ),
    "brokers forget": ("brokers forget 4 --reason 'burned down'",),
    "brokers replace": ("brokers replace 4 7 --reason 'new machine'",),
    "brokers swap": ("brokers swap 2 5 --reason 'racks were mixed up'",),
    "cluster": ("cluster", "cluster -o yaml"),
    "completion": ("completion bash > /etc/bash_completion.d/pctl", "completion zsh > ~/.zfunc/_pctl"),
    "config delete": ("config delete retention.ms --topic orders",),
    "config get": ("config get --topic orders", "config get --all-brokers", "config get --controller 1"),
    "config set": (
        "config set retention.ms=86400000 --topic orders",
        "config set reassignment_concurrent_moves_max=20 --all-controllers",
    ),
    "consume": ("consume orders --from-beginning --max-messages 10", "consume orders --group billing --follow"),
    "controllers": ("controllers",),
    "controllers claim": ("controllers claim",),
    "controllers history": ("controllers history",),
    "controllers move": ("controllers move 2 --reason 'kernel update of 1'",),
    "controllers resign": (
        "controllers resign --reason 'kernel update'",
        "controllers resign --to-kafka --reason 'the trial is over'",
    ),
    "elect leader": ("elect leader 2 --topic orders --partition 0",),
    "elect preferred": ("elect preferred --topic orders", "elect preferred --all --dry-run"),
    "elect unclean": ("elect unclean --partition orders-3 --reason 'both disks are lost'",),
    "explain broker": ("explain broker 3",),
    "explain controller": ("explain controller",),
    "explain deletion": ("explain deletion orders",),
    "explain partition": ("explain partition orders 3",),
    "explain reassignment": ("explain reassignment orders 3",),
    "features describe": ("features describe",),
    "features disable": ("features disable --feature my.feature",),
    "features downgrade": ("features downgrade --feature my.feature=1",),
    "features upgrade": ("features upgrade --feature my.feature=2",),
    "freeze": ("freeze --reason 'black friday' --for 3d",),
    "health": ("health", "health -o json"),
    "history": (
        "history --topic orders --partition 3",
        "history --since 2h --kind leader --kind controller",
        "history --state-log-dir /var/lib/controller/state-log --since 2026-01-14T10:15:00Z",
    ),
    "lake follow": ("lake follow /var/lib/controller/state-log --lake /var/lib/controller/lake",),
    "lake update": ("lake update /var/lib/controller/state-log --lake /var/lib/controller/lake",),
    "maintenance cancel-shutdown": ("maintenance cancel-shutdown 3",),
    "maintenance drain": ("maintenance drain 3 --reason 'new disks'",),
    "maintenance enter": ("maintenance enter --reason 'rack 2 is moved'",),
    "maintenance leave": ("maintenance leave",),
    "maintenance pause": ("maintenance pause --reason 'ZooKeeper is upgraded'",),
    "maintenance resume": ("maintenance resume",),
    "maintenance show": ("maintenance show",),
    "maintenance undrain": ("maintenance undrain 3",),
    "man": ("man /usr/local/share/man/man1",),
    "partitions": ("partitions --topic orders", "partitions --under-min-isr", "partitions --unavailable -o tsv"),
    "plan broker-loss": ("plan broker-loss 2", "plan broker-loss 2,3 -o json"),
    "plan drain": ("plan drain 2",),
    "plan preferred-election": ("plan preferred-election",),
    "plan rack-loss": ("plan rack-loss a",),
    "plan rolling-restart": ("plan rolling-restart --batch 2",),
    "produce": ("produce orders hello", "produce orders --key customer-7 --acks all 'two words'"),
    "quarantine list": ("quarantine list",),
    "quarantine release": ("quarantine release topic/orders --reason 'fixed in 1.2'",),
    "reassign cancel": ("reassign cancel --all", "reassign cancel --topic orders --partition 3"),
    "reassign execute": (
        "reassign execute plan.json --throttle 50000000",
        "reassign execute --topic orders --partition 3 --replicas 1,2,4 --dry-run",
    ),
    "reassign generate": (
        "reassign generate > plan.json", "reassign generate --topic orders --brokers 1,2,3 --by bytes",
    ),
    "reassign list": ("reassign list -w",),
    "reassign verify": ("reassign verify plan.json",),
    "report": (
        "report /var/lib/controller/state-log --out report",
        "report /var/lib/controller/state-log --slo 99.95 --json --strict",
        "report /var/lib/controller/state-log --diff 2026-01-14T10:00:00Z 2026-01-14T10:05:00Z",
    ),
    "stoppable": ("stoppable 1", "stoppable 1 --approve --reason 'kernel update'"),
    "topics alter": ("topics alter orders --partitions 12",),
    "topics create": (
        "topics create orders --partitions 6 --replication-factor 3 --config min.insync.replicas=2",
        "topics create odd --replica-assignment 1:2,2:3",
    ),
    "topics delete": ("topics delete orders --reason 'not used since 2024'",),
    "topics describe": ("topics describe orders",),
    "topics list": ("topics list",),
    "unfreeze": ("unfreeze",),
    "wait": ("--timeout 300 wait --until stable",),
    "watch": ("watch --topic orders", "watch --for 60 -o json"),
}
# fmt: on


def lines_for(path: str) -> list[str]:
    """``path``: the verb as it is typed, with the name of the program, as ``pctl topics list``."""
    program, _, verb = path.partition(" ")
    return [f"{program} {example}" for example in EXAMPLES.get(verb, ())]
