package history //nolint:testpackage // the tests drive the clock and the samples

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/logtest"
)

const testFile = "history-8000.db"

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a server whose counters and clocks a test sets.
type world struct {
	t        *testing.T
	counters []inspect.Counters
	server   inspect.ServerView
	mono     int64
	wall     time.Time
	lines    logtest.Buffer
	store    *Store
	dir      string
}

func newWorld(t *testing.T, dir string) *world {
	t.Helper()
	w := &world{t: t, dir: dir, wall: began}
	w.open()
	return w
}

func (w *world) open() {
	log := slog.New(slog.NewTextHandler(&w.lines, nil))
	clock := func() (int64, time.Time) { return w.mono, w.wall }
	w.store = newStore(Settings{
		Counters: func() []inspect.Counters { return w.counters }, Server: func() *inspect.ServerView { v := w.server; return &v },
		Quantiles: func(model string, from, to int64) (int64, int64) { return (to - from) / 1e4, int64(len(model)) * 1e9 }, Log: log,
	}, clock)
	if w.dir != "" {
		w.store.disk = openDisk(filepath.Join(w.dir, testFile), log, clock)
	}
}

// close closes the store, and restarts the machine's counters as a new process has them.
func (w *world) close() {
	w.t.Helper()
	w.store.write(true)
	if err := w.store.disk.close(); err != nil {
		w.t.Error(err)
	}
	w.counters, w.server.CPUSeconds, w.mono = nil, 0, 0
}

// pass lets time pass, in which each model has n requests per second, and samples.
func (w *world) pass(d time.Duration, n uint64) {
	for range d / step {
		w.mono += int64(step)
		w.wall = w.wall.Add(step)
		for i := range w.counters {
			c := &w.counters[i]
			more := n * uint64(step/time.Second)
			if c.Name == "idle" {
				continue
			}
			c.Requests, c.Rows, c.Executions, c.QueueNs, c.ComputeNs = c.Requests+more, c.Rows+4*more, c.Executions+2*more, c.QueueNs+more*1000, c.ComputeNs+more*3000
		}
		w.server.CPUSeconds += 5
		w.store.sample()
		w.store.write(false)
		if w.store.disk != nil {
			w.store.disk.waiting.Wait()
		}
	}
}

func (w *world) query(q *inspect.HistoryQuery) *inspect.HistoryView {
	w.t.Helper()
	v, err := w.store.History(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// total sums a rate over the steps of a view.
func total(v *inspect.HistoryView, s inspect.Series) (sum float64) {
	for _, x := range s {
		if !math.IsNaN(x) {
			sum += x * float64(v.StepUs) / 1e6
		}
	}
	return sum
}

// TestSteps checks the figures of models and of the server, step by step.
func TestSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	half, used := 0.5, 100.
	w.server = inspect.ServerView{Memory: 7, Tensors: 3, GPUs: []inspect.GPUView{{UUID: "u", Utilization: &half, MemoryUsed: &used}}}
	w.counters = []inspect.Counters{{Name: "e", Version: 1, Ensemble: true}, {Name: "m", Version: 1}, {Name: "m", Version: 2}, {Name: "idle", Version: 1}}
	w.pass(10*time.Second, 2)
	w.counters[0].Failures, w.counters[0].Waiting = 10, 9
	w.pass(10*time.Second, 4)
	w.counters[0].Waiting = 0
	w.pass(10*time.Second, 0)
	w.counters = w.counters[:1] // m is unloaded
	w.counters[0].Requests = 40 // e began again
	w.pass(10*time.Second, 0)
	v := w.query(&inspect.HistoryQuery{FromUs: began.Add(-10 * time.Second).UnixMicro(), Steps: 5})
	got, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	p := func(s string) string { return strings.ReplaceAll(s, " ", "") }
	e := p(`"rate":[null,2,4,0,4], "error_rate":[null,0,1,0,0], "p50_ns":[null,1e+06,1e+06,null,1e+06], "p99_ns":[null,1e+09,1e+09,null,1e+09], "queue":[null,0,9,0,0],
"batch_rows":[null,2,2,null,null], "queue_ns":[null,1000,1000,null,0], "compute_ns":[null,3000,3000,null,0]`)
	want := fmt.Sprintf(`{"from_us":%d,"step_us":10000000,"steps":5,"now_us":%d,"oldest_us":%d,"stored":false,`+
		`"cores":[null,0.5,0.5,0.5,0.5],"memory_bytes":[null,7,7,7,7],"tensor_bytes":[null,3,3,3,3],`+
		`"gpus":[{"uuid":"u","utilization":[null,0.5,0.5,0.5,0.5],"memory_used_bytes":[null,100,100,100,100]}],`+
		`"total":{"name":"","ensemble":true,%s},"models":[{"name":"e","ensemble":true,%s}],"more":0}`,
		began.Add(-10*time.Second).UnixMicro(), began.Add(40*time.Second).UnixMicro(), began.UnixMicro(), e, e)
	if diff := cmp.Diff(strings.ReplaceAll(want, "\n", ""), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if one := w.query(&inspect.HistoryQuery{Model: "m", FromUs: began.UnixMicro()}); one.Total != nil || len(one.Models) != 1 || total(one, one.Models[0].Rate) != 120 {
		t.Errorf("one model: %+v", one)
	}
	if other := w.query(&inspect.HistoryQuery{Model: "unknown"}); len(other.Models) != 1 || total(other, other.Models[0].Rate) != 0 {
		t.Errorf("an unknown model: %+v", other)
	}
	if top := w.query(&inspect.HistoryQuery{Top: 1}); len(top.Models) != 1 || top.Models[0].Name != "e" || top.More != 0 {
		t.Errorf("the busiest models: %v, more %d", top.Models[0].Name, top.More)
	}
}

// TestBadQueries checks that wrong queries are errors of the client, which say what was expected.
func TestBadQueries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	for _, q := range []inspect.HistoryQuery{
		{Top: -1}, {Top: 21}, {Seconds: -1}, {Seconds: 3e6}, {Steps: -1}, {Steps: 1001}, {FromUs: 2, ToUs: 1}, {FromUs: -1}, {FromUs: 1}, {ToUs: math.MaxInt64},
	} {
		if _, err := w.store.History(t.Context(), &q); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), "expected") {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestMemoryIsBounded checks that the oldest steps become longer, and then go, before there are more points than permitted, and that names of
// models that are gone go.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.store.limit = 100 * 200
	for i := range 100 {
		w.counters = append(w.counters, inspect.Counters{Name: fmt.Sprintf("m%d", i), Version: 1})
	}
	w.pass(2*time.Hour, 1)
	s := w.store
	if s.points > s.limit || s.points < s.limit*9/10 {
		t.Errorf("%d points, expected nearly %d", s.points, s.limit)
	}
	v := w.query(&inspect.HistoryQuery{FromUs: w.wall.Add(-time.Hour).UnixMicro(), Model: "m7"})
	if n := total(v, v.Models[0].Rate); n != 3600 {
		t.Errorf("%v requests are known of the last hour, expected 3600", n)
	}
	s.limit = 1000
	w.pass(time.Minute, 1)
	if s.points > s.limit {
		t.Errorf("%d points, expected at most %d", s.points, s.limit)
	}
	w.counters = nil
	w.pass(2*time.Hour, 1)
	if len(s.names.numbers) != 0 || s.points != 0 || len(s.prev) != 0 || len(s.frames) > 362 {
		t.Errorf("of models that are gone %d names, %d points and %d counters are left, in %d frames", len(s.names.numbers), s.points, len(s.prev), len(s.frames))
	}
	w.counters = []inspect.Counters{{Name: "again", Version: 1}}
	w.pass(time.Minute, 1)
	if len(s.names.list) != 100 {
		t.Errorf("%d numbers, expected the 100 of before", len(s.names.list))
	}
}

// TestFile checks that figures outlive the server, that none counts twice where file and memory meet, and that what is old goes.
func TestFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, filepath.Join(t.TempDir(), "data"))
	models := []inspect.Counters{{Name: "m", Version: 1}, {Name: "e", Version: 1, Ensemble: true}}
	w.counters = append(w.counters, models...)
	w.pass(2*time.Hour+50*time.Second, 3) // the last minute is not whole
	w.close()
	w.wall = w.wall.Add(time.Hour) // nothing runs
	w.open()
	w.counters = append(w.counters, models...)
	w.pass(90*time.Minute+20*time.Second, 1)
	const want = 3*7250 + 5420
	for _, steps := range []int{331, 500, 1000} {
		v := w.query(&inspect.HistoryQuery{FromUs: began.Add(-time.Hour).UnixMicro(), Steps: steps})
		if n := total(v, v.Total.Rate); math.Abs(n-want) > want/100 {
			t.Errorf("%d steps: %v requests, expected %d", steps, n, want)
		}
		if !v.Stored || v.OldestUs != began.UnixMicro() || !v.Total.Ensemble || len(v.Models) != 1 {
			t.Errorf("%d steps: %+v", steps, v)
		}
		if steps == 1000 {
			gaps := 0
			for _, c := range v.Cores {
				if math.IsNaN(c) {
					gaps++
				} else if math.Abs(c-0.5) > 0.01 {
					t.Errorf("%v cores, expected 0.5", c)
				}
			}
			if minutes := float64(gaps) * float64(v.StepUs) / 60e6; minutes < 116 || minutes > 122 {
				t.Errorf("%v minutes have no figures, expected 2 hours", minutes)
			}
		}
	}
	w.close()
	w.wall = w.wall.Add(8 * 24 * time.Hour)
	w.open()
	w.pass(2*time.Minute, 0)
	w.close()
	w.open()
	if v := w.query(&inspect.HistoryQuery{FromUs: began.UnixMicro()}); total(v, v.Total.Rate) != 0 || v.OldestUs < w.wall.Add(-time.Hour).UnixMicro() {
		t.Errorf("after 8 days: %v requests since %d", total(v, v.Total.Rate), v.OldestUs)
	}
	w.close()
	if w.lines.String() != "" {
		t.Errorf("the log has:\n%s", &w.lines)
	}
}

// TestCrash checks that what a server has written is there after it ends without closing the file.
func TestCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir())
	w.counters = []inspect.Counters{{Name: "m", Version: 1}}
	w.pass(10*time.Minute, 1)
	after := t.TempDir()
	for _, name := range []string{testFile, testFile + "-wal"} { // what a crash leaves
		b, err := os.ReadFile(filepath.Join(w.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == testFile+"-wal" {
			b = b[:len(b)-100] // the last write was under way
		}
		if err := os.WriteFile(filepath.Join(after, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.close()
	x := newWorld(t, after)
	x.wall = began.Add(15 * time.Minute)
	v := x.query(&inspect.HistoryQuery{})
	if n := total(v, v.Total.Rate); n < 8*60 || n > 10*60 {
		t.Errorf("%v requests are known after a crash, expected those of 8 to 10 minutes", n)
	}
	x.close()
	if text := x.lines.String(); text != "" {
		t.Errorf("the log has:\n%s", text)
	}
}

// TestDamagedFile checks that a file that is no database, or broken within, is put aside, with a line in the log, and that figures are stored
// from then on.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"text":   func([]byte) []byte { return bytes.Repeat([]byte("this is no database\n"), 1000) },
		"within": func(b []byte) []byte { return append(b[:4096], bytes.Repeat([]byte{0xa5}, len(b)-4096)...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, t.TempDir())
			w.counters = []inspect.Counters{{Name: "m", Version: 1}}
			w.pass(30*time.Minute, 1)
			w.close()
			path := filepath.Join(w.dir, testFile)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			broken := damage(b)
			if err := os.WriteFile(path, broken, 0o600); err != nil {
				t.Fatal(err)
			}
			w.open()
			w.counters = []inspect.Counters{{Name: "m", Version: 1}}
			w.pass(3*time.Minute, 1)
			w.query(&inspect.HistoryQuery{FromUs: began.UnixMicro()})
			w.close()
			if aside, err := os.ReadFile(path + ".damaged"); err != nil || !bytes.Equal(aside, broken) {
				t.Errorf("the damaged file is not aside: %v", err)
			}
			if text := w.lines.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "damaged") || !strings.Contains(text, path) {
				t.Errorf("the log has:\n%s", text)
			}
			w.open()
			if v := w.query(&inspect.HistoryQuery{FromUs: began.UnixMicro()}); total(v, v.Total.Rate) < 100 {
				t.Errorf("%v requests are stored since, expected 180", total(v, v.Total.Rate))
			}
			w.close()
		})
	}
}

// TestUnusableFile checks that a file of a newer server is left alone, and that a folder that is none or a full disk leaves the figures in
// memory, with one line in the log; and that they are stored again when the disk has room.
func TestUnusableFile(t *testing.T) {
	t.Parallel()
	t.Run("newer", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, t.TempDir())
		if _, err := w.store.disk.db.Exec("PRAGMA user_version = 2"); err != nil {
			t.Fatal(err)
		}
		w.close()
		w.open()
		w.counters = []inspect.Counters{{Name: "m", Version: 1}}
		w.pass(5*time.Minute, 1)
		if v := w.query(&inspect.HistoryQuery{}); total(v, v.Total.Rate) != 300 {
			t.Errorf("%v requests in memory, expected 300", total(v, v.Total.Rate))
		}
		w.close()
		if text := w.lines.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "version 2, expected at most 1") {
			t.Errorf("the log has:\n%s", text)
		}
	})
	t.Run("no folder", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, dir)
		w.counters = []inspect.Counters{{Name: "m", Version: 1}}
		w.pass(5*time.Minute, 1)
		if v := w.query(&inspect.HistoryQuery{}); total(v, v.Total.Rate) != 300 {
			t.Errorf("%v requests in memory, expected 300", total(v, v.Total.Rate))
		}
		w.close()
		if text := w.lines.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "is not stored") || !strings.Contains(text, dir) {
			t.Errorf("the log has:\n%s", text)
		}
	})
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, t.TempDir())
		for i := range 500 {
			w.counters = append(w.counters, inspect.Counters{Name: fmt.Sprintf("m%d", i), Version: 1})
		}
		pages := func(n int) { // the file may have no more than n pages, as on a full disk
			t.Helper()
			w.store.disk.mu.Lock()
			defer w.store.disk.mu.Unlock()
			if _, err := w.store.disk.db.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", n)); err != nil {
				t.Fatal(err)
			}
		}
		w.pass(2*time.Minute, 1)
		pages(1)
		w.pass(5*time.Minute, 1)
		text := w.lines.String()
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, "is full") || !strings.Contains(text, "free space") {
			t.Errorf("the log has:\n%s", text)
		}
		if v := w.query(&inspect.HistoryQuery{Model: "m3"}); total(v, v.Models[0].Rate) != 420 {
			t.Errorf("%v requests in memory, expected 420", total(v, v.Models[0].Rate))
		}
		pages(1 << 20)
		w.pass(2*time.Minute, 1)
		w.close()
		if text := w.lines.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "stored again") {
			t.Errorf("the log has:\n%s", text)
		}
	})
}

// TestClockJumps checks that the times of figures in memory follow the clock of the wall, and that a jump forward, which may be wrong, does
// not remove what is stored.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, t.TempDir())
	w.counters = []inspect.Counters{{Name: "m", Version: 1}}
	w.pass(30*time.Minute, 1)
	w.wall = w.wall.Add(-2 * time.Hour)
	w.pass(10*time.Minute, 1)
	if v := w.query(&inspect.HistoryQuery{Model: "m"}); total(v, v.Models[0].Rate) != 2400 {
		t.Errorf("after a jump back %v requests of the last hour, expected 2400", total(v, v.Models[0].Rate))
	}
	w.wall = w.wall.Add(365 * 24 * time.Hour)
	w.pass(90*time.Minute, 1)
	w.wall = w.wall.Add(2*time.Hour - 365*24*time.Hour) // set right
	w.pass(90*time.Minute, 1)
	w.close()
	w.open()
	if v := w.query(&inspect.HistoryQuery{Model: "m", FromUs: began.Add(-time.Hour).UnixMicro()}); total(v, v.Models[0].Rate) < 30*60 {
		t.Errorf("%v requests are left, expected those of 30 minutes at least", total(v, v.Models[0].Rate))
	}
	w.close()
	if text := w.lines.String(); !strings.Contains(text, "the clock of the machine has jumped") || strings.Contains(text, "ERROR") {
		t.Errorf("the log has:\n%s", text)
	}
}

// TestRun checks that a Store samples by itself and writes what it has when it is closed.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set := Settings{
		Counters: func() []inspect.Counters { return []inspect.Counters{{Name: "m", Version: 1, Requests: 5}} },
		Server:   func() *inspect.ServerView { return &inspect.ServerView{} }, File: filepath.Join(dir, testFile), Log: slog.New(slog.DiscardHandler),
	}
	s := New(set)
	s.sample()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := New(set)
	v, err := again.History(t.Context(), &inspect.HistoryQuery{Model: "m"})
	if err != nil || !v.Stored || v.OldestUs == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := again.History(ctx, &inspect.HistoryQuery{Model: "m"}); status.CodeOf(err) != status.Cancelled {
		t.Errorf("of a client that has gone: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkSample samples 10,000 models, 100 of them busy.
func BenchmarkSample(b *testing.B) {
	var list []inspect.Counters
	for i := range 10_000 {
		list = append(list, inspect.Counters{Name: fmt.Sprintf("m%d", i), Version: 1})
	}
	mono := int64(0)
	s := newStore(Settings{
		Counters: func() []inspect.Counters { return list }, Server: func() *inspect.ServerView { return &inspect.ServerView{} }, Log: slog.Default(),
	}, func() (int64, time.Time) { return mono, began })
	for b.Loop() {
		mono += int64(step)
		for i := range 100 {
			list[i].Requests++
		}
		s.sample()
	}
}

// BenchmarkWeek reads a week of 100 busy models from the file: all for the overview, and one.
func BenchmarkWeek(b *testing.B) {
	mono, wall := int64(0), began
	clock := func() (int64, time.Time) { return mono, wall }
	d := openDisk(filepath.Join(b.TempDir(), testFile), slog.Default(), clock)
	f := minuteFrame{}
	for i := range 100 {
		f.points = append(f.points, point{series: uint32(i), requests: 60, p50: 1, p99: 2})
		f.names = append(f.names, name{name: fmt.Sprintf("model-%03d", i)})
	}
	d.mu.Lock()
	for range retention / minute {
		f.start, f.end = wall.UnixNano(), wall.Add(minute).UnixNano()
		wall = wall.Add(minute)
		if err := d.write(&f); err != nil {
			b.Fatal(err)
		}
	}
	d.mu.Unlock()
	s := newStore(Settings{Server: func() *inspect.ServerView { return &inspect.ServerView{} }}, clock)
	s.disk = d
	for name, q := range map[string]inspect.HistoryQuery{"overview": {Seconds: 7 * day}, "model": {Seconds: 7 * day, Model: "model-007"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				v, err := s.History(b.Context(), &q)
				if err != nil || len(v.Models) == 0 || math.IsNaN(v.Models[0].Rate[10]) {
					b.Fatal(v, err)
				}
			}
		})
	}
	if err := d.close(); err != nil {
		b.Fatal(err)
	}
}
