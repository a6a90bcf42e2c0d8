// Goroutines, channels, mutexes, timers and a good deal of garbage.
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"time"
)

type node struct {
	left, right *node
	value       uint64
}

func next(state *uint64) uint64 {
	*state = *state*6364136223846793005 + 1442695040888963407
	return *state >> 33
}

func (n *node) insert(value uint64) *node {
	if n == nil {
		return &node{value: value}
	}
	if value < n.value {
		n.left = n.left.insert(value)
	} else {
		n.right = n.right.insert(value)
	}
	return n
}

func (n *node) sum() uint64 {
	if n == nil {
		return 0
	}
	return n.left.sum()*3 + n.value + n.right.sum()*5
}

func task(seed uint64) uint64 {
	state := seed
	var root *node
	words := map[string]int{}
	for i := 0; i < 2000; i++ {
		value := next(&state)
		root = root.insert(value)
		words[strconv.FormatUint(value%300, 36)]++
	}
	keys := make([]string, 0, len(words))
	for word := range words {
		keys = append(keys, word)
	}
	sort.Strings(keys)
	digest := sha256.New()
	for _, key := range keys {
		fmt.Fprintln(digest, key, words[key])
	}
	return root.sum() ^ uint64(digest.Sum(nil)[0])
}

func main() {
	rounds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		os.Exit(2)
	}
	runtime.GOMAXPROCS(4)
	tasks, results := make(chan uint64), make(chan uint64, 8)
	var workers sync.WaitGroup
	for i := 0; i < 8; i++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for seed := range tasks {
				results <- task(seed)
			}
		}()
	}
	// Goroutines that never call anything: only a signal takes the processor from them.
	stop := make(chan bool)
	var spun sync.WaitGroup
	for i := 0; i < 2; i++ {
		spun.Add(1)
		go func() {
			defer spun.Done()
			state := uint64(1)
			for {
				for j := 0; j < 20000000; j++ {
					state = state*6364136223846793005 + 1
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	ticker := time.NewTicker(5 * time.Millisecond)
	ticks := 0
	for round := 1; round <= rounds; round++ {
		go func() {
			for i := 0; i < 32; i++ {
				tasks <- uint64(round*32 + i)
			}
		}()
		var sum uint64
		for i := 0; i < 32; {
			select {
			case value := <-results:
				sum ^= value
				i++
			case <-ticker.C:
				ticks++
			}
		}
		if round%20 == 0 {
			runtime.GC()
			fmt.Println("round", round, sum)
		}
	}
	close(stop)
	spun.Wait()
	close(tasks)
	workers.Wait()
	fmt.Println("ticked:", ticks > 0)
	os.Exit(8)
}
