package load

import (
	"bufio"
	"bytes"
	"time"
)

// Schedule returns the first n arrivals of a plan, as gaps added up.
func Schedule(p *Plan, n int) []time.Duration {
	gaps, at := p.gaps(), time.Duration(0)
	all := make([]time.Duration, n)
	for i := range all {
		at += gaps()
		all[i] = at
	}
	return all
}

// Open sends requests that arrived at the given times, through one client.
func Open(c Client, at []time.Time, patience time.Duration) (samples []time.Duration, failed int, first error) {
	arrivals := make(chan arrival, len(at))
	for i, t := range at {
		arrivals <- arrival{index: i, at: t}
	}
	close(arrivals)
	w := worker{client: c}
	w.open(arrivals, patience)
	return w.samples, w.failed, w.first
}

// NewResult sums samples up.
var NewResult = newResult

// ErrLate is the error of a request that no client was free for.
var ErrLate = errLate

// ReadAnswer reads an answer over HTTP as a client does.
func ReadAnswer(text []byte) ([]Output, error) {
	c := HTTP{r: bufio.NewReader(bytes.NewReader(text))}
	if err := c.answer(); err != nil {
		return nil, err
	}
	return c.Outputs()
}

// ReadProto reads an answer over gRPC.
var ReadProto = readProto
