#!/usr/bin/env bash
# Starts the engines of one node of a data-parallel set: adapter.serve with the arguments given, and with
# what only the pod knows, its first rank and the leader's address.
set -euo pipefail

# vLLM binds the address on the leader, which takes no name. There it is the pod's own; elsewhere it is
# looked up, and the leader's name may appear some time after this pod's start.
address=${VLLM_HOST_IP:?}
if [ "${LWS_WORKER_INDEX:?}" -ne 0 ]; then
    until found=$(getent hosts "${LWS_LEADER_ADDRESS:?}"); do
        if [ "$SECONDS" -ge 600 ]; then
            echo "error: $LWS_LEADER_ADDRESS does not resolve" >&2
            exit 1
        fi
        sleep 2
    done
    address=${found%% *}
fi

# exec: the server itself gets the SIGTERM that begins the drain.
exec python3 -m adapter.serve "$@" \
    --data-parallel-address="$address" \
    --data-parallel-start-rank=$((LWS_WORKER_INDEX * ${DP_SIZE_LOCAL:?}))
