// What a client can learn of one topic: every batch and record, offsets by timestamp, epochs, producers; as lines of
// text that are equal when two brokers agree.
//
// Timestamps that a clock gave while both sides ran are named by their order (T0, T1, ...), and a delete horizon by
// whether it is where `delete.retention.ms` puts it. Everything else is exact.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.internal.*;

final class Observer {
    private static final int LIST_OFFSETS = 11, FETCH = 12, EPOCHS = 4;

    private final Wire wire;
    private final Scenario scenario;
    private final long windowStart;
    private final List<String> lines = new ArrayList<>();
    private final TreeSet<Long> ticks = new TreeSet<>();
    private final TreeSet<Long> times = new TreeSet<>();
    private final TreeSet<String> aborted = new TreeSet<>();
    private List<Long> tickOrder = List.of();
    long survivors, answers;

    Observer(Wire wire, Scenario scenario, long windowStart) {
        this.wire = wire;
        this.scenario = scenario;
        this.windowStart = windowStart;
    }

    List<String> observe() throws Exception {
        long start = listOffset(wire, scenario.topic, -2, (byte) 0).offset();
        long end = listOffset(wire, scenario.topic, -1, (byte) 0).offset();
        List<MutableRecordBatch> batches = fetchAll(start, end);
        List<DescribeProducersResponseData.ProducerState> producers = producers();
        for (MutableRecordBatch batch : batches) {
            tick(batch.maxTimestamp());
            for (org.apache.kafka.common.record.internal.Record record : batch) tick(record.timestamp());
        }
        producers.forEach(producer -> tick(producer.lastTimestamp()));
        tickOrder = List.copyOf(ticks);
        lines.add("start " + start + " end " + end);
        batches.forEach(this::describe);
        lines.add("aborted " + aborted);
        offsets();
        epochs();
        producers.stream().sorted(Comparator.comparing(DescribeProducersResponseData.ProducerState::producerId)).forEach(p -> lines.add(
            "producer " + p.producerId() + " epoch " + p.producerEpoch() + " sequence " + p.lastSequence() + " time " + time(p.lastTimestamp())
                + " coordinator " + p.coordinatorEpoch() + " open " + p.currentTxnStartOffset()));
        probes(start, end);
        return lines;
    }

    private boolean clocked(long timestamp) { return timestamp >= windowStart && timestamp < Scenario.Y2100 - 10 * 365 * Scenario.DAY; }

    private void tick(long timestamp) { if (clocked(timestamp)) ticks.add(timestamp); else times.add(timestamp); }

    private String time(long timestamp) {
        if (!clocked(timestamp)) return String.valueOf(timestamp);
        int at = Collections.binarySearch(tickOrder, timestamp);
        return at >= 0 ? "T" + at : "T?";
    }

    // ---- records

    private List<MutableRecordBatch> fetchAll(long start, long end) throws Exception {
        List<MutableRecordBatch> batches = new ArrayList<>();
        for (byte isolation = 0; isolation < 2; isolation++) {
            long offset = start;
            while (offset < end) {
                var answer = fetch(offset, isolation);
                if (answer.errorCode() != 0) { lines.add("fetch at " + offset + ": " + Errors.forCode(answer.errorCode())); break; }
                if (answer.abortedTransactions() != null) answer.abortedTransactions().forEach(t -> aborted.add(t.producerId() + "@" + t.firstOffset()));
                long next = offset;
                for (MutableRecordBatch batch : ((MemoryRecords) answer.records()).batches()) {
                    if (batch.lastOffset() < offset) { lines.add("batch below the offset " + offset + ": " + batch.lastOffset()); continue; }
                    if (isolation == 0) batches.add(batch);
                    next = batch.nextOffset();
                }
                if (next == offset) { lines.add("isolation " + isolation + ": nothing at " + offset); break; }
                offset = next;
            }
        }
        return batches;
    }

    private FetchResponseData.PartitionData fetch(long offset, byte isolation) throws Exception {
        return fetched(wire.ask(fetchRequest(offset, isolation, 50_000_000), FETCH));
    }

    private static FetchResponseData.PartitionData fetched(ByteBufferAccessor body) {
        return new FetchResponseData(body, (short) FETCH).responses().get(0).partitions().get(0);
    }

    private FetchRequestData fetchRequest(long offset, byte isolation, int bytes) {
        return new FetchRequestData().setMaxWaitMs(0).setMinBytes(0).setMaxBytes(bytes).setIsolationLevel(isolation)
            .setTopics(List.of(new FetchRequestData.FetchTopic().setTopic(scenario.topic).setPartitions(List.of(
                new FetchRequestData.FetchPartition().setPartition(0).setFetchOffset(offset).setPartitionMaxBytes(bytes)))));
    }

    private void describe(MutableRecordBatch batch) {
        batch.ensureValid();
        String horizon = "";
        if (batch.deleteHorizonMs().isPresent()) {
            long expected = System.currentTimeMillis() + Long.parseLong(scenario.config.get("delete.retention.ms"));
            long off = batch.deleteHorizonMs().getAsLong() - expected;
            horizon = Math.abs(off) < 1_200_000 ? " horizon" : " horizon off by " + off;
        }
        lines.add("batch " + batch.baseOffset() + "-" + batch.lastOffset() + " " + batch.timestampType() + " max " + time(batch.maxTimestamp()) + " "
            + batch.compressionType() + " producer " + batch.producerId() + "/" + batch.producerEpoch() + "/" + batch.baseSequence() + " count "
            + batch.countOrNull() + (batch.isTransactional() ? " transactional" : "") + (batch.isControlBatch() ? " control" : "") + " epoch "
            + batch.partitionLeaderEpoch() + horizon);
        for (org.apache.kafka.common.record.internal.Record record : batch) {
            StringBuilder headers = new StringBuilder();
            for (Header header : record.headers()) headers.append(header.key()).append('=').append(show(header.value() == null ? null : ByteBuffer.wrap(header.value()))).append(' ');
            lines.add("record " + record.offset() + " " + time(record.timestamp()) + " " + record.sequence() + " " + show(record.key()) + " " + show(record.value()) + " [" + headers + "]");
            survivors++;
        }
    }

    private static String show(ByteBuffer bytes) {
        if (bytes == null) return "null";
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        boolean text = copy.length > 0 && copy.length < 20;
        for (byte b : copy) text &= b > ' ' && b < 127;
        return text ? new String(copy, StandardCharsets.US_ASCII) : copy.length + "#" + Integer.toHexString(Arrays.hashCode(copy));
    }

    // ---- lookups

    static ListOffsetsResponseData.ListOffsetsPartitionResponse listOffset(Wire wire, String topic, long timestamp, byte isolation) throws Exception {
        return answer(wire.ask(listOffsets(topic, timestamp, isolation), LIST_OFFSETS));
    }

    private static ListOffsetsResponseData.ListOffsetsPartitionResponse answer(ByteBufferAccessor body) {
        return new ListOffsetsResponseData(body, (short) LIST_OFFSETS).topics().get(0).partitions().get(0);
    }

    private static ListOffsetsRequestData listOffsets(String topic, long timestamp, byte isolation) {
        return new ListOffsetsRequestData().setReplicaId(-1).setIsolationLevel(isolation).setTimeoutMs(30_000).setTopics(List.of(
            new ListOffsetsRequestData.ListOffsetsTopic().setName(topic).setPartitions(List.of(
                new ListOffsetsRequestData.ListOffsetsPartition().setPartitionIndex(0).setTimestamp(timestamp)))));
    }

    private final List<String> names = new ArrayList<>();
    private final List<ListOffsetsRequestData> questions = new ArrayList<>();

    private void offset(String name, long timestamp, byte isolation) {
        names.add("offset of " + name + (isolation == 1 ? " committed" : ""));
        questions.add(listOffsets(scenario.topic, timestamp, isolation));
    }

    private void askOffsets() throws Exception {
        List<ByteBufferAccessor> bodies = wire.ask(questions, LIST_OFFSETS);
        for (int i = 0; i < bodies.size(); i++) {
            var answer = answer(bodies.get(i));
            lines.add(names.get(i) + ": " + Errors.forCode(answer.errorCode()) + " " + answer.offset() + " time " + time(answer.timestamp()) + " epoch " + answer.leaderEpoch());
            answers++;
        }
    }

    private void offsets() throws Exception {
        for (long special = -7; special < 0; special++) {
            offset(String.valueOf(special), special, (byte) 0);
            if (special >= -3) offset(String.valueOf(special), special, (byte) 1);
        }
        TreeSet<Long> asked = new TreeSet<>(List.of(0L, 1L, Scenario.Y2020, Scenario.THRESHOLD_A, Scenario.THRESHOLD_B, Scenario.Y2024, Scenario.Y2100, Long.MAX_VALUE));
        scenario.rounds.forEach(round -> round.steps().forEach(step -> {
            if (step instanceof Scenario.Batch batch && !batch.records().isEmpty()) asked.add(batch.records().get(0).timestamp());
        }));
        // Of records that went as well as of those that stayed: at most these many, evenly.
        List<Long> all = new ArrayList<>(asked);
        all.addAll(times);
        Collections.sort(all);
        int step = Math.max(1, all.size() / 50);
        for (int i = 0; i < all.size(); i += step) {
            long at = all.get(i);
            if (at < 0) continue;
            offset(String.valueOf(at), at, (byte) 0);
            if (at < Long.MAX_VALUE) offset(at + "+1", at + 1, (byte) 0);
            if (i % 3 == 0) offset(String.valueOf(at), at, (byte) 1);
        }
        int tickStep = Math.max(1, tickOrder.size() / 25);
        for (int i = 0; i < tickOrder.size(); i += tickStep) {
            offset("T" + i, tickOrder.get(i), (byte) 0);
            offset("T" + i + "+1", tickOrder.get(i) + 1, (byte) 0);
        }
        askOffsets();
    }

    private void epochs() throws Exception {
        List<OffsetForLeaderEpochRequestData> requests = new ArrayList<>();
        for (int epoch = -1; epoch < 9; epoch++) {
            OffsetForLeaderEpochRequestData request = new OffsetForLeaderEpochRequestData().setReplicaId(-1);
            request.topics().add(new OffsetForLeaderEpochRequestData.OffsetForLeaderTopic().setTopic(scenario.topic).setPartitions(List.of(
                new OffsetForLeaderEpochRequestData.OffsetForLeaderPartition().setPartition(0).setLeaderEpoch(epoch))));
            requests.add(request);
        }
        int epoch = -1;
        for (ByteBufferAccessor body : wire.ask(requests, EPOCHS)) {
            var answer = new OffsetForLeaderEpochResponseData(body, (short) EPOCHS).topics().iterator().next().partitions().get(0);
            lines.add("end of epoch " + epoch++ + ": " + Errors.forCode(answer.errorCode()) + " " + answer.leaderEpoch() + " " + answer.endOffset());
        }
    }

    private List<DescribeProducersResponseData.ProducerState> producers() throws Exception {
        DescribeProducersRequestData request = new DescribeProducersRequestData();
        request.topics().add(new DescribeProducersRequestData.TopicRequest().setName(scenario.topic).setPartitionIndexes(List.of(0)));
        var answer = new DescribeProducersResponseData(wire.ask(request, 0), (short) 0).topics().get(0).partitions().get(0);
        if (answer.errorCode() != 0) lines.add("producers: " + Errors.forCode(answer.errorCode()));
        return answer.activeProducers();
    }

    /** Reads that begin anywhere, in gaps too. */
    private void probes(long start, long end) throws Exception {
        Random random = new Random(scenario.number);
        TreeSet<Long> at = new TreeSet<>(List.of(start - 1, start, end - 1, end, end + 1));
        for (int i = 0; i < 12 && end > start; i++) at.add(start + (long) (random.nextDouble() * (end - start)));
        Iterator<ByteBufferAccessor> bodies = wire.ask(at.stream().map(offset -> fetchRequest(offset, (byte) 0, 1)).toList(), FETCH).iterator();
        for (long offset : at) {
            var answer = fetched(bodies.next());
            Iterator<MutableRecordBatch> batches = answer.records() == null ? Collections.emptyIterator() : ((MemoryRecords) answer.records()).batchIterator();
            lines.add("fetch from " + offset + ": " + Errors.forCode(answer.errorCode()) + " first batch " + (batches.hasNext() ? batches.next().baseOffset() : "none")
                + " high watermark " + answer.highWatermark() + " stable " + answer.lastStableOffset() + " start " + answer.logStartOffset());
        }
    }
}
