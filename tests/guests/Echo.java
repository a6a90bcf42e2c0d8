import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.zip.CRC32;

/** A blocking server and one with a selector, and clients of both, in one program. */
public class Echo {
    static final int CLIENTS = 4;

    static void serve(ServerSocket server) {
        try {
            for (int i = 0; i < CLIENTS; i++) {
                Socket socket = server.accept();
                new Thread(() -> answer(socket)).start();
            }
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    static void answer(Socket socket) {
        try (socket) {
            DataInputStream in = new DataInputStream(socket.getInputStream());
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            for (int length = in.readInt(); length >= 0; length = in.readInt()) {
                byte[] bytes = in.readNBytes(length);
                for (int i = 0; i < bytes.length; i++) {
                    bytes[i] ^= 0x5a;
                }
                out.write(bytes);
                out.flush();
            }
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    static void select(ServerSocketChannel server) {
        try (Selector selector = Selector.open()) {
            server.configureBlocking(false);
            server.register(selector, SelectionKey.OP_ACCEPT);
            ByteBuffer buffer = ByteBuffer.allocateDirect(65536);
            int left = 0;
            while (left < CLIENTS) {
                selector.select(30000);
                Iterator<SelectionKey> keys = selector.selectedKeys().iterator();
                while (keys.hasNext()) {
                    SelectionKey key = keys.next();
                    keys.remove();
                    if (key.isAcceptable()) {
                        SocketChannel peer = server.accept();
                        peer.configureBlocking(false);
                        peer.register(selector, SelectionKey.OP_READ);
                    } else {
                        SocketChannel peer = (SocketChannel) key.channel();
                        buffer.clear();
                        if (peer.read(buffer) < 0) {
                            peer.close();
                            left++;
                            continue;
                        }
                        buffer.flip();
                        while (buffer.hasRemaining()) {
                            peer.write(buffer);
                        }
                    }
                }
            }
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    static void client(int own, int rounds, int port, boolean framed, long[] results) {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            DataInputStream in = new DataInputStream(socket.getInputStream());
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            CRC32 check = new CRC32();
            for (int round = 0; round < rounds; round++) {
                byte[] bytes = ("message " + own + " " + round).repeat(1 + round % 20).getBytes();
                if (framed) {
                    out.writeInt(bytes.length);
                }
                out.write(bytes);
                out.flush();
                check.update(in.readNBytes(bytes.length));
            }
            if (framed) {
                out.writeInt(-1);
            }
            results[own] = check.getValue();
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        int rounds = Integer.parseInt(arguments[0]);
        ServerSocket blocking = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
        ServerSocketChannel selecting = ServerSocketChannel.open();
        selecting.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        int selectingPort = ((InetSocketAddress) selecting.getLocalAddress()).getPort();
        long[] results = new long[2 * CLIENTS];
        List<Thread> threads = new ArrayList<>();
        threads.add(new Thread(() -> serve(blocking)));
        threads.add(new Thread(() -> select(selecting)));
        for (int i = 0; i < CLIENTS; i++) {
            int own = i;
            threads.add(new Thread(() -> client(own, rounds, blocking.getLocalPort(), true, results)));
            threads.add(new Thread(
                () -> client(own + CLIENTS, rounds, selectingPort, false, results)));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        for (int i = 0; i < results.length; i++) {
            System.out.println("client " + i + ": " + results[i]);
        }
    }
}
