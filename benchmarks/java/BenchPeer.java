import com.sun.management.OperatingSystemMXBean;
import io.pravega.client.BatchClientFactory;
import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.batch.SegmentIterator;
import io.pravega.client.batch.SegmentRange;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import io.pravega.client.stream.impl.ByteArraySerializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.Locale;

/**
 * The Java client as a benchmark peer: it stays warm, one request a line on standard input.
 *
 * <p>{@code append stream size count keys} writes events through an EventStreamWriter and flushes;
 * {@code read stream} reads everything through the batch client. Columns are separated by tabs; the
 * answer is one line of JSON. Payloads are those of {@code benchmarks/work.py}.
 */
public final class BenchPeer {
    private static final int POOL = 64;
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

    private String append(String stream, int size, int count, int keys) {
        byte[][] pool = new byte[POOL][size];
        for (int k = 0; k < POOL; k++) {
            for (int i = 0; i < size; i++) {
                pool[k][i] = (byte) (31 * i + 7 + k);
            }
        }
        String[] names = new String[keys];
        for (int k = 0; k < keys; k++) {
            names[k] = "key-" + k;
        }
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
            return answer(count, (long) count * size, end - start, SYSTEM.getProcessCpuTime() - cpu);
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

    private static String answer(long events, long bytes, long nanos, long cpuNanos) {
        return String.format(
            Locale.ROOT,
            "{\"events\": %d, \"bytes\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f}",
            events, bytes, nanos / 1e9, cpuNanos / 1e9);
    }
}
