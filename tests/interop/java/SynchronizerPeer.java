import io.pravega.client.ClientConfig;
import io.pravega.client.SynchronizerClientFactory;
import io.pravega.client.state.InitialUpdate;
import io.pravega.client.state.Revision;
import io.pravega.client.state.Revisioned;
import io.pravega.client.state.StateSynchronizer;
import io.pravega.client.state.SynchronizerConfig;
import io.pravega.client.state.Update;
import io.pravega.client.stream.Serializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.Serializable;
import java.net.URI;
import java.nio.ByteBuffer;

/**
 * A sum that is kept by the Java client's state synchronizer. Arguments: controller URI, scope, stream. Commands, one
 * a line: "init V", "fetch", "add D TIMES", "compact"; each is answered by "OK sum revision".
 */
public class SynchronizerPeer {
    static final class Sum implements Revisioned {
        final String stream;
        final Revision revision;
        final long value;

        Sum(String stream, Revision revision, long value) {
            this.stream = stream;
            this.revision = revision;
            this.value = value;
        }

        @Override
        public String getScopedStreamName() {
            return stream;
        }

        @Override
        public Revision getRevision() {
            return revision;
        }
    }

    static final class Start implements InitialUpdate<Sum> {
        final long value;

        Start(long value) {
            this.value = value;
        }

        @Override
        public Sum create(String stream, Revision revision) {
            return new Sum(stream, revision, value);
        }
    }

    static final class Add implements Update<Sum> {
        final long amount;

        Add(long amount) {
            this.amount = amount;
        }

        @Override
        public Sum applyTo(Sum old, Revision revision) {
            return new Sum(old.stream, revision, old.value + amount);
        }
    }

    /** The versioned serializer's form of a record with one revision that holds one long. */
    static ByteBuffer record(long value) {
        ByteBuffer buffer = ByteBuffer.allocate(16);
        buffer.put((byte) 0).put((byte) 0).put((byte) 1).put((byte) 0).putInt(8).putLong(value).flip();
        return buffer;
    }

    static long value(ByteBuffer buffer) {
        return buffer.position(buffer.position() + 8).getLong();
    }

    static final class StartSerializer implements Serializer<Start>, Serializable {
        @Override
        public ByteBuffer serialize(Start start) {
            return record(start.value);
        }

        @Override
        public Start deserialize(ByteBuffer buffer) {
            return new Start(value(buffer));
        }
    }

    static final class AddSerializer implements Serializer<Add>, Serializable {
        @Override
        public ByteBuffer serialize(Add add) {
            return record(add.amount);
        }

        @Override
        public Add deserialize(ByteBuffer buffer) {
            return new Add(value(buffer));
        }
    }

    public static void main(String[] arguments) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(arguments[0])).build();
        try (SynchronizerClientFactory factory = SynchronizerClientFactory.withScope(arguments[1], config);
                StateSynchronizer<Sum> shared = factory.createStateSynchronizer(arguments[2], new AddSerializer(),
                        new StartSerializer(), SynchronizerConfig.builder().build())) {
            System.out.println("OK");
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split("\t");
                switch (words[0]) {
                    case "init":
                        shared.initialize(new Start(Long.parseLong(words[1])));
                        break;
                    case "fetch":
                        shared.fetchUpdates();
                        break;
                    case "add":
                        for (int i = 0; i < Integer.parseInt(words[2]); i++) {
                            // Two updates in one record: the second one changes nothing but the revision.
                            shared.updateState((state, updates) -> {
                                updates.add(new Add(Long.parseLong(words[1])));
                                updates.add(new Add(0));
                            });
                        }
                        break;
                    case "compact":
                        shared.compact(state -> new Start(state.value));
                        break;
                    default:
                        throw new IllegalArgumentException(words[0]);
                }
                System.out.println("DATA\t" + shared.getState().value + "\t" + shared.getState().getRevision());
                System.out.println("OK");
            }
        }
        System.exit(0);
    }
}
