import io.pravega.client.ClientConfig;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.stream.Checkpoint;
import io.pravega.client.stream.Position;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamCut;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * A reader group, as its owner handles it. Arguments: controller URI, scope, group. Commands, one a line, words divided
 * by tabs:
 *
 * <pre>
 * create REFRESH_MS AUTOMATIC_CHECKPOINT_MS STREAM...   (AUTOMATIC_CHECKPOINT_MS -1: none)
 * open
 * checkpoint NAME           begins one; "checkpointed" waits for it, and answers with its bytes in base64
 * checkpointed
 * reset CHECKPOINT          to the bytes in base64
 * offline READER POSITION   the bytes in base64, or "-"
 * online                    readers
 * distribution              reader, number of segments; "" for the unassigned
 * unread                    bytes
 * cuts                      texts, of all streams
 * delete
 * </pre>
 */
public class GroupPeer {
    private static ByteBuffer bytes(String text) {
        return ByteBuffer.wrap(Base64.getDecoder().decode(text));
    }

    private static void data(Object... words) {
        StringBuilder line = new StringBuilder("DATA");
        for (Object word : words) {
            line.append('\t').append(word);
        }
        System.out.println(line);
    }

    public static void main(String[] arguments) throws Exception {
        String scope = arguments[1];
        String name = arguments[2];
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(arguments[0])).build();
        ScheduledExecutorService executor = Executors.newScheduledThreadPool(1);
        ReaderGroup group = null;
        CompletableFuture<Checkpoint> begun = null;
        try (ReaderGroupManager manager = ReaderGroupManager.withScope(scope, config)) {
            System.out.println("OK");
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split("\t");
                try {
                    switch (words[0]) {
                        case "create":
                            ReaderGroupConfig.ReaderGroupConfigBuilder builder =
                                    ReaderGroupConfig.builder().groupRefreshTimeMillis(Long.parseLong(words[1]));
                            if (words[2].equals("-1")) {
                                builder.disableAutomaticCheckpoints();
                            } else {
                                builder.automaticCheckpointIntervalMillis(Long.parseLong(words[2]));
                            }
                            for (int i = 3; i < words.length; i++) {
                                builder.stream(Stream.of(scope, words[i]));
                            }
                            data(manager.createReaderGroup(name, builder.build()));
                            group = manager.getReaderGroup(name);
                            break;
                        case "open":
                            group = manager.getReaderGroup(name);
                            break;
                        case "checkpoint":
                            begun = group.initiateCheckpoint(words[1], executor);
                            break;
                        case "checkpointed":
                            ByteBuffer buffer = begun.get(60, TimeUnit.SECONDS).toBytes();
                            byte[] copy = new byte[buffer.remaining()];
                            buffer.get(copy);
                            data(Base64.getEncoder().encodeToString(copy));
                            break;
                        case "reset":
                            group.resetReaderGroup(ReaderGroupConfig.builder()
                                    .startFromCheckpoint(Checkpoint.fromBytes(bytes(words[1])))
                                    .disableAutomaticCheckpoints().build());
                            break;
                        case "offline":
                            group.readerOffline(words[1],
                                    words[2].equals("-") ? null : Position.fromBytes(bytes(words[2])));
                            break;
                        case "online":
                            for (String reader : new TreeSet<>(group.getOnlineReaders())) {
                                data(reader);
                            }
                            break;
                        case "distribution":
                            Map<String, Integer> owned = new TreeMap<>(
                                    group.getReaderSegmentDistribution().getReaderSegmentDistribution());
                            for (Map.Entry<String, Integer> each : owned.entrySet()) {
                                data(each.getKey(), each.getValue());
                            }
                            data("", group.getReaderSegmentDistribution().getUnassignedSegments());
                            break;
                        case "unread":
                            data(group.getMetrics().unreadBytes());
                            break;
                        case "cuts":
                            for (StreamCut cut : group.getStreamCuts().values()) {
                                data(cut.asText());
                            }
                            break;
                        case "delete":
                            manager.deleteReaderGroup(name);
                            break;
                        default:
                            throw new IllegalArgumentException(words[0]);
                    }
                    System.out.println("OK");
                } catch (Exception e) {
                    System.out.println("ERR\t" + e.getClass().getSimpleName() + "\t" + e.getMessage());
                }
            }
        }
        System.exit(0);
    }
}
