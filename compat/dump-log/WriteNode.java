import java.time.Duration;
import java.util.*;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.*;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.serialization.*;

/** Fills a broker with what kafka-dump-log must show: all codecs, transactions, groups of every kind, metadata. */
public class WriteNode {
  static String B;
  static Map<String, Object> base(Object... kv) {
    Map<String, Object> m = new HashMap<>();
    m.put("bootstrap.servers", B);
    for (int i = 0; i < kv.length; i += 2) m.put((String) kv[i], kv[i + 1]);
    return m;
  }
  static KafkaProducer<byte[], byte[]> producer(Object... kv) {
    return new KafkaProducer<>(base(kv), new ByteArraySerializer(), new ByteArraySerializer());
  }
  static byte[] b(String s) { return s == null ? null : s.getBytes(StandardCharsets.UTF_8); }
  public static void main(String[] a) throws Exception {
    B = a[0];
    Admin admin = Admin.create(base());
    List<NewTopic> topics = new ArrayList<>();
    for (String c : List.of("none", "gzip", "snappy", "lz4", "zstd"))
      topics.add(new NewTopic("t-" + c, 1, (short) 1).configs(Map.of("segment.bytes", "1048576", "index.interval.bytes", "200")));
    topics.add(new NewTopic("t-append-time", 1, (short) 1).configs(Map.of("message.timestamp.type", "LogAppendTime")));
    topics.add(new NewTopic("t-txn", 1, (short) 1));
    topics.add(new NewTopic("t-gone", 2, (short) 1));
    admin.createTopics(topics).all().get();
    for (String c : List.of("none", "gzip", "snappy", "lz4", "zstd"))
      try (KafkaProducer<byte[], byte[]> p = producer("compression.type", c, "linger.ms", 20)) {
        for (int i = 0; i < 40; i++) {
          ProducerRecord<byte[], byte[]> r = new ProducerRecord<>("t-" + c, 0, 1700000000000L + i * 1000,
              i % 5 == 0 ? null : b("key-" + i), i % 7 == 0 ? null : b("value number " + i + " é\n".repeat(i % 3)));
          if (i % 3 == 0) { r.headers().add("h1", b("x")); r.headers().add("h2", null); }
          p.send(r);
          if (i % 10 == 9) p.flush();
        }
      }
    try (KafkaProducer<byte[], byte[]> p = producer("enable.idempotence", false, "acks", "1")) {
      for (int i = 0; i < 3; i++) { p.send(new ProducerRecord<>("t-append-time", null, b("v" + i))); p.flush(); }
    }
    try (KafkaProducer<byte[], byte[]> p = producer("transactional.id", "tx-1")) {
      p.initTransactions();
      for (int i = 0; i < 4; i++) {
        p.beginTransaction();
        p.send(new ProducerRecord<>("t-txn", b("k"), b("t" + i)));
        p.flush();
        if (i % 2 == 0) p.commitTransaction(); else p.abortTransaction();
      }
    }
    for (String protocol : List.of("classic", "consumer"))
      try (KafkaConsumer<byte[], byte[]> c = new KafkaConsumer<>(base("group.id", "g-" + protocol, "group.protocol", protocol,
          "auto.offset.reset", "earliest", "enable.auto.commit", false), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
        c.subscribe(List.of("t-none", "t-txn"));
        int seen = 0;
        for (int i = 0; i < 60 && seen < 40; i++) seen += c.poll(Duration.ofMillis(500)).count();
        c.commitSync(Map.of(new TopicPartition("t-none", 0), new OffsetAndMetadata(7, Optional.of(0), "meta é")));
      }
    try {
      admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, "g-share"),
          List.of(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
      try (KafkaShareConsumer<byte[], byte[]> c = new KafkaShareConsumer<>(base("group.id", "g-share"), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
        c.subscribe(List.of("t-none"));
        int seen = 0;
        for (int i = 0; i < 40 && seen < 20; i++) seen += c.poll(Duration.ofMillis(500)).count();
        c.commitSync();
      }
    } catch (Exception e) { e.printStackTrace(); }
    admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("user", "alice")),
        List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 12345678.5), new ClientQuotaAlteration.Op("request_percentage", 0.0001))))).all().get();
    admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("bob",
        new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b("secret"), b("salt")))).all().get();
    admin.deleteTopics(List.of("t-gone")).all().get();
    admin.deleteConsumerGroups(List.of("g-consumer")).all().get();
    Thread.sleep(2000);
    admin.close();
  }
}
