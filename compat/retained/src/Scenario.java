// A generated scenario: one topic, its configuration, and the rounds of what happens to it.
//
// Everything follows from the seed. Timestamps are absolute and far from every threshold, so that no clock decides:
// the past lies between 2020 and 2024, the future in 2100. A setting whose value is `since:T` means "the age of T now".

import java.nio.charset.StandardCharsets;
import java.util.*;

final class Scenario {
    /** A record; `value` or `key` may be null. */
    record Rec(long timestamp, byte[] key, byte[] value, Map<String, byte[]> headers) {}

    enum Fault { NONE, DUPLICATE, GAP, OLD_EPOCH, EMPTY }

    interface Step {}
    /** `producer` -1: neither idempotent nor transactional. */
    record Batch(String codec, int level, int producer, boolean transactional, Fault fault, List<Rec> records) implements Step {}
    record EndTransaction(int producer, boolean commit) implements Step {}
    /** At `where` of the way from 0 to the log's end, or at `offset` when that is not Long.MIN_VALUE. */
    record DeleteRecords(double where, long offset) implements Step {}
    record BumpEpoch(int producer) implements Step {}

    /** What is written, and then the settings that make the broker work, one after the other. */
    record Round(List<Step> steps, List<Map<String, String>> upkeep) {}

    static final long DAY = 86_400_000L;
    static final long Y2020 = 1_577_836_800_000L, Y2024 = 1_704_067_200_000L, Y2100 = 4_102_444_800_000L;
    static final long THRESHOLD_A = 1_622_505_677_123L, THRESHOLD_B = 1_672_531_234_567L;
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};

    final int number;
    final String topic;
    final boolean transactions;
    final Map<String, String> config = new TreeMap<>();
    final List<Round> rounds = new ArrayList<>();
    private final Random random;
    private final boolean compact, delete, appendTime, compressed;
    private int segmentBytes;
    private long segmentMs = 7 * DAY, begin, clock;
    private int style, producers;
    private final Set<Integer> open = new TreeSet<>();

    Scenario(long seed, int number, boolean transactions) {
        this.number = number;
        this.transactions = transactions;
        topic = "t" + number;
        random = new Random(seed * 1_000_003 + number * 7919L + (transactions ? 1 : 0));
        random.nextLong();
        int policy = random.nextInt(10);
        compact = policy >= 3;
        delete = policy < 3 || policy >= 8;
        appendTime = chance(15);
        compressed = chance(60);
        configure();
        int count = transactions ? 2 : 2 + random.nextInt(2);
        for (int round = 0; round < count; round++) rounds.add(new Round(steps(round), upkeep()));
    }

    boolean chance(int percent) { return random.nextInt(100) < percent; }

    @SafeVarargs
    final <T> T pick(T... from) { return from[random.nextInt(from.length)]; }

    private void configure() {
        config.put("cleanup.policy", compact ? delete ? "compact,delete" : "compact" : "delete");
        // Nothing happens while records are written.
        config.put("retention.ms", "-1");
        config.put("min.cleanable.dirty.ratio", "1.0");
        config.put("file.delete.delay.ms", "100");
        if (chance(92)) {
            segmentBytes = pick(300, 1000, 3000, 3000, 10_000, 40_000);
            config.put("internal.segment.bytes", String.valueOf(segmentBytes));
        } else {
            segmentBytes = 1 << 20;
            config.put("segment.bytes", String.valueOf(segmentBytes));
        }
        if (chance(50)) config.put("segment.ms", String.valueOf(segmentMs = pick(3_600_000L, DAY, 60 * DAY)));
        if (chance(40)) config.put("index.interval.bytes", pick("0", "100", "1000"));
        if (chance(10)) config.put("segment.index.bytes", pick("48", "120", "240"));
        if (appendTime) config.put("message.timestamp.type", "LogAppendTime");
        style = random.nextInt(6);
        if (style >= 4 || chance(20)) config.put("message.timestamp.after.max.ms", String.valueOf(Long.MAX_VALUE));
        if (chance(8)) config.put("message.timestamp.before.max.ms", "since:" + (style == 2 ? THRESHOLD_A : Y2020));
        if (compressed && chance(35)) {
            // How far a codec compresses is not ours to compare: no segment may end because of it.
            segmentBytes = 1 << 20;
            config.remove("segment.bytes");
            config.put("internal.segment.bytes", String.valueOf(segmentBytes));
            config.put("segment.ms", String.valueOf(segmentMs = pick(1L, 3_600_000L, DAY)));
            String type = pick("uncompressed", "gzip", "snappy", "lz4", "zstd");
            config.put("compression.type", type);
            if (type.equals("gzip") && chance(50)) config.put("compression.gzip.level", pick("1", "9"));
            if (type.equals("lz4") && chance(50)) config.put("compression.lz4.level", pick("1", "17"));
            if (type.equals("zstd") && chance(50)) config.put("compression.zstd.level", pick("-5", "10"));
        }
        if (chance(8)) config.put("max.message.bytes", pick("200", "1000", "5000"));
        config.put("delete.retention.ms", pick("0", "1", "86400000", "315360000000"));
        if (chance(10)) config.put("preallocate", "true");
        if (chance(10)) config.put("flush.messages", pick("1", "7"));
        producers = random.nextInt(4);
        begin = clock = Y2020 + random.nextInt(1000) * 1_000_000L;
    }

    /** A moment among the records' timestamps, half an hour or more after the last of them before it. */
    private String since() {
        boolean among = style != 0 && style != 2 && chance(70);
        long hours = (clock - begin) / 3_600_000L + 2;
        return "since:" + (among ? begin + (long) (random.nextDouble() * hours) * 3_600_000L + 1_900_000L : pick(THRESHOLD_A, THRESHOLD_B));
    }

    // ---- records

    private long timestamp() {
        switch (style) {
            case 0: return clock += 1 + random.nextInt(5000);
            case 1: return clock += 1 + random.nextInt(20) * 3_600_000L;
            case 2: return Y2020 + (long) (random.nextDouble() * (Y2024 - Y2020));
            case 3: return chance(10) ? clock += 3 * DAY : clock;
            case 4: return chance(75) ? clock += 12 * 3_600_000L : Y2100 + random.nextInt(100_000);
            default:
                int kind = random.nextInt(10);
                return kind == 0 ? -1 : kind == 1 ? 0 : kind == 2 ? Y2100 + random.nextInt(1000) : (clock += random.nextInt(30) * 3_600_000L);
        }
    }

    private byte[] bytes(int size) {
        byte[] b = new byte[size];
        if (chance(50)) Arrays.fill(b, (byte) ('a' + random.nextInt(26))); else random.nextBytes(b);
        return b;
    }

    private Rec record(int keys) {
        byte[] key = ("k" + random.nextInt(keys)).getBytes(StandardCharsets.UTF_8);
        if (chance(4)) key = new byte[0];
        if (chance(2)) key = bytes(60);
        if (delete && !compact ? chance(20) : chance(1)) key = null;
        int kind = random.nextInt(20);
        byte[] value = kind < (compact ? 4 : 2) ? null : kind == 5 ? new byte[0] : bytes(random.nextInt(kind == 6 ? 900 : 90));
        Map<String, byte[]> headers = new LinkedHashMap<>();
        if (chance(20)) for (int i = random.nextInt(3); i >= 0; i--) headers.put(i == 2 ? "" : "h" + i, i == 1 ? null : bytes(random.nextInt(6)));
        return new Rec(timestamp(), key, value, headers);
    }

    private List<Step> steps(int round) {
        List<Step> steps = new ArrayList<>();
        int keys = pick(1, 3, 12, 60), batches = 10 + random.nextInt(segmentBytes > 50_000 ? 30 : 50);
        boolean coordinated = transactions && round == 0;
        for (int i = 0; i < batches; i++) {
            if (chance(3)) steps.add(deletion());
            if (chance(2) && producers > 0) {
                int producer = random.nextInt(producers);
                if (!coordinated) steps.add(new BumpEpoch(producer));
            }
            if (coordinated && !open.isEmpty() && chance(35)) end(steps);
            int producer = random.nextInt(producers + 1) - 1;
            if (coordinated && chance(60)) producer = random.nextInt(3) + 10;
            boolean transactional = producer >= 10;
            if (transactional) open.add(producer);
            List<Rec> records = new ArrayList<>();
            for (int n = chance(40) ? 1 : 1 + random.nextInt(chance(10) ? 60 : 8); n > 0; n--) records.add(record(keys));
            String codec = compressed ? pick(CODECS) : "none";
            int level = codec.equals("gzip") ? pick(1, 6, 9) : codec.equals("zstd") ? pick(1, 3, 12) : codec.equals("lz4") ? pick(1, 9) : 0;
            Fault fault = Fault.NONE;
            if (chance(1)) fault = Fault.EMPTY;
            if (producer >= 0 && !transactional && chance(8)) fault = pick(Fault.DUPLICATE, Fault.GAP, Fault.OLD_EPOCH);
            steps.add(new Batch(codec, level, producer, transactional, fault, records));
        }
        // Some transactions stay open: what lies above the last stable offset must not be touched.
        while (!open.isEmpty() && (!coordinated || chance(80))) end(steps);
        open.clear();
        for (int i = random.nextInt(4); i > 0; i--) steps.add(roller(round, i));
        return steps;
    }

    private void end(List<Step> steps) {
        int producer = new ArrayList<>(open).get(random.nextInt(open.size()));
        open.remove(producer);
        steps.add(new EndTransaction(producer, chance(55)));
    }

    private Step deletion() {
        int kind = random.nextInt(10);
        return new DeleteRecords(random.nextDouble() * 0.7, kind == 0 ? -1 : kind == 1 ? 1_000_000 : kind == 2 ? -5 : Long.MIN_VALUE);
    }

    /** A record that fills a segment, so that what came before can be cleaned. */
    private Step roller(int round, int i) {
        byte[] value = new byte[config.containsKey("compression.type") ? 10 : (int) (segmentBytes * 0.9)];
        random.nextBytes(value);
        clock += config.containsKey("compression.type") ? segmentMs : 0;
        byte[] key = ("roller-" + round + "-" + i).getBytes(StandardCharsets.UTF_8);
        return new Batch("none", 0, -1, false, Fault.NONE, List.of(new Rec(clock += 1000, key, value, Map.of())));
    }

    // ---- upkeep

    private List<Map<String, String>> upkeep() {
        List<Map<String, String>> all = new ArrayList<>();
        if (delete) all.add(retention());
        if (compact) all.add(cleaning());
        if (all.size() == 1) all.add(compact ? cleaning() : retention());
        else if (chance(50)) Collections.reverse(all);
        return all;
    }

    private Map<String, String> retention() {
        Map<String, String> settings = new TreeMap<>();
        // Sizes are the same on both sides only where nobody compresses again.
        boolean bytes = (!compressed || !config.containsKey("compression.type") && !compact) && chance(55);
        if (bytes) settings.put("retention.bytes", String.valueOf(chance(10) ? 0 : (long) (segmentBytes * (random.nextDouble() * 4))));
        if (!bytes || chance(30)) settings.put("retention.ms", chance(8) ? "1" : since());
        return settings;
    }

    private Map<String, String> cleaning() {
        Map<String, String> settings = new TreeMap<>();
        int kind = random.nextInt(10);
        if (kind < 7) settings.put("min.cleanable.dirty.ratio", kind < 5 ? "0" : compressed ? "0" : pick("0.01", "0.3", "0.6"));
        if (kind >= 7) settings.put("max.compaction.lag.ms", since());
        if (kind == 0 || kind == 1) settings.put("min.compaction.lag.ms", since());
        return settings;
    }

    /** Where segments begin depends on how small the cleaner gets what it compresses again. */
    boolean layoutComparable() { return !compact || !compressed; }

    String describe() {
        StringBuilder text = new StringBuilder(topic + " " + config + "\n");
        for (int i = 0; i < rounds.size(); i++) {
            text.append("round ").append(i).append(": ").append(rounds.get(i).steps.size()).append(" steps, upkeep ").append(rounds.get(i).upkeep).append('\n');
        }
        return text.toString();
    }
}
