package exposure_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/exposure"
	"github.com/tutti-server/tutti/internal/options"
)

const auth = `
roles:
  user: {apis: [health, metadata, inference], models: ["text-*"]}
  ops: {apis: ["*"]}
  nobody: {apis: [metrics]}
  all: {apis: [health]}
tokens:
- {name: ada, sha256: "0000000000000000000000000000000000000000000000000000000000000000", roles: user}
- {name: ops, sha256: "1111111111111111111111111111111111111111111111111111111111111111", roles: ops}
anonymous: all
`

// of returns who may use the parts, by part and port, for options of a server.
func of(t *testing.T, args ...string) map[string]string {
	t.Helper()
	o, err := options.Parse(args, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := exposure.Of(o)
	if err != nil {
		t.Fatal(err)
	}
	who := map[string]string{}
	for _, e := range list {
		who[e.Part+" "+e.Port] = e.Who
		if (e.At == "") != strings.HasSuffix(e.Who, "is off)") {
			t.Errorf("%+v", e)
		}
	}
	return who
}

func TestOf(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "auth.yaml")
	if err := os.WriteFile(file, []byte(auth), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		want map[string]string // part and port
	}{
		{"", map[string]string{
			"inference http": "open to all", "inference grpc": "open to all", "health http": "open to all", "metrics metrics": "open to all",
			"load and unload models http": "closed (--model-control-mode=none)", "load and unload models grpc": "closed (--model-control-mode=none)",
			"trace settings http": "loopback only", "log settings grpc": "loopback only", "shared memory grpc": "closed (--allow-client-shm=false)",
			"jobs http": "closed (without --jobs)", "dashboard http": "open to all", "changes in the dashboard http": "closed (without --dashboard-token)",
			"capture of tensors http": "closed (without --dashboard-token)",
		}},
		{"--model-control-mode=explicit --allow-client-shm=true --jobs=true --dashboard-token=secret", map[string]string{
			"load and unload models http": "loopback only", "load and unload models grpc": "loopback only", "shared memory grpc": "loopback only",
			"jobs http": "open to all; any file, for clients of this machine only", "capture of tensors http": "token of --dashboard-token",
			"changes in the dashboard http": "token of --dashboard-token",
		}},
		{"--model-control-mode=explicit --allow-remote-control=true --grpc-restricted-protocol=inference:k=v --http-restricted-api=model-repository:admin=v --jobs=true --job-path=/data", map[string]string{
			"inference http": "open to all", "inference grpc": "header k", "load and unload models http": "header admin", "load and unload models grpc": "open to all",
			"log settings http": "open to all", "jobs http": "open to all; files in /data",
		}},
		{"--http-address=127.0.0.1 --grpc-address=::1 --metrics-address=localhost --dashboard=false", map[string]string{
			"inference http": "loopback only", "inference grpc": "loopback only", "metrics metrics": "loopback only", "dashboard http": "closed (--dashboard=false)",
		}},
		{"--allow-grpc=false --allow-metrics=false", map[string]string{"inference grpc": "closed (grpc is off)", "metrics metrics": "closed (metrics is off)"}},
		{"--model-control-mode=explicit --allow-client-shm=true --allow-remote-control=true --dashboard-token=secret --auth-file=" + file, map[string]string{
			"inference http": "role ops, user (models text-*)", "inference grpc": "role ops, user (models text-*)", "health http": "open to all",
			"load and unload models grpc": "role ops", "shared memory http": "role ops", "metrics metrics": "role ops",
			"dashboard http": "role ops, or token of --dashboard-token", "capture of tensors http": "role ops, or token of --dashboard-token",
		}},
		{"--http-restricted-api=inference:k=v --auth-file=" + file, map[string]string{"inference http": "role ops, user (models text-*), and header k"}},
	} {
		got := of(t, strings.Fields(tt.args)...)
		for part, want := range tt.want {
			if got[part] != want {
				t.Errorf("%s: %s: '%s', want '%s'", tt.args, part, got[part], want)
			}
		}
	}
}

// TestRefuses checks the errors of auth files with which a server would not start.
func TestRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "auth.yaml")
	text := strings.Replace(auth, `models: ["text-*"]`, "namespaces: [/models/a]", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := options.Parse([]string{"--auth-file=" + file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exposure.Of(o); err == nil || !strings.Contains(err.Error(), "auth.yaml', line 3") || !strings.Contains(err.Error(), "--model-namespacing=true") {
		t.Error(err)
	}
	if got := of(t, "--model-namespacing=true", "--auth-file="+file)["inference http"]; got != "role ops, user (namespaces /models/a)" {
		t.Error(got)
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	o, err := options.Parse(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := exposure.Of(o)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	exposure.Write(&b, list[:4])
	want := "PART       AT                                  WHO\n" +
		"inference  http 0.0.0.0:8000, grpc 0.0.0.0:8001  open to all\n" +
		"health     http 0.0.0.0:8000, grpc 0.0.0.0:8001  open to all\n"
	if squeeze(b.String()) != squeeze(want) {
		t.Errorf("%s", &b)
	}
}

// squeeze leaves out the widths of columns.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
