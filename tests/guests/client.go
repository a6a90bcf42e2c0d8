// A client of an HTTP server: many requests at once, kept connections, uploads and downloads.
//
//	client ADDRESS ROUNDS
package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

func get(client *http.Client, address string, number int) (uint32, error) {
	response, err := client.Get(fmt.Sprintf("http://%s/%d", address, number))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return crc32.ChecksumIEEE(body), err
}

func post(client *http.Client, address string, number int) (uint32, error) {
	body := bytes.Repeat([]byte(strconv.Itoa(number)), 5000)
	response, err := client.Post("http://"+address+"/sum", "text/plain", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && string(answer) != strconv.Itoa(int(crc32.ChecksumIEEE(body))) {
		err = fmt.Errorf("sent %d bytes, the server says %q", len(body), answer)
	}
	return crc32.ChecksumIEEE(answer), err
}

func main() {
	address := os.Args[1]
	rounds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		os.Exit(2)
	}
	client := &http.Client{Timeout: 60 * time.Second}
	for round := 1; round <= rounds; round++ {
		var group sync.WaitGroup
		sums := make([]uint32, 8)
		for i := range sums {
			group.Add(1)
			go func(i int) {
				defer group.Done()
				fetch := get
				if i%4 == 3 {
					fetch = post
				}
				sum, err := fetch(client, address, round*8+i)
				if err != nil {
					fmt.Fprintln(os.Stderr, "request", round, i, err)
					os.Exit(1)
				}
				sums[i] = sum
			}(i)
		}
		group.Wait()
		if round%20 == 0 {
			fmt.Println(round, sums)
		}
	}
}
