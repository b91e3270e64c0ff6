package io.pravega.client.stream.impl;

import io.pravega.client.state.InitialUpdate;
import io.pravega.client.state.Revision;
import io.pravega.client.state.Update;
import io.pravega.client.state.impl.RevisionImpl;
import io.pravega.common.util.ByteArraySegment;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Base64;

/**
 * The Java client's state of a reader group, replayed. "N" is followed by N records in base64, the first of them an
 * initial one. Answered by each record as Java writes it again, the state as Java compacts it, and "OK".
 */
public class GroupStatePeer {
    private static final ReaderGroupState.ReaderGroupInitSerializer INITIAL =
            new ReaderGroupState.ReaderGroupInitSerializer();
    private static final ReaderGroupState.ReaderGroupUpdateSerializer UPDATES =
            new ReaderGroupState.ReaderGroupUpdateSerializer();

    private static String text(ByteArraySegment bytes) {
        return Base64.getEncoder().encodeToString(bytes.getCopy());
    }

    private static Revision at(int index) {
        return RevisionImpl.fromString("scope/_RGgroup/0.#epoch.0:" + index + ":0");
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println("OK");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ReaderGroupState state = null;
            try {
                int count = Integer.parseInt(line);
                String[] records = new String[count];
                for (int i = 0; i < count; i++) {
                    records[i] = input.readLine();
                }
                for (int i = 0; i < count; i++) {
                    ByteArraySegment bytes = new ByteArraySegment(Base64.getDecoder().decode(records[i]));
                    if (i == 0) {
                        InitialUpdate<ReaderGroupState> initial = INITIAL.deserialize(bytes);
                        System.out.println("DATA\t" + text(INITIAL.serialize(initial)));
                        state = initial.create("scope/_RGgroup", at(0));
                    } else {
                        Update<ReaderGroupState> update = UPDATES.deserialize(bytes);
                        System.out.println("DATA\t" + text(UPDATES.serialize(update)));
                        state = update.applyTo(state, at(i));
                    }
                }
                System.out.println(
                        "DATA\t" + text(INITIAL.serialize(new ReaderGroupState.CompactReaderGroupState(state))));
                System.out.println("OK");
            } catch (Exception e) {
                System.out.println("ERR\t" + e.getClass().getSimpleName() + "\t" + e.getMessage());
            }
        }
        System.exit(0);
    }
}
