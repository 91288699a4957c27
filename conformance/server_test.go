package conformance_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// TestMain removes the program that the tests built.
func TestMain(m *testing.M) {
	m.Run()
	if dir != "" {
		_ = os.RemoveAll(dir)
	}
}

// dir is the folder of the program that program builds. The first test that needs it sets it once.
var dir string

// program returns the path of the tutti that make built, or builds it once.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(preparedtest.Variable("program")); path != "" {
		return path, nil
	}
	var err error
	if dir, err = os.MkdirTemp("", "tutti-conformance"); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "tutti")
	build := exec.Command("go", "build", "-o", path, "../cmd/tutti")
	build.Stderr = os.Stderr
	return path, build.Run()
})

// models is a repository, and the settings of a server for it.
type models struct {
	root     string
	examples string   // the folder of the example ensembles, if ONNX Runtime is installed
	loads    []string // a --load-model flag for every model that is loaded at startup
	runtime  string
	env      []string // additional environment of the server
}

// dtypes are the data types as config.pbtxt writes them; BYTES is TYPE_STRING.
var dtypes = []string{
	"BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16", "BYTES",
}

// newModels writes the repository of testdata/repository.txtar and an identity model for each data type.
func newModels(t *testing.T) *models {
	t.Helper()
	m := &models{root: t.TempDir()}
	archive, err := txtar.ParseFile("testdata/repository.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		m.write(t, f.Name, string(f.Data))
	}
	for _, dtype := range dtypes {
		data := "data_type: TYPE_" + strings.Replace(dtype, "BYTES", "STRING", 1) + " dims: [-1, -1] }]\n"
		m.write(t, "id_"+strings.ToLower(dtype)+"/config.pbtxt",
			"backend: \"identity\"\ninput [{ name: \"INPUT0\" "+data+"output [{ name: \"OUTPUT0\" "+data)
	}
	m.addExample(t)
	return m
}

func (m *models) write(t *testing.T, name, data string) {
	t.Helper()
	path := filepath.Join(m.root, name)
	model, file := filepath.Split(name)
	if err := os.MkdirAll(filepath.Join(m.root, model, "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	model = strings.TrimSuffix(model, "/")
	if file == "config.pbtxt" && !strings.HasPrefix(model, "late") && model != "broken" {
		m.loads = append(m.loads, "--load-model="+model)
	}
}

// addExample adds an ensemble with an ONNX model, if its runtime is installed.
func (m *models) addExample(t *testing.T) {
	t.Helper()
	library, err := preparedtest.Find("onnxruntime")
	if err != nil {
		t.Logf("without the example ensemble: %v", err)
		return
	}
	if m.examples, err = filepath.Abs("../examples/ensembles"); err != nil {
		t.Fatal(err)
	}
	m.runtime = library
	m.loads = append(m.loads, "--load-model=digits")
}

// suiteFlags returns the flags with which the suites know the available models.
func (m *models) suiteFlags() []string {
	if m.examples == "" {
		return nil
	}
	return []string{"--onnx", "--examples", m.examples}
}

// addresses are the addresses of a server.
type addresses struct{ http, grpc, metrics string }

var startedLine = regexp.MustCompile(`Started (HTTPService|GRPCInferenceService|Metrics Service) at ([^"\s]+)`)

// output collects a server's output and reports when every service has started.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer // guarded by mu
	started chan struct{}
	once    sync.Once
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if len(startedLine.FindAllIndex(o.text.Bytes(), -1)) == 3 {
		o.once.Do(func() { close(o.started) })
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) addresses() (a addresses) {
	for _, m := range startedLine.FindAllStringSubmatch(o.String(), -1) {
		switch m[1] {
		case "HTTPService":
			a.http = m[2]
		case "GRPCInferenceService":
			a.grpc = m[2]
		default:
			a.metrics = m[2]
		}
	}
	return a
}

// endLimit bounds a graceful shutdown; --exit-timeout-secs is 30 by default.
const endLimit = time.Minute

// serve runs the program with the models until the test ends. It fails the test if the server ends with an error.
func serve(t *testing.T, m *models, flags ...string) addresses {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatalf("the program does not build: %v", err)
	}
	args := []string{
		"serve", "--http-address=127.0.0.1", "--http-port=0", "--grpc-address=127.0.0.1", "--grpc-port=0", "--metrics-port=0",
		"--model-repository=" + m.root,
	}
	if m.examples != "" {
		args = append(args, "--model-repository="+filepath.Join(m.examples, "digits"))
	}
	out := &output{started: make(chan struct{})}
	account, more, env := place(t, flags)
	cmd := exec.Command(path, slices.Concat(args, flags, more)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = slices.Concat(os.Environ(), []string{"TUTTI_ONNXRUNTIME_LIB=" + m.runtime}, m.env, env)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-out.started:
	case err := <-ended:
		t.Fatalf("the server did not start: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		account.read(t, out.addresses().metrics)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		patience := time.AfterFunc(endLimit, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }) // the log then has its goroutines
		defer patience.Stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v:\n%s", err, out)
		} else if t.Failed() && testing.Verbose() {
			t.Logf("the server's log:\n%s", out)
		}
		account.check(t)
	})
	return out.addresses()
}
