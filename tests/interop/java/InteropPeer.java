import io.pravega.client.BatchClientFactory;
import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.SynchronizerClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.admin.StreamInfo;
import io.pravega.client.admin.StreamManager;
import io.pravega.client.batch.SegmentIterator;
import io.pravega.client.batch.SegmentRange;
import io.pravega.client.control.impl.ControllerImpl;
import io.pravega.client.control.impl.ControllerImplConfig;
import io.pravega.client.segment.impl.Segment;
import io.pravega.client.state.Revision;
import io.pravega.client.state.RevisionedStreamClient;
import io.pravega.client.state.SynchronizerConfig;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.Transaction;
import io.pravega.client.stream.TransactionalEventStreamWriter;
import io.pravega.client.stream.impl.ByteArraySerializer;
import io.pravega.client.stream.impl.StreamSegments;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigInteger;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;

/**
 * The Java client behind standard input and output, so that one virtual machine serves many tests.
 *
 * <p>A request is one line: a command and its arguments, separated by tabs; some are followed by lines
 * of data. The answer is any number of lines that begin with "D" and a tab, then "OK", or "ERR", a tab,
 * the class of the exception, a tab and its message. Bytes and routing keys are base64; "-" is no key;
 * an empty stream cut means the unbounded one.
 */
public final class InteropPeer {
    private static final ByteArraySerializer BYTES = new ByteArraySerializer();

    private final ClientConfig config;
    private final StreamManager manager;
    private final ScheduledExecutorService executor = Executors.newScheduledThreadPool(2, task -> {
        Thread thread = new Thread(task, "controller");
        thread.setDaemon(true);
        return thread;
    });
    private final ControllerImpl controller;
    private final BufferedReader in;
    private final PrintStream out;
    private final Map<String, Command> commands = new HashMap<>();
    private final Map<String, Held> transactions = new HashMap<>();
    private int handles;
    private EventStreamClientFactory heldFactory;
    private EventStreamWriter<byte[]> heldWriter;

    private InteropPeer(URI uri, BufferedReader in, PrintStream out) {
        this.config = ClientConfig.builder().controllerURI(uri).build();
        this.manager = StreamManager.create(config);
        this.controller =
            new ControllerImpl(ControllerImplConfig.builder().clientConfig(config).build(), executor);
        this.in = in;
        this.out = out;
        addCommands();
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        // Whatever a library prints must not be taken for an answer.
        System.setOut(System.err);
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        InteropPeer peer = new InteropPeer(URI.create(args[0]), requests, answers);
        answers.println("OK");
        answers.flush();
        String line;
        while ((line = requests.readLine()) != null) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("quit")) {
                break;
            }
            try {
                peer.run(words);
                answers.println("OK");
            } catch (Exception e) {
                String message = String.valueOf(e.getMessage()).replaceAll("[\\t\\r\\n]+", " ");
                answers.println("ERR\t" + e.getClass().getName() + "\t" + message);
            }
            answers.flush();
        }
        // Threads of the client library are not all daemons.
        System.exit(0);
    }

    private interface Command {
        void run(String[] a) throws Exception;
    }

    private void addCommands() {
        commands.put("create-scope", a -> data(manager.createScope(a[1])));
        commands.put("create-stream", a -> data(manager.createStream(a[1], a[2],
            StreamConfiguration.builder()
                .scalingPolicy(ScalingPolicy.fixed(Integer.parseInt(a[3]))).build())));
        commands.put("write", a -> write(a[1], a[2], Integer.parseInt(a[3])));
        commands.put("write-large", a -> writeLarge(a[1], a[2], Integer.parseInt(a[3])));
        commands.put("writer-open", a -> openWriter(a[1], a[2]));
        commands.put("writer-write", a -> writeHeld(Integer.parseInt(a[1])));
        commands.put("writer-flush", a -> heldWriter.flush());
        commands.put("writer-close", a -> closeWriter());
        commands.put("head", a -> data(info(a[1], a[2]).getHeadStreamCut().asText()));
        commands.put("tail", a -> data(info(a[1], a[2]).getTailStreamCut().asText()));
        commands.put("describe-cut", a -> describe(a[1]));
        commands.put("segments-for", a -> segmentsFor(a[1], a[2], Integer.parseInt(a[3])));
        commands.put("read-batch", a -> readBatch(a[1], a[2], a[3], a[4]));
        commands.put("read-group", a -> readGroup(a[1], a[2], Integer.parseInt(a[3])));
        commands.put("truncate", a -> data(manager.truncateStream(a[1], a[2], StreamCut.from(a[3]))));
        commands.put("txn-write", a -> writeTransaction(a[1], a[2], Integer.parseInt(a[3])));
        commands.put("txn-commit", a -> transaction(a[1], a[2], a[3], Transaction::commit));
        commands.put("txn-abort", a -> transaction(a[1], a[2], a[3], Transaction::abort));
        commands.put("txn-resume", a -> resumeTransaction(a[1], a[2], a[3]));
        commands.put("txn-write-on", a -> writeOn(a[1], Integer.parseInt(a[2])));
        commands.put("txn-held-commit", a -> held(a[1]).transaction.commit());
        commands.put("txn-held-abort", a -> held(a[1]).transaction.abort());
        commands.put("txn-held-status", a -> data(held(a[1]).transaction.checkStatus()));
        commands.put("txn-release", a -> {
            held(a[1]).close();
            transactions.remove(a[1]);
        });
        commands.put("txn-status", a -> data(controller
            .checkTransactionStatus(Stream.of(a[1], a[2]), UUID.fromString(a[3])).join()));
        commands.put("revision-write", a -> revisionWrite(a[1], a[2], a[3], bytes(a[4])));
        commands.put("revision-read", a -> revisionRead(a[1], a[2]));
        commands.put("revision-mark", a -> revisionMark(a[1], a[2], a[3]));
    }

    private void run(String[] words) throws Exception {
        Command command = commands.get(words[0]);
        if (command == null) {
            throw new IllegalArgumentException("no such command: " + words[0]);
        }
        command.run(words);
    }

    // --- events -----------------------------------------------------------------------------------

    private void write(String scope, String stream, int count) throws Exception {
        List<String[]> events = readEvents(count);
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
             EventStreamWriter<byte[]> writer = factory.createEventWriter(
                 stream, BYTES, EventWriterConfig.builder().build())) {
            for (String[] event : events) {
                if (event[0].equals("-")) {
                    writer.writeEvent(bytes(event[1]));
                } else {
                    writer.writeEvent(text(event[0]), bytes(event[1]));
                }
            }
            writer.flush();
        }
    }

    /**
     * Lines of a key, a size and a seed: writes as many bytes as the generator makes of the seed, and gives
     * their SHA-256 in hexadecimal digits.
     */
    private void writeLarge(String scope, String stream, int count) throws Exception {
        List<String[]> events = readEvents(count);
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
             EventStreamWriter<byte[]> writer = factory.createEventWriter(
                 stream, BYTES, withLargeEvents())) {
            for (String[] event : events) {
                byte[] payload = new byte[Integer.parseInt(event[1])];
                new Random(Long.parseLong(event[2])).nextBytes(payload);
                writer.writeEvent(text(event[0]), payload);
                byte[] digest = MessageDigest.getInstance("SHA-256").digest(payload);
                data(String.format("%064x", new BigInteger(1, digest)));
            }
            writer.flush();
        }
    }

    /** Opens a writer that the next commands use. */
    private void openWriter(String scope, String stream) {
        heldFactory = EventStreamClientFactory.withScope(scope, config);
        heldWriter =
            heldFactory.createEventWriter(stream, BYTES, EventWriterConfig.builder().build());
    }

    /** Writes without waiting for anything. */
    private void writeHeld(int count) throws Exception {
        for (String[] event : readEvents(count)) {
            heldWriter.writeEvent(text(event[0]), bytes(event[1]));
        }
    }

    private void closeWriter() {
        heldWriter.flush();
        heldWriter.close();
        heldFactory.close();
    }

    private List<String[]> readEvents(int count) throws Exception {
        List<String[]> events = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            events.add(in.readLine().split("\t", -1));
        }
        return events;
    }

    /** Segment ids the Java client chooses for keys: one line of data for each key it is given. */
    private void segmentsFor(String scope, String stream, int count) throws Exception {
        List<String> keys = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            keys.add(text(in.readLine()));
        }
        StreamSegments segments = controller.getCurrentSegments(scope, stream).join();
        for (String key : keys) {
            data(segments.getSegmentForKey(key).getSegmentId());
        }
    }

    private void readBatch(String scope, String stream, String from, String to) {
        try (BatchClientFactory factory = BatchClientFactory.withScope(scope, config)) {
            Iterator<SegmentRange> ranges =
                factory.getSegments(Stream.of(scope, stream), cut(from), cut(to)).getIterator();
            while (ranges.hasNext()) {
                SegmentRange range = ranges.next();
                try (SegmentIterator<byte[]> events = factory.readSegment(range, BYTES)) {
                    while (events.hasNext()) {
                        long offset = events.getOffset();
                        event(range.getSegmentId(), offset, events.next());
                    }
                }
            }
        }
    }

    /**
     * A stream from its head through a reader group of one reader, in the order it is read.
     *
     * <p>It stops after the expected number of events and a second of silence, so that an event too many
     * shows.
     */
    private void readGroup(String scope, String stream, int expected) {
        String group = "interop-" + UUID.randomUUID();
        // A reader reports a sealed segment as finished, and so gets its successors, at checkpoints only.
        ReaderGroupConfig groupConfig = ReaderGroupConfig.builder()
            .automaticCheckpointIntervalMillis(1_000)
            .stream(Stream.of(scope, stream)).build();
        try (ReaderGroupManager groups = ReaderGroupManager.withScope(scope, config)) {
            groups.createReaderGroup(group, groupConfig);
            try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
                 EventStreamReader<byte[]> reader = factory.createReader(
                     "reader", group, BYTES, ReaderConfig.builder().build())) {
                int found = 0;
                int silent = 0;
                while (silent < (found < expected ? 60 : 1)) {
                    EventRead<byte[]> read = reader.readNextEvent(1_000);
                    if (read.getEvent() == null) {
                        silent += read.isCheckpoint() ? 0 : 1;
                        continue;
                    }
                    silent = 0;
                    found++;
                    // The parts of a pointer are not public; its text is "segment:offset-length".
                    String pointer = read.getEventPointer().toString();
                    int colon = pointer.lastIndexOf(':');
                    Segment segment = Segment.fromScopedName(pointer.substring(0, colon));
                    String offset = pointer.substring(colon + 1, pointer.lastIndexOf('-'));
                    event(segment.getSegmentId(), Long.parseLong(offset), read.getEvent());
                }
            } finally {
                groups.deleteReaderGroup(group);
            }
        }
    }

    // --- cuts -------------------------------------------------------------------------------------

    private StreamInfo info(String scope, String stream) throws Exception {
        // Clients before 0.13 have another method, and this is compiled with each.
        try {
            Object found = StreamManager.class.getMethod("fetchStreamInfo", String.class, String.class)
                .invoke(manager, scope, stream);
            return (StreamInfo) ((CompletableFuture<?>) found).join();
        } catch (NoSuchMethodException older) {
            return (StreamInfo) StreamManager.class.getMethod("getStreamInfo", String.class, String.class)
                .invoke(manager, scope, stream);
        }
    }

    /** Of clients from 0.11 on. */
    private static EventWriterConfig withLargeEvents() throws Exception {
        EventWriterConfig.EventWriterConfigBuilder builder = EventWriterConfig.builder();
        builder.getClass().getMethod("enableLargeEvents", boolean.class).invoke(builder, true);
        return builder.build();
    }

    private static StreamCut cut(String text) {
        return text.isEmpty() ? StreamCut.UNBOUNDED : StreamCut.from(text);
    }

    /** The stream of a cut, then a segment id and an offset in each line. */
    private void describe(String text) {
        StreamCut cut = StreamCut.from(text);
        data(cut.asImpl().getStream().getScopedName());
        cut.asImpl().getPositions()
            .forEach((segment, offset) -> data(segment.getSegmentId() + "\t" + offset));
    }

    // --- transactions -----------------------------------------------------------------------------

    private interface Step {
        void apply(Transaction<byte[]> transaction) throws Exception;
    }

    private void transaction(String scope, String stream, String id, Step step) throws Exception {
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
             TransactionalEventStreamWriter<byte[]> writer = factory.createTransactionalEventWriter(
                 stream, BYTES, EventWriterConfig.builder().build())) {
            step.apply(writer.getTxn(UUID.fromString(id)));
        }
    }

    /** Begins a transaction, writes events into it, flushes, leaves it open and gives its id. */
    private void writeTransaction(String scope, String stream, int count) throws Exception {
        List<String[]> events = readEvents(count);
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
             TransactionalEventStreamWriter<byte[]> writer = factory.createTransactionalEventWriter(
                 stream, BYTES, EventWriterConfig.builder().transactionTimeoutTime(60_000).build())) {
            Transaction<byte[]> transaction = writer.beginTxn();
            for (String[] event : events) {
                if (event[0].equals("-")) {
                    transaction.writeEvent(bytes(event[1]));
                } else {
                    transaction.writeEvent(text(event[0]), bytes(event[1]));
                }
            }
            transaction.flush();
            data(transaction.getTxnId());
        }
    }

    /** A transaction that was taken up by its id, until it is released. */
    private static final class Held {
        private final EventStreamClientFactory factory;
        private final TransactionalEventStreamWriter<byte[]> writer;
        private final Transaction<byte[]> transaction;

        private Held(ClientConfig config, String scope, String stream, String id) {
            factory = EventStreamClientFactory.withScope(scope, config);
            writer = factory.createTransactionalEventWriter(
                stream, BYTES, EventWriterConfig.builder().transactionTimeoutTime(60_000).build());
            transaction = writer.getTxn(UUID.fromString(id));
        }

        private void close() {
            writer.close();
            factory.close();
        }
    }

    /** Gives a handle: one transaction may be taken up several times. */
    private void resumeTransaction(String scope, String stream, String id) {
        String handle = String.valueOf(++handles);
        transactions.put(handle, new Held(config, scope, stream, id));
        data(handle);
    }

    private Held held(String handle) {
        return transactions.get(handle);
    }

    /** Writes further events into a transaction that was resumed, and flushes. */
    private void writeOn(String handle, int count) throws Exception {
        Transaction<byte[]> transaction = held(handle).transaction;
        for (String[] event : readEvents(count)) {
            transaction.writeEvent(text(event[0]), bytes(event[1]));
        }
        transaction.flush();
    }

    // --- revisioned streams -----------------------------------------------------------------------

    private interface Use<T> {
        T apply(RevisionedStreamClient<byte[]> client);
    }

    private <T> T revisioned(String scope, String stream, Use<T> use) {
        try (SynchronizerClientFactory factory = SynchronizerClientFactory.withScope(scope, config);
             RevisionedStreamClient<byte[]> client = factory.createRevisionedStreamClient(
                 stream, BYTES, SynchronizerConfig.builder().build())) {
            return use.apply(client);
        }
    }

    /** Conditional on a revision ("" is the latest); gives the new revision, or "-" for the loser. */
    private void revisionWrite(String scope, String stream, String expected, byte[] value) {
        data(revisioned(scope, stream, client -> {
            Revision latest =
                expected.isEmpty() ? client.fetchLatestRevision() : Revision.fromString(expected);
            Revision written = client.writeConditionally(latest, value);
            return written == null ? "-" : written.toString();
        }));
    }

    private void revisionRead(String scope, String stream) {
        revisioned(scope, stream, client -> {
            Iterator<Map.Entry<Revision, byte[]>> entries =
                client.readFrom(client.fetchOldestRevision());
            while (entries.hasNext()) {
                Map.Entry<Revision, byte[]> entry = entries.next();
                data(entry.getKey() + "\t" + base64(entry.getValue()));
            }
            return null;
        });
    }

    /** Sets the mark to a revision if one is given; gives the mark, or "-" for none. */
    private void revisionMark(String scope, String stream, String revision) {
        data(revisioned(scope, stream, client -> {
            if (!revision.isEmpty()) {
                client.compareAndSetMark(client.getMark(), Revision.fromString(revision));
            }
            Revision mark = client.getMark();
            return mark == null ? "-" : mark.toString();
        }));
    }

    // --- lines ------------------------------------------------------------------------------------

    private void data(Object value) {
        out.println("D\t" + value);
    }

    private void event(long segmentId, long offset, byte[] payload) {
        data(segmentId + "\t" + offset + "\t" + base64(payload));
    }

    private static byte[] bytes(String base64) {
        return Base64.getDecoder().decode(base64);
    }

    private static String text(String base64) {
        return new String(bytes(base64), StandardCharsets.UTF_8);
    }

    private static String base64(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }
}
