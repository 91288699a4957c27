package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tutti-server/tutti/backends/isolate"
	"github.com/tutti-server/tutti/cmd"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/server/certs/certstest"
)

func TestMain(m *testing.M) {
	if isolate.Hidden(os.Args) {
		os.Exit(cmd.Main(cmd.Builtin()))
	}
	testscript.Main(m, map[string]func(){"tutti": main, "tritonserver": main})
}

// TestScript runs the program with the scripts in testdata/script.
//
//	serve ARGS             starts tutti serve on free ports; HTTP, GRPC and METRICS are its addresses, HTTP_PORT ... their ports
//	! serve ARGS           expects that the start fails; its output is on stdout and stderr
//	terminate              ends the server by SIGTERM and expects exit status 0; its output is on stdout and stderr
//	http METHOD URL [-H NAME:VALUE] [BODY | @FILE]    prints the status, the body and Retry-After of the response
//	stop-during URL BODY   sends half of the body, then SIGTERM, then the rest
//	fill FILE N            makes a file of N letters
//	record DIR MODEL BODY ...    runs tutti capture while it sends a request with each body; the token of the server is s3cret
//	status N COMMAND ...   expects that a command ends with an exit status; its output is on stdout and stderr
func TestScript(t *testing.T) {
	t.Parallel()
	library := requireRuntime(t)
	examples, err := filepath.Abs(examplesDir)
	if err != nil {
		t.Fatal(err)
	}
	id := certstest.Write(t, t.TempDir(), "server", time.Now())
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("EXAMPLES", examples)
			e.Setenv("CERT", id.Files.Cert) // which is its own authority
			e.Setenv("KEY", id.Files.Key)
			e.Setenv("TUTTI_ONNXRUNTIME_LIB", library)
			e.Setenv("GORACE", raceOptions)
			for _, name := range []string{"HTTP", "GRPC", "METRICS"} { // of servers that are started by exec
				e.Setenv("TUTTI_"+name+"_PORT", "0")
			}
			e.Values[childKey{}] = &child{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": scriptServe, "terminate": scriptStop, "http": scriptHTTP, "stop-during": scriptStopDuring, "fill": scriptFill, "record": scriptRecord, "status": scriptStatus,
		},
	})
}

// raceOptions removes the race detector's delay of one second at exit.
const raceOptions = "atexit_sleep_ms=0"

// child is a script's running server.
type child struct {
	cmd *exec.Cmd
	log *watch // both streams, in order
	// stdout and stderr hold one stream each.
	stdout, stderr *watch
	exit           chan error
}

type childKey struct{}

func childOf(ts *testscript.TestScript) *child { return ts.Value(childKey{}).(*child) } //nolint:forcetypeassert // set for every script

func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	exe, err := os.Executable()
	ts.Check(err)
	c := childOf(ts)
	*c = child{log: newWatch(), stdout: newWatch(), stderr: newWatch(), exit: make(chan error, 1)}
	c.cmd = &exec.Cmd{
		Path: exe, Args: append(append([]string{"tutti", "serve"}, freePorts...), args...), Dir: ts.MkAbs("."), Stdout: io.MultiWriter(c.stdout, c.log), Stderr: io.MultiWriter(c.stderr, c.log),
		Env: scriptEnv(ts),
	}
	ts.Check(c.cmd.Start())
	go func() {
		err := c.cmd.Wait()
		c.log.end()
		c.exit <- err
	}()
	ts.Defer(func() { _ = c.cmd.Process.Kill() })
	a, ok := c.log.started()
	switch {
	case ok && neg:
		ts.Fatalf("the server started:\n%s", c.log)
	case ok:
		ts.Setenv("HTTP", a.http)
		ts.Setenv("GRPC", a.grpc)
		ts.Setenv("METRICS", a.metrics)
		for name, address := range map[string]string{"HTTP_PORT": a.http, "GRPC_PORT": a.grpc, "METRICS_PORT": a.metrics} {
			_, port, _ := net.SplitHostPort(address)
			ts.Setenv(name, port)
		}
	case !neg:
		ts.Fatalf("the server did not start:\n%s", c.log)
	default:
		err := <-c.exit
		if c.cmd.ProcessState.ExitCode() != 1 {
			ts.Fatalf("the server ended with %v:\n%s", err, c.log)
		}
		c.print(ts)
	}
}

func scriptStop(ts *testscript.TestScript, neg bool, args []string) {
	c := childOf(ts)
	if neg || len(args) > 0 || c.cmd == nil {
		ts.Fatalf("usage: terminate, after serve")
	}
	http.DefaultClient.CloseIdleConnections() // the server would wait for them
	ts.Check(c.cmd.Process.Signal(syscall.SIGTERM))
	c.ended(ts)
}

// scriptEnv returns the environment with the options that the script has set.
func scriptEnv(ts *testscript.TestScript) []string {
	env := append(os.Environ(), "TUTTI_ONNXRUNTIME_LIB="+ts.Getenv("TUTTI_ONNXRUNTIME_LIB"), "GORACE="+raceOptions)
	for _, f := range options.Flags() {
		if v := ts.Getenv(f.Env()); v != "" {
			env = append(env, f.Env()+"="+v)
		}
	}
	if v := ts.Getenv("TRITONSERVER_DELAY_SCHEDULER"); v != "" {
		env = append(env, "TRITONSERVER_DELAY_SCHEDULER="+v)
	}
	return env
}

// print writes the server's output to the script's stdout and stderr.
func (c *child) print(ts *testscript.TestScript) {
	_, err := io.WriteString(ts.Stdout(), c.stdout.String())
	ts.Check(err)
	_, err = io.WriteString(ts.Stderr(), c.stderr.String())
	ts.Check(err)
}

// ended waits until the server has ended and expects exit status 0.
func (c *child) ended(ts *testscript.TestScript) {
	err := <-c.exit
	c.print(ts)
	if err != nil {
		ts.Fatalf("the server ended badly: %v\n%s", err, c.log)
	}
}

func scriptHTTP(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: http METHOD URL [-H NAME:VALUE] [BODY | @FILE]")
	}
	method, url, args := args[0], args[1], args[2:]
	header := http.Header{}
	for len(args) > 1 && args[0] == "-H" {
		name, value, _ := strings.Cut(args[1], ":")
		header.Set(name, value)
		args = args[2:]
	}
	body := strings.Join(args, " ")
	if file, ok := strings.CutPrefix(body, "@"); ok {
		body = ts.ReadFile(file)
	}
	req, err := http.NewRequest(method, "http://"+url, strings.NewReader(body)) //nolint:noctx // a script has no context
	ts.Check(err)
	req.Header, req.Host = header, header.Get("Host")
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	printResponse(ts, resp)
}

func printResponse(ts *testscript.TestScript, resp *http.Response) {
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ts.Check(resp.Body.Close())
	fmt.Fprintf(ts.Stdout(), "%d\n%s\n", resp.StatusCode, text)
	if after := resp.Header.Get("Retry-After"); after != "" {
		fmt.Fprintf(ts.Stdout(), "retry after %s\n", after)
	}
}

func scriptStopDuring(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: stop-during URL BODY")
	}
	c := childOf(ts)
	host, path, _ := strings.Cut(args[0], "/")
	body := args[1]
	conn, err := net.Dial("tcp", host) //nolint:noctx // a script has no context
	ts.Check(err)
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST /%s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", path, host, len(body))
	ts.Check(err)
	responses := bufio.NewReader(conn)
	for line := "-"; line != "\r\n"; { // the server says that it reads the body
		line, err = responses.ReadString('\n')
		ts.Check(err)
	}
	_, err = io.WriteString(conn, body[:len(body)/2])
	ts.Check(err)
	ts.Check(c.cmd.Process.Signal(syscall.SIGTERM))
	if !c.log.await(func(text string) bool { return strings.Contains(text, `"stopping"`) }) {
		ts.Fatalf("the server ended with a request under way:\n%s", c.log)
	}
	_, err = io.WriteString(conn, body[len(body)/2:])
	ts.Check(err)
	resp, err := http.ReadResponse(responses, nil)
	ts.Check(err)
	printResponse(ts, resp)
	c.ended(ts)
}

func scriptFill(ts *testscript.TestScript, neg bool, args []string) {
	var n int
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fill FILE N")
	}
	_, err := fmt.Sscan(args[1], &n)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), bytes.Repeat([]byte("a"), n), 0o600))
}

// scriptRecord saves the captures of requests in a folder.
func scriptRecord(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: record DIR MODEL BODY ...")
	}
	exe, err := os.Executable()
	ts.Check(err)
	at, bodies := "http://"+ts.Getenv("HTTP"), args[2:]
	var out, log bytes.Buffer // its own: the script's are written here meanwhile
	cmd := &exec.Cmd{
		Path: exe, Dir: ts.MkAbs("."), Stdout: &out, Stderr: &log, Env: scriptEnv(ts),
		Args: []string{"tutti", "capture", "--url", at, "--token", captureToken, "--model", args[1], "--count", strconv.Itoa(len(bodies)), "--out", args[0]},
	}
	ts.Check(cmd.Start())
	for active := false; !active; { // until the server captures
		resp, err := http.Get(at + "/ui/api/captures") //nolint:noctx // a script has no context
		ts.Check(err)
		text, err := io.ReadAll(resp.Body)
		ts.Check(errors.Join(err, resp.Body.Close()))
		active = bytes.Contains(text, []byte(`"active":true`))
	}
	for _, body := range bodies {
		resp, err := http.Post(at+"/v2/models/"+args[1]+"/infer", "application/json", strings.NewReader(body)) //nolint:noctx // a script has no context
		ts.Check(err)
		printResponse(ts, resp)
	}
	err = cmd.Wait()
	_, printed := ts.Stdout().Write(out.Bytes())
	ts.Check(printed)
	if err != nil {
		ts.Fatalf("tutti capture: %v\n%s", err, &log)
	}
}

func scriptStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND ...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("the exit status is %d, expected %s", got, args[0])
	}
}
