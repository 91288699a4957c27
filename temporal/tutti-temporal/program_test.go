package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.temporal.io/server/common/dynamicconfig"
	temporallog "go.temporal.io/server/common/log"
)

// asProgram makes the binary of the tests the program.
const asProgram = "TUTTI_TEMPORAL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a running program.
type process struct {
	*exec.Cmd

	address string
	stdin   io.Closer
	stderr  *buffer
}

// buffer is safe for concurrent use.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// start runs the program until it is ready.
func start(tb testing.TB, args ...string) *process {
	tb.Helper()
	p := &process{Cmd: exec.CommandContext(tb.Context(), os.Args[0], args...), stderr: &buffer{}}
	p.Env = append(os.Environ(), asProgram+"=1")
	p.Stderr = p.stderr
	in, err := p.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.stdin = in
	out, err := p.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if tb.Failed() {
			tb.Logf("the program's log: %s", p.stderr)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ok {
		tb.Fatalf("got line %q and %v, expected ready ADDRESS; log: %s", line, err, p.stderr)
	}
	p.address = address
	return p
}

// end sends SIGTERM, and returns the exit status.
func (p *process) end(t *testing.T) int {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return p.status(t)
}

func (p *process) status(t *testing.T) int {
	t.Helper()
	err := p.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

// fails runs the program, which must not become ready, and returns its error.
func fails(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err == nil || out.Len() > 0 {
		t.Fatalf("the program printed %q and ended with %v, expected an error", &out, err)
	}
	return strings.TrimSpace(stderr.String())
}

func dial(tb testing.TB, address string) client.Client {
	tb.Helper()
	c, err := client.DialContext(tb.Context(), client.Options{HostPort: address, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// two is a workflow of two activities with a pause until the signal between them.
func two(ctx workflow.Context) (string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	var first, second string
	if err := workflow.ExecuteActivity(ctx, "Piece", "a").Get(ctx, &first); err != nil {
		return "", err
	}
	workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
	err := workflow.ExecuteActivity(ctx, "Piece", "b").Get(ctx, &second)
	return first + second, err
}

type pieces struct{ ran chan string }

// Piece returns its argument.
func (p *pieces) Piece(_ context.Context, s string) (string, error) {
	p.ran <- s
	return "(" + s + ")", nil
}

func work(tb testing.TB, c client.Client) chan string {
	tb.Helper()
	p := &pieces{make(chan string, 1000)}
	w := worker.New(c, "queue", worker.Options{})
	w.RegisterWorkflow(two)
	w.RegisterActivity(p)
	if err := w.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(w.Stop)
	return p.ran
}

// A workflow goes on after its server was killed: what it did is not done again, and the address is the same.
func TestKilledServerGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "--data-dir", dir)
	c := dial(t, p.address)
	ran := work(t, c)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "job", TaskQueue: "queue"}, two)
	if err != nil {
		t.Fatal(err)
	}
	if got := <-ran; got != "a" {
		t.Fatalf("activity %q ran first, expected a", got)
	}
	completed(t, c, "job", enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()

	again := start(t, "--data-dir", dir)
	if again.address != p.address {
		t.Errorf("the server is at %s after it was started again, expected %s", again.address, p.address)
	}
	if err := c.SignalWorkflow(t.Context(), "job", "", "go", nil); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := run.Get(t.Context(), &got); err != nil || got != "(a)(b)" {
		t.Errorf("the workflow returned %q and %v, expected (a)(b)", got, err)
	}
	if got := <-ran; got != "b" {
		t.Errorf("activity %q ran after the restart, expected b", got)
	}
	if code := again.end(t); code != 0 {
		t.Errorf("after SIGTERM the status is %d, expected 0; log: %s", code, again.stderr)
	}
	if text := again.stderr.String(); text != "" {
		t.Errorf("the log is %q, expected none", text)
	}
}

// completed returns once the history has an event.
func completed(t *testing.T, c client.Client, id string, kind enums.EventType) {
	t.Helper()
	history := c.GetWorkflowHistory(t.Context(), id, "", true, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.GetEventType() == kind {
			return
		}
	}
	t.Fatalf("the history ends without %s", kind)
}

func TestAddressFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "--data-dir", dir, "--child")
	text, err := os.ReadFile(filepath.Join(dir, "temporal", "address"))
	if want := fmt.Sprintf("%s %d\n", p.address, p.Process.Pid); err != nil || string(text) != want {
		t.Errorf("the file has %q and %v, expected %q", text, err, want)
	}
	if host, _, _ := net.SplitHostPort(p.address); host != "127.0.0.1" {
		t.Errorf("the server listens on %s, expected 127.0.0.1", host)
	}
	got := fails(t, "--data-dir", dir)
	if want := fmt.Sprintf("tutti-temporal: process %d serves the folder '%s' already: use its address, or end it first", p.Process.Pid, filepath.Join(dir, "temporal")); got != want {
		t.Errorf("a second server says %q, expected %q", got, want)
	}
	if err := p.stdin.Close(); err != nil { // as when the parent dies
		t.Fatal(err)
	}
	if code := p.status(t); code != 0 {
		t.Errorf("after the end of its parent the status is %d, expected 0; log: %s", code, p.stderr)
	}
}

// TestNoVersionCheck checks that the server does not send its version and that of its clients to Temporal's makers once a day.
func TestNoVersionCheck(t *testing.T) {
	t.Setenv("TEMPORAL_VERSION_CHECK_DISABLED", "") // the library's default is on
	dynamic := dynamicconfig.NewCollection(tuning(), temporallog.NewNoopLogger())
	if dynamicconfig.EnableServerVersionCheck.Get(dynamic)() {
		t.Error("the server asks temporal.io for newer versions")
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing is in flight
	port := l.Addr().(*net.TCPAddr).Port
	dir := t.TempDir()
	got := fails(t, "--data-dir", dir, "--port", strconv.Itoa(port))
	if want := fmt.Sprintf("tutti-temporal: --port: 127.0.0.1:%d is in use by another program: choose another port, or 0 for a free one", port); got != want {
		t.Errorf("the program says %q, expected %q", got, want)
	}
	// The port of the last time is only a wish.
	file := filepath.Join(dir, "temporal", "address")
	if err := os.WriteFile(file, fmt.Appendf(nil, "127.0.0.1:%d 1\n", port), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := start(t, "--data-dir", dir); strings.HasSuffix(p.address, strconv.Itoa(port)) {
		t.Errorf("the server is at %s, which another program has", p.address)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--data-dir is missing: name a folder for the database"},
		{[]string{"--data-dir", file}, "the folder of --data-dir cannot be made: mkdir " + file + ": not a directory"},
		{[]string{"--data-dir", dir, "--port", "70000"}, "--port is 70000, expected 0 to 65535"},
		{[]string{"--data-dir", dir, "--retention-days", "0"}, "--retention-days is 0, expected 1 or more"},
		{[]string{"--data-dir", dir, "more"}, "'more' is not expected: there are only options, see --help"},
	} {
		if got := fails(t, c.args...); got != "tutti-temporal: "+c.want {
			t.Errorf("%q: the program says %q, expected %q", c.args, got, c.want)
		}
	}
}

// The folder cannot be written, also by root.
func TestUnwritableFolder(t *testing.T) {
	t.Parallel()
	got := fails(t, "--data-dir", "/proc/self")
	if !strings.HasPrefix(got, "tutti-temporal: the folder of --data-dir cannot be made: mkdir /proc/self/temporal: ") {
		t.Errorf("the program says %q", got)
	}
}

func TestBrokenDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "temporal", "temporal.db")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	got := fails(t, "--data-dir", dir)
	if want := "tutti-temporal: database '" + file + "': it cannot be read: "; !strings.HasPrefix(got, want) || !strings.Contains(got, "move it away") {
		t.Errorf("the program says %q, expected %q", got, want)
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(text, []byte("no database")) {
		t.Errorf("the file was changed: %v", err)
	}
}

// A database of an older schema, without a table, an index, a trigger and a column, is brought up to date with its rows.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "--data-dir", dir)
	work(t, dial(t, p.address))
	c := dial(t, p.address)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "old", TaskQueue: "queue"}, two)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	change(t, dir,
		"DROP TABLE nexus_endpoints", "DROP INDEX by_keyword_03", "DROP TRIGGER executions_visibility_ad",
		"ALTER TABLE current_executions DROP COLUMN start_time", "PRAGMA user_version = 9001")

	again := start(t, "--data-dir", dir)
	c = dial(t, again.address)
	if err := c.SignalWorkflow(t.Context(), "old", run.GetRunID(), "go", nil); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := c.GetWorkflow(t.Context(), "old", "").Get(t.Context(), &got); err != nil || got != "(a)(b)" {
		t.Errorf("the workflow returned %q and %v, expected (a)(b)", got, err)
	}
	if code := again.end(t); code != 0 {
		t.Errorf("the status is %d; log: %s", code, again.stderr)
	}

	change(t, dir, "PRAGMA user_version = 900001")
	if got := fails(t, "--data-dir", dir); !strings.Contains(got, "it was written by a newer tutti-temporal (schema 900001, this program has ") {
		t.Errorf("with a newer database the program says %q", got)
	}
}

// change executes statements on the database of a folder.
func change(t *testing.T, dir string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "temporal", "temporal.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // Exec writes
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// BenchmarkWorkflow measures a workflow of two activities, one at a time and 16 at a time, and the start of the server.
func BenchmarkWorkflow(b *testing.B) {
	before := time.Now()
	p := start(b, "--data-dir", b.TempDir())
	b.ReportMetric(time.Since(before).Seconds(), "s/start")
	c := dial(b, p.address)
	ran := work(b, c)
	go func() {
		for range ran { //nolint:revive // they are of no interest
		}
	}()
	for _, many := range []int{1, 16} {
		b.Run(fmt.Sprintf("concurrent=%d", many), func(b *testing.B) {
			b.SetParallelism(many)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					run, err := c.SignalWithStartWorkflow(b.Context(), fmt.Sprintf("w%d", time.Now().UnixNano()), "go", nil, client.StartWorkflowOptions{TaskQueue: "queue"}, two)
					if err == nil {
						err = run.Get(b.Context(), nil)
					}
					if err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
