package tracing

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
)

// file writes the trace file and its indexed files, whose names end with an index, for example "trace.json.0". Each
// holds one JSON array.
type file struct {
	name string
	log  *slog.Logger

	mu     sync.Mutex
	main   *os.File // guarded by mu; nil before the first write
	index  int      // guarded by mu; of the next indexed file
	closed bool     // guarded by mu
}

// writeIndexed writes traces to the next indexed file.
func (f *file) writeIndexed(traces []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	name := f.name + "." + strconv.Itoa(f.index)
	f.index++
	if err := os.WriteFile(name, slices.Concat([]byte("["), traces, []byte("]")), 0o644); err != nil {
		f.failed(err)
	}
}

// write appends traces to the trace file. The first call truncates it.
func (f *file) write(traces []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	before := ","
	if f.main == nil {
		main, err := os.Create(f.name)
		if err != nil {
			f.failed(err)
			return
		}
		f.main, before = main, "["
	}
	if _, err := f.main.Write(append([]byte(before), traces...)); err != nil {
		f.failed(err)
	}
}

// close ends the array.
func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	main := f.main
	f.main, f.closed = nil, true
	if main == nil {
		return nil
	}
	_, err := main.WriteString("]")
	return errors.Join(err, main.Close())
}

// failed logs that traces are lost. Requests continue.
func (f *file) failed(err error) {
	f.log.Error("traces are lost", slog.String("error", err.Error()))
}
