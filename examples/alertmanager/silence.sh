#!/bin/sh
# Silences the alerts of a cluster in Alertmanager while machines of it restart, for maintenance.before and
# maintenance.after of the cluster (docs/upgrades.md, Before and after):
#
#   maintenance: {before: ./examples/alertmanager/silence.sh begin, after: ./examples/alertmanager/silence.sh end}
#
# ALERTMANAGER is its URL: http://alertmanager.example.internal:9093. A silence has the label cluster=<name of the cluster>,
# or the one that LABEL names, and ends by itself after HOURS (4). CURL_OPTIONS_FILE is a file of options for curl, with
# credentials, which only you can read. It needs curl and jq.
set -eu

api=${ALERTMANAGER:?is not set: the URL of Alertmanager}/api/v2
author="talos-proxmox ${TALOS_PROXMOX_STACK:?} ${TALOS_PROXMOX_CLUSTER:?}"

call() {
  curl --silent --show-error --fail --max-time 20 --config "${CURL_OPTIONS_FILE:-/dev/null}" "$@"
}

case ${1-} in
  begin)
    silence=$(jq --null-input --arg author "$author" --arg name "${LABEL:-cluster}" --argjson hours "${HOURS:-4}" '{
      matchers: [{name: $name, value: env.TALOS_PROXMOX_CLUSTER, isRegex: false, isEqual: true}],
      startsAt: (now | todate), endsAt: (now + $hours * 3600 | todate), createdBy: $author,
      comment: "\(env.TALOS_PROXMOX_OPERATION) of \(env.TALOS_PROXMOX_NODES)"
    }')
    made=$(call --header 'Content-Type: application/json' --data "$silence" "$api/silences")
    printf '%s' "$made" | jq --raw-output '"silence \(.silenceID)"'
    ;;
  end) # also those of a run that was killed, and none if there is none
    silences=$(call "$api/silences")
    ids=$(printf '%s' "$silences" | jq --raw-output --arg author "$author" \
      '.[] | select(.createdBy == $author and .status.state != "expired") | .id')
    for id in $ids; do
      call --request DELETE "$api/silence/$id"
      echo "silence $id has ended: the run $TALOS_PROXMOX_OUTCOME"
    done
    ;;
  *)
    echo "usage: $0 begin|end" >&2
    exit 2
    ;;
esac
