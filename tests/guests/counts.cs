using System;
using System.Collections.Generic;
using System.Diagnostics;

/// At each line it computes, makes garbage, and prints `sum NUMBER`; before the first one `ready PID`.
static class Counts {
    static void Main() {
        Console.WriteLine("ready " + Process.GetCurrentProcess().Id);
        while (Console.ReadLine() != null) {
            ulong state = 1, sum = 0;
            var kept = new SortedDictionary<ulong, string>();
            for (int i = 0; i < 100000; i++) {
                state = state * 6364136223846793005UL + 1442695040888963407UL;
                kept[state >> 52] = state.ToString("x");
            }
            foreach (var pair in kept) sum = sum * 31 + pair.Key + (ulong)pair.Value.Length;
            Console.WriteLine("sum " + sum);
        }
    }
}
