package load

import (
	"bufio"
	"bytes"
	"time"
)

// Schedule returns the first n arrival times of a plan.
func Schedule(p *Plan, n int) []time.Duration {
	gaps, at := p.gaps(), time.Duration(0)
	all := make([]time.Duration, n)
	for i := range all {
		at += gaps()
		all[i] = at
	}
	return all
}

// Open sends requests with the given arrival times through one client.
func Open(c Client, at []time.Time, patience time.Duration) (samples []time.Duration, failed int, first error) {
	w := openLoop(c, at, patience)
	return w.samples, w.failed, w.first
}

// OpenFailures is Open, and returns the times of the requests that were sent and failed: from their arrival, and from when they were sent.
func OpenFailures(c Client, at []time.Time) (arrived, sent []time.Duration) {
	w := openLoop(c, at, time.Hour)
	return w.failures, w.sent
}

func openLoop(c Client, at []time.Time, patience time.Duration) *worker {
	arrivals := make(chan arrival, len(at))
	for i, t := range at {
		arrivals <- arrival{index: i, at: t}
	}
	close(arrivals)
	w := &worker{client: c}
	w.open(arrivals, patience)
	return w
}

// NewResult summarises samples.
var NewResult = newResult

// ReadResponse decodes a response over HTTP as a client does.
func ReadResponse(text []byte) ([]Output, error) {
	c := HTTP{r: bufio.NewReader(bytes.NewReader(text))}
	if err := c.readResponse(); err != nil {
		return nil, err
	}
	return c.Outputs()
}

// ReadProto decodes a response over gRPC.
var ReadProto = readProto
