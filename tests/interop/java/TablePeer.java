import io.pravega.client.ClientConfig;
import io.pravega.client.KeyValueTableFactory;
import io.pravega.client.admin.KeyValueTableManager;
import io.pravega.client.tables.Insert;
import io.pravega.client.tables.IteratorItem;
import io.pravega.client.tables.KeyValueTable;
import io.pravega.client.tables.KeyValueTableClientConfiguration;
import io.pravega.client.tables.KeyValueTableConfiguration;
import io.pravega.client.tables.Put;
import io.pravega.client.tables.Remove;
import io.pravega.client.tables.TableEntry;
import io.pravega.client.tables.TableKey;
import io.pravega.client.tables.TableModification;
import io.pravega.client.tables.Version;
import io.pravega.common.util.AsyncIterator;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/**
 * The Java client's key-value tables. Arguments: controller URI, scope. Commands, one a line, keys and values in
 * base 64, "-" for no secondary key, "" for no version:
 * "create T PARTITIONS PRIMARY SECONDARY", "insert T P S V", "put T P S V VERSION", "remove T P S VERSION",
 * "batch T P COUNT" (unconditional, with secondary keys of 4 digits), "get T P S", "list T", "exists T P S".
 * Entries come as "D P S V VERSION".
 */
public class TablePeer {
    private static ByteBuffer buffer(String text) {
        return ByteBuffer.wrap(Base64.getDecoder().decode(text));
    }

    private static String text(ByteBuffer buffer) {
        if (buffer == null) {
            return "-";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }

    private static TableKey key(String[] words) {
        return words[3].equals("-") ? new TableKey(buffer(words[2])) : new TableKey(buffer(words[2]), buffer(words[3]));
    }

    private static String word(String[] words, int index) {
        return index < words.length ? words[index] : "";
    }

    private static void show(TableEntry entry) {
        if (entry == null) {
            System.out.println("D\tnone");
            return;
        }
        System.out.println("D\t" + text(entry.getKey().getPrimaryKey()) + "\t" + text(entry.getKey().getSecondaryKey())
                + "\t" + text(entry.getValue()) + "\t" + entry.getVersion());
    }

    private static void run(String scope, ClientConfig config, KeyValueTableFactory factory, String[] words)
            throws Exception {
        if (words[0].equals("create")) {
            try (KeyValueTableManager manager = KeyValueTableManager.create(config)) {
                System.out.println("D\t" + manager.createKeyValueTable(scope, words[1],
                        KeyValueTableConfiguration.builder().partitionCount(Integer.parseInt(words[2]))
                                .primaryKeyLength(Integer.parseInt(words[3]))
                                .secondaryKeyLength(Integer.parseInt(words[4])).build()));
            }
            return;
        }
        try (KeyValueTable table = factory.forKeyValueTable(words[1],
                KeyValueTableClientConfiguration.builder().build())) {
            switch (words[0]) {
                case "insert":
                    System.out.println("D\t" + table.update(new Insert(key(words), buffer(word(words, 4)))).join());
                    break;
                case "put":
                    System.out.println("D\t" + table.update(word(words, 5).isEmpty()
                            ? new Put(key(words), buffer(words[4]))
                            : new Put(key(words), buffer(words[4]), Version.fromString(words[5]))).join());
                    break;
                case "remove":
                    table.update(word(words, 4).isEmpty() ? new Remove(key(words))
                            : new Remove(key(words), Version.fromString(words[4]))).join();
                    break;
                case "batch":
                    List<TableModification> changes = new ArrayList<>();
                    for (int i = 0; i < Integer.parseInt(words[3]); i++) {
                        byte[] digits = String.format("%04d", i).getBytes("UTF-8");
                        changes.add(new Put(new TableKey(buffer(words[2]), ByteBuffer.wrap(digits)),
                                ByteBuffer.wrap(digits)));
                    }
                    for (Version version : table.update(changes).join()) {
                        System.out.println("D\t" + version);
                    }
                    break;
                case "get":
                    show(table.get(key(words)).join());
                    break;
                case "exists":
                    System.out.println("D\t" + table.exists(key(words)).join());
                    break;
                case "list":
                    AsyncIterator<IteratorItem<TableEntry>> all = table.iterator().maxIterationSize(7).all().entries();
                    for (IteratorItem<TableEntry> page = all.getNext().join(); page != null;
                            page = all.getNext().join()) {
                        page.getItems().forEach(TablePeer::show);
                    }
                    break;
                default:
                    throw new IllegalArgumentException(words[0]);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(arguments[0])).build();
        try (KeyValueTableFactory factory = KeyValueTableFactory.withScope(arguments[1], config)) {
            System.out.println("OK");
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                try {
                    run(arguments[1], config, factory, line.split("\t"));
                    System.out.println("OK");
                } catch (Exception error) {
                    Throwable cause = error;
                    while (cause.getCause() != null && cause instanceof java.util.concurrent.CompletionException) {
                        cause = cause.getCause();
                    }
                    String message = String.valueOf(cause.getMessage()).replaceAll("[\t\n]", " ");
                    System.out.println("ERR\t" + cause.getClass().getSimpleName() + "\t" + message);
                }
            }
        }
        System.exit(0);
    }
}
