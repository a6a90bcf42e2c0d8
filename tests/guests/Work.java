import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Threads, locks, and garbage of all ages. */
public class Work {
    static long next(long state) {
        return state * 6364136223846793005L + 1442695040888963407L;
    }

    /** Builds and drops trees, keeps some of them, and hashes what it kept. */
    static long task(int seed, Map<Integer, List<String>> kept) {
        long state = seed;
        Map<Long, String> garbage = new HashMap<>();
        for (int i = 0; i < 20000; i++) {
            state = next(state);
            garbage.put(state >>> 52, Long.toHexString(state));
        }
        List<String> mine = new ArrayList<>();
        garbage.keySet().stream().sorted().limit(50).forEach(key -> mine.add(garbage.get(key)));
        kept.put(seed % 64, mine);
        long sum = 0;
        for (String text : mine) {
            sum = sum * 31 + text.hashCode();
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        int rounds = Integer.parseInt(arguments[0]);
        Map<Integer, List<String>> kept = new ConcurrentHashMap<>();
        ExecutorService pool = Executors.newFixedThreadPool(4);
        int[] laps = new int[1];
        CyclicBarrier barrier = new CyclicBarrier(3, () -> laps[0]++);
        List<Thread> meeters = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Thread thread = new Thread(() -> {
                try {
                    for (int lap = 0; lap < rounds * 10; lap++) {
                        barrier.await();
                    }
                } catch (Exception error) {
                    throw new RuntimeException(error);
                }
            });
            thread.start();
            meeters.add(thread);
        }
        for (int round = 1; round <= rounds; round++) {
            List<Future<Long>> results = new ArrayList<>();
            for (int i = 0; i < 16; i++) {
                int seed = round * 16 + i;
                results.add(pool.submit(() -> task(seed, kept)));
            }
            long sum = 0;
            for (Future<Long> result : results) {
                sum ^= result.get();
            }
            if (round % 10 == 0) {
                System.gc();
            }
            System.out.println("round " + round + ": " + sum);
        }
        pool.shutdown();
        System.out.println("pool ended: " + pool.awaitTermination(60, TimeUnit.SECONDS));
        for (Thread thread : meeters) {
            thread.join();
        }
        System.out.println("laps " + laps[0] + ", kept " + kept.size());
        System.exit(6);
    }
}
