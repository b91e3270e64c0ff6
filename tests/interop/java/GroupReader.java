import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.stream.EventPointer;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.Position;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReinitializationRequiredException;
import io.pravega.client.stream.impl.ByteArraySerializer;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.Base64;

/**
 * One reader of a group, which may be killed at any time. Arguments: controller URI, scope, group, reader. Prints
 * "READY", then for each event "EVENT microseconds pointer payload position" (the last three in base64), for a
 * checkpoint "CHECKPOINT name", and "REINITIALIZE" when the group was reset, after which it joins again. A line on its
 * standard input, or the end of it, lets it leave.
 */
public class GroupReader {
    private static String text(ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return Base64.getEncoder().encodeToString(copy);
    }

    private static boolean told() throws IOException {
        return System.in.available() > 0;
    }

    private static boolean read(EventStreamReader<byte[]> reader) throws IOException {
        while (!told()) {
            EventRead<byte[]> read;
            try {
                read = reader.readNextEvent(200);
            } catch (ReinitializationRequiredException e) {
                System.out.println("REINITIALIZE");
                return true;
            }
            if (read.isCheckpoint()) {
                System.out.println("CHECKPOINT\t" + read.getCheckpointName());
            } else if (read.getEvent() != null) {
                Instant now = Instant.now();
                EventPointer pointer = read.getEventPointer();
                Position position = read.getPosition();
                System.out.println("EVENT\t" + (now.getEpochSecond() * 1_000_000 + now.getNano() / 1000) + "\t"
                        + text(pointer.toBytes()) + "\t" + Base64.getEncoder().encodeToString(read.getEvent()) + "\t"
                        + text(position.toBytes()));
            }
        }
        return false;
    }

    public static void main(String[] arguments) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(arguments[0])).build();
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(arguments[1], config)) {
            boolean again = true;
            while (again) {
                try (EventStreamReader<byte[]> reader = factory.createReader(arguments[3], arguments[2],
                        new ByteArraySerializer(), ReaderConfig.builder().build())) {
                    System.out.println("READY");
                    again = read(reader);
                }
            }
        }
        System.exit(0);
    }
}
