package logs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/logs"
)

// open returns a log that writes everything to the first buffer but warnings and errors.
func open(t *testing.T, s logs.Settings) (l *logs.Log, out, errs *bytes.Buffer) {
	t.Helper()
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	l, err := logs.New(s, out, errs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, out, errs
}

func everything() logs.Settings { return logs.Settings{Info: true, Warning: true, Error: true} }

// write sends one record of a fixed time and place through a logger.
func write(t *testing.T, l *slog.Logger, level slog.Level, message string, attrs ...slog.Attr) {
	t.Helper()
	r := slog.NewRecord(time.Date(2026, 11, 21, 5, 10, 8, 123456789, time.FixedZone("here", 3600)), level, message, 0)
	r.AddAttrs(attrs...)
	if err := l.Handler().Handle(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

type broken struct{}

func (*broken) MarshalText() ([]byte, error) { panic("no text") }
func (*broken) MarshalJSON() ([]byte, error) { panic("no JSON") }

func TestFormats(t *testing.T) {
	t.Parallel()
	attrs := []slog.Attr{slog.String("model", "a b"), slog.Group("g", slog.Int("n", -1), slog.Group("h"))}
	const message = "say \"hi\"\n\x01\\é\xff"
	pid := strconv.Itoa(os.Getpid())
	tests := []struct {
		format string
		raw    bool
		level  slog.Level
		want   string
	}{
		{"default", false, slog.LevelInfo, `I1121 04:10:08.123456 ` + pid + ` unknown:0] "say \"hi\"\n\u0001\\é�" model="a b" g.n=-1` + "\n"},
		{"", false, slog.LevelWarn, `W1121 04:10:08.123456 ` + pid + ` unknown:0] "say \"hi\"\n\u0001\\é�" model="a b" g.n=-1` + "\n"},
		{"default", true, slog.LevelError, `E1121 04:10:08.123456 ` + pid + ` unknown:0] ` + message + ` model="a b" g.n=-1` + "\n"},
		{"ISO8601", false, slog.LevelDebug, `2026-11-21T04:10:08Z I ` + pid + ` unknown:0] "say \"hi\"\n\u0001\\é�" model="a b" g.n=-1` + "\n"},
		{
			"json", true, slog.LevelInfo, `{"time":"2026-11-21T05:10:08.123456789+01:00","level":"INFO","pid":` + pid +
				`,"msg":"say \"hi\"\n\u0001\\é�","model":"a b","g":{"n":-1}}` + "\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.format, func(t *testing.T) {
			t.Parallel()
			s := everything()
			s.Format, s.Raw = tt.format, tt.raw
			l, out, errs := open(t, s)
			write(t, l.Logger(), tt.level, message, attrs...)
			got, none := out, errs
			if tt.level >= slog.LevelWarn {
				got, none = errs, out
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
			if none.Len() > 0 {
				t.Errorf("the other stream has %q", none)
			}
		})
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	when := time.Date(2026, 11, 21, 5, 10, 8, 0, time.UTC)
	tests := []struct {
		attr       slog.Attr
		text, json string
	}{
		{slog.String("k", ""), `k=""`, `"k":""`},
		{slog.String("k", "plain"), `k=plain`, `"k":"plain"`},
		{slog.String("k", "a=b"), `k="a=b"`, `"k":"a=b"`},
		{slog.String("k", "a\r\t\b\fb"), `k="a\r\t\b\fb"`, `"k":"a\r\t\b\fb"`},
		{slog.Bool("k", true), `k=true`, `"k":true`},
		{slog.Uint64("k", math.MaxUint64), `k=18446744073709551615`, `"k":18446744073709551615`},
		{slog.Float64("k", 1.5), `k=1.5`, `"k":1.5`},
		{slog.Float64("k", math.Inf(1)), `k=+Inf`, `"k":"+Inf"`},
		{slog.Duration("k", time.Second), `k=1s`, `"k":1000000000`},
		{slog.Time("k", when), `k=2026-11-21T05:10:08Z`, `"k":"2026-11-21T05:10:08Z"`},
		{slog.Any("k", errors.New("no such file")), `k="no such file"`, `"k":"no such file"`},
		{slog.Any("k", []int{1, 2}), `k="[1 2]"`, `"k":[1,2]`},
		{slog.Any("k", nil), `k=<nil>`, `"k":null`},
		{slog.Any("k", slog.LevelWarn), `k=WARN`, `"k":"WARN"`},
		{slog.Any("k", make(chan int)), `k=0x`, `"k":"0x`},
		{slog.Any("k", &broken{}), `k="!PANIC: no text"`, `"k":"!PANIC: no JSON"`},
		{slog.Group("", slog.Int("a", 1)), `a=1`, `"a":1`},
	}
	for _, tt := range tests {
		for format, want := range map[string]string{"default": "] \"m\" " + tt.text, "json": `"msg":"m",` + tt.json} {
			s := everything()
			s.Format = format
			l, out, _ := open(t, s)
			write(t, l.Logger(), slog.LevelInfo, "m", tt.attr)
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q has no %q", format, out, want)
			}
			if format == "json" && !json.Valid(out.Bytes()) {
				t.Errorf("%q is not JSON", out)
			}
		}
	}
}

// TestHandlerContract runs the standard library's handler tests on JSON lines.
func TestHandlerContract(t *testing.T) {
	t.Parallel()
	var out *bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		t.Helper()
		s := everything()
		s.Format = logs.JSON
		var l *logs.Log
		l, out, _ = open(t, s)
		return l.Logger().Handler()
	}, func(t *testing.T) map[string]any {
		t.Helper()
		var m map[string]any
		if err := json.Unmarshal(out.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	})
}

func TestSource(t *testing.T) {
	t.Parallel()
	l, out, _ := open(t, everything())
	l.Logger().With(slog.Int("a", 1)).WithGroup("g").Info("here", slog.Int("b", 2))
	want := regexp.MustCompile(`^I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ logs_test\.go:\d+\] "here" a=1 g\.b=2\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("line is %q", out)
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	l, out, errs := open(t, everything())
	logger := l.Logger().With(slog.Int("n", 1)) // what exists already follows as well
	levels := []slog.Level{slog.LevelDebug - 4, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	tests := []struct {
		name   string
		update logs.Update
		want   string
	}{
		{"nothing", logs.Update{}, "INFO WARN ERROR"},
		{"no info", logs.Update{Info: new(false)}, "WARN ERROR"},
		{"verbose", logs.Update{Verbose: new(uint32(1))}, "DEBUG WARN ERROR"},
		{"more verbose", logs.Update{Verbose: new(uint32(math.MaxUint32)), Error: new(false)}, "DEBUG-4 DEBUG WARN"},
		{"no warnings", logs.Update{Warning: new(false), Info: new(true), Verbose: new(uint32(0))}, "INFO"},
	}
	for _, tt := range tests {
		if err := l.Update(tt.update); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, level := range levels {
			if logger.Enabled(t.Context(), level) {
				got = append(got, level.String())
			}
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if err := l.Update(logs.Update{Format: new("json")}); err != nil {
		t.Fatal(err)
	}
	logger.Info("m")
	if !json.Valid(out.Bytes()) || errs.Len() > 0 {
		t.Errorf("as JSON: %q and %q", out, errs)
	}
	if diff := cmp.Diff(logs.Settings{Info: true, Format: "json"}, l.Settings()); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	l, _, _ := open(t, everything())
	before := l.Settings()
	folder := t.TempDir()
	_, formatErr := logs.New(logs.Settings{Format: "xml"}, io.Discard, io.Discard)
	_, fileErr := logs.New(logs.Settings{File: folder}, io.Discard, io.Discard)
	tests := []struct {
		err  error
		code status.Code
		text string
	}{
		{l.Update(logs.Update{File: new(""), Info: new(false)}), status.Unsupported, "log file location can not be updated through network protocol"},
		{l.Update(logs.Update{Format: new("iso8601"), Info: new(false)}), status.InvalidArg, "invalid argument for log_format, got: iso8601"},
		{l.Update(logs.Update{Format: new("")}), status.InvalidArg, "invalid argument for log_format, got: "},
		{formatErr, status.InvalidArg, "invalid argument for log_format, got: xml"},
		{fileErr, status.InvalidArg, "failed to open log file '" + folder + "': open " + folder + ": is a directory"},
	}
	for _, tt := range tests {
		if tt.err == nil || status.CodeOf(tt.err) != tt.code || tt.err.Error() != tt.text {
			t.Errorf("error is %v (%v), want %s", tt.err, status.CodeOf(tt.err), tt.text)
		}
	}
	if diff := cmp.Diff(before, l.Settings()); diff != "" {
		t.Errorf("refused updates changed something (-want +got):\n%s", diff)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	s := everything()
	s.File = filepath.Join(t.TempDir(), "log")
	for i := range 2 { // the second log goes on where the first one ended
		l, out, errs := open(t, s)
		l.Logger().Info("info", slog.Int("i", i))
		l.Logger().Error("error", slog.Int("i", i))
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		l.Logger().Error("lost")
		if out.Len()+errs.Len() > 0 {
			t.Errorf("the streams have %q and %q", out, errs)
		}
	}
	b, err := os.ReadFile(s.File)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(b)) {
		_, rest, _ := strings.Cut(line, "] ")
		got = append(got, line[:1]+" "+rest)
	}
	want := []string{"I \"info\" i=0\n", "E \"error\" i=0\n", "I \"info\" i=1\n", "E \"error\" i=1\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// TestGoneReader checks that logging to a pipe without a reader does not fail.
func TestGoneReader(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	r.Close()
	l, err := logs.New(everything(), w, w)
	if err != nil {
		t.Fatal(err)
	}
	l.Logger().Info("m")
	l.Logger().Error("m")
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	l, out, _ := open(t, everything())
	var wg sync.WaitGroup
	long := slog.String("long", strings.Repeat("x", 1000))
	for g := range 8 {
		wg.Go(func() {
			logger := l.Logger().With(slog.Int("g", g))
			for range 100 {
				logger.Info("m", long)
				if err := l.Update(logs.Update{Verbose: new(uint32(g)), Format: new(logs.Formats()[g%2])}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	whole := regexp.MustCompile(`^(I\d{4} [\d:.]+|\d{4}-[\d:T-]+Z I) \d+ logs_test\.go:\d+\] "m" g=\d long=x{1000}\n$`)
	n := 0
	for line := range strings.Lines(out.String()) {
		n++
		if !whole.MatchString(line) {
			t.Errorf("broken line %q", line)
		}
	}
	if n != 800 {
		t.Errorf("%d lines, want 800", n)
	}
}
