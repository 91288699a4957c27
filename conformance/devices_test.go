package conformance_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends/sim/simtest"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// accounts compares the copies of a server at a checking driver's device with those in its metrics. A nil one does nothing.
type accounts struct {
	report string // the file with the driver's account, once the server has ended
	ledger simtest.Copies
}

// place returns the flags and the environment of a server: with cudatest.AtDevices all models run at the one device of a checking
// driver, unless the flags name a driver.
func place(t *testing.T, flags []string) (a *accounts, more, env []string) {
	t.Helper()
	if !cudatest.AtDevices() || slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--cuda-driver") }) {
		return nil, nil, nil
	}
	cudatest.Require(t)
	a = &accounts{report: filepath.Join(t.TempDir(), "report")}
	return a, []string{"--cuda-driver=" + cudatest.Library(t), "--backend-config=sim,all=true"},
		[]string{"TUTTI_CUDA_CHECK_DEVICES=1", "TUTTI_CUDA_CHECK_LATE_US=30", "TUTTI_CUDA_CHECK_REPORT=" + a.report}
}

// read notes the copies that the server has counted, before it ends.
func (a *accounts) read(t *testing.T, metrics string) {
	t.Helper()
	if a == nil {
		return
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+metrics+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	a.ledger, _ = simtest.CopiesOf(string(text))
}

// check fails the test when the driver found a fault, when anything of it is left, or when it has not made each copy of the ledger. It
// has made more: those that represent the kernels of models.
func (a *accounts) check(t *testing.T) {
	t.Helper()
	if a == nil {
		return
	}
	text, err := os.ReadFile(a.report)
	if errors.Is(err, fs.ErrNotExist) && len(a.ledger) == 0 {
		return // without a request at the device there is no context, and no report
	}
	if err != nil {
		t.Error(err)
		return
	}
	report := string(text)
	processes := cudatest.ParseFile(report) // workers of Python models, and the server, which ends last
	if len(processes) == 0 {
		t.Fatalf("the checking driver reports no counters:\n%s", report)
	}
	c := processes[len(processes)-1]
	if strings.Contains("\n"+report, "\nfault: ") || c.Held+c.Streams+c.Events+c.Pinned+c.Contexts > 0 {
		t.Errorf("the checking driver found faults, or something is left:\n%s", report)
	}
	driver := simtest.Copies{}
	for i := range processes {
		c := &processes[i]
		driver.Add("host_to_device", c.Up, c.UpBytes)
		driver.Add("device_to_host", c.Down, c.DownBytes)
		driver.Add("within_device", c.Within, c.WithinBytes)
		driver.Add("peer", c.Peer, c.PeerBytes)
	}
	for name, n := range a.ledger {
		if n > driver[name] {
			t.Errorf("the ledger has %d %s, the driver %d", n, name, driver[name])
		}
	}
}
