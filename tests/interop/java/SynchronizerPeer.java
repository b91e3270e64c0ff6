import io.pravega.client.ClientConfig;
import io.pravega.client.SynchronizerClientFactory;
import io.pravega.client.state.StateSynchronizer;
import io.pravega.client.state.SynchronizerConfig;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;

/**
 * A sum that is kept by the Java client's state synchronizer. Arguments: controller URI, scope, stream. Commands, one
 * a line: "init V", "fetch", "add D TIMES", "compact"; each is answered by "OK sum revision".
 */
public class SynchronizerPeer {
    public static void main(String[] arguments) throws Exception {
        ClientConfig config = ClientConfig.builder().controllerURI(URI.create(arguments[0])).build();
        try (SynchronizerClientFactory factory = SynchronizerClientFactory.withScope(arguments[1], config);
                StateSynchronizer<SharedSum.Sum> shared = factory.createStateSynchronizer(arguments[2],
                        new SharedSum.AddSerializer(), new SharedSum.StartSerializer(),
                        SynchronizerConfig.builder().build())) {
            System.out.println("OK");
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split("\t");
                switch (words[0]) {
                    case "init":
                        shared.initialize(new SharedSum.Start(Long.parseLong(words[1])));
                        break;
                    case "fetch":
                        shared.fetchUpdates();
                        break;
                    case "add":
                        for (int i = 0; i < Integer.parseInt(words[2]); i++) {
                            // Two updates in one record: the second one changes nothing but the revision.
                            shared.updateState((state, updates) -> {
                                updates.add(new SharedSum.Add(Long.parseLong(words[1])));
                                updates.add(new SharedSum.Add(0));
                            });
                        }
                        break;
                    case "compact":
                        shared.compact(state -> new SharedSum.Start(state.value));
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
