import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

/** Writes segments as an upgraded cluster has them, with the reference's own classes: formats v0, v1, then v2, per codec. */
public class WriteOld {
  static byte[] b(String s) { return s == null ? null : s.getBytes(StandardCharsets.UTF_8); }

  static void batch(java.io.ByteArrayOutputStream out, byte magic, Compression codec, TimestampType type, long base, long appendTime, long[] times, int step) {
    ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
    MemoryRecordsBuilder builder = new MemoryRecordsBuilder(buffer, magic, codec, type, base, appendTime, -1L, (short) -1, -1, false, false, magic < 2 ? -1 : 0, 1 << 16);
    for (int i = 0; i < times.length; i++) {
      long offset = base + (long) i * step;
      String key = offset % 4 == 3 ? null : "k" + offset % 3, value = offset % 7 == 6 ? null : "value " + offset + " of format " + magic;
      builder.appendWithOffset(offset, magic == 0 ? -1L : times[i], b(key), b(value));
    }
    ByteBuffer built = builder.build().buffer();
    out.write(built.array(), built.arrayOffset() + built.position(), built.remaining());
  }

  public static void main(String[] a) throws Exception {
    Map<String, Compression> codecs = new LinkedHashMap<>();
    codecs.put("none", Compression.NONE);
    codecs.put("gzip", Compression.gzip().build());
    codecs.put("snappy", Compression.snappy().build());
    codecs.put("lz4", Compression.lz4().build());
    for (var codec : codecs.entrySet()) {
      var out = new java.io.ByteArrayOutputStream();
      Compression c = codec.getValue();
      long[] none = {-1, -1, -1};
      batch(out, (byte) 0, c, TimestampType.CREATE_TIME, 0, -1, none, 1);
      batch(out, (byte) 0, c, TimestampType.CREATE_TIME, 3, -1, none, 1);
      batch(out, (byte) 1, c, TimestampType.CREATE_TIME, 6, -1, new long[] {1000, 3000, 2000}, 1);
      batch(out, (byte) 1, c, TimestampType.CREATE_TIME, 9, -1, new long[] {2500, 2600, 9000, 4000}, 1);
      batch(out, (byte) 1, c, TimestampType.LOG_APPEND_TIME, 13, 5000, new long[] {5000, 5000, 5000}, 1);
      // What compaction leaves: gaps inside and between.
      batch(out, (byte) 1, c, TimestampType.CREATE_TIME, 20, -1, new long[] {6000, 6001, 6002}, 2);
      batch(out, (byte) 0, c, TimestampType.CREATE_TIME, 26, -1, none, 1);
      batch(out, (byte) 2, c, TimestampType.CREATE_TIME, 30, -1, new long[] {7000, 12000, 8000}, 1);
      batch(out, (byte) 2, c, TimestampType.LOG_APPEND_TIME, 33, 10000, new long[] {10000, 10000}, 1);
      Files.write(Path.of(a[0], codec.getKey() + ".log"), out.toByteArray());
    }
  }
}
