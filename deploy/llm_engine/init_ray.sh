#!/usr/bin/env bash
# Joins the pods of an endpoint on several nodes into one Ray cluster, under LLM Engine's command line:
#
#   init_ray.sh leader --ray_cluster_size=NODES --own_address=NAME
#   init_ray.sh worker --ray_address=NAME --own_address=NAME
#
# The leader returns when all nodes are there, and python -m vllm_server follows it. A worker stays
# until the cluster ends.
set -euo pipefail

port=6379
# Images are pulled node by node, so the last node may come much later than the first.
limit=${RAY_INIT_TIMEOUT:-1800}

fail() {
    printf 'init_ray: %s\n' "$*" >&2
    exit 1
}

role=${1:-}
[ $# -eq 0 ] || shift
cluster_size=''
ray_address=''
own_address=''
for argument in "$@"; do
    case $argument in
        --ray_cluster_size=*) cluster_size=${argument#*=} ;;
        --ray_address=*) ray_address=${argument#*=} ;;
        --own_address=*) own_address=${argument#*=} ;;
        *) fail "unknown argument $argument" ;;
    esac
done
[ -n "$own_address" ] || fail '--own_address is missing'

# A pod's name resolves some seconds after its start.
wait_for_address() {
    local address
    while ! address=$(getent hosts "$1") && [ "$SECONDS" -lt "$limit" ]; do
        sleep 2
    done
    [ -n "$address" ] || fail "$1 does not resolve"
    printf '%s\n' "${address%% *}"
}

alive_nodes() {
    python -c '
import ray

ray.init(address="auto", logging_level="ERROR", log_to_driver=False)
print(sum(node["Alive"] for node in ray.nodes()))
'
}

own=$(wait_for_address "$own_address")
case $role in
    leader)
        [ -n "$cluster_size" ] || fail '--ray_cluster_size is missing'
        ray start --head --port="$port" --node-ip-address="$own" --disable-usage-stats
        until [ "$(alive_nodes)" -ge "$cluster_size" ]; do
            [ "$SECONDS" -lt "$limit" ] || fail "fewer than $cluster_size nodes after $limit s"
            sleep 5
        done
        ;;
    worker)
        [ -n "$ray_address" ] || fail '--ray_address is missing'
        leader=$(wait_for_address "$ray_address")
        until ray start --address="$leader:$port" --node-ip-address="$own" --disable-usage-stats; do
            [ "$SECONDS" -lt "$limit" ] || fail "no Ray at $leader after $limit s"
            sleep 5
        done
        # The pod must live as long as its Ray node does, and end with it.
        while ray status --address="$leader:$port" >/dev/null 2>&1; do
            sleep 10
        done
        ;;
    *) fail 'the first argument must be leader or worker' ;;
esac
