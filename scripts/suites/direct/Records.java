import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;

/** Appends records of 100 bytes to a file, each forced, and prints the number of each once it is there: Records FILE. */
class Records {
    public static void main(String[] arguments) throws Exception {
        try (var file = FileChannel.open(Path.of(arguments[0]), StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            for (int n = (int) (file.size() / 100); ; n++) {
                byte[] record = new byte[100];
                Arrays.fill(record, (byte) ('a' + n % 26));
                file.write(ByteBuffer.wrap(record));
                file.force(false);
                System.out.println(n);
                System.out.flush();
            }
        }
    }
}
