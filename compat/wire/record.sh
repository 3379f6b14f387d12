#!/usr/bin/env bash
# Records reference.txt anew from Apache Kafka 4.4.0, with the properties that `cargo xtask compat wire` gives our node.
# Needs KAFKA_LIBS (the directory with the reference's jars), a JDK 17 and python3.
#   record.sh PORT    the node takes PORT and PORT+1 on 127.0.0.1
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
port=$1 work=$(mktemp -d)
cat > "$work/server.properties" <<P
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$work/data
group.initial.rebalance.delay.ms=0
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
P
java -cp "$KAFKA_LIBS/*" kafka.tools.StorageTool format -t 5L6g3nShT-eMCtK--X86sw -c "$work/server.properties" --standalone
java -Xmx512m -cp "$KAFKA_LIBS/*" kafka.Kafka "$work/server.properties" > "$work/log" 2>&1 &
node=$!
trap 'kill $node; wait $node || true; rm -rf "$work"' EXIT
until (echo > "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do sleep 1; done
sleep 2
python3 "$here/wire.py" record "$port" $((port + 1)) "$here/reference.txt"
