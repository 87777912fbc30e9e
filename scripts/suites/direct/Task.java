// What java programs do with files, in the working directory; what is printed must not depend on the
// file system.

import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.*;
import java.nio.file.attribute.*;
import java.util.*;
import java.util.stream.*;

public class Task {
    public static void main(String[] args) throws Exception {
        Path folder = Files.createDirectories(Path.of("a/b/c"));
        for (int n = 0; n < 100; n++) {
            Files.writeString(folder.resolve("file" + n), ("line " + n + "\n").repeat(n));
        }
        Files.move(folder.resolve("file7"), folder.resolve("moved"), StandardCopyOption.ATOMIC_MOVE);
        Files.copy(folder.resolve("file99"), Path.of("a/copy"), StandardCopyOption.COPY_ATTRIBUTES);
        Files.createSymbolicLink(Path.of("a/link"), Path.of("b/c/moved"));
        Files.setPosixFilePermissions(Path.of("a/copy"), PosixFilePermissions.fromString("rw-r-----"));
        Files.setLastModifiedTime(Path.of("a/copy"), FileTime.fromMillis(1234567890123L));
        try (Stream<Path> all = Files.walk(Path.of("a"))) {
            all.sorted().forEach(Task::show);
        }
        channels();
        threads();
        Process child = new ProcessBuilder("sh", "-c", "cat a/copy | wc -c; echo done")
                .redirectOutput(new java.io.File("out")).start();
        System.out.println(child.waitFor() + " " + Files.readAllLines(Path.of("out")));
    }

    static void show(Path path) {
        try {
            PosixFileAttributes found =
                    Files.readAttributes(path, PosixFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
            System.out.println(path + " " + PosixFilePermissions.toString(found.permissions()) + " "
                    + found.isSymbolicLink() + " " + (found.isRegularFile() ? found.size() : 0));
        } catch (java.io.IOException error) {
            System.out.println(path + " " + error);
        }
    }

    static void channels() throws Exception {
        try (FileChannel file = FileChannel.open(Path.of("channel"), StandardOpenOption.CREATE,
                StandardOpenOption.READ, StandardOpenOption.WRITE);
                FileLock lock = file.lock()) {
            ByteBuffer[] pieces = {ByteBuffer.wrap("gathered ".getBytes()), ByteBuffer.wrap("write".getBytes())};
            System.out.println(file.write(pieces) + " " + file.position() + " " + lock.isValid());
            file.write(ByteBuffer.wrap("far".getBytes()), 1 << 20);
            file.force(true);
            MappedByteBuffer map = file.map(FileChannel.MapMode.READ_WRITE, 0, 2 << 20);
            map.put(100, (byte) 42);
            map.force();
            ByteBuffer one = ByteBuffer.allocate(1);
            file.read(one, 100);
            file.write(ByteBuffer.wrap(new byte[] {43}), 101);
            System.out.println(one.get(0) + " " + map.get(101) + " " + map.get(1 << 20) + " " + file.size());
            try (FileChannel to = FileChannel.open(Path.of("to"), StandardOpenOption.CREATE,
                    StandardOpenOption.WRITE)) {
                System.out.println(file.transferTo(0, file.size(), to) + " " + Files.mismatch(Path.of("to"), Path.of("channel")));
            }
            file.truncate(50);
            System.out.println(file.size());
        }
        try (RandomAccessFile file = new RandomAccessFile("random", "rwd")) {
            file.setLength(10000);
            file.seek(9000);
            file.writeUTF("utf");
            file.seek(9000);
            System.out.println(file.readUTF() + " " + file.getFilePointer() + " " + file.length());
        }
    }

    static void threads() throws Exception {
        try (FileChannel file = FileChannel.open(Path.of("threads"), StandardOpenOption.CREATE,
                StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            List<Thread> threads = IntStream.range(0, 8).mapToObj(n -> new Thread(() -> {
                try {
                    for (int at = 0; at < 100; at++) {
                        byte[] bytes = new byte[1000];
                        Arrays.fill(bytes, (byte) (n + at));
                        file.write(ByteBuffer.wrap(bytes), (at * 8L + n) * 1000);
                    }
                } catch (java.io.IOException error) {
                    System.out.println(error);
                }
            })).toList();
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
        }
        byte[] all = Files.readAllBytes(Path.of("threads"));
        System.out.println(all.length + " " + Arrays.hashCode(all));
    }
}
