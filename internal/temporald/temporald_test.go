package temporald_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/temporald"
)

// program is the path of tutti-temporal.
func program(t *testing.T) string {
	t.Helper()
	return preparedtest.Program(t, "temporal", "tutti-temporal")
}

func open(t *testing.T, s temporald.Settings) *temporald.Connection {
	t.Helper()
	if s.Namespace == "" {
		s.Namespace = temporald.DefaultNamespace
	}
	if s.Address == "" && s.Program == "" {
		s.Program = program(t)
	}
	c, err := temporald.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, c) })
	return c
}

func closeIt(t *testing.T, c *temporald.Connection) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// eventually repeats a call until it succeeds.
func eventually(t *testing.T, what string, call func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		one, done := context.WithTimeout(ctx, 10*time.Second)
		err := call(one)
		done()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", what, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// submit starts a workflow that no worker takes.
func submit(t *testing.T, c *temporald.Connection, id string, input ...any) {
	t.Helper()
	eventually(t, "submit "+id, func(ctx context.Context) error {
		_, err := c.Client().ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: "nobody", WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING}, "flow", input...)
		return err
	})
}

func running(t *testing.T, c *temporald.Connection, id string) {
	t.Helper()
	eventually(t, "describe "+id, func(ctx context.Context) error {
		d, err := c.Client().DescribeWorkflowExecution(ctx, id, "")
		if err == nil && d.GetWorkflowExecutionInfo().GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
			err = fmt.Errorf("it is %s", d.GetWorkflowExecutionInfo().GetStatus())
		}
		return err
	})
}

func owner(t *testing.T, dir string) int {
	t.Helper()
	pid, err := temporald.Owner(dir)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// The server is killed with SIGKILL. It comes back with its workflows, and the same client uses it.
func TestKilledChildComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, temporald.Settings{DataDir: dir})
	submit(t, c, "before")
	pid := owner(t, dir)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	running(t, c, "before")
	submit(t, c, "after")
	if now := owner(t, dir); now == pid || now == 0 {
		t.Errorf("process %d serves after %d was killed, expected another", now, pid)
	}
	closeIt(t, c)
	if now := owner(t, dir); now != 0 {
		t.Errorf("process %d serves after Close, expected none", now)
	}
}

// The server's threads give way to those of this process.
func TestNiceness(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	submit(t, open(t, temporald.Settings{DataDir: dir}), "flow")
	own := niceness(t, os.Getpid())
	if slices.Min(own) >= 10 {
		t.Skip("the tests run at a niceness of their own: ", own)
	}
	if of := niceness(t, owner(t, dir)); slices.Min(of) != 10 {
		t.Errorf("threads have the niceness %v, want 10", of)
	}
	if now := niceness(t, os.Getpid()); slices.Min(now) != slices.Min(own) {
		t.Errorf("threads of this process have the niceness %v, before %v", now, own)
	}
}

// niceness returns that of each thread of a process.
func niceness(t *testing.T, pid int) (list []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ") // the 19th field, the 17th after the name
		n, err := strconv.Atoi(strings.Fields(rest)[16])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// Two processes share the server of a folder. When the one that started it ends, the other one starts it again.
func TestSharedFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := open(t, temporald.Settings{DataDir: dir})
	submit(t, first, "one")
	pid := owner(t, dir)
	second := open(t, temporald.Settings{DataDir: dir})
	running(t, second, "one")
	if now := owner(t, dir); now != pid {
		t.Errorf("process %d serves, expected %d of the first connection", now, pid)
	}
	closeIt(t, first)
	running(t, second, "one")
	if now := owner(t, dir); now == 0 || now == pid {
		t.Errorf("process %d serves after the first connection was closed, expected one of the second", now)
	}
}

// A program that fails is started again and again; calls return why it fails.
func TestFailingProgram(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tutti-temporal")
	if err := os.WriteFile(file, []byte("#!/bin/sh\necho 'the disk is full' >&2\nexit 1\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := open(t, temporald.Settings{DataDir: dir, Program: file})
	eventually(t, "the reason", func(ctx context.Context) error {
		_, err := c.Client().DescribeWorkflowExecution(ctx, "one", "")
		if err == nil || strings.Contains(err.Error(), "tutti-temporal below '"+dir+"' does not run: ") && strings.Contains(err.Error(), "the disk is full") {
			return nil
		}
		return err
	})
}

func TestMistakes(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := t.TempDir()
	missing, empty, words, directory := filepath.Join(dir, "missing"), filepath.Join(dir, "empty"), filepath.Join(dir, "words"), filepath.Join(dir, "d")
	for name, text := range map[string]string{empty: "", words: "some words\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	no := ": no such file or directory"
	for _, c := range []struct {
		set  temporald.Settings
		want string
	}{
		{temporald.Settings{DataDir: directory}, "build it with `make temporal`, name it with --temporal-program, or name a Temporal server with --temporal-address"},
		{temporald.Settings{DataDir: directory, Program: missing}, "--temporal-program: '" + missing + "' cannot be started: "},
		{temporald.Settings{Program: "/bin/true"}, "--jobs needs a folder for the Temporal server: name it with --data-dir, or name a Temporal server with --temporal-address"},
		{temporald.Settings{Program: "/bin/true", DataDir: empty}, "--data-dir: mkdir " + empty + ": not a directory"},
		{temporald.Settings{Program: "/bin/true", DataDir: directory, APIKeyFile: words}, "are for the server of --temporal-address, which is missing"},
		{temporald.Settings{Address: "localhost"}, "--temporal-address: 'localhost' is not HOST:PORT, for example temporal.example.com:7233"},
		{temporald.Settings{Address: "h:1", APIKeyFile: missing}, "--temporal-api-key-file: stat " + missing + no},
		{temporald.Settings{Address: "h:1", APIKeyFile: empty}, "--temporal-api-key-file: '" + empty + "' has no API key: expected one line"},
		{temporald.Settings{Address: "h:1", APIKeyFile: words}, "--temporal-api-key-file: '" + words + "' has no API key: expected one line"},
		{temporald.Settings{Address: "h:1", CodecKeyFile: missing}, "--temporal-codec-key-file: open " + missing + no},
		{temporald.Settings{Address: "h:1", CodecKeyFile: empty}, "--temporal-codec-key-file: '" + empty + "' has no key: expected lines of 32 bytes in base64"},
		{temporald.Settings{Address: "h:1", CodecKeyFile: words}, "--temporal-codec-key-file: '" + words + "', line 1: expected a key of 16, 24 or 32 bytes in base64 or hexadecimal"},
		{temporald.Settings{Address: "h:1", TLS: temporald.TLS{CA: missing}}, "--temporal-tls-ca: open " + missing + no},
		{temporald.Settings{Address: "h:1", TLS: temporald.TLS{CA: words}}, "--temporal-tls-ca: '" + words + "' has no certificate in PEM"},
		{temporald.Settings{Address: "h:1", TLS: temporald.TLS{Cert: words}}, "--temporal-tls-cert and --temporal-tls-key belong together"},
		{temporald.Settings{Address: "h:1", TLS: temporald.TLS{Cert: words, Key: words}}, "--temporal-tls-cert: tls: failed to find any PEM data"},
	} {
		conn, err := temporald.Open(c.set)
		if err == nil {
			closeIt(t, conn)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || status.CodeOf(err) != status.InvalidArg {
			t.Errorf("%+v: got %v (%s), expected %q", c.set, err, status.CodeOf(err), c.want)
		}
	}
	if _, err := os.Stat(directory); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data directory was made: %v", err)
	}
}

func key(b byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(b), 32)))
}

func codec(t *testing.T, lines ...string) (*temporald.Codec, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := temporald.ReadCodec(file)
	if err != nil {
		t.Fatal(err)
	}
	return c, file
}

func TestCodec(t *testing.T) {
	t.Parallel()
	older, _ := codec(t, key('a'))
	newer, _ := codec(t, "# the key of July", key('b'), "", "6161616161616161616161616161616161616161616161616161616161616161")
	plain := &common.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(`"a secret place"`)}
	sealed, err := older.Encode([]*common.Payload{plain, plain})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range sealed {
		if strings.Contains(p.String(), "secret") || string(p.GetMetadata()["encoding"]) != "binary/encrypted" {
			t.Errorf("payload %v is not encrypted", p)
		}
	}
	if string(sealed[0].GetData()) == string(sealed[1].GetData()) {
		t.Error("two payloads with the same content are encrypted alike, expected other nonces")
	}
	got, err := newer.Decode(append(sealed, plain))
	if err != nil || len(got) != 3 {
		t.Fatalf("the newer codec decodes %v and %v, expected 3 payloads", got, err)
	}
	for _, p := range got {
		if !proto.Equal(p, plain) {
			t.Errorf("got %v, expected %v", p, plain)
		}
	}
	sealed, err = newer.Encode([]*common.Payload{plain})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := older.Decode(sealed); err == nil || !strings.Contains(err.Error(), "which the file of --temporal-codec-key-file lacks: add the key") {
		t.Errorf("without the key the error is %v", err)
	}
	sealed[0].Data[20] ^= 1
	if _, err := newer.Decode(sealed); err == nil || !strings.Contains(err.Error(), "message authentication failed") {
		t.Errorf("for a changed payload the error is %v", err)
	}
	sealed[0].Data = sealed[0].GetData()[:5]
	if _, err := newer.Decode(sealed); err == nil || !strings.Contains(err.Error(), "is cut off") {
		t.Errorf("for a short payload the error is %v", err)
	}
}

// What the Temporal server stores is encrypted.
func TestEncryptedHistory(t *testing.T) {
	t.Parallel()
	_, file := codec(t, key('k'))
	dir := t.TempDir()
	c := open(t, temporald.Settings{DataDir: dir, CodecKeyFile: file})
	submit(t, c, "secret", "a place that nobody should know")
	e, err := c.Client().GetWorkflowHistory(t.Context(), "secret", "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT).Next()
	if err != nil {
		t.Fatal(err)
	}
	input := e.GetWorkflowExecutionStartedEventAttributes().GetInput()
	if strings.Contains(input.String(), "nobody") {
		t.Errorf("the history has %v in plain text", input)
	}
	var text string
	if err := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), c.Codec()).FromPayloads(input, &text); err != nil || text != "a place that nobody should know" {
		t.Errorf("decoded %q and %v", text, err)
	}
}
