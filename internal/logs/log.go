// Package logs writes the server's log in the formats that Triton's tools read, with
// settings that can change while it runs.
package logs

import (
	"context"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
)

// The formats of a line.
const (
	Default = "default" // glog's format: I1121 05:10:08.123456 1234 serve.go:12] "message"
	ISO8601 = "ISO8601" // begins with the time: 2026-11-21T05:10:08Z I 1234 serve.go:12] "message"
	JSON    = "json"    // one object a line
)

// Settings select the logged lines, their destination and their format. In JSON they have the protocol's names and order.
type Settings struct {
	File string `json:"log_file"` // receives all lines, appended; empty means standard output and error
	// Info, Warning and Error enable the lines of these levels.
	Info    bool   `json:"log_info"`
	Warning bool   `json:"log_warning"`
	Error   bool   `json:"log_error"`
	Verbose uint32 `json:"log_verbose_level"` // enables slog's debug level from 1 on, and the four levels below it from 2 on
	Format  string `json:"log_format"`        // Default, ISO8601 or JSON; empty is Default
	// Raw leaves messages unquoted in the text formats, so that a message of several lines keeps its line breaks.
	// Such a log should not be parsed.
	Raw bool `json:"-"`
}

// Update changes the settings that are not nil.
type Update struct {
	File                 *string // must be nil: the file cannot change
	Info, Warning, Error *bool
	Verbose              *uint32
	Format               *string
}

// Log writes lines. It is safe for concurrent use. A line that cannot be written is lost: for example, a closed
// pipe does not stop the server.
type Log struct {
	settings atomic.Pointer[Settings]
	update   sync.Mutex // serializes writers of settings
	pid      int

	mu             sync.Mutex
	stdout, stderr io.Writer // guarded by mu
	file           *os.File  // guarded by mu
}

// New returns a log that writes to its file or, without one, warnings and errors to stderr and the rest to stdout.
func New(s Settings, stdout, stderr io.Writer) (*Log, error) {
	if s.Format == "" {
		s.Format = Default
	}
	if err := checkFormat(s.Format); err != nil {
		return nil, err
	}
	l := &Log{pid: os.Getpid(), stdout: stdout, stderr: stderr}
	if s.File != "" {
		f, err := os.OpenFile(s.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // it may quote requests
		if err != nil {
			return nil, status.Errorf(status.InvalidArg, "failed to open log file '%s': %w", s.File, err)
		}
		l.file, l.stdout, l.stderr = f, f, f
	}
	l.settings.Store(&s)
	return l, nil
}

// Formats returns the names of the formats.
func Formats() []string { return []string{Default, ISO8601, JSON} }

func checkFormat(name string) error {
	if !slices.Contains(Formats(), name) {
		return status.Errorf(status.InvalidArg, "invalid argument for log_format, got: %s", name)
	}
	return nil
}

// Logger returns a logger that writes to l.
func (l *Log) Logger() *slog.Logger { return slog.New(&handler{log: l}) }

// Settings returns the settings in force.
func (l *Log) Settings() Settings { return *l.settings.Load() }

// Update changes settings for all loggers at once, or fails and changes none.
func (l *Log) Update(u Update) error {
	if u.File != nil {
		return status.Errorf(status.Unsupported, "log file location can not be updated through network protocol")
	}
	if u.Format != nil {
		if err := checkFormat(*u.Format); err != nil {
			return err
		}
	}
	l.update.Lock()
	defer l.update.Unlock()
	s := l.Settings()
	set(&s.Info, u.Info)
	set(&s.Warning, u.Warning)
	set(&s.Error, u.Error)
	set(&s.Verbose, u.Verbose)
	set(&s.Format, u.Format)
	l.settings.Store(&s)
	return nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func (s *Settings) enabled(level slog.Level) bool {
	switch {
	case level >= slog.LevelError:
		return s.Error
	case level >= slog.LevelWarn:
		return s.Warning
	case level >= slog.LevelInfo:
		return s.Info
	}
	return int64(slog.LevelInfo-level) <= int64(s.Verbose)*int64(slog.LevelInfo-slog.LevelDebug)
}

// line writes a record to the destination of its level.
func (l *Log) line(s *Settings, w []with, r *slog.Record) {
	e := lines.Get()
	e.reset()
	e.line(s, l.pid, w, r)
	l.mu.Lock()
	to := l.stdout
	if r.Level >= slog.LevelWarn {
		to = l.stderr
	}
	_, _ = to.Write(e.b) // the error cannot be reported elsewhere
	l.mu.Unlock()
	lines.Put(e)
}

// Close closes the log file. Later lines are lost if there was one.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.file
	if f == nil {
		return nil
	}
	l.file, l.stdout, l.stderr = nil, io.Discard, io.Discard
	return f.Close()
}

// handler is a slog.Handler over a Log. It stores its attributes unencoded, because the format can change.
type handler struct {
	log  *Log
	with []with
}

// with is an opened group, or attributes added to the innermost group.
type with struct {
	group string
	attrs []slog.Attr
}

// Enabled reports whether lines of this level are logged.
//
// hot: one atomic load.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return h.log.settings.Load().enabled(level)
}

var lines pool.Of[encoder]

// Handle writes r as one line. It never fails.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	h.log.line(h.log.settings.Load(), h.with, &r)
	return nil
}

// WithAttrs returns a handler that adds attrs to every line.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	return &handler{log: h.log, with: append(slices.Clip(h.with), with{attrs: slices.Clone(attrs)})}
}

// WithGroup returns a handler that puts later attributes into a group.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &handler{log: h.log, with: append(slices.Clip(h.with), with{group: name})}
}

// Block logs a text of several lines unchanged, for example a table, at slog's info level. The first line is the
// usual head. In the format JSON it is one string.
func (l *Log) Block(text string) {
	s := l.Settings()
	if !s.Info {
		return
	}
	if s.Format != JSON {
		s.Raw, text = true, "\n"+text
	}
	var pc [1]uintptr
	runtime.Callers(2, pc[:])
	r := slog.NewRecord(time.Now(), slog.LevelInfo, text, pc[0])
	l.line(&s, nil, &r)
}
