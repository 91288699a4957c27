//go:build !noxds

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// xdsPlace is a locality of a target.
type xdsPlace struct {
	Name      string   `json:"name"`
	Weight    int      `json:"weight"`
	Addresses []string `json:"addresses"`
	Unhealthy []string `json:"unhealthy,omitempty"`
}

// xdsService is what the control plane says of a target, see tools/controlplane.
type xdsService struct {
	Places   []xdsPlace `json:"places"`
	Hash     string     `json:"hash,omitempty"`
	Reported bool       `json:"reported,omitempty"`
	Retries  int        `json:"retries,omitempty"`
}

// together is a service of one place.
func together(addresses ...string) xdsService {
	return xdsService{Places: []xdsPlace{{Name: "a", Weight: 1, Addresses: addresses}}}
}

// controlPlane is an xDS control plane, a process of its own.
type controlPlane struct {
	address string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func startControlPlane(t *testing.T, address string) *controlPlane {
	t.Helper()
	c := &controlPlane{cmd: exec.Command(preparedtest.Script(t, "controlplane", "prepare-controlplane"), "-address", address)} //nolint:gosec,noctx // ended below
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	c.cmd.Stderr = t.Output()
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	c.out = bufio.NewReader(out)
	c.address = c.line(t)
	return c
}

func (c *controlPlane) line(t *testing.T) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// serve replaces what the control plane says.
func (c *controlPlane) serve(t *testing.T, services map[string]xdsService) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"services": services})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.in.Write(append(text, '\n')); err != nil {
		t.Fatal(err)
	}
	if _, err := strconv.Atoi(c.line(t)); err != nil {
		t.Fatal(err)
	}
}

// kill ends the process. It may be called twice.
func (c *controlPlane) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// bootstrap returns the environment with a bootstrap file that names the control plane at an address.
func bootstrap(t *testing.T, address string) []string {
	t.Helper()
	return bootstrapOf(t, fmt.Sprintf(`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}], "node": {"id": "near"}}`, address))
}

func bootstrapOf(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "xds.json")
	writeFile(t, path, []byte(text))
	return []string{"GRPC_XDS_BOOTSTRAP=" + path}
}

// TestXDS checks a remote model whose servers a control plane names: requests reach both, in proportion to the weights of their places; none fails
// when one is removed or becomes unhealthy, or when the control plane is killed; and what one says that comes back holds.
// shows: remote.xds
func TestXDS(t *testing.T) {
	t.Parallel()
	two := farFronts(t, [2]float64{})
	first, second := two[0].address, two[1].address
	c := startControlPlane(t, "127.0.0.1:0")
	c.serve(t, map[string]xdsService{"models": together(first, second), "other": together(first)})
	near := nearOf(t, bootstrap(t, c.address), "endpoint=xds:///models")
	call := func(ctx context.Context) error { return near(ctx) }
	// shares waits until the share of the first address, in percent, is within bounds. No request may fail.
	shares := func(what string, n int, least, most float64) {
		t.Helper()
		repeated(t, what, func(ctx context.Context) error {
			got, failed := burst(ctx, two, n, call)
			if failed > 0 {
				t.Fatalf("%s: %d of %d requests failed", what, failed, n)
			}
			if share := 100 * float64(got[0]) / float64(got[0]+got[1]); share < least || share > most {
				return fmt.Errorf("the addresses got %d requests, expected %.0f to %.0f %% at the first", got, least, most)
			}
			return nil
		})
	}
	shares("both addresses", 20, 50, 50)
	stop := hammer(t, call)
	c.serve(t, map[string]xdsService{"models": together(second)})
	shares("one was removed", 20, 0, 0)
	c.serve(t, map[string]xdsService{"models": {Places: []xdsPlace{{Name: "a", Weight: 1, Addresses: []string{first, second}, Unhealthy: []string{second}}}}})
	shares("one is unhealthy", 20, 100, 100)
	c.serve(t, map[string]xdsService{"models": {Places: []xdsPlace{
		{Name: "a", Weight: 3, Addresses: []string{first}}, {Name: "b", Weight: 1, Addresses: []string{second}},
	}}})
	stop()
	shares("places by weight", 400, 68, 82)
	c.kill()
	shares("the control plane is away", 400, 68, 82)
	again := startControlPlane(t, c.address)
	again.serve(t, map[string]xdsService{"models": together(second)})
	shares("it is back", 20, 0, 0)
}

// hammer sends requests from 4 clients until stop is called. None may fail.
func hammer(t *testing.T, call func(ctx context.Context) error) (stop func()) {
	t.Helper()
	var done atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !done.Load() {
				if err := call(t.Context()); err != nil && !done.Load() {
					t.Error(err)
					return
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		done.Store(true)
		all.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// TestXDSRetries checks that the retry policy of a route is followed for a model that is marked idempotent, and only for one.
func TestXDSRetries(t *testing.T) {
	t.Parallel()
	two := farFronts(t, [2]float64{})
	c := startControlPlane(t, "127.0.0.1:0")
	s := together(two[0].address, two[1].address)
	s.Retries = 3
	c.serve(t, map[string]xdsService{"models": s})
	env := bootstrap(t, c.address)
	for _, idempotent := range []string{"false", "true"} {
		near := nearOf(t, env, "endpoint=xds:///models", "idempotent="+idempotent, "timeout=1m")
		call := func(ctx context.Context) error { return near(ctx) }
		two[1].sick.Store(false)
		repeated(t, "both addresses", func(ctx context.Context) error {
			if got, failed := burst(ctx, two, 10, call); failed > 0 || got[0] != got[1] {
				return fmt.Errorf("%d requests, %d failed", got, failed)
			}
			return nil
		})
		two[1].sick.Store(true)
		if _, failed := burst(t.Context(), two, 20, call); failed > 0 == (idempotent == "true") {
			t.Errorf("idempotent=%s: %d of 20 requests failed", idempotent, failed)
		}
	}
}

// TestXDSSequences checks that the requests of a sequence go to the same server, if the route hashes the header of sequences.
func TestXDSSequences(t *testing.T) {
	t.Parallel()
	two := farFronts(t, [2]float64{})
	c := startControlPlane(t, "127.0.0.1:0")
	s := together(two[0].address, two[1].address)
	s.Hash = "tutti-sequence"
	c.serve(t, map[string]xdsService{"models": s})
	near := nearOf(t, bootstrap(t, c.address), "endpoint=xds:///models", "balancing=sequence")
	var total [2]int64
	for id := range 40 {
		got, failed := burst(t.Context(), two, 3, func(ctx context.Context) error { return near(ctx, map[string]any{"sequence_id": id + 1}) })
		if failed > 0 || got[0] > 0 && got[1] > 0 {
			t.Errorf("sequence %d: the addresses got %d requests, %d failed", id+1, got, failed)
		}
		total[0] += got[0]
		total[1] += got[1]
	}
	if total[0] == 0 || total[1] == 0 {
		t.Errorf("the addresses got %d requests of 40 sequences", total)
	}
}

// TestXDSReported checks that a cluster whose policy is the servers' reported load gets reports, if the model asks for them.
func TestXDSReported(t *testing.T) {
	t.Parallel()
	two := farFronts(t, [2]float64{0.2, 0.8})
	c := startControlPlane(t, "127.0.0.1:0")
	s := together(two[0].address, two[1].address)
	s.Reported = true
	c.serve(t, map[string]xdsService{"models": s})
	near := nearOf(t, bootstrap(t, c.address), "endpoint=xds:///models", "balancing=weighted_round_robin")
	repeated(t, "shares by reported load", func(ctx context.Context) error {
		got, failed := burst(ctx, two, 100, func(ctx context.Context) error { return near(ctx) })
		if failed > 0 || got[0] < 77 || got[0] > 83 {
			return fmt.Errorf("the shares are %d, expected 80 and 20; %d failed", got, failed)
		}
		return nil
	})
}

// TestXDSRefused checks that a model says why it is not loaded: each error names what is wrong.
func TestXDSRefused(t *testing.T) {
	t.Parallel()
	c := startControlPlane(t, "127.0.0.1:0")
	c.serve(t, map[string]xdsService{"models": together("127.0.0.1:1")})
	silent := newListener(t)
	missing := filepath.Join(t.TempDir(), "gone.json")
	for name, one := range map[string]struct {
		env    []string
		params []string
		texts  []string
	}{
		"no bootstrap":     {nil, nil, []string{"xds:///models", "neither GRPC_XDS_BOOTSTRAP", "server_uri"}},
		"no such file":     {[]string{"GRPC_XDS_BOOTSTRAP=" + missing}, nil, []string{missing, "GRPC_XDS_BOOTSTRAP"}},
		"no JSON":          {bootstrapOf(t, `{"xds_servers": [}`), nil, []string{"xds.json", "malformed"}},
		"no servers":       {bootstrapOf(t, `{"node": {}}`), nil, []string{"xds.json", "no 'xds_servers'"}},
		"no credentials":   {bootstrapOf(t, `{"xds_servers": [{"server_uri": "127.0.0.1:1"}]}`), nil, []string{"xds.json", "0 'channel_creds'"}},
		"other types":      {bootstrapOf(t, `{"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "magic"}]}]}`), nil, []string{"xds.json", "channel_creds"}},
		"unknown name":     {bootstrap(t, c.address), []string{"endpoint=xds:///nobody", "load_timeout=2s"}, []string{"xds:///nobody", "nobody", c.address}},
		"silent":           {bootstrap(t, silent), []string{"load_timeout=1s"}, []string{"xds:///models", "within 1s", silent, "has named no server"}},
		"away":             {bootstrap(t, "127.0.0.1:1"), []string{"load_timeout=5s"}, []string{"xds:///models", "127.0.0.1:1", "has named no server"}},
		"dead endpoint":    {bootstrap(t, c.address), nil, []string{"xds:///models", "127.0.0.1:1"}},
		"balancing":        {bootstrap(t, c.address), []string{"balancing=least_request"}, []string{"'balancing' is 'least_request'", "the control plane decides this"}},
		"attempts":         {bootstrap(t, c.address), []string{"idempotent=true", "attempts=2"}, []string{"'attempts' is '2'", "retry policy of its route"}},
		"unknown xds host": {bootstrap(t, c.address), []string{"endpoint=xds://elsewhere/models"}, []string{"elsewhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			params := one.params
			if !strings.Contains(strings.Join(params, " "), "endpoint=") {
				params = append([]string{"endpoint=xds:///models"}, params...)
			}
			root := t.TempDir()
			writeModel(t, root, "near", remoteModel(params...))
			env := append([]string{"GRPC_XDS_BOOTSTRAP=", "GRPC_XDS_BOOTSTRAP_CONFIG="}, one.env...)
			_, a := startProcessIn(t, env, services, append([]string{"serve", "--exit-on-error=false", "--model-repository", root}, freePorts...)...)
			code, got, err := httpCall(t.Context(), http.MethodPost, "http://"+a.http+"/v2/repository/index", map[string]any{})
			if err != nil || code != http.StatusOK {
				t.Fatal(code, err)
			}
			var index []struct{ State, Reason string }
			if err := json.Unmarshal(got, &index); err != nil || len(index) != 1 || index[0].State != "UNAVAILABLE" {
				t.Fatalf("index %s (%v)", got, err)
			}
			for _, text := range one.texts {
				if !strings.Contains(index[0].Reason, text) {
					t.Errorf("the reason %q does not name %q", index[0].Reason, text)
				}
			}
		})
	}
}

// newListener returns the address of a listener that accepts connections and sends nothing.
func newListener(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}
