package python

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	maxLine = 8 << 10
	// lastLines is the number of lines of standard error in the error of a crashed worker.
	lastLines = 8
)

// output logs a standard stream of a worker line by line, and keeps the last lines. It is safe for concurrent use.
type output struct {
	ctx   context.Context //nolint:containedctx // the worker's context, for the logger
	log   *slog.Logger
	level slog.Level
	what  string

	mu   sync.Mutex
	line []byte   // guarded by mu
	last []string // guarded by mu
}

var _ io.Writer = (*output)(nil)

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end]
		}
		o.line = append(o.line, part[:min(len(part), maxLine-len(o.line))]...)
		if end < 0 {
			break
		}
		p = p[end+1:]
		o.flush()
	}
	return n, nil
}

// flush logs the current line. The caller holds mu.
func (o *output) flush() {
	text := strings.TrimRight(string(o.line), "\r \t")
	o.line = o.line[:0]
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	if text == "" {
		return
	}
	if len(o.last) == lastLines {
		o.last = append(o.last[:0], o.last[1:]...)
	}
	o.last = append(o.last, text)
	o.log.LogAttrs(o.ctx, o.level, "a python model printed", slog.String("stream", o.what), slog.String("text", text))
}

// tail returns the last lines.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.line) > 0 {
		o.flush()
	}
	return strings.Join(o.last, "\n")
}
