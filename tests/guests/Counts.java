import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;

/** At each line it computes, makes garbage, and prints `sum NUMBER`; before the first one `ready PID`. */
public class Counts {
    public static void main(String[] words) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready " + ProcessHandle.current().pid());
        while (input.readLine() != null) {
            long state = 1;
            Map<Long, String> kept = new HashMap<>();
            for (int i = 0; i < 300000; i++) {
                state = state * 6364136223846793005L + 1442695040888963407L;
                kept.put(state >>> 52, Long.toHexString(state));
            }
            long sum = kept.values().stream().sorted().mapToLong(String::hashCode).sum();
            System.out.println("sum " + (sum + state));
        }
    }
}
