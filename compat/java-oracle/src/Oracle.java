import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Answers what Apache Kafka's own classes make of a message. Frames on stdin and stdout are a 4-byte length and a
 * body. A question is: operation, name (2-byte length), version, second version, rest. An answer is: 1 and the
 * result, or 0 and the text of the exception.
 *
 * Operations: E encode the JSON in `rest` at the version, and check that what is decoded from it is equal;
 * X the same, but encode at the second version and do not check; J the JSON that Java writes of it; D the text of a fresh instance of the message or,
 * when `rest` is not empty, of its nested class of that name; T the tables of errors and api keys.
 */
public final class Oracle {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private record Kind(Class<?> type, Constructor<?> constructor, Method fromJson, Method toJson) {
        Message fresh() throws Exception {
            return (Message) constructor.newInstance();
        }
    }

    private final Map<String, Kind> kinds = new HashMap<>();

    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        Oracle oracle = new Oracle();
        while (true) {
            int length;
            try {
                if (in.available() == 0) {
                    out.flush();
                }
                length = in.readInt();
            } catch (EOFException end) {
                return;
            }
            byte[] question = in.readNBytes(length);
            byte[] answer;
            int status = 1;
            try {
                answer = oracle.answer(ByteBuffer.wrap(question));
            } catch (Throwable error) {
                Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
                status = 0;
                answer = cause.toString().getBytes(StandardCharsets.UTF_8);
            }
            out.writeInt(answer.length + 1);
            out.writeByte(status);
            out.write(answer);
        }
    }

    private byte[] answer(ByteBuffer question) throws Exception {
        char operation = (char) question.get();
        byte[] nameBytes = new byte[question.getShort()];
        question.get(nameBytes);
        String name = new String(nameBytes, StandardCharsets.UTF_8);
        short version = question.getShort();
        short second = question.getShort();
        byte[] rest = new byte[question.remaining()];
        question.get(rest);
        switch (operation) {
            case 'E': {
                Kind kind = kind(name);
                JsonNode json = MAPPER.readTree(rest);
                Message message = (Message) kind.fromJson.invoke(null, json, version);
                byte[] bytes = encode(message, version);
                Message again = kind.fresh();
                ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
                again.read(readable, version);
                if (readable.remaining() != 0 || !again.equals(message)) {
                    throw new IllegalStateException("decoded " + again + " from " + message);
                }
                return bytes;
            }
            case 'X': {
                Kind kind = kind(name);
                return encode((Message) kind.fromJson.invoke(null, MAPPER.readTree(rest), version), second);
            }
            case 'J': {
                Kind kind = kind(name);
                Object message = kind.fromJson.invoke(null, MAPPER.readTree(rest), version);
                return kind.toJson.invoke(null, message, version).toString().getBytes(StandardCharsets.UTF_8);
            }
            case 'D': {
                Class<?> type = kind(name).type;
                if (rest.length > 0) {
                    type = Class.forName(type.getName() + "$" + new String(rest, StandardCharsets.UTF_8));
                }
                return type.getConstructor().newInstance().toString().getBytes(StandardCharsets.UTF_8);
            }
            case 'T':
                return tables().getBytes(StandardCharsets.UTF_8);
            default:
                throw new IllegalArgumentException("operation " + operation);
        }
    }

    private static byte[] encode(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int size = message.size(cache, version);
        ByteBuffer buffer = ByteBuffer.allocate(size);
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("announced " + size + " bytes, wrote " + buffer.position());
        }
        return buffer.array();
    }

    private Kind kind(String name) throws Exception {
        Kind known = kinds.get(name);
        if (known != null) {
            return known;
        }
        for (String prefix : PACKAGES) {
            for (String suffix : Arrays.asList("Data", "")) {
                try {
                    Class<?> type = Class.forName(prefix + name + suffix);
                    Class<?> converter = Class.forName(prefix + name + suffix + "JsonConverter");
                    Method fromJson = converter.getMethod("read", JsonNode.class, short.class);
                    Method toJson = converter.getMethod("write", type, short.class);
                    Kind kind = new Kind(type, type.getConstructor(), fromJson, toJson);
                    kinds.put(name, kind);
                    return kind;
                } catch (ClassNotFoundException next) {
                    // Tried further on.
                }
            }
        }
        throw new IllegalArgumentException("no class for " + name);
    }

    private static String tables() {
        StringBuilder out = new StringBuilder();
        for (Errors error : Errors.values()) {
            Object exception = error.exception();
            out.append("error\t").append(error.code())
                .append('\t').append(error.name())
                .append('\t').append(exception instanceof RetriableException)
                .append('\t').append(exception instanceof InvalidMetadataException)
                .append('\t').append(exception == null ? "" : exception.getClass().getName())
                .append('\t').append(error.message())
                .append('\n');
        }
        for (ApiKeys key : ApiKeys.values()) {
            out.append("api\t").append(key.id)
                .append('\t').append(key.name)
                .append('\t').append(key.oldestVersion())
                .append('\t').append(key.latestVersion(true))
                .append('\t').append(key.latestVersion(false))
                .append('\t').append(key.inScope(ListenerType.BROKER))
                .append('\t').append(key.inScope(ListenerType.CONTROLLER));
            for (short version = key.oldestVersion(); version <= key.latestVersion(true); version++) {
                out.append('\t').append(key.requestHeaderVersion(version))
                    .append(',').append(key.responseHeaderVersion(version));
            }
            out.append('\n');
        }
        for (ListenerType listener : Arrays.asList(ListenerType.BROKER, ListenerType.CONTROLLER)) {
            for (boolean unstable : new boolean[] {false, true}) {
                for (ApiKeys key : ApiKeys.apisForListener(listener)) {
                    key.toApiVersionForApiResponse(unstable, listener).ifPresent(version ->
                        out.append("advertised\t").append(listener)
                            .append('\t').append(unstable)
                            .append('\t').append(version.apiKey())
                            .append('\t').append(version.minVersion())
                            .append('\t').append(version.maxVersion())
                            .append('\n'));
                }
            }
        }
        return out.toString();
    }
}
