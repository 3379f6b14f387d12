#!/usr/bin/env bash
# Records crates/cli/tests/dump_log anew: a node of Apache Kafka 4.4.0 writes the data, its DumpLogSegments the expected
# output. Needs KAFKA_LIBS (the directory with the reference's jars), a JDK 17 and python3.
#   record.sh            output only, from the data that is committed
#   record.sh data PORT  the data too
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cli=$(cd "$here/../../crates/cli" && pwd)
data=$cli/tests/dump_log/data
if [ "${1:-}" = data ]; then
  port=$2 work=$(mktemp -d)
  cat > "$work/server.properties" <<P
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
log.dirs=$work/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
metadata.log.max.record.bytes.between.snapshots=3000
P
  java -cp "$KAFKA_LIBS/*" kafka.tools.StorageTool format -t 5L6g3nShT-eMCtK--X86sw -c "$work/server.properties" --standalone
  java -Xmx512m -cp "$KAFKA_LIBS/*" kafka.Kafka "$work/server.properties" > "$work/log" 2>&1 &
  node=$!
  until (echo > "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do sleep 1; done
  java -cp "$KAFKA_LIBS/*" "$here/WriteNode.java" "127.0.0.1:$port"
  sleep 3; kill $node; wait $node || true
  rm -rf "$data"; mkdir -p "$data/__cluster_metadata-0"
  for topic in t-none t-gzip t-snappy t-lz4 t-zstd t-append-time t-txn __consumer_offsets __transaction_state __share_group_state; do
    mkdir "$data/$topic-0"
    cp "$work/data/$topic-0"/*.{log,index,timeindex} "$data/$topic-0"
    cp "$work/data/$topic-0"/*.{txnindex,snapshot} "$data/$topic-0" 2> /dev/null || true
  done
  find "$data" -name '*.snapshot' -size 10c -delete
  metadata=$work/data/__cluster_metadata-0
  cp "$metadata/00000000000000000000.log" "$data/__cluster_metadata-0"
  cp "$(ls "$metadata"/*.checkpoint | tail -1)" "$data/__cluster_metadata-0"
  cp "$metadata/00000000000000000000-0000000000.checkpoint" "$data/__cluster_metadata-0/bootstrap.checkpoint"
  chmod -R u+w "$data"; python3 "$here/damage.py" "$data"; rm -rf "$work"
fi
cd "$cli"
python3 "$here/invocations.py" > tests/dump_log/invocations.txt
java -cp "$KAFKA_LIBS/*" "$here/DumpAll.java" tests/dump_log/invocations.txt tests/dump_log/expected.txt
rm tests/dump_log/invocations.txt
