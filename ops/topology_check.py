"""Which topology was found, and whether a failover can lose what it has acknowledged."""

from ops.finding import Finding
from shared.redis_client import RedisClients

_SAFE = (
    "give the master two replicas, and all three min-replicas-to-write 1 and min-replicas-max-lag 3: else a failover "
    "may lose ten seconds of what Redis took; gateways send it again, but only for SCRIBE_GATEWAY_KEEP_S"
)


async def check_topology(clients: RedisClients) -> Finding:
    """Sentinel without protection is a warning; what a Cluster has of it, its servers don't tell."""
    infos = await clients.infos("replication")
    replicas = sum(int(info["connected_slaves"]) for info in infos)
    detail = f"{clients.address}; {_count(len(infos), 'primary', 'primaries')}, {_count(replicas, 'replica', 'replicas')}"
    # Servers report it only where it is set.
    if clients.address.kind == "sentinel" and "min_slaves_good_slaves" not in infos[0]:
        return Finding("topology", "warning", detail, _SAFE)
    if clients.address.kind == "cluster" and replicas < len(infos):
        advice = "give each primary a replica: without one its sessions end when it does"
        return Finding("topology", "warning", detail, advice)
    return Finding("topology", "ok", detail)


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
