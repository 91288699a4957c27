package python_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/environ"
	"github.com/tutti-server/tutti/internal/proctest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// stuck returns the settings of the model "stuck".
func stuck(tb testing.TB, params map[string]string) backends.Settings {
	tb.Helper()
	s := settings(tb, "stuck", &modelconfig.ModelConfig{
		Input: []*modelconfig.ModelInput{input("IN", tensor.FP32, 1)}, Output: []*modelconfig.ModelOutput{output("OUT", tensor.FP32, 1)},
		Parameters: map[string]*modelconfig.ModelParameter{},
	})
	for k, v := range params {
		s.Config.Parameters[k] = &modelconfig.ModelParameter{StringValue: v}
	}
	return s
}

// TestInitializeHangs checks that a model whose initialize hangs, in Python or in C with the interpreter's lock, is refused after
// stub-timeout-seconds, and that its worker is gone.
func TestInitializeHangs(t *testing.T) {
	t.Parallel()
	o := options(t)
	for _, start := range []string{"forkserver", "spawn"} {
		for _, lock := range []string{"no", "yes"} {
			t.Run(start+", lock "+lock, func(t *testing.T) {
				t.Parallel()
				b := opened(t, o)
				m, err := b.Load(t.Context(), stuck(t, map[string]string{"where": "initialize", "lock": lock, "START_METHOD": start}))
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				python.SetLoadTime(b, time.Second) // importing the model may take longer
				x, err := m.NewInstance(t.Context(), tensor.Place{})
				const want = "it took longer than 1s to initialize: --backend-config=python,stub-timeout-seconds=SECONDS sets the limit"
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("NewInstance = %v, %v; want %q", x, err, want)
				}
			})
		}
	}
}

// TestHelperServer is a server of its own process, which executes a model that never returns and is killed by TestServerKilled.
func TestHelperServer(t *testing.T) {
	start := os.Getenv("STUCK_START")
	if start == "" {
		t.Skip("run by TestServerKilled")
	}
	s := stuck(t, map[string]string{"lock": "yes", "START_METHOD": start})
	x := running(t, opened(t, options(t)), s, 1)[0]
	in, err := tensor.New(s.Alloc, tensor.FP32, tensor.Of(1))
	if err != nil {
		t.Fatal(err)
	}
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: s.Alloc, Requests: []backends.Request{{Ctx: t.Context(), Rows: 1}}}
	t.Error(x.Execute(t.Context(), b)) // does not return
}

// TestServerKilled checks that workers whose model holds the interpreter's lock do not outlive a server that is killed.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	options(t)
	for _, start := range []string{"forkserver", "spawn"} {
		t.Run(start, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperServer$") //nolint:gosec // this program
			cmd.Env = append(os.Environ(), "STUCK_START="+start, "STUCK_FOLDER="+dir)
			cmd.WaitDelay = time.Second // a surviving worker holds the output
			cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			proctest.KillServer(t, cmd, executing(t, dir))
		})
	}
}

// executing waits until a model writes its process id into a folder, and returns it.
func executing(t *testing.T, dir string) int {
	t.Helper()
	for t.Context().Err() == nil {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 {
			pid, err := strconv.Atoi(list[0].Name())
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("no model executes")
	return 0
}

// exposure is what the model "exposed" finds in its process.
type exposure struct {
	Environment           []string
	Connect, Server, Host string
	NoNewPrivs            int    `json:"no_new_privs"`
	Signal                string // to the server
	ParentSignal          string `json:"parent_signal"`
	OwnSignal             string `json:"own_signal"`
	Limits                string // of the server
}

func exposed(t *testing.T, config map[string]string, start string) (found exposure, err error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	t.Setenv("EXPOSED_PORT", strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	t.Setenv("EXPOSED_SERVER", strconv.Itoa(os.Getpid()))
	o := options(t)
	maps.Copy(o.Config, config)
	s := settings(t, "exposed", &modelconfig.ModelConfig{
		Input: []*modelconfig.ModelInput{input("IN", tensor.FP32, 1)}, Output: []*modelconfig.ModelOutput{output("FOUND", tensor.Bytes, 1)},
		Parameters: map[string]*modelconfig.ModelParameter{"START_METHOD": {StringValue: start}},
	})
	m, err := opened(t, o).Load(t.Context(), s)
	if err != nil {
		return found, err
	}
	defer m.Close()
	x, err := m.NewInstance(t.Context(), tensor.Place{})
	if err != nil {
		return found, err
	}
	defer x.Close()
	in, err := tensor.New(s.Alloc, tensor.FP32, tensor.Of(1))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Release()
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: s.Alloc, Requests: []backends.Request{{Ctx: t.Context(), Rows: 1}}}
	defer func() { tensor.ReleaseAll(b.Out) }()
	if err := errors.Join(x.Execute(t.Context(), b), b.Requests[0].Err); err != nil {
		t.Fatal(err)
	}
	text, _, _ := tensor.NextBytes(b.Out[0].Bytes())
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	return found, nil
}

// TestSecrets checks that model processes get no secrets of the server's environment but those that are passed on purpose.
func TestSecrets(t *testing.T) {
	secrets := []string{
		"TUTTI_DASHBOARD_TOKEN", "TUTTI_HTTP_RESTRICTED_API", "TUTTI_GRPC_RESTRICTED_PROTOCOL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN", "AZURE_STORAGE_CONNECTION_STRING", "GOOGLE_APPLICATION_CREDENTIALS", "PGPASSWORD", "OPENAI_APIKEY", "HF_TOKEN",
	}
	plain := []string{"TOKENIZERS_PARALLELISM", "AWS_REGION", "HOME_OF_THE_MODEL"}
	for _, name := range slices.Concat(secrets, plain) {
		t.Setenv(name, "value")
	}
	for _, c := range []struct {
		pass string
		want []string
	}{
		{"", plain}, {"HF_TOKEN,PGPASSWORD", append(slices.Clone(plain), "HF_TOKEN", "PGPASSWORD")}, {"*", slices.Concat(plain, secrets)},
	} {
		for _, start := range []string{"forkserver", "spawn"} {
			config := map[string]string{}
			if c.pass != "" {
				config["pass-environment"] = c.pass
			}
			found, err := exposed(t, config, start)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(found.Environment, environ.ONNXTelemetry) {
				t.Errorf("%s, pass-environment=%s: ONNX Runtime in the model would send events: %s is not set", start, c.pass, environ.ONNXTelemetry)
			}
			for _, name := range slices.Concat(secrets, plain) {
				if got, want := slices.Contains(found.Environment, name), slices.Contains(c.want, name); got != want {
					t.Errorf("%s, pass-environment=%s: the model has %s: %v, want %v", start, c.pass, name, got, want)
				}
			}
		}
	}
	if _, err := python.NewFactory().New(backends.Options{Config: map[string]string{"pass-environment": "A,,B"}}); err == nil || !strings.Contains(err.Error(), "python setting 'pass-environment'") {
		t.Errorf("New = %v, want the setting refused", err)
	}
}

// TestSecretOfModel checks that a model which fails without a secret of the server's environment says how to pass it.
func TestSecretOfModel(t *testing.T) {
	t.Setenv("HF_TOKEN", "value")
	t.Setenv("LAST_TOKEN", "value")
	t.Setenv("ERROR_TOKEN", "value")
	t.Setenv("COMMENT_TOKEN", "value")
	load := func(pass string) error {
		o := options(t)
		o.Config["pass-environment"] = pass
		m, err := opened(t, o).Load(t.Context(), settings(t, "needs_secret", &modelconfig.ModelConfig{
			Input: []*modelconfig.ModelInput{input("IN", tensor.FP32, 1)}, Output: []*modelconfig.ModelOutput{output("OUT", tensor.FP32, 1)},
		}))
		if err != nil {
			return err
		}
		defer m.Close()
		x, err := m.NewInstance(t.Context(), tensor.Place{})
		if err != nil {
			return err
		}
		return x.Close()
	}
	for passed, want := range map[string]string{"": "ERROR_TOKEN,HF_TOKEN", "LAST_TOKEN,ABSENT_TOKEN": "ABSENT_TOKEN,ERROR_TOKEN,HF_TOKEN,LAST_TOKEN"} {
		err := load(passed)
		if d, known := config.Diagnosed(err); !known || !strings.Contains(d.Fix, "may lack ERROR_TOKEN, HF_TOKEN: ") || !strings.Contains(d.Fix, "if that is the cause") ||
			!strings.HasSuffix(d.Fix, "--backend-config=python,pass-environment="+want) {
			t.Errorf("%q passed: Load = %v, fixed by %q; want the passed variables and the missing ones, %s", passed, err, d.Fix, want)
		}
	}
	if err := load("HF_TOKEN"); err != nil {
		t.Errorf("Load = %v with the variable passed", err)
	}
}

// TestSandbox checks that a model in the sandbox reaches no network, does not read the server's environment, and gets no new
// privileges, neither signals nor limits another process, and has no socket to the host of a virtual machine. Where the kernel refuses the
// sandbox, the model is refused with the reason; without Landlock's scopes (Linux 6.12) it may signal.
func TestSandbox(t *testing.T) {
	for _, start := range []string{"forkserver", "spawn"} {
		open, err := exposed(t, nil, start)
		if err != nil || open.Connect != "connected" || open.NoNewPrivs != 0 {
			t.Fatalf("%s, no sandbox: %+v, %v; want a connection and no bound of privileges", start, open, err)
		}
		found, err := exposed(t, map[string]string{"sandbox": "true"}, start)
		if err != nil {
			if !strings.Contains(err.Error(), "the kernel refuses the namespaces of --python-sandbox") || !strings.Contains(err.Error(), "serve without --python-sandbox") {
				t.Errorf("%s: %v, want the model loaded, or the kernel's reason", start, err)
			}
			continue
		}
		if !strings.HasPrefix(found.Connect, "OSError") || !strings.HasPrefix(found.Server, "PermissionError") || found.NoNewPrivs != 1 {
			t.Errorf("%s: %+v, want no connection, no environment of the server, and no new privileges", start, found)
		}
		if !strings.HasPrefix(found.Host, "OSError") || !strings.HasPrefix(found.Limits, "PermissionError") || found.OwnSignal != "sent" {
			t.Errorf("%s: %+v, want no socket to the host, no limits of the server, and signals to itself", start, found)
		}
		if version, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); int(version) < 6 { //nolint:gosec // negative for an error
			t.Logf("%s: signals are not tested: the kernel has version %d of Landlock, expected at least 6", start, int(version)) //nolint:gosec // likewise
		} else if !strings.HasPrefix(found.Signal, "PermissionError") || !strings.HasPrefix(found.ParentSignal, "PermissionError") {
			t.Errorf("%s: %+v, want no signal to others", start, found)
		}
	}
}

// TestOthersOutput checks that the error of a request whose worker exits has nothing that the model printed for an earlier request.
func TestOthersOutput(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if got := b.execute(t.Context(), t, []float32{13, 5})[0]; got.Err != "" {
		t.Fatal(got.Err)
	}
	got := b.execute(t.Context(), t, []float32{2, 5})[0].Err
	if strings.Contains(got, "another client") || !strings.Contains(got, "exit status 3: last words") {
		t.Errorf("error %q, want what was printed for this request only", got)
	}
}
