#!/usr/bin/env bash
# The metadata log, both ways: directories that Apache Kafka wrote are opened by our driver and the other way round,
# through clean stops and kill -9, with snapshots of either side.
#
#   metadata-log.sh KAFKA DRIVER WORKDIR PORT
#     KAFKA    runs the reference: `KAFKA run CLASS ARG...`
#     DRIVER   the example `metadata_log` of crate broker
#     PORT     two ports from here on are used on 127.0.0.1
set -euo pipefail
kafka=$1 driver=$2 work=$3 port=$4
tools=org.apache.kafka.tools
rm -rf "$work"; mkdir -p "$work"
server=
export KAFKA_PEER_LOG=ERROR

properties() { # NAME
  cat > "$work/$1.properties" <<P
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
log.dirs=$work/$1
offsets.topic.replication.factor=1
P
}
fail() { echo "FAILED: $*" >&2; exit 1; }
start() { # NAME
  KAFKA_PEER_LOG=INFO "$kafka" run kafka.Kafka "$work/$1.properties" > "$work/$1.log" 2>&1 & server=$!
  for _ in $(seq 120); do
    grep -q 'Kafka Server started' "$work/$1.log" && return
    kill -0 "$server" 2> /dev/null || { tail -5 "$work/$1.log"; fail "the reference did not start on $1"; }
    sleep 0.5
  done
  fail "the reference did not start on $1 in time"
}
stop() { kill "-$1" "$server"; wait "$server" 2> /dev/null || true; server=; }
trap '[ -z "$server" ] || kill -KILL "$server" 2> /dev/null || true' EXIT
topics() { "$kafka" run $tools.TopicCommand --bootstrap-server "127.0.0.1:$port" "$@"; }
ours() { # NAME EXPECTED-TOPICS ARG...
  local name=$1 expected=$2; shift 2
  local out; out=$("$driver" run "$work/$name.properties" "$@") || fail "the driver failed on $name"
  echo "$out" | tail -1
  echo "$out" | tail -1 | grep -q "topics $expected\$" || fail "expected $expected topics in $name"
}
listed() { # EXPECTED
  local count; count=$(topics --list | grep -c '^t' || true)
  [ "$count" = "$1" ] || fail "the reference lists $count topics, not $1"
}

properties theirs
"$kafka" run kafka.tools.StorageTool format -t 5L6g3nShT-eMCtK--X86sw -c "$work/theirs.properties" --standalone > "$work/format.txt"
start theirs
for t in t1 t2 t3; do topics --create --topic $t --partitions 2 > /dev/null; done
stop TERM
ours theirs 3 3
ours theirs 3 2 snapshot
start theirs
listed 3
topics --create --topic t4 > /dev/null
stop KILL
ours theirs 4 1 snapshot
start theirs
listed 4
"$kafka" run $tools.MetadataQuorumCommand --bootstrap-server "127.0.0.1:$port" describe --status | grep -E 'LeaderId|LeaderEpoch|CurrentVoters'
stop TERM

properties ours
"$driver" format "$work/ours.properties" 5L6g3nShT-eMCtK--X86sw
# Only the quorum's own records: the first controller to lead writes the bootstrap records.
ours ours 0 0
start ours
topics --create --topic t1 > /dev/null
stop TERM
ours ours 1 1 snapshot
for file in "$work"/ours/__cluster_metadata-0/*.log "$work"/ours/__cluster_metadata-0/*.checkpoint; do
  "$kafka" run $tools.DumpLogSegments --cluster-metadata-decoder --files "$file" > "$work/dump.txt" 2>&1
  ! grep -E 'isvalid: false|Exception|Could not' "$work/dump.txt" || fail "the reference cannot read $file"
done
echo "metadata log: both ways ok"
