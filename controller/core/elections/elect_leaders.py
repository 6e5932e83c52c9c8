"""Elections on request: ElectLeaders, and the legacy znode ``/admin/preferred_replica_election`` (section 8.3)."""

from __future__ import annotations

from collections.abc import Sequence

from controller.core.context import SLICE_MAX, EventContext, Handler, Pause, slices
from controller.core.effects import DeleteNode, Problem, ReadPreferredElection, Unconfirmed
from controller.core.model import NO_LEADER, Partition
from controller.core.names import name_shown
from controller.core.partitions import leader_election, partition_state_machine
from controller.core.partitions.leader_election import Ballot, ElectionKind, NoEligibleLeader, Strategy
from controller.core.reasons import Reason
from controller.core.requests.elections import ElectionType, ElectLeaders, ElectLeadersReply, PartitionElected
from controller.core.requests.errors import ErrorCode
from controller.core.znode_paths import PREFERRED_ELECTION

#: Partitions of one request examined between yields.
EXAMINED_MAX = SLICE_MAX


def process_preferred_znode(context: EventContext) -> Handler[int]:
    """Hold the elections that the znode requests and delete it, until it is absent and its watch is armed.

    A request that does not decode is logged and deleted: it would block every later one. Returns the number of
    partitions elected.
    """
    elected = 0
    while True:
        request = yield from context.read(ReadPreferredElection())
        if request is None:
            context.solved(PREFERRED_ELECTION)
            return elected
        if isinstance(request, Problem):
            context.problem(request)
        else:
            wanted = _electable(context, request)
            failed = yield from partition_state_machine.to_online(context, wanted, leader_election.PREFERRED)
            elected += len(wanted) - len(failed)
        outcome = yield from context.commit([DeleteNode(PREFERRED_ELECTION)])
        if isinstance(outcome, Unconfirmed):
            context.reject("CONFLICT", f"{PREFERRED_ELECTION}: {outcome.reason}")
            return elected


def _electable(context: EventContext, request: Sequence[tuple[str, int]]) -> list[Partition]:
    """The partitions that exist, are not under deletion, and are not led by their preferred replica."""
    wanted: dict[Partition, None] = {}
    for topic, number in request:
        partition = context.cluster.partition(topic, number)
        if partition is None:
            context.reject(
                "UNKNOWN_TOPIC_OR_PARTITION",
                f"preferred election asked for {name_shown(topic)}-{number}: no such partition",
            )
        elif context.cluster.is_deleting(partition):
            context.reject(
                "INVALID_TOPIC_EXCEPTION", "preferred election: its topic is being deleted", partition
            )
        elif partition.leadership is None:
            context.reject(
                "PREFERRED_LEADER_NOT_AVAILABLE", "preferred election: it has no leadership", partition
            )
        elif partition.leadership.leader != partition.replicas[0]:
            wanted[partition] = None
    return list(wanted)


# --- ElectLeaders --------------------------------------------------------------------------------------------


def elect_leaders(context: EventContext, serial: int, request: ElectLeaders) -> Handler[None]:
    """Handle ElectLeaders: classify each partition as refused, satisfied or electable; elect; answer each.

    A partition without leadership is refused; the original never answers for one.
    """
    if (problem := _request_problem(request)) is not None:
        context.reject(ErrorCode.INVALID_REQUEST.name, f"ElectLeaders: {problem}")
        context.reply(serial, ElectLeadersReply(ErrorCode.INVALID_REQUEST, message=problem))
        return
    asked = yield from _asked(context, request)
    answers: dict[tuple[str, int], PartitionElected] = {}
    electable: dict[tuple[str, int], Partition] = {}
    for position, key in enumerate(asked):
        if position % EXAMINED_MAX == EXAMINED_MAX - 1:
            yield Pause.YIELD
        refused = refusal(context, request, *key)
        if refused is not None:
            answers[key] = refused
        elif (partition := context.cluster.partition(*key)) is not None:
            electable[key] = partition
    failed = yield from partition_state_machine.to_online(context, electable.values(), _kind(request))
    for key, partition in electable.items():
        answers[key] = _outcome(context, request, partition, failed.get(partition))
    everything = request.partitions is None
    notified = [
        answers[key]
        for key in asked
        if not (everything and answers[key].error is ErrorCode.ELECTION_NOT_NEEDED)
    ]
    context.reply(serial, ElectLeadersReply(ErrorCode.NONE, notified))


def _request_problem(request: ElectLeaders) -> str | None:
    """The problem of the request as a whole, as text; None if it is valid."""
    chosen = request.election is ElectionType.CHOSEN
    if chosen and request.leader is None:
        return "leader: must name the broker that is to lead in an election of type chosen"
    if not chosen and request.leader is not None:
        return f"leader = {request.leader}: only an election of type chosen names one"
    if chosen and request.partitions is None:
        return "partitions: must be named in an election of type chosen"
    return None


def _asked(context: EventContext, request: ElectLeaders) -> Handler[list[tuple[str, int]]]:
    if request.partitions is not None:
        return list(dict.fromkeys(request.partitions))
    asked: list[tuple[str, int]] = []
    for some in slices(context.cluster.partitions()):
        asked += [(p.topic.name, p.number) for p in some if not context.cluster.is_deleting(p)]
        yield Pause.YIELD
    return asked


def _kind(request: ElectLeaders) -> ElectionKind:
    if request.election is ElectionType.UNCLEAN:
        return ElectionKind(Strategy.OFFLINE, allow_unclean=True)
    leader = NO_LEADER if request.leader is None else request.leader
    return ElectionKind(Strategy(request.election.value), leader=leader)


def refusal(context: EventContext, request: ElectLeaders, topic: str, number: int) -> PartitionElected | None:
    """Why no election is held for one partition, in the reference's order of checks; None if one is held."""
    cluster = context.cluster
    partition = cluster.partition(topic, number)
    if partition is None:
        error, message = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{name_shown(topic)}-{number}: no such partition",
        )
    elif cluster.is_deleting(partition):
        error, message = ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic} is being deleted"
    elif partition.leadership is None:
        error, message = _not_available(request), f"{topic}-{number} has no leadership yet"
    elif request.election is ElectionType.CHOSEN and request.leader not in partition.replicas:
        replicas = list(partition.replicas)
        error = ErrorCode.INVALID_REQUEST
        message = f"leader = {request.leader}: must be one of its replicas {replicas}"
    elif _satisfied(context, request, partition):
        leader = partition.leadership.leader
        return PartitionElected(
            topic, number, ErrorCode.ELECTION_NOT_NEEDED, f"{leader} leads already", leader
        )
    else:
        return None
    context.reject(error.name, f"ElectLeaders ({request.election.value}): {message}", partition)
    return PartitionElected(topic, number, error, message)


def _satisfied(context: EventContext, request: ElectLeaders, partition: Partition) -> bool:
    """Whether the current leader is already the one that the election is for; of an unclean one, any live one."""
    current = partition.leadership
    if current is None:
        return False
    live = context.cluster.live_ids()
    if request.election is ElectionType.UNCLEAN:
        return current.leader in live
    kind = _kind(request)
    ballot = Ballot(partition.replicas, current, live, leader=kind.leader)
    return current.leader == leader_election.first_choice(kind.strategy, ballot)


def _not_available(request: ElectLeaders) -> ErrorCode:
    if request.election is ElectionType.PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def _outcome(
    context: EventContext, request: ElectLeaders, partition: Partition, why: Reason | None
) -> PartitionElected:
    """The result for a partition after its election; it depends only on the durable state now."""
    name, number = partition.topic.name, partition.number
    leader = partition.leadership.leader if partition.leadership is not None else NO_LEADER
    if _satisfied(context, request, partition):
        return PartitionElected(name, number, ErrorCode.NONE, "", leader)
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(why, NoEligibleLeader):
        error = _not_available(request)
    return PartitionElected(name, number, error, str(why or f"{leader} leads"), leader)
