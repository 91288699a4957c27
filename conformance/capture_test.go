package conformance_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
)

// read is an array that clients/read_npz.py prints.
type read struct {
	DType string
	Shape []int64
	Hex   string
	Texts []string
}

// numpyNames maps the types that a capture stores unchanged to their NumPy names.
var numpyNames = map[tensor.DType]string{
	tensor.Bool: "bool", tensor.Uint8: "uint8", tensor.Uint16: "uint16", tensor.Uint32: "uint32", tensor.Uint64: "uint64",
	tensor.Int8: "int8", tensor.Int16: "int16", tensor.Int32: "int32", tensor.Int64: "int64",
	tensor.FP16: "float16", tensor.FP32: "float32", tensor.FP64: "float64", tensor.BF16: "uint16",
}

// TestCaptureNumPy checks that NumPy reads tensors of every type from the files of tutti capture.
func TestCaptureNumPy(t *testing.T) {
	t.Parallel()
	packages := clientPackages.require(t)
	m := newModels(t)
	at := serve(t, m, append([]string{"--dashboard-token=s3cret", "--model-control-mode=explicit", "--strict-readiness=false"}, m.loads...)...)
	c := client.NewHTTP("http://"+at.http, nil)
	t.Cleanup(func() { _ = c.Close() })
	var asked []client.Request
	for d := tensor.Bool; d <= tensor.BF16; d++ {
		if size := d.Size(); size > 0 {
			asked = append(asked, request(d, bytes.Repeat([]byte{1, 0, 0x40, 0x3f, 1, 1, 0, 0x40}, 6*size/8+1)[:6*size]))
		}
	}
	short, long := []string{"one", "", "\xc3\xa9", "four", "5", "six"}, []string{"ends\x00", strings.Repeat("x", 200_000), "", "", "", "z"}
	for _, list := range [][]string{short, long} {
		var data []byte
		for _, text := range list {
			data = tensor.AppendBytes(data, text)
		}
		asked = append(asked, request(tensor.Bytes, data))
	}
	for i, got := range captured(t, packages, at, c, asked) {
		in := asked[i].Inputs[0]
		want := read{DType: numpyNames[in.DType], Shape: in.Shape, Hex: hex.EncodeToString(in.Data)}
		for _, name := range []string{"request.INPUT0", asked[i].Model + ".OUTPUT0"} {
			x := got[name]
			if in.DType == tensor.Bytes {
				want = read{DType: x.DType, Shape: in.Shape, Hex: x.Hex, Texts: hexes(short)}
				if i == len(asked)-1 {
					want.DType, want.Texts = "bytes", hexes(long)
				}
			}
			if diff := cmp.Diff(want, x); diff != "" {
				t.Errorf("%s of %s (-want +got):\n%s", name, in.DType, diff)
			}
		}
		if about, err := hex.DecodeString(got["__capture__"].Hex); err != nil || !json.Valid(about) {
			t.Errorf("the list of %s is %q, %v", in.DType, about, err)
		}
	}
}

func request(d tensor.DType, data []byte) client.Request {
	return client.Request{
		Model: "id_" + strings.ToLower(d.String()), Inputs: []client.Tensor{{Name: "INPUT0", DType: d, Shape: []int64{2, 3}, Data: data}},
	}
}

func hexes(list []string) (all []string) {
	for _, s := range list {
		all = append(all, hex.EncodeToString([]byte(s)))
	}
	return all
}

// captured sends requests while tutti capture runs, and returns the arrays that NumPy reads from the file of each.
func captured(t *testing.T, packages string, at addresses, c *client.HTTP, asked []client.Request) (list []map[string]read) {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("clients/read_npz.py")
	if err != nil {
		t.Fatal(err)
	}
	for i := range asked {
		ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
		defer cancel()
		out := t.TempDir()
		var log, read bytes.Buffer
		run := exec.CommandContext(ctx, path, "capture", "--url=http://"+at.http, "--model="+asked[i].Model, "--out="+out)
		run.Env = append(os.Environ(), "TUTTI_DASHBOARD_TOKEN=s3cret")
		run.Stdout, run.Stderr = &log, &log
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		for ctx.Err() == nil && capturing(t, at) <= i {
			continue // until the capture has started
		}
		if _, err := c.Infer(ctx, &asked[i]); err != nil {
			t.Fatal(err)
		}
		if err := run.Wait(); err != nil {
			t.Fatalf("%v: %s", err, &log)
		}
		files, err := filepath.Glob(filepath.Join(out, "*.npz"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v: %s", files, err, &log)
		}
		cmd := exec.CommandContext(ctx, "python3", "-B", script, files[0])
		cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
		cmd.Stdout, cmd.Stderr = &read, &log
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, &log)
		}
		list = append(list, arrays(t, read.Bytes()))
	}
	return list
}

func arrays(t *testing.T, b []byte) (found map[string]read) {
	t.Helper()
	if err := json.Unmarshal(b, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// capturing returns the number of captures started so far.
func capturing(t *testing.T, at addresses) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.http+"/ui/api/captures", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var list inspect.CaptureList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return len(list.Captures)
}
