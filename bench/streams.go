package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	// streamNumbers is how many numbers a request streams, streamDelay the milliseconds between two, and streamRequests how many
	// requests a round sends to each model.
	streamNumbers  = 8
	streamDelay    = 10
	streamRequests = 20
)

// streams measures the time to the first chunk of a decoupled model, and of an ensemble with three decoupled steps behind one another, of which the
// first is that model. A pipeline that collects what a step sends before the next one begins would need the time of all chunks.
func (b *bench) streams() (err error) {
	p, err := b.serve("examples/stream", "bench/repository/streams")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	ones := strings.TrimSuffix(strings.Repeat("1,", streamNumbers), ",")
	delays := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("%d,", streamDelay), streamNumbers), ",")
	body := fmt.Sprintf(`{"IN":[%s],"DELAY":[%s],"WAIT":0}`, ones, delays)
	models := [2]string{"repeat_int32", "three_streams"}
	var first, all [2][]float64
	for round := range b.rounds + 1 {
		for range streamRequests {
			for m, model := range models {
				chunk, end, err := streamTimes("http://"+p.HTTP+"/v2/models/"+model+"/generate_stream", body)
				if err != nil {
					return fmt.Errorf("model '%s': %w", model, err)
				}
				if round > 0 { // the first round fills pools
					first[m], all[m] = append(first[m], chunk.Seconds()*1e3), append(all[m], end.Seconds()*1e3)
				}
			}
		}
	}
	for m, model := range models {
		fmt.Fprintf(b.table, "first of %d chunks of '%s'\t%.2f ms\tlast %.2f ms\n", streamNumbers, model, median(first[m]), median(all[m]))
	}
	fmt.Fprintf(b.table, "two more decoupled steps\t%.0f us to the first chunk\n", (median(first[1])-median(first[0]))*1e3)
	return nil
}

// streamTimes sends a request and returns the times to the first and to the last of its events.
func streamTimes(url, body string) (first, last time.Duration, err error) {
	begin := time.Now()
	resp, err := http.Post(url, "application/json", strings.NewReader(body)) //nolint:noctx // ends with the server
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	n, lines := 0, bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if !bytes.HasPrefix(lines.Bytes(), []byte("data: ")) {
			continue
		}
		if last = time.Since(begin); n == 0 {
			first = last
		}
		n++
	}
	if n != streamNumbers && lines.Err() == nil {
		return 0, 0, fmt.Errorf("%d events, expected %d", n, streamNumbers)
	}
	return first, last, lines.Err()
}
