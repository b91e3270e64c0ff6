import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.FileContextBasedCheckpointFileManager;

/** Kills the driver, JVM and Python, where Spark begins to write a batch's entry of the commit log. */
public class CrashBeforeCommitLog extends FileContextBasedCheckpointFileManager {
    public CrashBeforeCommitLog(Path path, Configuration conf) {
        super(path, conf);
    }

    @Override
    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
        String batch = System.getenv("CRASH_BATCH");
        if (batch != null && path.getName().equals(batch) && path.getParent().getName().equals("commits")) {
            ProcessHandle self = ProcessHandle.current();
            try {
                new ProcessBuilder(
                    "kill", "-9", Long.toString(self.parent().get().pid()), Long.toString(self.pid())
                ).start().waitFor();
            } catch (IOException | InterruptedException e) {
                throw new RuntimeException(e);
            }
        }
        return super.createAtomic(path, overwrite);
    }
}
