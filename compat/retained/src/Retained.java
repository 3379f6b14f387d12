// What remains: generated topics are written, cleaned, trimmed and expired by Apache Kafka and by our broker, and after
// each piece of upkeep everything that a client can learn of them is compared.
//
//   java Retained LIBS BINARY WORKDIR PORT PORT MODE SEED COUNT [GOLDEN]
//     PORT  the reference's, ours; the controller has the next one
//     MODE  direct         the same requests to both brokers
//           restart, kill  the same, and between the rounds both stop cleanly or are killed
//           copied         the reference writes the first round, transactions included; both open copies of its directory
//           golden         as restart, our broker alone, against the digests in the file GOLDEN
//           record         as restart, the reference alone, writing GOLDEN
//
// Every difference is printed and the two sides' lines are left in WORKDIR/different (what is recorded, in
// WORKDIR/recorded); exit code 1 when there is one.

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.common.utils.internals.Exit;

public final class Retained {
    private static final int CONNECTIONS = 3;
    /** Nothing may have changed for this long, in ms, and so often is looked again before a difference is believed. */
    private static final long STILL = 2000;
    private static final String GIVEN_UP = "given-up";
    private static final int PATIENCE = 8;

    private final String mode;
    private final long seed;
    private final List<Scenario> scenarios = new ArrayList<>();
    private final List<Broker> sides = new ArrayList<>();
    private final Map<Broker, List<Player>> players = new HashMap<>();
    private final Path work, golden;
    private final Map<String, String> digests = new TreeMap<>();
    private final Set<String> different = new TreeSet<>();
    /** Topics whose cleaning failed in the reference, which then leaves them alone. */
    private final Set<String> givenUp = new TreeSet<>();
    private final ExecutorService pool = Executors.newCachedThreadPool();
    private long windowStart = System.currentTimeMillis() - 1;
    private long survivors, answers, comparisons, written, batches;

    private Retained(String[] args) throws IOException {
        work = Path.of(args[2]);
        mode = args[5];
        seed = Long.parseLong(args[6]);
        golden = args.length > 8 ? Path.of(args[8]) : null;
        for (int i = 0; i < Integer.parseInt(args[7]); i++) scenarios.add(new Scenario(seed, i, mode.equals("copied")));
        if (!mode.equals("golden")) sides.add(new Broker("reference", null, args[0], work.resolve("reference"), Integer.parseInt(args[3])));
        if (!mode.equals("record")) sides.add(new Broker("ours", args[1], args[0], work.resolve("ours"), Integer.parseInt(args[4])));
        if (mode.equals("golden")) {
            for (String line : Files.readAllLines(golden)) if (!line.startsWith("#")) digests.put(line.substring(0, line.lastIndexOf(' ')), line.substring(line.lastIndexOf(' ') + 1));
        }
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> { throw new IllegalStateException("exit " + code + " " + message); });
        long begin = System.nanoTime();
        Retained retained = new Retained(args);
        boolean failed = false;
        try {
            retained.run();
        } catch (Throwable e) {
            failed = true;
            e.printStackTrace(System.out);
        } finally {
            for (Broker side : retained.sides) if (side.process != null) side.process.destroyForcibly().waitFor();
        }
        System.out.printf("retained: %s, seed %d: %d topics, %d batches and %d records written, %d comparisons, %d surviving records, %d offsets by timestamp; %d topics given up by the reference; %d topics differ; %.0f s%n",
            retained.mode, retained.seed, retained.scenarios.size(), retained.batches, retained.written, retained.comparisons, retained.survivors,
            retained.answers, retained.givenUp.size(), retained.different.size(), (System.nanoTime() - begin) / 1e9);
        if (!failed && retained.mode.equals("record")) retained.writeGolden();
        Runtime.getRuntime().halt(failed || !retained.different.isEmpty() ? 1 : 0);
    }

    private void run() throws Exception {
        boolean copied = mode.equals("copied");
        List<Broker> first = copied ? List.of(sides.get(0)) : sides;
        each(first, side -> { side.format(); side.start(); side.create(scenarios); side.lead(scenarios); });
        for (Broker side : first) players.put(side, scenarios.stream().map(s -> new Player(s, windowStart)).toList());
        int rounds = scenarios.stream().mapToInt(s -> s.rounds.size()).max().orElse(0);
        for (int round = 0; round < rounds; round++) {
            int now = round;
            List<Scenario> playing = scenarios.stream().filter(s -> s.rounds.size() > now).toList();
            each(round == 0 ? first : sides, side -> write(side, now));
            if (copied && round == 0) branch();
            if (round > 0 || !copied) compareOutcomes();
            int steps = playing.stream().mapToInt(s -> s.rounds.get(now).upkeep().size()).max().orElse(0);
            for (int step = 0; step < steps; step++) upkeep(playing, round, step);
            if (round + 1 < rounds && !mode.equals("direct") && !copied) each(sides, side -> { side.stop(mode.equals("kill")); side.start(); side.lead(scenarios); });
        }
        each(sides, side -> side.stop(false));
    }

    // ---- writing

    private void write(Broker side, int round) throws Exception {
        if (round == 0 && scenarios.get(0).transactions) {
            // The coordinator's topic is made for the first who looks for it.
            try (Wire wire = side.connect()) {
                var request = new org.apache.kafka.common.message.FindCoordinatorRequestData().setKeyType((byte) 1).setCoordinatorKeys(List.of("t0"));
                wire.ask(request, 4);
            }
        }
        Iterator<Player> next = players.get(side).stream().filter(p -> p.scenario.rounds.size() > round).iterator();
        List<Future<?>> workers = new ArrayList<>();
        for (int i = 0; i < CONNECTIONS; i++) {
            workers.add(pool.submit(() -> {
                try (Wire wire = side.connect()) {
                    while (true) {
                        Player player;
                        synchronized (next) { if (!next.hasNext()) return null; player = next.next(); }
                        try { player.play(wire, round); } catch (Exception e) { throw new IllegalStateException(side.name + " " + player.scenario.topic + " after " + player.outcomes, e); }
                    }
                }
            }));
        }
        for (Future<?> worker : workers) worker.get();
    }

    /** From here on our broker goes on with a copy of what the reference has written. */
    private void branch() throws Exception {
        Broker reference = sides.get(0), ours = sides.get(1);
        reference.stop(false);
        reference.copyTo(ours);
        windowStart = System.currentTimeMillis() - 1;
        List<Player> written = players.get(reference);
        written.forEach(player -> { this.written += player.records; batches += player.batches; });
        for (Broker side : sides) players.put(side, written.stream().map(player -> player.copy(windowStart)).toList());
        each(sides, side -> { side.start(); side.lead(scenarios); });
    }

    private void compareOutcomes() throws IOException {
        for (int i = 0; i < scenarios.size(); i++) {
            List<List<String>> outcomes = new ArrayList<>();
            for (Broker side : sides) {
                Player player = players.get(side).get(i);
                outcomes.add(List.copyOf(player.outcomes));
                player.outcomes.clear();
                if (side == sides.get(0)) { written += player.records; batches += player.batches; }
                player.records = 0;
                player.batches = 0;
            }
            if (!outcomes.get(0).isEmpty()) settle(scenarios.get(i), "write " + outcomes.get(0).get(0).split(" ")[1].split("\\.")[0], outcomes, true);
        }
    }

    // ---- upkeep and comparison

    private void upkeep(List<Scenario> playing, int round, int step) throws Exception {
        Map<Scenario, Map<String, String>> on = new LinkedHashMap<>(), off = new LinkedHashMap<>();
        for (Scenario scenario : playing) {
            Map<String, String> settings = scenario.rounds.get(round).upkeep().get(step), back = new TreeMap<>();
            settings.keySet().forEach(key -> back.put(key, scenario.config.get(key)));
            on.put(scenario, settings);
            off.put(scenario, back);
        }
        // A digest cannot be met too early, but two brokers may agree before either has begun.
        long still = mode.equals("record") ? 3 * STILL : mode.equals("golden") ? STILL / 4 : STILL;
        each(sides, side -> { side.configure(on); side.quiet(still); });
        for (Broker side : sides) givenUp.addAll(side.uncleanable());
        List<Scenario> pending = playing;
        String stage = "round " + round + " upkeep " + step;
        for (int attempt = 0; !pending.isEmpty(); attempt++) {
            boolean last = attempt == PATIENCE;
            if (attempt > 0) Thread.sleep(Math.min(2000, 500L << attempt));
            List<Scenario> looking = pending;
            Map<Broker, List<List<String>>> seen = new ConcurrentHashMap<>();
            each(sides, side -> seen.put(side, observe(side, looking)));
            List<Scenario> unequal = new ArrayList<>();
            for (int i = 0; i < looking.size(); i++) {
                int at = i;
                if (!settle(looking.get(i), stage, sides.stream().map(side -> seen.get(side).get(at)).toList(), last)) unequal.add(looking.get(i));
            }
            pending = last ? List.of() : unequal;
        }
        each(sides, side -> side.configure(off));
    }

    private List<List<String>> observe(Broker side, List<Scenario> looking) throws Exception {
        List<List<String>> all = new ArrayList<>();
        try (Wire wire = side.connect()) {
            for (Scenario scenario : looking) {
                Observer observer = new Observer(wire, scenario, windowStart);
                List<String> lines = observer.observe();
                lines.add(side.layout(scenario));
                all.add(lines);
                if (side == sides.get(0)) synchronized (this) { survivors += observer.survivors; answers += observer.answers; }
            }
        }
        return all;
    }

    /** Whether the sides agree, or ours with the golden digest; complains when it does not and is the last word. */
    private boolean settle(Scenario scenario, String stage, List<List<String>> sides, boolean last) throws IOException {
        String name = scenario.topic + " " + stage, digest = digest(sides.get(0));
        boolean equal = switch (mode) {
            case "record" -> { digests.put(name, givenUp.contains(scenario.topic) ? GIVEN_UP : digest); keep("recorded", name, sides); yield true; }
            case "golden" -> GIVEN_UP.equals(digests.get(name)) || digest.equals(digests.get(name));
            default -> givenUp.contains(scenario.topic) || sides.get(0).equals(sides.get(1));
        };
        if (equal || last) comparisons++;
        if (equal || !last) return equal;
        if (different.add(scenario.topic)) System.out.println("DIFFERENT " + scenario.describe().stripTrailing());
        System.out.println("  " + name + (mode.equals("golden") ? " is not what the reference's digest says" : ""));
        keep("different", name, sides);
        if (sides.size() == 2) firstDifferences(sides.get(0), sides.get(1));
        return false;
    }

    private void keep(String kind, String name, List<List<String>> lines) throws IOException {
        Path folder = Files.createDirectories(work.resolve(kind));
        for (int i = 0; i < lines.size(); i++) Files.write(folder.resolve(name.replace(' ', '-') + "." + sides.get(i).name), lines.get(i));
    }

    private static void firstDifferences(List<String> theirs, List<String> ours) {
        List<String> lost = new ArrayList<>(theirs), more = new ArrayList<>(ours);
        ours.forEach(lost::remove);
        theirs.forEach(more::remove);
        for (int i = 0; i < Math.min(4, lost.size()); i++) System.out.println("    reference: " + lost.get(i));
        for (int i = 0; i < Math.min(4, more.size()); i++) System.out.println("    ours:      " + more.get(i));
    }

    private static String digest(List<String> lines) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(String.join("\n", lines).getBytes(StandardCharsets.UTF_8));
            return HexFormat.of().formatHex(hash, 0, 8);
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    private void writeGolden() throws IOException {
        List<String> lines = new ArrayList<>(List.of("# What Apache Kafka 4.4.0 answered, seed " + seed + ", " + scenarios.size() + " topics: SHA-256 of the lines, first 8 bytes"));
        digests.forEach((name, digest) -> lines.add(name + " " + digest));
        Files.write(golden, lines);
    }

    // ---- both sides at once

    interface Act { void on(Broker side) throws Exception; }

    private void each(List<Broker> sides, Act act) throws Exception {
        List<Future<?>> all = new ArrayList<>();
        for (Broker side : sides) all.add(pool.submit(() -> { act.on(side); return null; }));
        for (Future<?> one : all) one.get();
    }
}
