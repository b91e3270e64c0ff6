import io.pravega.client.state.InitialUpdate;
import io.pravega.client.state.Revision;
import io.pravega.client.state.Revisioned;
import io.pravega.client.state.Update;
import io.pravega.client.stream.Serializer;
import java.io.Serializable;
import java.nio.ByteBuffer;

/** A sum as a state synchronizer's state, with its updates; the benchmark's peer uses it as well. */
final class SharedSum {
    static final int RECORD_BYTES = 16;

    private SharedSum() {
    }

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
        ByteBuffer buffer = ByteBuffer.allocate(RECORD_BYTES);
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
}
