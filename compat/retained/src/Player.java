// Plays one scenario's steps against one broker, and keeps what the broker answered.
//
// Owns the producers' ids, epochs and sequence numbers of one topic on one side; `copy` goes on with the other side from
// the same state.

import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

final class Player {
    static final class Producer {
        long id;
        short epoch;
        int next, last;
        boolean open;
        Scenario.Batch batch;
        Producer copy() { Producer p = new Producer(); p.id = id; p.epoch = epoch; p.next = next; p.last = last; p.open = open; p.batch = batch; return p; }
    }

    final Scenario scenario;
    final List<String> outcomes = new ArrayList<>();
    final Map<Integer, Producer> producers = new TreeMap<>();
    long batches, records;
    long windowStart;

    Player(Scenario scenario, long windowStart) {
        this.scenario = scenario;
        this.windowStart = windowStart;
    }

    Player copy(long windowStart) {
        Player player = new Player(scenario, windowStart);
        producers.forEach((number, producer) -> player.producers.put(number, producer.copy()));
        return player;
    }

    void play(Wire wire, int round) throws Exception {
        int number = 0;
        for (Scenario.Step step : scenario.rounds.get(round).steps()) {
            String outcome;
            if (step instanceof Scenario.Batch batch) outcome = produce(wire, batch);
            else if (step instanceof Scenario.EndTransaction end) outcome = end(wire, end);
            else if (step instanceof Scenario.DeleteRecords deletion) outcome = delete(wire, deletion);
            else {
                Producer producer = producer(wire, ((Scenario.BumpEpoch) step).producer());
                producer.epoch++;
                producer.next = 0;
                outcome = "epoch " + producer.epoch;
            }
            outcomes.add("step " + round + "." + number++ + " " + outcome);
            // A clock's tick between batches: their log append times differ, so their order tells them apart.
            if ("LogAppendTime".equals(scenario.config.get("message.timestamp.type"))) Thread.sleep(3);
        }
    }

    private Producer producer(Wire wire, int number) throws Exception {
        Producer producer = producers.get(number);
        if (producer != null) return producer;
        producer = new Producer();
        if (number >= 10) {
            InitProducerIdRequestData request = new InitProducerIdRequestData().setTransactionalId(scenario.topic + "-" + number).setTransactionTimeoutMs(900_000);
            InitProducerIdResponseData answer;
            do {
                answer = new InitProducerIdResponseData(wire.ask(request, 4), (short) 4);
            } while (again(answer.errorCode()));
            if (answer.errorCode() != 0) throw new IllegalStateException("InitProducerId: " + Errors.forCode(answer.errorCode()));
            producer.id = answer.producerId();
            producer.epoch = answer.producerEpoch();
        } else {
            producer.id = 40_000 + scenario.number * 10L + number;
        }
        producers.put(number, producer);
        return producer;
    }

    private static boolean again(short code) throws InterruptedException {
        Errors error = Errors.forCode(code);
        boolean again = error == Errors.CONCURRENT_TRANSACTIONS || error == Errors.COORDINATOR_LOAD_IN_PROGRESS
            || error == Errors.COORDINATOR_NOT_AVAILABLE || error == Errors.NOT_COORDINATOR;
        if (again) Thread.sleep(5);
        return again;
    }

    // ---- produce

    private String produce(Wire wire, Scenario.Batch batch) throws Exception {
        Producer producer = batch.producer() < 0 ? null : producer(wire, batch.producer());
        int sequence = producer == null ? -1 : producer.next;
        short epoch = producer == null ? -1 : producer.epoch;
        List<Scenario.Rec> sent = batch.records();
        if (producer != null && batch.fault() == Scenario.Fault.DUPLICATE && producer.batch != null) {
            sequence = producer.last;
            sent = producer.batch.records();
        }
        if (producer != null && batch.fault() == Scenario.Fault.GAP) sequence += 5;
        if (producer != null && batch.fault() == Scenario.Fault.OLD_EPOCH && epoch > 0) epoch--;
        long id = producer == null ? -1 : producer.id;
        MemoryRecords records = records(batch, sent, id, epoch, sequence);
        ProduceRequestData request = new ProduceRequestData().setAcks((short) -1).setTimeoutMs(30_000)
            .setTransactionalId(batch.transactional() ? scenario.topic + "-" + batch.producer() : null);
        request.topicData().add(new ProduceRequestData.TopicProduceData().setName(scenario.topic).setPartitionData(
            List.of(new ProduceRequestData.PartitionProduceData().setIndex(0).setRecords(records))));
        ProduceResponseData.PartitionProduceResponse answer;
        // Version 12 adds the partition to the transaction; while the last marker is being written it is refused.
        do {
            ProduceResponseData data = new ProduceResponseData(wire.ask(request, 12), (short) 12);
            answer = data.responses().iterator().next().partitionResponses().get(0);
        } while (batch.transactional() && again(answer.errorCode()));
        if (answer.errorCode() == 0) {
            batches++;
            this.records += batch.records().size();
        }
        if (answer.errorCode() == 0 && producer != null && batch.fault() == Scenario.Fault.NONE) {
            producer.last = producer.next;
            producer.batch = batch;
            producer.next += batch.records().size();
            producer.open |= batch.transactional();
        }
        StringBuilder errors = new StringBuilder();
        answer.recordErrors().forEach(e -> errors.append(e.batchIndex()).append('=').append(masked(e.batchIndexErrorMessage())).append(';'));
        String time = answer.logAppendTimeMs() >= windowStart ? "now" : String.valueOf(answer.logAppendTimeMs());
        return "produce " + batch.records().size() + " " + batch.codec() + " by " + batch.producer() + " " + batch.fault() + ": "
            + Errors.forCode(answer.errorCode()) + " base " + answer.baseOffset() + " time " + time + " start " + answer.logStartOffset()
            + " " + masked(answer.errorMessage()) + " [" + errors + "]";
    }

    /** The thresholds of timestamps are told with the clock in them. */
    private static String masked(String message) {
        return message == null ? null : message.replaceAll("within \\[[^\\]]*\\]", "within [..]");
    }

    private static MemoryRecords records(Scenario.Batch batch, List<Scenario.Rec> sent, long id, short epoch, int sequence) {
        if (batch.fault() == Scenario.Fault.EMPTY) {
            ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
            DefaultRecordBatch.writeEmptyHeader(buffer, (byte) 2, id, epoch, sequence, 0, 0, -1, TimestampType.CREATE_TIME, -1, batch.transactional(), false);
            buffer.flip();
            return MemoryRecords.readableRecords(buffer);
        }
        Compression compression = switch (batch.codec()) {
            case "gzip" -> Compression.gzip().level(batch.level()).build();
            case "zstd" -> Compression.zstd().level(batch.level()).build();
            case "lz4" -> Compression.lz4().level(batch.level()).build();
            case "snappy" -> Compression.snappy().build();
            default -> Compression.NONE;
        };
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(4096), (byte) 2, compression, TimestampType.CREATE_TIME,
            0, -1, id, epoch, sequence, batch.transactional(), -1);
        for (Scenario.Rec rec : sent) {
            Header[] headers = rec.headers().entrySet().stream().map(e -> new RecordHeader(e.getKey(), e.getValue())).toArray(Header[]::new);
            builder.append(rec.timestamp(), rec.key(), rec.value(), headers);
        }
        return builder.build();
    }

    // ---- the rest

    private String end(Wire wire, Scenario.EndTransaction end) throws Exception {
        Producer producer = producer(wire, end.producer());
        if (!producer.open) return "end: none open";
        long before = endOffset(wire, scenario.topic);
        EndTxnRequestData request = new EndTxnRequestData().setTransactionalId(scenario.topic + "-" + end.producer())
            .setProducerId(producer.id).setProducerEpoch(producer.epoch).setCommitted(end.commit());
        EndTxnResponseData answer;
        do {
            answer = new EndTxnResponseData(wire.ask(request, 5), (short) 5);
        } while (again(answer.errorCode()));
        if (answer.errorCode() == 0) {
            producer.open = false;
            // Each transaction of version 2 has its own epoch.
            if (answer.producerId() != producer.id || answer.producerEpoch() != producer.epoch) producer.next = 0;
            producer.id = answer.producerId();
            producer.epoch = answer.producerEpoch();
            for (int i = 0; i < 2000 && endOffset(wire, scenario.topic) == before; i++) Thread.sleep(2);
        }
        return "end " + (end.commit() ? "commit" : "abort") + " by " + end.producer() + ": " + Errors.forCode(answer.errorCode());
    }

    private String delete(Wire wire, Scenario.DeleteRecords deletion) throws Exception {
        long offset = deletion.offset() != Long.MIN_VALUE ? deletion.offset() : (long) (deletion.where() * endOffset(wire, scenario.topic));
        DeleteRecordsRequestData request = new DeleteRecordsRequestData().setTimeoutMs(30_000).setTopics(List.of(
            new DeleteRecordsRequestData.DeleteRecordsTopic().setName(scenario.topic).setPartitions(List.of(
                new DeleteRecordsRequestData.DeleteRecordsPartition().setPartitionIndex(0).setOffset(offset)))));
        var answer = new DeleteRecordsResponseData(wire.ask(request, 2), (short) 2).topics().iterator().next().partitions().iterator().next();
        return "delete below " + offset + ": " + Errors.forCode(answer.errorCode()) + " low " + answer.lowWatermark();
    }

    static long endOffset(Wire wire, String topic) throws Exception {
        return Observer.listOffset(wire, topic, -1, (byte) 0).offset();
    }
}
