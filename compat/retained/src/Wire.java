// One connection that speaks the protocol with Kafka's own message classes: what goes into a
// batch and which version is asked is decided here and not by a client.

import java.io.*;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;

final class Wire implements Closeable {
    private final Socket socket;
    private final DataInputStream in;
    private final OutputStream out;
    private int correlation;

    Wire(int port) throws IOException {
        socket = new Socket("127.0.0.1", port);
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(60_000);
        in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 1 << 16));
        out = new BufferedOutputStream(socket.getOutputStream(), 1 << 16);
    }

    /** The body of the answer. */
    ByteBufferAccessor ask(ApiMessage body, int version) throws IOException {
        return ask(List.of(body), version).get(0);
    }

    /** The bodies of the answers to requests that are sent at once; they have to be small. */
    List<ByteBufferAccessor> ask(List<? extends ApiMessage> bodies, int version) throws IOException {
        List<ByteBufferAccessor> answers = new ArrayList<>();
        for (ApiMessage body : bodies) {
            ApiKeys key = ApiKeys.forId(body.apiKey());
            RequestHeader header = new RequestHeader(key, (short) version, "retained", correlation++);
            ByteBuffer request = RequestUtils.serialize(header.data(), header.headerVersion(), body, (short) version);
            byte[] frame = new byte[4 + request.remaining()];
            ByteBuffer.wrap(frame).putInt(request.remaining()).put(request);
            out.write(frame);
        }
        out.flush();
        for (ApiMessage body : bodies) {
            byte[] answer = new byte[in.readInt()];
            in.readFully(answer);
            ByteBuffer buffer = ByteBuffer.wrap(answer);
            ResponseHeader.parse(buffer, ApiKeys.forId(body.apiKey()).responseHeaderVersion((short) version));
            answers.add(new ByteBufferAccessor(buffer));
        }
        return answers;
    }

    @Override public void close() throws IOException { socket.close(); }
}
