import com.sun.management.OperatingSystemMXBean;
import io.pravega.client.BatchClientFactory;
import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.SynchronizerClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.batch.SegmentIterator;
import io.pravega.client.batch.SegmentRange;
import io.pravega.client.state.StateSynchronizer;
import io.pravega.client.state.SynchronizerConfig;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.Transaction;
import io.pravega.client.stream.TransactionalEventStreamWriter;
import io.pravega.client.stream.impl.ByteArraySerializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.locks.LockSupport;

/**
 * The Java client as a benchmark peer: it stays warm, one request a line on standard input.
 *
 * <p>{@code append stream size count keys} writes events through an EventStreamWriter and flushes;
 * {@code read stream} reads everything through the batch client; {@code group stream count} reads as many
 * events through a reader group of one; {@code latency stream size count rate} writes so many events a second
 * and tells how long each took to a reader; {@code load}, {@code acks}, {@code transactions} and {@code synchronizer} are
 * described in {@code benchmarks/work.py}. Columns are separated by tabs; the answer is one line of JSON. Payloads are those of
 * that file.
 */
public final class BenchPeer {
    private static final int POOL = 64;
    /** Lengths of the payloads, in thousandths of their size; those of benchmarks/work.py. */
    private static final int[] LENGTHS = Arrays.stream(System.getProperty("bench.lengths").split(","))
        .mapToInt(Integer::parseInt).toArray();
    private static final ByteArraySerializer BYTES = new ByteArraySerializer();
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final ClientConfig config;
    private final String scope;

    private BenchPeer(String uri, String scope) {
        this.config = ClientConfig.builder().controllerURI(URI.create(uri)).build();
        this.scope = scope;
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BenchPeer peer = new BenchPeer(args[0], args[1]);
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("{\"ready\": true}");
        answers.flush();
        String line;
        while ((line = requests.readLine()) != null) {
            String[] a = line.split("\t", -1);
            String answer;
            try {
                if (a[0].equals("append")) {
                    answer = peer.append(a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]),
                                         Integer.parseInt(a[4]));
                } else if (a[0].equals("read")) {
                    answer = peer.read(a[1]);
                } else if (a[0].equals("group")) {
                    answer = peer.group(a[1], Long.parseLong(a[2]));
                } else if (a[0].equals("latency")) {
                    answer = peer.latency(a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]),
                                          Integer.parseInt(a[4]), false);
                } else if (a[0].equals("load")) {
                    answer = peer.latency(a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]),
                                          Integer.parseInt(a[4]), true);
                } else if (a[0].equals("acks")) {
                    answer = peer.acks(a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]),
                                       Integer.parseInt(a[4]));
                } else if (a[0].equals("transactions")) {
                    answer = peer.transactions(a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]),
                                               Integer.parseInt(a[4]), Integer.parseInt(a[5]));
                } else if (a[0].equals("synchronizer")) {
                    answer = peer.synchronizer(a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]));
                } else {
                    throw new IllegalArgumentException("no such command: " + a[0]);
                }
            } catch (Exception e) {
                answer = "{\"error\": \"" + e.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"}";
            }
            answers.println(answer);
            answers.flush();
        }
        System.exit(0);
    }

    /** Length of number k of the payloads of about this size. */
    private static int length(int size, int k) {
        return (int) ((long) size * LENGTHS[k] / 1000);
    }

    /** Bytes of the payloads of so many events. */
    private static long totalBytes(int size, long count) {
        long whole = 0;
        long rest = 0;
        for (int k = 0; k < POOL; k++) {
            whole += length(size, k);
            rest += k < count % POOL ? length(size, k) : 0;
        }
        return count / POOL * whole + rest;
    }

    private static byte[][] payloadPool(int size) {
        byte[][] pool = new byte[POOL][];
        for (int k = 0; k < POOL; k++) {
            pool[k] = new byte[length(size, k)];
            for (int i = 0; i < pool[k].length; i++) {
                pool[k][i] = (byte) (31 * i + 7 + k);
            }
        }
        return pool;
    }

    private static String[] keyNames(int keys) {
        String[] names = new String[keys];
        for (int k = 0; k < keys; k++) {
            names[k] = "key-" + k;
        }
        return names;
    }

    private String append(String stream, int size, int count, int keys) {
        byte[][] pool = payloadPool(size);
        String[] names = keyNames(keys);
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
             EventStreamWriter<byte[]> writer = factory.createEventWriter(
                 stream, BYTES, EventWriterConfig.builder().build())) {
            long cpu = SYSTEM.getProcessCpuTime();
            long start = System.nanoTime();
            if (keys == 0) {
                for (int i = 0; i < count; i++) {
                    writer.writeEvent(pool[i % POOL]);
                }
            } else {
                for (int i = 0; i < count; i++) {
                    writer.writeEvent(names[i % keys], pool[i % POOL]);
                }
            }
            writer.flush();
            long end = System.nanoTime();
            return answer(count, totalBytes(size, count), end - start, SYSTEM.getProcessCpuTime() - cpu);
        }
    }

    private String read(String stream) {
        long events = 0;
        long bytes = 0;
        try (BatchClientFactory factory = BatchClientFactory.withScope(scope, config)) {
            long cpu = SYSTEM.getProcessCpuTime();
            long start = System.nanoTime();
            Iterator<SegmentRange> ranges = factory
                .getSegments(Stream.of(scope, stream), StreamCut.UNBOUNDED, StreamCut.UNBOUNDED)
                .getIterator();
            while (ranges.hasNext()) {
                try (SegmentIterator<byte[]> iterator = factory.readSegment(ranges.next(), BYTES)) {
                    while (iterator.hasNext()) {
                        bytes += iterator.next().length;
                        events++;
                    }
                }
            }
            long end = System.nanoTime();
            return answer(events, bytes, end - start, SYSTEM.getProcessCpuTime() - cpu);
        }
    }

    private String group(String stream, long expected) {
        String group = "g" + UUID.randomUUID().toString().replace("-", "");
        long events = 0;
        long bytes = 0;
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(scope, config);
             EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config)) {
            manager.createReaderGroup(group, ReaderGroupConfig.builder().stream(Stream.of(scope, stream)).build());
            long cpu = SYSTEM.getProcessCpuTime();
            long start = System.nanoTime();
            long end;
            try (EventStreamReader<byte[]> reader = factory.createReader(
                     "reader", group, BYTES, ReaderConfig.builder().build())) {
                while (events < expected) {
                    byte[] event = reader.readNextEvent(1000).getEvent();
                    if (event != null) {
                        bytes += event.length;
                        events++;
                    }
                }
                end = System.nanoTime();
                cpu = SYSTEM.getProcessCpuTime() - cpu;
            }
            manager.deleteReaderGroup(group);
            return answer(events, bytes, end - start, cpu);
        }
    }

    /** Times are from when an event was due, or from the call that writes it; rate 0 is as fast as possible. */
    private String latency(String stream, int size, int count, int rate, boolean fromDue) throws Exception {
        String group = "g" + UUID.randomUUID().toString().replace("-", "");
        long[] taken = new long[count];
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(scope, config);
             EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
             EventStreamWriter<byte[]> writer = factory.createEventWriter(
                 stream, BYTES, EventWriterConfig.builder().build())) {
            manager.createReaderGroup(group, ReaderGroupConfig.builder().stream(Stream.of(scope, stream)).build());
            try (EventStreamReader<byte[]> reader = factory.createReader(
                     "reader", group, BYTES, ReaderConfig.builder().build())) {
                // The reader has its segment when the first event has come.
                writer.writeEvent(new byte[size]).get();
                while (reader.readNextEvent(1000).getEvent() == null) {
                    continue;
                }
                Thread reading = new Thread(() -> {
                    int read = 0;
                    while (read < count) {
                        byte[] event = reader.readNextEvent(1000).getEvent();
                        if (event != null) {
                            taken[read++] = System.nanoTime() - ByteBuffer.wrap(event).getLong();
                        }
                    }
                });
                long cpu = SYSTEM.getProcessCpuTime();
                reading.start();
                long start = System.nanoTime();
                for (int i = 0; i < count; i++) {
                    long due = rate == 0 ? System.nanoTime() : start + i * 1_000_000_000L / rate;
                    while (System.nanoTime() < due) {
                        LockSupport.parkNanos(due - System.nanoTime());
                    }
                    byte[] event = new byte[size];
                    ByteBuffer.wrap(event).putLong(fromDue ? due : System.nanoTime());
                    writer.writeEvent(event);
                }
                reading.join();
                long end = System.nanoTime();
                cpu = SYSTEM.getProcessCpuTime() - cpu;
                return answer(count, (long) count * size, end - start, cpu, times("", taken));
            } finally {
                manager.deleteReaderGroup(group);
            }
        }
    }

    private String acks(String stream, int size, int count, int keys) throws Exception {
        byte[][] pool = payloadPool(size);
        String[] names = keyNames(keys);
        long[] taken = new long[count];
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
             EventStreamWriter<byte[]> writer = factory.createEventWriter(
                 stream, BYTES, EventWriterConfig.builder().build())) {
            // They connect.
            for (int i = 0; i < POOL; i++) {
                if (keys == 0) {
                    writer.writeEvent(pool[i]).get();
                } else {
                    writer.writeEvent(names[i % keys], pool[i]).get();
                }
            }
            long cpu = SYSTEM.getProcessCpuTime();
            long start = System.nanoTime();
            for (int i = 0; i < count; i++) {
                long before = System.nanoTime();
                if (keys == 0) {
                    writer.writeEvent(pool[i % POOL]).get();
                } else {
                    writer.writeEvent(names[i % keys], pool[i % POOL]).get();
                }
                taken[i] = System.nanoTime() - before;
            }
            long end = System.nanoTime();
            cpu = SYSTEM.getProcessCpuTime() - cpu;
            return answer(count, totalBytes(size, count), end - start, cpu, times("", taken));
        }
    }

    private String transactions(String stream, int size, int events, int count, int keys) throws Exception {
        byte[][] pool = payloadPool(size);
        String[] names = keyNames(keys);
        long[] returned = new long[count];
        long[] committed = new long[count];
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
             TransactionalEventStreamWriter<byte[]> writer = factory.createTransactionalEventWriter(
                 stream, BYTES, EventWriterConfig.builder().build())) {
            transaction(writer, pool, names, events);
            long cpu = SYSTEM.getProcessCpuTime();
            long start = System.nanoTime();
            for (int i = 0; i < count; i++) {
                long[] times = transaction(writer, pool, names, events);
                returned[i] = times[0];
                committed[i] = times[1];
            }
            long end = System.nanoTime();
            cpu = SYSTEM.getProcessCpuTime() - cpu;
            return answer((long) count * events, count * totalBytes(size, events), end - start, cpu,
                          times("", returned) + times("done_", committed));
        }
    }

    /** Nanoseconds from the beginning until commit has returned, and until the transaction is committed. */
    private static long[] transaction(TransactionalEventStreamWriter<byte[]> writer, byte[][] pool, String[] names,
                                      int events) throws Exception {
        long start = System.nanoTime();
        Transaction<byte[]> transaction = writer.beginTxn();
        if (names.length == 0) {
            for (int i = 0; i < events; i++) {
                transaction.writeEvent(pool[i % POOL]);
            }
        } else {
            for (int i = 0; i < events; i++) {
                transaction.writeEvent(names[i % names.length], pool[i % POOL]);
            }
        }
        transaction.commit();
        long returned = System.nanoTime() - start;
        // The pauses are those of wait_committed in pravega_wire/stream/transaction.py.
        double pause = 0.01;
        Transaction.Status status;
        while ((status = transaction.checkStatus()) != Transaction.Status.COMMITTED) {
            if (status != Transaction.Status.COMMITTING) {
                throw new IllegalStateException("the transaction is " + status);
            }
            LockSupport.parkNanos((long) (pause * 1e9));
            pause = Math.min(1.0, pause * 1.2);
        }
        return new long[] {returned, System.nanoTime() - start};
    }

    private String synchronizer(String stream, int tasks, int count) throws Exception {
        long[] taken = new long[tasks * count];
        List<StateSynchronizer<SharedSum.Sum>> every = new ArrayList<>();
        ExecutorService threads = Executors.newFixedThreadPool(tasks);
        try (SynchronizerClientFactory factory = SynchronizerClientFactory.withScope(scope, config)) {
            for (int task = 0; task < tasks; task++) {
                StateSynchronizer<SharedSum.Sum> shared = factory.createStateSynchronizer(
                    stream, new SharedSum.AddSerializer(), new SharedSum.StartSerializer(),
                    SynchronizerConfig.builder().build());
                every.add(shared);
                shared.initialize(new SharedSum.Start(0));
            }
            // They connect.
            for (StateSynchronizer<SharedSum.Sum> shared : every) {
                shared.fetchUpdates();
                shared.updateState((state, updates) -> {
                    updates.add(new SharedSum.Add(1));
                });
            }
            List<Future<?>> running = new ArrayList<>();
            long cpu = SYSTEM.getProcessCpuTime();
            long start = System.nanoTime();
            for (int task = 0; task < tasks; task++) {
                StateSynchronizer<SharedSum.Sum> shared = every.get(task);
                int first = task * count;
                running.add(threads.submit(() -> {
                    for (int i = 0; i < count; i++) {
                        long before = System.nanoTime();
                        shared.updateState((state, updates) -> {
                            updates.add(new SharedSum.Add(1));
                        });
                        taken[first + i] = System.nanoTime() - before;
                    }
                }));
            }
            for (Future<?> each : running) {
                each.get();
            }
            long end = System.nanoTime();
            cpu = SYSTEM.getProcessCpuTime() - cpu;
            every.get(0).fetchUpdates();
            long total = every.get(0).getState().value - tasks;
            return answer(total, total * SharedSum.RECORD_BYTES, end - start, cpu, times("", taken));
        } finally {
            threads.shutdownNow();
            for (StateSynchronizer<SharedSum.Sum> shared : every) {
                shared.close();
            }
        }
    }

    private static String answer(long events, long bytes, long nanos, long cpuNanos) {
        return answer(events, bytes, nanos, cpuNanos, "");
    }

    private static String answer(long events, long bytes, long nanos, long cpuNanos, String more) {
        return String.format(
            Locale.ROOT,
            "{\"events\": %d, \"bytes\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f%s}",
            events, bytes, nanos / 1e9, cpuNanos / 1e9, more);
    }

    /** Quantiles of times in nanoseconds, as more members of an answer. */
    private static String times(String prefix, long[] taken) {
        long[] ordered = taken.clone();
        Arrays.sort(ordered);
        int count = ordered.length;
        return String.format(
            Locale.ROOT,
            ", \"%sp50_ms\": %.4f, \"%sp99_ms\": %.4f, \"%sp999_ms\": %.4f, \"%smax_ms\": %.4f",
            prefix, ordered[count / 2] / 1e6, prefix, ordered[(int) (count * 99L / 100)] / 1e6,
            prefix, ordered[(int) (count * 999L / 1000)] / 1e6, prefix, ordered[count - 1] / 1e6);
    }
}
