package wasm

import (
	"bytes"
	"log/slog"
	"strings"
)

// The limits of what a module prints.
const (
	maxLine   = 1 << 10 // bytes of a line of the log; longer lines are split
	maxOutput = 16 << 10
)

// output is the standard output and error of a module instance. It writes lines to the model's log, at most maxOutput bytes for each
// call of the module.
type output struct {
	log     *slog.Logger
	model   string
	line    []byte
	left    int // of maxOutput
	dropped int
}

// Write logs the lines that are complete. It never fails, so that a module cannot see whether its output is logged.
func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	if n > o.left {
		o.dropped += n - o.left
		p = p[:o.left]
	}
	o.left -= len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		whole := end >= 0
		if !whole {
			end = len(p)
		}
		if room := maxLine - len(o.line); end > room {
			end, whole = room, true
			o.line = append(o.line, p[:end]...)
			p = p[end:]
		} else {
			o.line = append(o.line, p[:end]...)
			p = p[min(len(p), end+1):]
		}
		if whole {
			o.flush()
		}
	}
	return n, nil
}

// flush logs the line, unless it is empty.
func (o *output) flush() {
	if len(o.line) > 0 {
		o.log.Info("output of a WebAssembly module", slog.String("model", o.model), slog.String("text", strings.ToValidUTF8(string(o.line), "\uFFFD")))
	}
	o.line = o.line[:0]
}

// end ends a call: what is not a whole line is logged, and how much was dropped.
func (o *output) end() {
	o.flush()
	if o.dropped > 0 {
		o.log.Warn("output of a WebAssembly module was dropped", slog.String("model", o.model), slog.Int("bytes", o.dropped), slog.Int("limit", maxOutput))
	}
	o.left, o.dropped = maxOutput, 0
}
