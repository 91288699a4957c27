package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/cloud/cloudtest"
	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/proto/inference"
)

// smallDisk starts a server for which a folder is a disk of 128 kB. It skips the test where no disk can be mounted.
func smallDisk(t *testing.T, disk string, env []string, args ...string) *process {
	t.Helper()
	return diskOf(t, "128k", disk, env, args...)
}

// diskOf is smallDisk with a size.
func diskOf(t *testing.T, size, disk string, env []string, args ...string) *process {
	t.Helper()
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("no unshare")
	}
	mount := []string{"--map-root-user", "--mount", "bash", "-c", "mount -t tmpfs -o size=" + size + " none '" + disk + `' && exec -a tutti "$@"`, "bash"}
	if out, err := exec.CommandContext(t.Context(), unshare, append(mount, "/bin/true")...).CombinedOutput(); err != nil { //nolint:gosec // constants
		t.Skipf("no disk can be mounted here: %v: %s", err, out)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list := append(append(append([]string{"unshare"}, mount...), exe, "serve"), freePorts...)
	return startCommand(t, &exec.Cmd{Path: unshare, Args: append(list, args...), Env: append(append(os.Environ(), "GORACE="+raceOptions), env...)})
}

// loadModel loads the model "m", and returns the status, the header Retry-After and the body.
func loadModel(t *testing.T, a addresses, body []byte) (code int, after, text string) {
	t.Helper()
	resp, err := http.Post("http://"+a.http+"/v2/repository/models/m/load", "application/json", bytes.NewReader(body)) //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Retry-After"), string(reply)
}

// TestFullDiskOfServer loads a model with files larger than the disk of temporary files: the load fails with 503 and Retry-After, and says what
// is full, where, and what to do. The server goes on, and a smaller load succeeds.
func TestFullDiskOfServer(t *testing.T) {
	t.Parallel()
	disk, root := t.TempDir(), t.TempDir()
	p := smallDisk(t, disk, []string{"TMPDIR=" + disk}, "--model-repository", root, "--model-control-mode=explicit")
	const config = `{"backend":"identity","input":[{"name":"INPUT0","data_type":"TYPE_FP32","dims":[1]}],"output":[{"name":"OUTPUT0","data_type":"TYPE_FP32","dims":[1]}]}`
	load := func(size int) (code int, after, text string) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"parameters": map[string]string{"config": config, "file:1/weights": base64.StdEncoding.EncodeToString(make([]byte, size))}})
		if err != nil {
			t.Fatal(err)
		}
		return loadModel(t, p.addresses, body)
	}
	code, after, text := load(1 << 20)
	if code != http.StatusServiceUnavailable || after != "30" {
		t.Errorf("a load beyond the disk: %d, Retry-After %q", code, after)
	}
	for _, want := range []string{"failed to load 'm', failed to poll from model repository: override file '1/weights' cannot be written", "the disk of '" + disk, "bytes are free): free space there, or start the server with TMPDIR at another disk, and try again"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s, want %q", text, want)
		}
	}
	var trailer metadata.MD
	_, err := dialStub(t, p.grpc).RepositoryModelLoad(t.Context(), &inference.RepositoryModelLoadRequest{ModelName: "m", Parameters: map[string]*inference.ModelRepositoryParameter{
		"config":         {ParameterChoice: &inference.ModelRepositoryParameter_StringParam{StringParam: config}},
		"file:1/weights": {ParameterChoice: &inference.ModelRepositoryParameter_BytesParam{BytesParam: make([]byte, 1<<20)}},
	}}, grpc.Trailer(&trailer))
	if grpcstatus.Code(err) != codes.Unavailable || !slices.Equal(trailer.Get("retry-after"), []string{"30"}) {
		t.Errorf("a load beyond the disk over gRPC: %v, %v", err, trailer)
	}
	if code, _, text := load(1000); code != http.StatusOK {
		t.Errorf("a smaller load: %d %s", code, text)
	}
}

// TestFullDiskOfJobs fills the disk of the Temporal server: jobs are refused with the reason, and health names it. With room a job is done.
func TestFullDiskOfJobs(t *testing.T) {
	t.Parallel()
	repository, spec := identities(t, "line", 200)
	disk := t.TempDir()
	p := diskOf(t, "24m", disk, nil, "--model-repository", repository, "--jobs=true", "--data-dir", filepath.Join(disk, "data"), "--temporal-program", temporalProgram(t))
	first := *spec
	first.ID, first.Output.URI = "first", spec.Output.URI+"-first"
	submitJob(t, p.http, &first)
	waitForJob(t, p.http, first.ID)
	fill := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "root", disk, "fill") // as the server sees it
	if err := os.WriteFile(fill, make([]byte, 32<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	var text []byte
	accepted := []string{}
	repeated(t, "a refusal", func(ctx context.Context) error { // what the database has as reserve is enough for some
		another := *spec
		another.ID = "other-" + strconv.Itoa(len(accepted))
		another.Output.URI = spec.Output.URI + "-" + another.ID
		code, got, err := httpCall(ctx, http.MethodPost, "http://"+p.http+"/v2/jobs", &another)
		if text = got; err == nil && code != http.StatusServiceUnavailable {
			accepted = append(accepted, another.ID)
			err = errors.New(string(got))
		}
		return err
	})
	for _, want := range []string{"the Temporal server cannot store anything: the disk of '" + disk, "bytes are free): free space there, or name a folder of another disk with --data-dir, and try again"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s, want %q", text, want)
		}
	}
	if _, text, err := httpCall(t.Context(), http.MethodGet, "http://"+p.http+"/v2/health/ready?verbose", nil); err != nil || !strings.Contains(string(text), `"what":"jobs","name":"temporal","reason":"the disk of '`) {
		t.Errorf("health: %s, %v", text, err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	submitJob(t, p.http, spec)
	for _, id := range append(accepted, spec.ID) {
		waitForJob(t, p.http, id)
	}
	if _, text, err := httpCall(t.Context(), http.MethodGet, "http://"+p.http+"/v2/health/ready?verbose", nil); err != nil || !strings.Contains(string(text), `"degraded":[]`) {
		t.Errorf("health with room: %s, %v", text, err)
	}
}

// waitForJob waits until a job is completed.
func waitForJob(t *testing.T, address, id string) {
	t.Helper()
	repeated(t, "job "+id, func(ctx context.Context) error {
		_, text, err := httpCall(ctx, http.MethodGet, "http://"+address+"/v2/jobs/"+id, nil)
		if err == nil && !strings.Contains(string(text), `"state":"completed"`) {
			return errors.New(string(text))
		}
		return err
	})
}

// TestFullDiskOfCache loads a model of a bucket that is larger than the disk of the cache.
func TestFullDiskOfCache(t *testing.T) {
	t.Parallel()
	address := "s3://" + cloudtest.S3(t, "models") + "/models/repo"
	b, err := cloud.Open(t.Context(), address, &cloud.Options{Env: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	for key, data := range map[string][]byte{"m/config.pbtxt": []byte(`backend: "identity" input { name: "INPUT0" data_type: TYPE_FP32 dims: 1 } output { name: "OUTPUT0" data_type: TYPE_FP32 dims: 1 }`), "m/1/weights": make([]byte, 1<<20)} {
		if err := b.Write(t.Context(), key, bytes.NewReader(data), int64(len(data))); err != nil {
			t.Fatal(err)
		}
	}
	disk := t.TempDir()
	p := smallDisk(t, disk, []string{"XDG_CACHE_HOME=" + disk}, "--model-repository", address, "--model-control-mode=explicit")
	code, after, text := loadModel(t, p.addresses, nil)
	if code != http.StatusServiceUnavailable || after != "30" {
		t.Errorf("a load beyond the disk: %d, Retry-After %q", code, after)
	}
	for _, want := range []string{"fetching model 'm' from", "the disk of '" + disk, "bytes are free): free space there, or start the server with XDG_CACHE_HOME at another disk, and try again"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s, want %q", text, want)
		}
	}
}

// TestFullDiskOfEnvironment loads a Python model whose environment is larger, unpacked, than the disk of the cache: the error says so, nothing is
// left there, and a smaller environment is loaded.
func TestFullDiskOfEnvironment(t *testing.T) {
	t.Parallel()
	python, disk, root := preparedtest.Runtime(t, "python"), t.TempDir(), t.TempDir()
	writeModel(t, root, "m", `backend: "python" input { name: "IN" data_type: TYPE_FP32 dims: 1 } output { name: "OUT" data_type: TYPE_FP32 dims: 1 }
		parameters { key: "EXECUTION_ENV_PATH" value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }`)
	writeFile(t, filepath.Join(root, "m", "1", "model.py"), []byte("class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"))
	archive := func(size int) {
		t.Helper()
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		for name, data := range map[string][]byte{"bin/python": []byte("#!/bin/sh\nexec '" + python + "' \"$@\"\n"), "lib/weights": make([]byte, size)} {
			if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}), second(w.Write(data))); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(root, "m", "env.tar.gz"), b.Bytes())
	}
	p := smallDisk(t, disk, []string{"XDG_CACHE_HOME=" + disk, "TUTTI_PYTHON=" + python}, "--model-repository", root, "--model-control-mode=explicit")
	archive(1 << 20)
	code, after, text := loadModel(t, p.addresses, nil)
	if code != http.StatusServiceUnavailable || after != "30" {
		t.Errorf("an environment beyond the disk: %d, Retry-After %q", code, after)
	}
	for _, want := range []string{"cannot unpack '" + filepath.Join(root, "m", "env.tar.gz"), "EXECUTION_ENV_PATH", "the disk of '" + filepath.Join(disk, "tutti", "python") + "' is full (0 of", "or start the server with XDG_CACHE_HOME at another disk, and try again"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s, want %q", text, want)
		}
	}
	archive(1000)
	if code, _, text := loadModel(t, p.addresses, nil); code != http.StatusOK {
		t.Errorf("a smaller environment: %d %s", code, text)
	}
}

func second(_ int, err error) error { return err }
