package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tutti-server/tutti/proto/inference"
)

// traffic is clients that send requests without a pause until they are stopped: over HTTP with connections that are kept, with
// one for each request, over HTTP/2, and over gRPC.
type traffic struct {
	stop   chan struct{}
	wait   sync.WaitGroup
	counts []atomic.Int64 // by client
	grew   chan struct{}  // has a token after each response
}

func startTraffic(t *testing.T, a addresses) *traffic {
	t.Helper()
	post := func(c *http.Client) error {
		resp, err := c.Post("http://"+a.http+"/v2/models/copy/infer", "application/json", strings.NewReader(drainInput)) //nolint:noctx // ends with the server
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"data":[7]`)) {
			err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
		}
		return err
	}
	over := func(tr *http.Transport) func() error {
		t.Cleanup(tr.CloseIdleConnections)
		return func() error { return post(&http.Client{Transport: tr}) }
	}
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	conn, err := grpc.NewClient(a.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	call := func(c *grpc.ClientConn) error {
		m, err := inference.NewGRPCInferenceServiceClient(c).ModelInfer(context.Background(), drainRequest("copy"))
		if got := outcome(m, err); got != "7" {
			return fmt.Errorf("got %s", got)
		}
		return nil
	}
	clients := map[string]func() error{
		"HTTP": over(&http.Transport{}), "HTTP without keep-alive": over(&http.Transport{DisableKeepAlives: true}), "HTTP/2": over(&http.Transport{Protocols: &h2}),
		"gRPC": func() error { return call(conn) },
		"gRPC with new connections": func() error {
			c, err := grpc.NewClient(a.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			return call(c)
		},
	}
	f := &traffic{stop: make(chan struct{}), counts: make([]atomic.Int64, len(clients)), grew: make(chan struct{}, 1)}
	i := 0
	for name, send := range clients {
		count := &f.counts[i]
		i++
		f.wait.Go(func() {
			for {
				select {
				case <-f.stop:
					return
				default:
				}
				if err := send(); err != nil {
					t.Errorf("%s, after %d requests: %v", name, count.Load(), err)
				}
				count.Add(1)
				select {
				case f.grew <- struct{}{}:
				default:
				}
			}
		})
	}
	return f
}

// more waits until each client has n further responses.
func (f *traffic) more(n int64) {
	want := make([]int64, len(f.counts))
	for i := range want {
		want[i] = f.counts[i].Load() + n
	}
	for i := range want {
		for f.counts[i].Load() < want[i] {
			<-f.grew
		}
	}
}

func (f *traffic) end() (requests int64) {
	close(f.stop)
	f.wait.Wait()
	for i := range f.counts {
		requests += f.counts[i].Load()
	}
	return requests
}

// atPorts returns the options of a server at the ports of another.
func atPorts(a addresses) (args []string) {
	for flag, address := range map[string]string{"http": a.http, "grpc": a.grpc, "metrics": a.metrics} {
		_, port, _ := net.SplitHostPort(address)
		args = append(args, "--"+flag+"-port="+port)
	}
	return args
}

// TestUpgrade replaces a server twice while clients send requests. None fails.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	repo := "--model-repository=" + copyRepo(t)
	p := startServer(t, repo)
	a := p.addresses
	f := startTraffic(t, a)
	f.more(5)
	for range 2 {
		next := startServer(t, append(atPorts(a), repo, "--upgrade")...)
		next.await("took over from the running server")
		if next.addresses != a {
			t.Errorf("the new server is at %v, want %v", next.addresses, a)
		}
		if err := <-p.exit; err != nil {
			t.Errorf("the old server ended with %v:\n%s", err, p.log)
		}
		f.more(5)
		p = next
	}
	t.Logf("%d requests", f.end())
	p.signal(syscall.SIGTERM)
	if err := <-p.exit; err != nil {
		t.Errorf("the last server ended with %v:\n%s", err, p.log)
	}
}

// TestUpgradeFails starts successors that do not become ready: the server goes on, and both say why.
func TestUpgradeFails(t *testing.T) {
	t.Parallel()
	p := startServer(t, "--model-repository="+copyRepo(t))
	f := startTraffic(t, p.addresses)
	broken := copyRepo(t)
	writeModel(t, broken, "broken", `backend: "nonsense"`)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for extra, reason := range map[string]string{"": "failed to load all models", "--exit-on-error=false": "this server is not ready, so the running one goes on. model 'broken'"} {
		args := append([]string{"tutti", "serve", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--upgrade", "--model-repository=" + broken}, atPorts(p.addresses)...)
		if extra != "" {
			args = append(args, extra)
		}
		next := beginCommand(t, &exec.Cmd{Path: exe, Args: args, Env: append(os.Environ(), "GORACE="+raceOptions)})
		if err := <-next.exit; next.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(next.log.String(), reason) {
			t.Errorf("the new server ended with %v:\n%s", err, next.log)
		}
		p.await(reason)
		f.more(5)
	}
	if n := strings.Count(p.log.String(), "an upgrade failed, this server goes on"); n != 2 {
		t.Errorf("the server reported %d failures:\n%s", n, p.log)
	}
	f.end()
	p.signal(syscall.SIGTERM)
	if err := <-p.exit; err != nil {
		t.Errorf("the server ended with %v:\n%s", err, p.log)
	}
}

// TestUpgradeOfNothing starts a server with --upgrade where none runs, and one that must not be replaced.
func TestUpgradeOfNothing(t *testing.T) {
	t.Parallel()
	repo := "--model-repository=" + copyRepo(t)
	first := startServer(t, repo, "--allow-upgrade=false")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	next := beginCommand(t, &exec.Cmd{Path: exe, Args: append([]string{"tutti", "serve", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--upgrade", repo}, atPorts(first.addresses)...), Env: append(os.Environ(), "GORACE="+raceOptions)})
	<-next.exit
	for _, want := range []string{"--upgrade: no server runs here", "already in use"} {
		if !strings.Contains(next.log.String(), want) {
			t.Errorf("no %q in\n%s", want, next.log)
		}
	}
	free := beginCommand(t, &exec.Cmd{Path: exe, Args: append([]string{"tutti", "serve", "--upgrade", repo}, freePorts...), Env: append(os.Environ(), "GORACE="+raceOptions)})
	<-free.exit
	if want := "--upgrade finds the running server by its ports"; !strings.Contains(free.log.String(), want) {
		t.Errorf("no %q in\n%s", want, free.log)
	}
}

// activate starts the command serve as systemd does with sockets: names[i] is passed for a socket at a free port.
func activate(t *testing.T, names []string, args ...string) (*exec.Cmd, []string) {
	t.Helper()
	var addresses []string
	// The shell's process becomes that of the server, so LISTEN_PID is right.
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "tutti") // the shell sets the name of the program to its path
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	for range names {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's own socket
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, l.Addr().String())
		file, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		_ = l.Close() // the copy listens
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	cmd.Args = append(cmd.Args, append([]string{link, "serve"}, args...)...)
	cmd.Env = append(os.Environ(), "GORACE="+raceOptions, "LISTEN_FDS="+strconv.Itoa(len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	return cmd, addresses
}

// TestActivation starts a server as systemd does, with sockets and a place for notifications, and replaces it by SIGUSR2.
func TestActivation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notify")
	notes, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = notes.Close() }()
	buffer := make([]byte, 4096)
	note := func() string {
		n, err := notes.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	// The socket for gRPC has the name of a unit, and is found by its port.
	cmd, at := activate(t, []string{"http", "tutti.socket", "metrics"}, "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--model-repository="+copyRepo(t), "--allow-metrics=true")
	for i, flag := range []string{"http", "grpc", "metrics"} {
		_, port, _ := net.SplitHostPort(at[i])
		cmd.Args = append(cmd.Args, "--"+flag+"-port="+port)
	}
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=20000")
	f := startTraffic(t, addresses{http: at[0], grpc: at[1]}) // its connections wait for the server
	p := startCommand(t, cmd)
	if want := (addresses{at[0], at[1], at[2]}); p.addresses != want {
		t.Errorf("the server is at %v, want %v", p.addresses, want)
	}
	if got := note(); got != "READY=1" {
		t.Errorf("the first notification is %q", got)
	}
	for got := ""; got != "WATCHDOG=1"; {
		got = note()
	}
	f.more(5)
	p.signal(syscall.SIGUSR2)
	p.await("another process serves")
	main := ""
	for !strings.HasPrefix(main, "MAINPID=") {
		main = note()
	}
	f.more(5)
	t.Logf("%d requests", f.end())
	pid, err := strconv.Atoi(strings.TrimPrefix(main, "MAINPID="))
	if err != nil || pid == p.cmd.Process.Pid {
		t.Fatalf("the new process is %q", main)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for got := ""; got != "STOPPING=1"; {
		got = note()
	}
	if err := <-p.exit; err != nil { // with the output of both
		t.Errorf("the server ended with %v:\n%s", err, p.log)
	}
}

// TestActivationRefused passes a socket that no service is for.
func TestActivationRefused(t *testing.T) {
	t.Parallel()
	cmd, _ := activate(t, []string{"ftp"}, append([]string{"--model-repository=" + copyRepo(t)}, freePorts...)...)
	p := beginCommand(t, cmd)
	<-p.exit
	if want := "no service is for the socket 'ftp' at 127.0.0.1:"; cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.log.String(), want) {
		t.Errorf("no %q in\n%s", want, p.log)
	}
}
